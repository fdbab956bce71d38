"""The console as an ASGI application: its screens, and what they share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from anyio.to_thread import current_default_thread_limiter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ..cli.failure import Failure
from ..cli.top.endpoint import Address
from . import (
    acls,
    api,
    clients,
    faults,
    groups,
    messages,
    overview,
    quotas,
    schemas,
    send,
    streams,
    topic_settings,
    topics,
    transactions,
    users,
)
from .brokers import Brokers
from .failures import BadRequest
from .guard import Guard
from .lag_history import INTERVAL_S, LagHistory
from .rendering import now_ms, render, wants_json
from .schema_registry import SchemaRegistry
from .topic_rates import TopicRates

logger = logging.getLogger(__name__)

_MAX_THREADS: Final = 200
_STATIC: Final = Path(__file__).parent / "static"


def create_app(
    brokers: Brokers,
    *,
    read_only: bool = False,
    token: str | None = None,
    control: faults.Control | None = None,
    registry: SchemaRegistry | None = None,
    metrics: Sequence[Address] = (),
) -> ASGIApp:
    """The application. It closes ``brokers`` when it ends."""

    history = LagHistory()
    rates = TopicRates()

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        # Each live page has a thread that waits for the broker; they must not keep other pages waiting.
        current_default_thread_limiter().total_tokens = _MAX_THREADS
        sampling = asyncio.create_task(_sample(brokers, history, rates))
        yield
        sampling.cancel()
        brokers.close()

    app = Starlette(
        routes=routes(),
        exception_handlers={Failure: _failed, HTTPException: _http_error, Exception: _internal_error},
        lifespan=lifespan,
    )
    app.state.brokers = brokers
    app.state.read_only = read_only
    app.state.lag_history = history
    app.state.topic_rates = rates
    app.state.formats = {}
    app.state.control = control
    app.state.registry = registry
    app.state.metrics = list(metrics)
    # Around everything, so that the pages of internal errors have its headers, too.
    return Guard(app, token=token, read_only=read_only)


def routes() -> list[BaseRoute]:
    """The routes of all screens and of the HTTP API."""
    return [
        *overview.ROUTES,
        *topics.ROUTES,
        *topic_settings.ROUTES,
        *messages.ROUTES,
        *streams.ROUTES,
        *send.ROUTES,
        *groups.ROUTES,
        *transactions.ROUTES,
        *clients.ROUTES,
        *schemas.ROUTES,
        *acls.ROUTES,
        *users.ROUTES,
        *quotas.ROUTES,
        *api.ROUTES,
        *faults.ROUTES,
        Mount("/static", StaticFiles(directory=_STATIC), name="static"),
    ]


async def _sample(brokers: Brokers, history: LagHistory, rates: TopicRates) -> None:
    """Sample lags and end offsets from time to time. While the cluster is not reachable, the samples have a gap."""

    def sample() -> None:
        with brokers.cluster() as cluster:
            rates.sample(cluster, now_ms())
            history.sample(cluster, now_ms())

    while True:
        try:
            await run_in_threadpool(sample)
        except Failure as failure:
            logger.debug("no sample of lags and rates: %s", failure.message)
        await asyncio.sleep(INTERVAL_S)


async def _failed(request: Request, error: Exception) -> Response:
    """The request is wrong, or the cluster has refused it or is not reachable."""
    assert isinstance(error, Failure)
    return _problem(request, error.message, error.status if isinstance(error, BadRequest) else 502)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = error.detail if error.status_code != 404 or error.detail != "Not Found" else "This page does not exist."
    return _problem(request, text, error.status_code)


async def _internal_error(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _problem(request, "Internal error; the log of `moldau console` has the details.", 500)


def _problem(request: Request, text: str, status: int) -> Response:
    if request.url.path.startswith("/v3/"):
        return api.rest_error(status, text)
    if wants_json(request):
        return JSONResponse({"error": text}, status_code=status)
    return render(request, "problem.html", status=status, title="Problem", text=text)

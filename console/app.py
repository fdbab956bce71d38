"""The console as an ASGI application: its screens, and what they share."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ..cli.failure import Failure
from . import messages, send, streams, topics
from .brokers import Brokers
from .guard import Guard
from .rendering import render, wants_json

logger = logging.getLogger(__name__)

_STATIC: Final = Path(__file__).parent / "static"


def create_app(brokers: Brokers, *, read_only: bool = False, token: str | None = None) -> ASGIApp:
    """The application. It closes ``brokers`` when it ends."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        brokers.close()

    routes: list[BaseRoute] = [
        *topics.ROUTES,
        *messages.ROUTES,
        *streams.ROUTES,
        *send.ROUTES,
        Mount("/static", StaticFiles(directory=_STATIC), name="static"),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={Failure: _failed, HTTPException: _http_error, Exception: _internal_error},
        lifespan=lifespan,
    )
    app.state.brokers = brokers
    app.state.read_only = read_only
    # Around everything, so that the pages of internal errors have its headers, too.
    return Guard(app, token=token, read_only=read_only)


async def _failed(request: Request, error: Exception) -> Response:
    """The cluster has refused a request, or is not reachable."""
    assert isinstance(error, Failure)
    return _problem(request, error.message, 502)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = error.detail if error.status_code != 404 or error.detail != "Not Found" else "This page does not exist."
    return _problem(request, text, error.status_code)


async def _internal_error(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _problem(request, "Internal error; the log of `moldau console` has the details.", 500)


def _problem(request: Request, text: str, status: int) -> Response:
    if wants_json(request):
        return JSONResponse({"error": text}, status_code=status)
    return render(request, "problem.html", status=status, title="Problem", text=text)

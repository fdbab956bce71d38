"""What the screens of ACLs, users and quotas share: their tabs, and changes that answer with a page.

A change that the server refuses, or a field that is wrong, is explained above the form, which keeps what was typed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ..cli.cluster import Cluster
from ..cli.failure import Failure
from .rendering import brokers_of, form_of, render

TABS: Final = (("/acls", "ACLs"), ("/users", "Users"), ("/quotas", "Quotas"))

Page = Callable[[Request, Mapping[str, str], str | None], Response]
"""A page with the fields of its form, and with a problem of the form."""
Change = Callable[[Cluster, Mapping[str, str]], str]
"""Makes a change, and returns its name for the page after it. Raises Failure."""


def shown(request: Request, template: str, problem: str | None, **values: Any) -> Response:
    """The page; with a problem, status 422."""
    return render(
        request,
        template,
        status=422 if problem else 200,
        access_tabs=TABS,
        problem=problem,
        done=request.query_params.get("done"),
        **values,
    )


async def changed(request: Request, change: Change, page: Page) -> Response:
    """Make the change of a submitted form, and show the page again."""
    fields = await form_of(request)

    def make() -> Response:
        try:
            with brokers_of(request).cluster() as cluster:
                done = change(cluster, fields)
        except Failure as failure:
            return page(request, fields, failure.message)
        return RedirectResponse(f"{request.url.path}?{urlencode({'done': done})}", status_code=303)

    return await run_in_threadpool(make)


def chosen(fields: Mapping[str, str], name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    """A field that has one of several values. Raises Failure."""
    value = fields.get(name, "")
    if value not in known:
        raise Failure(f"the {name} {value!r} is not one of {', '.join(known)}")
    return value

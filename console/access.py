"""What the screens of ACLs, users and quotas share: their tabs, and changes that answer with a page.

A change that the server refuses, or a field that is wrong, is explained above the form, which keeps what was typed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
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


# What the server says without an ACL for it.
_DENIED: Final = "CLUSTER_AUTHORIZATION_FAILED"


class Needed(NamedTuple):
    """The operations on the cluster that a screen needs."""

    to_see: str
    to_change: str


def shown(
    request: Request,
    template: str,
    problem: str | None,
    *,
    needed: Needed,
    unavailable: str | None,
    **values: Any,
) -> Response:
    """The page; with a problem of its form, status 422. ``unavailable``: why there is nothing to see."""
    return render(
        request,
        template,
        status=422 if problem else 200,
        access_tabs=TABS,
        problem=_explained(problem, needed.to_change),
        unavailable=_explained(unavailable, needed.to_see),
        done=request.query_params.get("done"),
        **values,
    )


def _explained(problem: str | None, operation: str) -> str | None:
    """The problem, and the ACL that is missing."""
    if problem is None or _DENIED not in problem:
        return problem
    return f"{problem}. The user of the console needs an ACL that allows {operation} on the cluster."


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

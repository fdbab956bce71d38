"""The screen of users: the SCRAM credentials that are stored in the cluster. Passwords are never shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..cli.cluster import Cluster
from ..cli.failure import Failure
from ..cli.users import all_users, remove_credential, set_password
from ..security.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS
from .access import Needed, changed, chosen, shown
from .messages import natural
from .rendering import brokers_of

_DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"
_NEEDED: Final = Needed("describe", "alter")
_FIELDS: Final = {"name": "", "mechanism": _DEFAULT_MECHANISM, "iterations": str(MIN_ITERATIONS)}


def _get(request: Request) -> Response:
    return _page(request, {}, None)


def _page(request: Request, fields: Mapping[str, str], problem: str | None) -> Response:
    users: list[tuple[str, str, int]] = []
    unavailable: str | None = None
    try:
        with brokers_of(request).cluster() as cluster:
            users = all_users(cluster)
    except Failure as failure:
        unavailable = failure.message
    return shown(
        request,
        "users.html",
        problem,
        needed=_NEEDED,
        title="Users",
        users=users,
        unavailable=unavailable,
        fields={name: fields.get(name, default) if problem else default for name, default in _FIELDS.items()},
        mechanisms=list(MECHANISMS),
        min_iterations=MIN_ITERATIONS,
        max_iterations=MAX_ITERATIONS,
    )


async def _post(request: Request) -> Response:
    return await changed(request, _change, _page)


def _change(cluster: Cluster, fields: Mapping[str, str]) -> str:
    action = chosen(fields, "action", ("set", "remove"))
    mechanism = chosen(fields, "mechanism", MECHANISMS)
    name = fields.get("name", "").strip()
    if not name:
        raise Failure("the name of the user is missing")
    if action == "remove":
        remove_credential(cluster, name, mechanism=mechanism)
        return "removed"
    password = fields.get("password", "")
    if not password:
        raise Failure("the password is missing")
    iterations = natural(fields.get("iterations", ""), "number of iterations")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise Failure(f"the number of iterations {iterations} is not from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    set_password(cluster, name, password, mechanism=mechanism, iterations=iterations)
    return "set"


ROUTES: Final = [
    Route("/users", _get, methods=["GET"]),
    Route("/users", _post, methods=["POST"]),
]

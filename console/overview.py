"""The first screen: what is wrong, the brokers, and the clients that are members of groups.

What is wrong is what `moldau doctor` finds, checked when the page is requested. Each part of the page has requests of
its own, and those of the cluster and of groups run at the same time. A part whose requests fail says why in its place;
the other parts do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..cli.client import CONNECT_TIMEOUT_S, parse_addresses
from ..cli.cluster import Cluster
from ..cli.connection import Connection
from ..cli.describe_cluster import describe
from ..cli.diagnosis import Level, diagnose
from ..cli.failure import Failure
from ..cli.group_client import GroupClient
from .brokers import CLIENT_ID, Brokers
from .clients import active_groups, members_of
from .rendering import brokers_of, now_ms, render

# Groups whose members are listed; the screen of clients has more.
_MAX_GROUPS: Final = 50

T = TypeVar("T")


class _Groups(NamedTuple):
    """The groups of the cluster, and the members of some of them."""

    number: int
    active: int
    members: list[dict[str, Any]]
    problem: str | None
    """Why members are missing."""


def _overview(request: Request) -> Response:
    brokers = brokers_of(request)
    findings = list(diagnose(parse_addresses(brokers.bootstrap_server), now_ms=now_ms(), connect=_connecting(brokers)))
    is_reachable = any(each.level is Level.OK for each in findings)
    cluster: dict[str, Any] | None = None
    groups: _Groups | None = None
    cluster_problem = groups_problem = None
    if is_reachable:
        with ThreadPoolExecutor(2) as threads:
            described, listed = threads.submit(_read, brokers, describe), threads.submit(_read, brokers, _groups)
        cluster, cluster_problem = described.result()
        groups, groups_problem = listed.result()
    return render(
        request,
        "overview.html",
        title="Overview",
        problems=[each for each in findings if each.level is not Level.OK],
        passed=[each for each in findings if each.level is Level.OK],
        is_reachable=is_reachable,
        cluster=cluster,
        cluster_problem=cluster_problem,
        groups=groups,
        groups_problem=groups_problem if groups is None else groups.problem,
        more_groups=0 if groups is None else max(0, groups.active - _MAX_GROUPS),
        Level=Level,
    )


def _connecting(brokers: Brokers) -> Any:
    def connect(host: str, port: int) -> Connection:
        return Connection(host, port, timeout_s=CONNECT_TIMEOUT_S, security=brokers.security, client_id=CLIENT_ID)

    return connect


def _read(brokers: Brokers, read: Callable[[Cluster], T]) -> tuple[T | None, str | None]:
    """A part of the page; None with the reason if its requests fail."""
    try:
        with brokers.cluster() as cluster:
            return read(cluster), None
    except Failure as failure:
        return None, failure.message


def _groups(cluster: Cluster) -> _Groups:
    listed = GroupClient(cluster).list()
    active = active_groups(listed)
    return _Groups(len(listed), len(active), *members_of(cluster, active[:_MAX_GROUPS]))


ROUTES: Final = [Route("/", _overview)]

"""The first screen: what is wrong, the brokers, and the clients that are members of groups.

What is wrong is what `moldau doctor` finds, checked when the page is requested.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..cli.client import CONNECT_TIMEOUT_S, parse_addresses
from ..cli.cluster import Cluster
from ..cli.connection import Connection
from ..cli.describe_cluster import describe
from ..cli.diagnosis import Level, diagnose
from ..cli.group_client import GroupClient
from ..protocol.api import ApiKey
from ..protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from .brokers import CLIENT_ID, Brokers
from .clients import active_groups, members_of
from .rendering import brokers_of, now_ms, render

# Groups whose members are listed; the screen of clients has more.
_MAX_GROUPS: Final = 50


def _overview(request: Request) -> Response:
    brokers = brokers_of(request)
    findings = list(diagnose(parse_addresses(brokers.bootstrap_server), now_ms=now_ms(), connect=_connecting(brokers)))
    described: dict[str, Any] | None = None
    disks: dict[int, list[dict[str, Any]]] = {}
    clients: list[dict[str, Any]] = []
    groups = active = 0
    topics = 0
    if any(each.level is Level.OK for each in findings):
        with brokers.cluster() as cluster:
            described = describe(cluster)
            topics = sum(1 for each in cluster.topics(None) if not each.is_internal)
            disks = _disks(cluster)
            listed = GroupClient(cluster).list()
            groups = len(listed)
            with_members = active_groups(listed)
            active = len(with_members)
            clients = members_of(cluster, with_members[:_MAX_GROUPS])
    return render(
        request,
        "overview.html",
        title="Overview",
        problems=[each for each in findings if each.level is not Level.OK],
        passed=[each for each in findings if each.level is Level.OK],
        cluster=described,
        disks=disks,
        clients=clients,
        groups=groups,
        more_groups=max(0, active - _MAX_GROUPS),
        topics=topics,
        Level=Level,
    )


def _connecting(brokers: Brokers) -> Any:
    def connect(host: str, port: int) -> Connection:
        return Connection(host, port, timeout_s=CONNECT_TIMEOUT_S, security=brokers.security, client_id=CLIENT_ID)

    return connect


def _disks(cluster: Cluster) -> dict[int, list[dict[str, Any]]]:
    """The log directories of each broker that is reachable."""
    found: dict[int, list[dict[str, Any]]] = {}
    if not cluster.bootstrap.offers(ApiKey.DESCRIBE_LOG_DIRS):
        return found
    for node_id in cluster.broker_ids():
        found[node_id] = [
            {
                "path": each.log_dir,
                "is_online": each.error_code == 0,
                "used": sum(partition.partition_size for topic in each.topics for partition in topic.partitions),
                "usable": each.usable_bytes if each.usable_bytes >= 0 else None,
            }
            for each in cluster.ask_broker(node_id, DescribeLogDirsRequest(topics=None)).results
        ]
    return found


ROUTES: Final = [Route("/", _overview)]

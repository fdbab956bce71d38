"""The screen of clients: their software, the latencies that they report (KIP-714), and the members of groups.

Kafka's protocol has no request for the connections of a broker, nor for the metrics that clients push; both are in the
metrics of the brokers, which brokers of Moldau name in their settings, or ``--metrics`` names. Clients push nothing
without a subscription, which this screen can create.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ..cli.cluster import Cluster, check_accepted
from ..cli.configs import alter_settings, describe_settings
from ..cli.connection import PeerError
from ..cli.failure import Failure
from ..cli.group_client import GroupClient
from ..cli.top.discovery import Discovery, discover
from ..cli.top.endpoint import Address
from ..cli.top.exposition import SOFTWARE, ScrapeError, fetch, numbers
from ..protocol.api import ApiKey
from ..protocol.messages.list_config_resources import ListConfigResourcesRequest
from ..protocol.messages.list_groups import ListedGroup
from ..server.metrics.families import labels_in
from .failures import BadRequest
from .messages import natural
from .rendering import brokers_of, form_of, render

SUBSCRIPTION: Final = "moldau-console"
"""The subscription that this screen creates and removes."""
_METRICS: Final = "org.apache.kafka.producer.,org.apache.kafka.consumer."
_CLIENT_METRICS: Final = 16
_ENTITY: Final = "client-metrics"
_PUSHED: Final = "kafka_client_"
_LATENCY: Final = re.compile(
    r"kafka_client_(?:producer_(?:node_)?request|consumer_(?:node_request|request|fetch_manager_fetch))_latency_(avg|max)"
)
_THROTTLED: Final = re.compile(r"kafka_client_\w*throttle_time_(avg|max)")
_OF_CLIENT: Final = frozenset({"client_id", "client_instance_id", "client_software_name", "instance"})
_MAX_GROUPS: Final = 200
_MAX_CLIENTS: Final = 500
_MAX_SERIES: Final = 300


class Sample(NamedTuple):
    """The present number of a series of metrics."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass
class Reporting:
    """A client that pushes its metrics. Latencies are in milliseconds, of the slowest node."""

    client_id: str
    instance_id: str
    software: str
    kinds: set[str] = field(default_factory=set)
    latency: dict[str, float] = field(default_factory=dict)
    """By ``avg`` and ``max``."""
    throttled: dict[str, float] = field(default_factory=dict)
    series: list[tuple[str, str, float]] = field(default_factory=list)
    """Name, further labels, and value of each number."""


def _clients(request: Request) -> Response:
    with brokers_of(request).cluster() as cluster:
        active = active_groups(GroupClient(cluster).list())
        members, unread = members_of(cluster, active[:_MAX_GROUPS])
        subscriptions = _subscriptions(cluster)
        found = _endpoints(request, cluster)
    problems = found.missing
    samples: list[Sample] = []
    with ThreadPoolExecutor(max(1, len(found.addresses))) as threads:
        for read in threads.map(_read, found.addresses):
            if isinstance(read, str):
                problems.append(read)
            else:
                samples += read
    reporting = sorted(clients_in(samples), key=lambda each: (each.client_id, each.instance_id))
    return render(
        request,
        "clients.html",
        title="Clients",
        has_metrics=bool(found.addresses),
        problems=problems,
        software=_software(samples),
        reporting=reporting[:_MAX_CLIENTS],
        total=len(reporting),
        max_series=_MAX_SERIES,
        members=members,
        unread=unread,
        omitted=len(active[_MAX_GROUPS:]),
        subscriptions=subscriptions,
        own=SUBSCRIPTION,
        is_subscribed=any(each["name"] == SUBSCRIPTION for each in subscriptions or ()),
        done=request.query_params.get("done"),
    )


def _endpoints(request: Request, cluster: Cluster) -> Discovery:
    """The endpoints of metrics that ``--metrics`` names, or those that the brokers name."""
    given: list[Address] = request.app.state.metrics
    if given:
        return Discovery(given, [])
    try:
        return discover(cluster)
    except (Failure, PeerError) as problem:
        return Discovery([], [f"the brokers do not say where their metrics are: {problem}"])


def _read(address: Address) -> list[Sample] | str:
    """What this screen shows of the metrics of a broker, or a problem."""
    try:
        text = fetch(address.host, address.port)
    except ScrapeError as problem:
        return f"the metrics of {address} cannot be read: {problem}"
    return [Sample(each.name, labels_in(each.labels), each.value) for each in numbers(text, (SOFTWARE, _PUSHED))]


def clients_in(samples: list[Sample]) -> list[Reporting]:
    """The clients that have pushed metrics to any broker."""
    found: dict[tuple[str, str], Reporting] = {}
    for name, labels, value in samples:
        if not name.startswith(_PUSHED):
            continue
        client_id, instance_id = labels.get("client_id", ""), labels.get("client_instance_id", "")
        client = found.setdefault(
            (client_id, instance_id), Reporting(client_id, instance_id, labels.get("client_software_name", ""))
        )
        short = name.removeprefix(_PUSHED)
        client.kinds.add(short.partition("_")[0])
        for pattern, found_by in ((_LATENCY, client.latency), (_THROTTLED, client.throttled)):
            match = pattern.fullmatch(name)
            if match is not None:
                found_by[match[1]] = max(found_by.get(match[1], value), value)
        others = ", ".join(f"{key} {text}" for key, text in sorted(labels.items()) if key not in _OF_CLIENT)
        client.series.append((short.replace("_", " "), others, value))
    return list(found.values())


def _software(samples: list[Sample]) -> list[dict[str, Any]]:
    """Connections by client software, of all brokers."""
    found: dict[tuple[str, str, str], float] = {}
    for name, labels, value in samples:
        if name == SOFTWARE:
            key = (
                labels.get("clientSoftwareName", ""),
                labels.get("clientSoftwareVersion", ""),
                labels.get("listener", ""),
            )
            found[key] = found.get(key, 0) + value
    return [
        {"name": name, "version": version, "listener": listener, "connections": int(value)}
        for (name, version, listener), value in sorted(found.items())
        if value
    ]


def active_groups(listed: Iterable[ListedGroup]) -> list[str]:
    """The names of the groups that have members, in order."""
    return sorted(each.group_id for each in listed if each.group_state not in ("Empty", "Dead"))


def members_of(cluster: Cluster, groups: Iterable[str]) -> tuple[list[dict[str, Any]], str | None]:
    """The members of these groups, by client id, and why some are missing.

    Reading ends at the first broker that does not respond, because each request to it may take seconds.
    """
    client = GroupClient(cluster)
    rows: list[dict[str, Any]] = []
    problem: str | None = None
    for group_id in groups:
        try:
            group = client.describe(group_id)
        except Failure as failure:  # of this group: it moves, or the console may not describe it
            problem = problem or failure.message
            continue
        except PeerError as failure:
            problem = str(failure)
            break
        rows += [
            {
                "client": member.client_id,
                "host": member.host,
                "group": group_id,
                "partitions": len(member.assignment),
            }
            for member in (group.members if group is not None else ())
        ]
    return sorted(rows, key=lambda row: (row["client"], row["group"], row["host"])), problem


def _subscriptions(cluster: Cluster) -> list[dict[str, Any]] | None:
    """The subscriptions of client metrics with their settings; None if the server has none or does not list them."""
    if not cluster.bootstrap.offers(ApiKey.LIST_CONFIG_RESOURCES):
        return None
    try:
        response = cluster.ask(ListConfigResourcesRequest(resource_types=[_CLIENT_METRICS]))
        check_accepted("cannot list the subscriptions", response.error_code, None)
        names = sorted(each.resource_name for each in response.config_resources)
        return [{"name": name, **_settings(cluster, name)} for name in names]
    except Failure:
        return None  # the console may not describe them; the rest of the page does not depend on it


def _settings(cluster: Cluster, name: str) -> Mapping[str, Any]:
    settings = describe_settings(cluster, _ENTITY, name)
    return {key: settings.get(key.replace("_", "."), {}).get("value") for key in ("metrics", "interval_ms", "match")}


async def _post(request: Request) -> Response:
    fields = await form_of(request)
    return await run_in_threadpool(_change, request, fields)


def _change(request: Request, fields: Mapping[str, str]) -> Response:
    action = fields.get("action", "")
    with brokers_of(request).cluster() as cluster:
        match action:
            case "subscribe":
                interval = natural(fields.get("seconds", ""), "number of seconds")
                settings = {"metrics": _METRICS, "interval.ms": str(1000 * interval)}
                alter_settings(cluster, _ENTITY, SUBSCRIPTION, settings, ())
            case "unsubscribe":
                alter_settings(cluster, _ENTITY, SUBSCRIPTION, {}, ["metrics", "interval.ms"])
            case _:
                raise BadRequest(f"{action!r} is no action of this page")
    return RedirectResponse(f"/clients?done={action}", status_code=303)


ROUTES: Final = [
    Route("/clients", _clients, methods=["GET"]),
    Route("/clients", _post, methods=["POST"]),
]

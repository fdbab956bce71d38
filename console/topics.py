"""The screen of all topics, and the partitions of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..cli.cluster import BrokerError, Cluster
from ..protocol.api import ApiKey
from ..protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ..protocol.messages.metadata import MetadataResponseTopic
from .chart import chart
from .fetching import Bounds, bounds, load_topic
from .paging import page_of
from .rendering import brokers_of, now_ms, render
from .topic_rates import Rate, TopicRates

# Topics of one page: offsets and sizes are requested for these only.
_PER_PAGE: Final = 200


def _topics(request: Request) -> Response:
    query = request.query_params.get("q", "").strip()
    with_internal = request.query_params.get("internal") == "1"
    with brokers_of(request).cluster() as cluster:
        everything = sorted(cluster.topics(None), key=lambda each: each.name or "")
        matching = [
            each
            for each in everything
            if (with_internal or not each.is_internal) and query.lower() in (each.name or "").lower()
        ]
        page = page_of(request, matching, _PER_PAGE)
        found = bounds(cluster, page.shown)
        sizes = _sizes(cluster, page.shown)
    rates = _rates_of(request)
    for each in page.shown:
        _add(rates, each, found.get(each.name or "", {}))
    return render(
        request,
        "topics.html",
        title="Topics",
        topics=[_row(each, found.get(each.name or "", {}), sizes, rates.rate(each.name or "")) for each in page.shown],
        query=query,
        with_internal=with_internal,
        total=len(matching),
        hidden=sum(1 for each in everything if each.is_internal) if not with_internal else 0,
        page=page.number,
        pages=page.pages,
        per_page=_PER_PAGE,
        done=request.query_params.get("done"),
    )


def _rates_of(request: Request) -> TopicRates:
    found = request.app.state.topic_rates
    assert isinstance(found, TopicRates)
    return found


def _add(rates: TopicRates, topic: MetadataResponseTopic, offsets: dict[int, Bounds]) -> None:
    """A sample of a topic whose offsets a page has requested."""
    if offsets:
        rates.add(topic.name or "", topic.topic_id, {key: each.end for key, each in offsets.items()}, now_ms())


def _row(
    topic: MetadataResponseTopic,
    offsets: dict[int, Bounds],
    sizes: dict[tuple[str, int], int],
    rate: Rate | None,
) -> dict[str, Any]:
    name = topic.name or ""
    partitions = [each.partition_index for each in topic.partitions]
    known = [sizes[name, each] for each in partitions if (name, each) in sizes]
    return {
        "name": name,
        "internal": topic.is_internal,
        "partitions": len(partitions),
        "replicas": max((len(each.replica_nodes) for each in topic.partitions), default=0),
        "records": sum(each.end - each.first for each in offsets.values()),
        "size": sum(known) if known else None,
        "rate": rate,
        "leaderless": sum(1 for each in topic.partitions if each.leader_id < 0),
        "out_of_sync": sum(1 for each in topic.partitions if len(each.isr_nodes) < len(each.replica_nodes)),
    }


def _sizes(cluster: Cluster, topics: Sequence[MetadataResponseTopic]) -> dict[tuple[str, int], int]:
    """The bytes of each partition of these topics on its largest replica, where the brokers say."""
    if not cluster.bootstrap.offers(ApiKey.DESCRIBE_LOG_DIRS):
        return {}
    wanted = [
        DescribableLogDirTopic(topic=each.name or "", partitions=[part.partition_index for part in each.partitions])
        for each in topics
    ]
    found: dict[tuple[str, int], int] = {}
    for node_id in cluster.broker_ids():
        try:
            directories = cluster.ask_broker(node_id, DescribeLogDirsRequest(topics=wanted)).results
        except BrokerError:
            continue  # the rest of the page does not depend on it
        for directory in directories:
            for topic in directory.topics:
                for each in topic.partitions:
                    key = (topic.name, each.partition_index)
                    found[key] = max(found.get(key, 0), each.partition_size)
    return found


def _partitions(request: Request) -> Response:
    name = request.path_params["name"]
    with brokers_of(request).cluster() as cluster:
        topic = load_topic(cluster, name)
        sizes = _sizes(cluster, [topic.metadata])
    rates = _rates_of(request)
    _add(rates, topic.metadata, topic.bounds)
    rows = [
        {
            "partition": each.partition_index,
            "leader": each.leader_id,
            "epoch": each.leader_epoch,
            "replicas": each.replica_nodes,
            "in_sync": each.isr_nodes,
            "bounds": topic.bounds.get(each.partition_index),
            "size": sizes.get((name, each.partition_index)),
        }
        for each in sorted(topic.metadata.partitions, key=lambda each: each.partition_index)
    ]
    return render(
        request,
        "partitions.html",
        title=name,
        topic=topic,
        rows=rows,
        rate=rates.rate(name),
        chart=chart(rates.history(name)),
    )


ROUTES: Final = [
    Route("/topics", _topics),
    Route("/topics/{name}/partitions", _partitions),
]

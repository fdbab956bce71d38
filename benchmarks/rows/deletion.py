"""The time to delete a large topic, and the effect on a producer to another topic.

Each partition has a record, and all records are on the disk. The time is measured from the request to the moment when
Metadata no longer contains the topic, and to the moment when its folders are deleted: both servers delete them without
a delay here.

The producer sends small requests at a fixed rate, an open loop: first alone, then for the same time during the
deletion. It starts before the request is sent. If the deletion ends earlier, the producer is alone for the rest of its
time, with both servers.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ...testing.waiting import wait_until
from ...testing.wire import WireClient
from .. import filling, load
from ..measurement import settle
from ..row import Bench, Numbers, Row, Server, Subject, Target
from .durability import GROUP

_PARTITIONS = 1_000
_RATE = 1_000
_SECONDS = 4
_TIMEOUT_SECONDS = 120.0
_LOOK_AGAIN_SECONDS = 0.005


def delete_topic(bench: Bench) -> Numbers:
    server = bench.server
    small = bench.topic()
    doomed = f"doomed-{uuid.uuid4().hex[:12]}"
    filling.topic_with_records(server, doomed, bench.count(_PARTITIONS))
    settle()
    request = load.produce_frame(small, load.batch_of(1, 100))

    def produce() -> load.Load:
        return load.run(bench, server, request, in_flight=_RATE, rate=_RATE, seconds=bench.count(_SECONDS))

    alone = produce()
    with ThreadPoolExecutor(1) as threads, WireClient(server.bootstrap_servers, timeout_s=_TIMEOUT_SECONDS) as wire:
        producing = threads.submit(produce)
        _wait_until(lambda: load.end_offsets(server, small)[0] > alone.requests, "the producer has begun")
        began = time.perf_counter()
        _delete(wire, doomed)
        _wait_until(lambda: not _is_known(wire, doomed), f"{doomed} is not in the metadata")
        seconds = time.perf_counter() - began
        _wait_until(lambda: not _has_folders(server, doomed), f"the folders of {doomed} are deleted")
        seconds_until_removed = time.perf_counter() - began
        beside = producing.result()
    load.check_end_offset(server, small, alone.requests + beside.requests)
    return {
        "seconds": seconds,
        "seconds_until_removed": seconds_until_removed,
        **beside.latencies(),
        "max_us": beside.max_us,
        **{f"{name}_alone": value for name, value in alone.latencies().items()},
        "max_us_alone": alone.max_us,
    }


def _delete(wire: WireClient, topic: str) -> None:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=topic)], topic_names=[topic], timeout_ms=int(_TIMEOUT_SECONDS * 1000)
    )
    (answer,) = wire.call(request).responses
    if answer.error_code:
        raise KafkaError(ErrorCode(answer.error_code), f"deleting {topic}")


def _is_known(wire: WireClient, topic: str) -> bool:
    requested = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    (found,) = wire.call(requested).topics
    return bool(found.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _has_folders(server: Server, topic: str) -> bool:
    """Also under their temporary names before deletion."""
    return any(folder.name.startswith(topic) for folder in server.data_dir.iterdir())


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, what, seconds=_TIMEOUT_SECONDS, pause=_LOOK_AGAIN_SECONDS)


ROWS = (
    Row(
        name="delete-1000-partitions",
        title=f"a topic of {_PARTITIONS:,} partitions is deleted; one-record produce at {_RATE:,} a second beside it",
        group=GROUP,
        measure=delete_topic,
        subjects=(Subject.APACHE, Subject.MOLDAU),
        needs=("cc",),
        targets=(Target("seconds_until_removed", at_most=1.0), Target("p99_us", at_most=1.0)),
    ),
)

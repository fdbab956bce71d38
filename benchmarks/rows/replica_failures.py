"""Three brokers, one of which ends or returns: how soon its partitions are served again, and how fast it catches up.

Broker 2 ends: it leads all partitions of the first two rows, and none of the third. A partition is served again when
another leader has acknowledged a record with ``acks=all``.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ...protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ...testing.builders import batch
from ...testing.waiting import wait_until
from ...testing.wire import WireClient
from ..row import Bench, Brokers, Numbers, Row, Subject, Target
from .producers import produced_per_second, run_performance_tool
from .replicas import GROUP

_BROKERS = 3
_ENDING = 2
_TOPIC = "bench-failures"
_TIMEOUT_S = 300.0
_PARTITIONS = 1_000
_PRODUCE_VERSION = 9  # topics by name
_METADATA_VERSION = 12

_BEHIND_PARTITIONS = 4
_BEHIND_RECORDS = 5_000_000
_SIZE = 1_000
_PULSE_S = 0.01
_PULSES_BEFORE = 1_000


def killed(bench: Bench) -> Numbers:
    """From ``kill -9`` of the leader on; the session of the broker has to expire first."""
    return _failover(bench, lambda server: server.kill_broker(_ENDING))


def stopped(bench: Bench) -> Numbers:
    """From SIGTERM on."""
    return _failover(bench, lambda server: server.stop_broker(_ENDING))


def _failover(bench: Bench, end: Callable[[Brokers], None]) -> Numbers:
    server = _start(bench)
    count = bench.count(_PARTITIONS)
    _create_topic(server, [[_ENDING, 3, 1] if index % 2 else [_ENDING, 1, 3] for index in range(count)])
    began = time.monotonic()
    ending = threading.Thread(target=end, args=(server,))
    ending.start()
    _serve(server.bootstrap_servers, count, lambda leader: leader not in (-1, _ENDING))
    took = time.monotonic() - began
    ending.join()
    return {"seconds": took}


def catch_up(bench: Bench) -> Numbers:
    """From the registration of a broker that was killed before the records were written, until it is in sync. Another
    client writes single records, one every 10 ms, before that and meanwhile."""
    server = _start(bench)
    _create_topic(server, [[1, 3, _ENDING] if index % 2 else [3, 1, _ENDING] for index in range(_BEHIND_PARTITIONS)])
    server.kill_broker(_ENDING)
    wait_until(lambda: not _has_broker(server), "the broker is fenced", seconds=_TIMEOUT_S)
    records = bench.count(_BEHIND_RECORDS)
    done = run_performance_tool(
        bench,
        "ProducerPerformance",
        *("--bootstrap-server", server.bootstrap_servers, "--topic", _TOPIC),
        *("--num-records", str(records), "--record-size", str(_SIZE), "--throughput", "-1"),
        *("--command-property", "acks=1", "batch.size=1000000", "linger.ms=5"),
    )
    produced_per_second(done)  # or its error
    with WireClient(server.bootstrap_servers, timeout_s=_TIMEOUT_S) as wire:
        before = _pulses(wire, lambda count: count >= bench.count(_PULSES_BEFORE))
        server.start_broker(_ENDING)
        wait_until(lambda: _has_broker(server), "the broker is registered", seconds=_TIMEOUT_S, pause=0.001)
        began = time.monotonic()
        meanwhile = _pulses(wire, lambda _count: _is_in_sync(server))
    took = time.monotonic() - began
    return {
        "mb_per_s": records * _SIZE / 1e6 / took,
        "p99_ms": _p99_ms(meanwhile),
        "p99_ms_before": _p99_ms(before),
    }


def _start(bench: Bench) -> Brokers:
    server = bench.start_server(brokers=_BROKERS)
    assert isinstance(server, Brokers)
    return server


def _create_topic(server: Brokers, replicas: list[list[int]]) -> None:
    topic = CreatableTopic(
        name=_TOPIC,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)
        ],
        configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
    )
    with WireClient(server.bootstrap_servers, timeout_s=_TIMEOUT_S) as wire:
        (created,) = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=round(_TIMEOUT_S * 1000))).topics
    if created.error_code:
        raise RuntimeError(f"no topic: {ErrorCode(created.error_code).name}: {created.error_message}")
    _serve(server.bootstrap_servers, len(replicas), lambda leader: leader >= 0)


def _metadata(wire: WireClient) -> Any:
    return wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=_TOPIC)]), _METADATA_VERSION)


def _serve(address: str, partitions: int, is_accepted: Callable[[int], bool]) -> None:
    """Return when each partition has acknowledged a record, from a leader that is accepted."""
    remaining = set(range(partitions))
    deadline = time.monotonic() + _TIMEOUT_S
    with WireClient(address, timeout_s=_TIMEOUT_S) as wire:
        while remaining:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(remaining)} partitions are not served after {_TIMEOUT_S:g} s")
            found = _metadata(wire)
            leaders: dict[int, list[int]] = {}
            for partition in found.topics[0].partitions:
                if partition.partition_index in remaining and is_accepted(partition.leader_id):
                    leaders.setdefault(partition.leader_id, []).append(partition.partition_index)
            for broker in found.brokers:
                if broker.node_id in leaders:
                    remaining -= set(_produced(f"{broker.host}:{broker.port}", leaders[broker.node_id]))
            if not leaders:
                time.sleep(0.005)


def _produced(address: str, partitions: Iterable[int]) -> list[int]:
    """The partitions that have acknowledged a record."""
    data = [PartitionProduceData(index=index, records=batch(b"x")) for index in partitions]
    request = ProduceRequest(
        acks=-1, timeout_ms=round(_TIMEOUT_S * 1000), topic_data=[TopicProduceData(name=_TOPIC, partition_data=data)]
    )
    try:
        with WireClient(address, timeout_s=_TIMEOUT_S) as wire:
            responses = wire.call(request, _PRODUCE_VERSION).responses
    except ConnectionError:
        return []
    return [
        each.index for topic in responses for each in topic.partition_responses if each.error_code == ErrorCode.NONE
    ]


def _pulses(wire: WireClient, is_over: Callable[[int], bool]) -> list[float]:
    """The times until single records of a partition were acknowledged, in seconds. The server of ``wire`` leads it."""
    data = PartitionProduceData(index=1, records=batch(b"x" * 100))
    request = ProduceRequest(
        acks=-1, timeout_ms=round(_TIMEOUT_S * 1000), topic_data=[TopicProduceData(name=_TOPIC, partition_data=[data])]
    )
    times: list[float] = []
    at = time.monotonic()
    while not is_over(len(times)):
        at = max(at + _PULSE_S, time.monotonic())
        time.sleep(max(0.0, at - time.monotonic()))
        began = time.monotonic()
        (topic,) = wire.call(request, _PRODUCE_VERSION).responses
        times.append(time.monotonic() - began)
        code = topic.partition_responses[0].error_code
        if code:
            raise RuntimeError(f"a record was rejected: {ErrorCode(code).name}")
    return times


def _p99_ms(times: list[float]) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[98] * 1000 if len(times) > 1 else times[0] * 1000


def _has_broker(server: Brokers) -> bool:
    with WireClient(server.bootstrap_servers, timeout_s=_TIMEOUT_S) as wire:
        return any(broker.node_id == _ENDING for broker in _metadata(wire).brokers)


def _is_in_sync(server: Brokers) -> bool:
    with WireClient(server.bootstrap_servers, timeout_s=_TIMEOUT_S) as wire:
        return all(_ENDING in partition.isr_nodes for partition in _metadata(wire).topics[0].partitions)


ROWS = tuple(
    Row(
        name=name,
        title=title,
        group=GROUP,
        measure=measure,
        subjects=(Subject.APACHE, Subject.MOLDAU),
        needs=needs,
        own_server=True,
        targets=targets,
    )
    for name, title, measure, needs, targets in (
        (
            "replicas-failover-kill",
            "kill -9 of the leader of 1,000 partitions: until the others have acknowledged a record in each",
            killed,
            (),
            (Target("seconds", at_most=1.0),),
        ),
        (
            "replicas-failover-stop",
            "SIGTERM of the leader of 1,000 partitions: until the others have acknowledged a record in each",
            stopped,
            (),
            (Target("seconds", at_most=1.0),),
        ),
        (
            "replicas-catch-up",
            "a follower that is 5 GB behind catches up; 100 single records per second, acks=all",
            catch_up,
            ("java",),
            (Target("mb_per_s", at_least=1.0),),
        ),
    )
)

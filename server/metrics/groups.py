"""Metrics of the groups and transactions that this broker coordinates, and the lag of groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...transaction_coordinator.transaction import TransactionStatus
from .families import Family, Kind, Sample, gauge, labels

if TYPE_CHECKING:
    from ...group_coordinator.states import GroupStates
    from ...replication.replicas import Replicas
    from ..broker import Broker

_STATES: Final = ("Stable", "Empty", "Dead", "PreparingRebalance", "CompletingRebalance")


def group_families(broker: Broker, max_partitions: int) -> Iterator[Family | None]:
    """The metrics of groups. None: a moment to pause."""
    states: dict[str, int] = dict.fromkeys(_STATES, 0)
    members: list[Sample] = []
    offsets: list[Sample] = []
    lags: list[Sample] = []
    lag_sums: list[Sample] = []
    count = 0
    for shard in broker.coordinators.group_states():
        for group in list(shard.groups.values()):
            count += 1
            name = group.state_name
            states[name] = states.get(name, 0) + 1
            members.append(Sample(labels(consumergroup=group.group_id), len(group.members)))
            yield None
            for topic in shard.offsets.topics(group.group_id):
                if len(offsets) >= max_partitions:
                    break
                yield from _add(shard, broker.replicas, group.group_id, topic, offsets, lags, lag_sums)
    yield gauge("kafka.coordinator.group:GroupMetadataManager:NumGroups", "Groups of this coordinator.", count)
    for name in _STATES:
        yield gauge(
            f"kafka.coordinator.group:GroupMetadataManager:NumGroups{name}",
            f"Groups in the state {name}.",
            states[name],
        )
    yield Family("kafka_consumergroup_members", Kind.GAUGE, "Members of a group.", members)
    yield Family("kafka_consumergroup_current_offset", Kind.GAUGE, "The committed offset of a group.", offsets)
    yield Family(
        "kafka_consumergroup_lag",
        Kind.GAUGE,
        "Records between the committed offset of a group and the high watermark.",
        lags,
    )
    yield Family("kafka_consumergroup_lag_sum", Kind.GAUGE, "The sum of the lags of a topic's partitions.", lag_sums)


def _add(
    shard: GroupStates,
    replicas: Replicas,
    group_id: str,
    topic: str,
    offsets: list[Sample],
    lags: list[Sample],
    lag_sums: list[Sample],
) -> Iterator[None]:
    """Add the offsets of a group for one topic. Lags are known of partitions with a replica on this broker."""
    total = 0
    has_lag = False
    for index in shard.offsets.indexes(group_id, topic):
        committed = shard.offsets.get(group_id, topic, index)
        if committed is None:
            continue  # it was removed in the meantime
        text = labels(consumergroup=group_id, topic=topic, partition=index)
        offsets.append(Sample(text, committed.offset))
        partition = replicas.partition_by_key(topic, index)
        if partition is not None:
            lag = max(0, partition.high_watermark - committed.offset)
            lags.append(Sample(text, lag))
            total += lag
            has_lag = True
        yield None
    if has_lag:
        lag_sums.append(Sample(labels(consumergroup=group_id, topic=topic), total))


def transaction_families(broker: Broker, now_ms: int) -> Iterator[Family | None]:
    """The metrics of transactions. None: a moment to pause."""
    count = 0
    oldest_ms = now_ms
    for states in broker.coordinators.transaction_states():
        for transaction in list(states.transactions.values()):
            count += 1
            if transaction.started_ms >= 0 and transaction.status is TransactionStatus.ONGOING:
                oldest_ms = min(oldest_ms, transaction.started_ms)
            yield None
    loads = broker.coordinators.transaction_load_times()
    average, longest = (1000 * sum(loads) / len(loads), 1000 * max(loads)) if loads else (0.0, 0.0)
    for name, value, text in (
        ("partition-load-time-avg", average, "The average time to load a partition, in ms."),
        ("partition-load-time-max", longest, "The longest time to load a partition, in ms."),
        ("transactional-id-count", count, "Transactional ids of this coordinator."),
        ("active-transaction-total-time-max", now_ms - oldest_ms, "The age of the oldest open transaction, in ms."),
    ):
        yield gauge(f"kafka.server:transaction-coordinator-metrics:{name}", text, value)

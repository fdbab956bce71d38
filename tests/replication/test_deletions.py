"""DeleteRecords with followers: it is complete when the replicas on all live brokers have deleted the records."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.replication.in_sync import UNKNOWN_OFFSET
from moldau.replication.partition import Partition

from .partitions import NOW, append, follow, lead, open_partition

REPLICAS = (1, 2, 3)


class Deletion:
    """Deletes the records before an offset, and keeps the outcome."""

    def __init__(self, partition: Partition, offset: int) -> None:
        self.outcomes: list[KafkaError | None] = []
        partition.when_deleted(partition.delete_records_before(offset), self.outcomes.append)


@pytest.fixture
def partition() -> Partition:
    """A leader of three replicas, all of which have five records."""
    opened = open_partition()
    lead(opened, partition_epoch=1, replicas=REPLICAS, isr=REPLICAS)
    append(opened, 5)
    fetch(opened, 2)
    fetch(opened, 3)
    assert opened.high_watermark == 5
    return opened


def fetch(partition: Partition, replica_id: int, log_start_offset: int = 0) -> None:
    partition.follower_fetched(
        replica_id, partition.log.log_end_offset, now_ms=NOW, eligible=True, log_start_offset=log_start_offset
    )
    partition.advance_high_watermark()


def every(_broker_id: int) -> bool:
    return True


def test_a_partition_without_followers_has_its_log_start_offset_as_low_watermark() -> None:
    alone = open_partition()
    append(alone, 3)
    assert alone.delete_records_before(2) == 2
    assert alone.low_watermark(every) == 2


def test_a_deletion_ends_when_all_followers_have_repeated_it(partition: Partition) -> None:
    deletion = Deletion(partition, 3)
    assert partition.low_watermark(every) == 0
    fetch(partition, 2, log_start_offset=3)
    partition.review_deletions(every)
    assert deletion.outcomes == []
    fetch(partition, 3, log_start_offset=3)
    partition.review_deletions(every)
    assert deletion.outcomes == [None]
    assert partition.low_watermark(every) == 3


def test_a_lower_deletion_ends_first(partition: Partition) -> None:
    high, low = Deletion(partition, 4), Deletion(partition, 2)
    for replica_id in (2, 3):
        fetch(partition, replica_id, log_start_offset=2)
    partition.review_deletions(every)
    assert (high.outcomes, low.outcomes) == ([], [None])


def test_replicas_on_fenced_brokers_are_not_waited_for(partition: Partition) -> None:
    deletion = Deletion(partition, 3)
    fetch(partition, 2, log_start_offset=3)
    partition.review_deletions(lambda broker_id: broker_id != 3)
    assert deletion.outcomes == [None]


def test_a_follower_that_has_not_fetched_in_this_epoch_is_waited_for(partition: Partition) -> None:
    lead(partition, leader_epoch=4, partition_epoch=2, replicas=REPLICAS, isr=REPLICAS)
    assert partition.low_watermark(every) == UNKNOWN_OFFSET


@pytest.mark.parametrize("event", [follow, Partition.close])
def test_a_deletion_fails_when_this_broker_no_longer_leads(partition: Partition, event: object) -> None:
    deletion = Deletion(partition, 3)
    if event is follow:
        follow(partition, partition_epoch=2, replicas=REPLICAS, isr=REPLICAS)
    else:
        partition.close()
    [error] = deletion.outcomes
    assert error is not None
    assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

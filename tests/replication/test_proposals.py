"""Proposed in-sync sets, and what the responses of the controller change."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition import BrokerState, PartitionData, ResponsePartitionData
from moldau.replication.partition import Partition
from moldau.replication.proposals import Proposal, Settled, expansion, reduction

from .partitions import NOW, append, follow, lead, new_partition

REPLICAS = (1, 2, 3)
MAX_LAG_MS = 30_000


def replicated(isr: tuple[int, ...] = REPLICAS) -> Partition:
    partition = new_partition()
    assert lead(partition, replicas=REPLICAS, isr=isr)
    return partition


def fetched(partition: Partition, replica_id: int, *, now_ms: int = NOW, broker_epoch: int = 50) -> None:
    """A follower has everything."""
    partition.follower_fetched(
        replica_id, partition.log.log_end_offset, now_ms=now_ms, eligible=True, broker_epoch=broker_epoch
    )
    partition.advance_high_watermark()


def proposed(partition: Partition) -> Proposal:
    proposal = expansion(partition)
    assert proposal is not None
    return proposal


def with_a_record_of_two() -> tuple[Partition, Proposal]:
    """Replica 3 is proposed, and lacks a record that the in-sync replicas 1 and 2 have."""
    partition = replicated(isr=(1, 2))
    fetched(partition, 2)
    fetched(partition, 3)
    proposal = proposed(partition)
    append(partition)
    fetched(partition, 2)
    return partition, proposal


def response(
    code: ErrorCode = ErrorCode.NONE, isr: tuple[int, ...] = REPLICAS, epoch: int = 1
) -> ResponsePartitionData:
    return ResponsePartitionData(error_code=code, leader_id=1, leader_epoch=3, isr=list(isr), partition_epoch=epoch)


def test_a_proposal_names_the_state_that_it_is_based_on_and_the_epochs_of_brokers() -> None:
    partition = replicated(isr=(1, 3))
    fetched(partition, 2, broker_epoch=52)
    fetched(partition, 3, broker_epoch=53)
    assert proposed(partition).to_request(51) == PartitionData(
        partition_index=0,
        leader_epoch=3,
        partition_epoch=0,
        new_isr_with_epochs=[
            BrokerState(broker_id=1, broker_epoch=51),
            BrokerState(broker_id=3, broker_epoch=53),
            BrokerState(broker_id=2, broker_epoch=52),
        ],
    )


def test_a_proposal_keeps_the_broker_epochs_for_which_it_was_made() -> None:
    """The process of a member may end before the request is sent. The next one may have lost records, and the
    controller must reject it (KIP-903)."""
    partition = replicated(isr=(1, 3))
    fetched(partition, 2, broker_epoch=52)
    fetched(partition, 3, broker_epoch=53)
    proposal = proposed(partition)
    fetched(partition, 2, broker_epoch=62)
    epochs = {member.broker_id: member.broker_epoch for member in proposal.to_request(51).new_isr_with_epochs}
    assert epochs == {1: 51, 2: 52, 3: 53}


def test_there_is_one_proposal_at_a_time() -> None:
    partition = replicated(isr=(1,))
    assert expansion(partition) is None
    fetched(partition, 2)
    assert proposed(partition).isr == (1, 2)
    fetched(partition, 3)
    assert expansion(partition) is None
    assert reduction(partition, NOW + 2 * MAX_LAG_MS, MAX_LAG_MS) is None


def test_a_committed_set_counts_from_the_response_on() -> None:
    partition = replicated(isr=(1, 2))
    fetched(partition, 2)
    fetched(partition, 3)
    assert proposed(partition).settle(response(), NOW) is Settled.COMMITTED
    assert (partition.isr, partition.partition_epoch) == (REPLICAS, 1)
    assert partition.in_sync is not None
    assert partition.in_sync.proposed is None


def test_a_rejected_set_is_withdrawn_and_waits_for_the_replica_no_longer() -> None:
    partition, proposal = with_a_record_of_two()
    assert partition.high_watermark == 0
    assert proposal.settle(response(ErrorCode.INELIGIBLE_REPLICA), NOW) is Settled.WITHDRAWN
    assert partition.high_watermark == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_the_metadata_log_settles_a_proposal_that_is_based_on_an_older_state(code: ErrorCode) -> None:
    partition, proposal = with_a_record_of_two()
    assert proposal.settle(response(code), NOW) is Settled.AWAITS_METADATA
    # The proposal may have been committed before: the replica still counts.
    assert partition.high_watermark == 0
    lead(partition, partition_epoch=1, replicas=REPLICAS, isr=(1, 2))
    assert partition.high_watermark == 1


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT]
)
def test_a_proposal_with_an_unknown_outcome_is_repeated_and_counts_meanwhile(code: ErrorCode) -> None:
    partition, proposal = with_a_record_of_two()
    assert proposal.settle(response(code), NOW) is Settled.REPEAT
    assert proposal.is_pending
    assert partition.high_watermark == 0


def test_a_response_that_the_metadata_log_has_overtaken_is_ignored() -> None:
    partition = replicated(isr=(1, 2))
    fetched(partition, 2)
    fetched(partition, 3)
    proposal = proposed(partition)
    lead(partition, partition_epoch=2, replicas=REPLICAS, isr=(1, 2))
    assert not proposal.is_pending
    assert proposal.settle(response(), NOW) is Settled.AWAITS_METADATA
    assert partition.isr == (1, 2)
    follow(partition, partition_epoch=3, replicas=REPLICAS, isr=(2,))
    assert proposal.settle(response(), NOW) is Settled.AWAITS_METADATA
    assert partition.leader_id == 2


def test_a_set_that_is_committed_already_is_withdrawn() -> None:
    partition = replicated(isr=(1, 2))
    fetched(partition, 3)
    proposal = proposed(partition)
    assert proposal.settle(response(isr=(1, 2), epoch=0), NOW) is Settled.WITHDRAWN
    assert not proposal.is_pending


def test_replicas_that_lag_are_removed_and_count_until_that_is_committed() -> None:
    partition = replicated()
    fetched(partition, 2)
    fetched(partition, 3)
    append(partition)
    late = NOW + MAX_LAG_MS + 1
    fetched(partition, 2, now_ms=late)
    assert reduction(partition, NOW + MAX_LAG_MS, MAX_LAG_MS) is None
    proposal = reduction(partition, late, MAX_LAG_MS)
    assert proposal is not None
    assert proposal.isr == (1, 2)
    assert partition.high_watermark == 0
    assert proposal.settle(response(isr=(1, 2)), late) is Settled.COMMITTED
    assert partition.high_watermark == 1


def test_a_set_that_completes_a_reassignment_counts_when_its_replicas_are_known() -> None:
    """Replica 2 is removed, which raises the leader epoch. The response names neither the replicas nor the reason."""
    partition = replicated(isr=(1, 2))
    fetched(partition, 2)
    fetched(partition, 3)
    completed = response(isr=(1, 3))
    completed.leader_epoch = 4
    assert proposed(partition).settle(completed, NOW) is Settled.AWAITS_METADATA
    assert partition.leader_epoch == 3
    lead(partition, leader_epoch=4, partition_epoch=1, replicas=(1, 3), isr=(1, 3))
    assert partition.in_sync is not None
    assert partition.in_sync.follower(2) is None
    assert partition.in_sync.proposed is None


def test_a_leader_whose_directory_has_failed_proposes_nothing() -> None:
    """Its followers cannot fetch, so they seem to lag. While the controller does not learn of the failure, they must
    remain in the in-sync set, because one of them is the next leader."""
    partition = replicated(isr=(1, 2))
    fetched(partition, 2)
    append(partition)
    partition.go_offline()
    assert reduction(partition, NOW + 2 * MAX_LAG_MS, MAX_LAG_MS) is None
    assert partition.in_sync is not None
    assert partition.in_sync.proposed is None

"""Proposals of a new in-sync set, which the leader sends to the controller (AlterPartition, KIP-497).

A proposal is based on one state of the partition: its leader epoch and its partition epoch. Whatever happens to the
request, the maximal in-sync set counts until the outcome is certain (`InSyncReplicas`):

    the controller has committed it           the response has the new partition epoch
    the controller has certainly rejected it  OPERATION_NOT_ATTEMPTED, INELIGIBLE_REPLICA: the committed set counts
    the partition has changed                 the metadata log has the outcome, or will have it: the proposal stays
    it was committed with a new leader epoch  the same: other replicas may have changed, too, as with a reassignment
    no response, or any other error           it may have been committed: the same proposal is sent again
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ..protocol.errors import ErrorCode, known_error
from ..protocol.messages.alter_partition import BrokerState, PartitionData

if TYPE_CHECKING:
    from ..protocol.messages.alter_partition import ResponsePartitionData
    from .partition import Partition


class Settled(Enum):
    """What a response has changed."""

    COMMITTED = "the in-sync set is the proposed one"
    WITHDRAWN = "the proposal was rejected"
    AWAITS_METADATA = "the metadata log will have a newer state"
    REPEAT = "the outcome is unknown"


_REJECTED: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_OUTDATED: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class Proposal(NamedTuple):
    """A proposed in-sync set, and the state that it is based on."""

    partition: Partition
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    broker_epochs: tuple[int | None, ...]
    """For each member of the in-sync set, the broker epoch of its latest fetch when this was proposed; None for the
    leader. A member that has been registered again since may lack the records for which it was proposed (KIP-903)."""

    @property
    def is_pending(self) -> bool:
        """Whether the outcome is still unknown: no newer state has arrived."""
        partition = self.partition
        in_sync = partition.in_sync
        return (
            in_sync is not None
            and in_sync.proposed == self.isr
            and partition.leader_epoch == self.leader_epoch
            and partition.partition_epoch == self.partition_epoch
            and not partition.offline
        )

    def to_request(self, broker_epoch: int) -> PartitionData:
        """The proposal in a request. ``broker_epoch``: that of this broker."""
        members = [
            BrokerState(broker_id=replica_id, broker_epoch=broker_epoch if epoch is None else epoch)
            for replica_id, epoch in zip(self.isr, self.broker_epochs, strict=True)
        ]
        return PartitionData(
            partition_index=self.partition.index,
            leader_epoch=self.leader_epoch,
            new_isr_with_epochs=members,
            partition_epoch=self.partition_epoch,
        )

    def settle(self, response: ResponsePartitionData, now_ms: int) -> Settled:
        """Process the response to the proposal. Afterwards, other changes may be due."""
        if not self.is_pending:
            return Settled.AWAITS_METADATA
        code = known_error(response.error_code)
        if code in _REJECTED:
            self._withdraw()
            return Settled.WITHDRAWN
        if code in _OUTDATED:
            return Settled.AWAITS_METADATA
        if code is not ErrorCode.NONE:
            return Settled.REPEAT
        if response.leader_epoch != self.leader_epoch:
            # The change has completed a reassignment that removes replicas, which the response does not name.
            return Settled.AWAITS_METADATA
        if response.partition_epoch <= self.partition_epoch:
            self._withdraw()  # it is the committed set already
            return Settled.WITHDRAWN
        partition = self.partition
        partition.become_leader(
            leader_epoch=response.leader_epoch,
            partition_epoch=response.partition_epoch,
            replicas=partition.replicas,
            isr=tuple(response.isr),
            now_ms=now_ms,
        )
        return Settled.COMMITTED

    def _withdraw(self) -> None:
        in_sync = self.partition.in_sync
        assert in_sync is not None
        in_sync.withdraw()
        self.partition.advance_high_watermark()


def expansion(partition: Partition) -> Proposal | None:
    """Propose to add all replicas that may join; None if there are none, or a proposal is pending."""
    in_sync = partition.in_sync
    if in_sync is None or in_sync.proposed is not None or partition.offline:
        return None
    candidates = in_sync.candidates
    return _propose(partition, (*in_sync.isr, *candidates)) if candidates else None


def reduction(partition: Partition, now_ms: int, max_lag_ms: int) -> Proposal | None:
    """Propose to remove the replicas that lag; None if none does, or a proposal is pending. If the log directory has
    failed, followers cannot fetch, and one of them must become the leader."""
    in_sync = partition.in_sync
    if in_sync is None or partition.offline:
        return None
    lagging = in_sync.review(partition.log.log_end_offset, now_ms, max_lag_ms)
    if not lagging:
        partition.advance_high_watermark()  # a lagging replica outside the set may have kept it from moving
        return None
    return _propose(partition, tuple([each for each in in_sync.isr if each not in lagging]))


def _propose(partition: Partition, isr: tuple[int, ...]) -> Proposal:
    in_sync = partition.in_sync
    assert in_sync is not None
    in_sync.propose(isr)
    followers = [in_sync.follower(replica_id) for replica_id in isr]
    epochs = tuple([None if follower is None else follower.broker_epoch for follower in followers])
    return Proposal(partition, isr, partition.leader_epoch, partition.partition_epoch, epochs)

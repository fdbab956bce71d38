"""A transactional producer that commits offsets of groups, together with the coordinator of its transactions.

It commits for a member, as consume-transform-produce applications do, or without a member, as old clients do. Writing
the marker of a transaction is retried until the marker is committed. Only then does the next transaction begin, with
another epoch (KIP-890). The log must reject earlier requests that arrive after the marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from .classic_client import NO_GENERATION, ClassicClient
from .client import BACKOFF_MS, Client

if TYPE_CHECKING:
    from .calls import Call
    from .world import Member, World

_VERSIONS_WITHOUT_MEMBER = (0, 2, 3, 5)
_VERSIONS = (3, 4, 5)


class TransactionalProducer(Client):
    """A producer whose transaction is always open or ending."""

    def __init__(self, world: World, producer_id: int) -> None:
        super().__init__(world, f"producer-{producer_id}", "")
        self.producer_id = producer_id
        self.epoch = 0
        self.is_committed: bool | None = None
        """Whether the transaction ends with a commit; None while it is open."""
        self.marker_end_offset: int | None = None
        """The offset after the marker, once it is written."""
        self._act_at_ms = 0

    # -- the transaction -----------------------------------------------------------------------------------------------

    def commit(self, member: Member | None) -> None:
        """Commit offsets of some partitions of the member, or, without a member, of any group."""
        if self.is_committed is not None or "commit" in self.waiting:
            return
        request = self._request_without_member() if member is None else self._request_of(member)
        if request is not None:
            versions = _VERSIONS_WITHOUT_MEMBER if member is None else _VERSIONS
            self.send("commit", request, self.world.random.choice(versions))

    def end(self, *, committed: bool) -> None:
        """End the transaction, also if requests are pending."""
        if self.is_committed is None:
            self.is_committed = committed
            self._act_at_ms = self.now_ms

    def truncated(self, end_offset: int) -> None:
        """The log now ends at this offset, and may have lost the marker."""
        if self.marker_end_offset is not None and self.marker_end_offset > end_offset:
            self.marker_end_offset = None

    def next_act_ms(self) -> int | None:
        return None if self.is_committed is None else self._act_at_ms

    def act(self) -> None:
        if self.is_committed is None or self._act_at_ms > self.now_ms:
            return
        log = self.world.log
        self._act_at_ms = self.now_ms + BACKOFF_MS
        # A restarted coordinator writes the marker again.
        if self.marker_end_offset is None or self.world.random.random() < 0.1:
            try:
                self.world.coordinator.end_transaction(self.producer_id, self.epoch + 1, committed=self.is_committed)
            except KafkaError as error:
                self.world.note("{} cannot end its transaction: {}", self, error)
                return
            self.world.note("{} has ended its transaction: {}", self, self.is_committed)
            self.marker_end_offset = log.end_offset
        if self.marker_end_offset <= log.high_watermark:
            self.epoch += 1
            self.is_committed = self.marker_end_offset = None

    def on_response(self, slot: str, call: Call, response: Any) -> None:
        pass

    def lost(self, slot: str, call: Call) -> None:
        pass

    # -- requests ------------------------------------------------------------------------------------------------------

    def _request_without_member(self) -> TxnOffsetCommitRequest | None:
        topics = self.world.topics
        partitions = [(name, index) for name in sorted(topics.names()) for index in range(topics.partition_count(name))]
        return self._request(self.world.some_group(), partitions)

    def _request_of(self, member: Member) -> TxnOffsetCommitRequest | None:
        topics = self.world.topics
        if isinstance(member, ClassicClient):
            epoch = member.generation
            owned = [(name, index) for name, index in sorted(member.owned) if topics.id_of(name) is not None]
        else:
            epoch = member.epoch
            owned = sorted((name, index) for of, index in member.owned if (name := topics.name_of(of)) is not None)
        if epoch <= 0 or epoch == NO_GENERATION:
            return None
        request = self._request(member.group_id, owned)
        if request is not None:
            request.generation_id = epoch
            request.member_id = member.member_id
            request.group_instance_id = member.instance_id
        return request

    def _request(self, group_id: str, partitions: list[tuple[str, int]]) -> TxnOffsetCommitRequest | None:
        if not partitions:
            return None
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for name, index in self.world.some_of(partitions):
            topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name, partitions=[]))
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=self.world.next_offset(), committed_metadata=self.name
                )
            )
        return TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=list(topics.values()),
        )

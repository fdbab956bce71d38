"""The base of the simulated clients: pending requests, their timeouts, and the time of the next action."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from .calls import Call

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .world import World

REQUEST_TIMEOUT_MS = 4000
BACKOFF_MS = 100

RETRIED_ERRORS = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""After these errors a client looks up its coordinator and retries."""


class Client(ABC):
    """A process with a connection to the coordinator. Requests of one client arrive in the order of sending."""

    def __init__(self, world: World, name: str, group_id: str) -> None:
        self.world = world
        self.name = name
        self.group_id = group_id
        self.is_alive = True
        self.paused_until_ms = 0
        self.waiting: dict[str, Call] = {}
        """The pending requests by purpose, at most one for each."""
        self._timeouts: dict[str, int] = {}

    def __repr__(self) -> str:
        return self.name

    @property
    def now_ms(self) -> int:
        return self.world.clock.monotonic_ms

    # -- implemented by each kind of client ----------------------------------------------------------------------------

    @abstractmethod
    def next_act_ms(self) -> int | None:
        """The time of its next action, regardless of pending requests."""

    @abstractmethod
    def act(self) -> None:
        """Perform the actions that are due."""

    @abstractmethod
    def on_response(self, slot: str, call: Call, response: Any) -> None:
        """The response to a pending request has arrived."""

    @abstractmethod
    def lost(self, slot: str, call: Call) -> None:
        """There is no response: the request timed out, or the connection was lost."""

    # -- requests ------------------------------------------------------------------------------------------------------

    def send(self, slot: str, request: Any, api_version: int, timeout_ms: int = REQUEST_TIMEOUT_MS) -> None:
        call = self.world.send(self, slot, request, api_version)
        self.waiting[slot] = call
        self._timeouts[slot] = self.now_ms + timeout_ms

    def forget(self, slot: str) -> None:
        """Stop waiting for the response."""
        self.waiting.pop(slot, None)
        self._timeouts.pop(slot, None)

    def wake_ms(self) -> int | None:
        """The time of the next call of `wake`."""
        times = [at for at in (self.next_act_ms(), *self._timeouts.values()) if at is not None]
        return max(self.paused_until_ms, min(times)) if times else None

    def wake(self) -> None:
        """Time out requests, and perform the actions that are due."""
        for slot in [slot for slot, at in self._timeouts.items() if at <= self.now_ms]:
            self.disconnected(self.waiting[slot])
        self.act()

    def receive(self, call: Call, response: Any) -> None:
        """A response; late ones are ignored."""
        if self.is_alive and self.waiting.get(call.slot) is call:
            self.forget(call.slot)
            self.on_response(call.slot, call, response)

    def disconnected(self, call: Call) -> None:
        """The connection was lost while this request was pending."""
        if self.is_alive and self.waiting.get(call.slot) is call:
            self.forget(call.slot)
            self.lost(call.slot, call)

    def stop(self) -> None:
        """The process ends."""
        self.is_alive = False
        self.waiting.clear()
        self._timeouts.clear()

    # -- commits -------------------------------------------------------------------------------------------------------

    def commit_request(
        self,
        partitions: Iterable[tuple[str, int]],
        *,
        member_id: str = "",
        generation_or_epoch: int = -1,
        group_instance_id: str | None = None,
    ) -> OffsetCommitRequest | None:
        """A commit with new offset values. It skips topics that do not exist; None if none of the topics exists."""
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for name, index in partitions:
            topic_id = self.world.topics.id_of(name)
            if topic_id is None:
                continue
            topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=[]))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=self.world.next_offset(),
                    committed_metadata=self.name,
                )
            )
        if not topics:
            return None
        return OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=generation_or_epoch,
            member_id=member_id,
            group_instance_id=group_instance_id,
            topics=list(topics.values()),
        )

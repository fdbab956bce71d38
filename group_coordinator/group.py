"""The interface of all kinds of groups (`kind`). Offsets, expiration, deletion and ListGroups use only this."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import ClassVar, Protocol

from ..coordinator.outcome import Now, Record
from ..protocol.errors import ErrorCode

CheckPartition = Callable[[str, int], ErrorCode]
"""For a topic name and a partition: whether a member may commit its offset; NONE if so."""


class Group(Protocol):
    """A group of any kind."""

    type: ClassVar[str]
    """The name of the kind in ListGroups: ``classic``, ``consumer``, ..."""

    @property
    def group_id(self) -> str: ...

    @property
    def protocol_type(self) -> str:
        """``consumer``, ``connect``, ...; empty for a group that has offsets only."""

    @property
    def state_name(self) -> str:
        """As ListGroups and the describing requests show it: ``Empty``, ``Stable``, ``PreparingRebalance``, ..."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members: it is deleted when its last offset has expired."""

    @property
    def members(self) -> Mapping[str, object]:
        """By member ID."""

    @property
    def static_members(self) -> Mapping[str, str]:
        """Member IDs by instance ID."""

    def session_deadline(self, member_id: str) -> Hashable | None:
        """The name of the deadline that ends the session of a member; None while a request of the member waits for a
        rebalance, because then it has no session."""

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> CheckPartition | None:
        """Whether such a member may commit. Returns the check for each partition; None if there is none.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH, FENCED_INSTANCE_ID,
                REBALANCE_IN_PROGRESS, UNSUPPORTED_VERSION.
        """

    def committed(self, member_id: str, now: Now) -> None:
        """A member has committed offsets: this extends the session of a classic member."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH as a `KafkaError`. A request without a member is accepted."""

    def check_offset_delete(self) -> None:
        """Raises NON_EMPTY_GROUP as a `KafkaError` if no offset may be deleted, whatever the topic."""

    def check_delete(self) -> None:
        """Raises NON_EMPTY_GROUP as a `KafkaError` unless the group may be deleted."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads this topic: then its offsets are neither deleted nor expired."""

    def expiration_base_ms(self, commit_timestamp_ms: int) -> int | None:
        """The time from which the retention of an offset with this commit time counts; None while it is kept."""

    def records(self) -> list[Record]:
        """The records from which replay creates the group as it is, without its offsets."""

    def tombstones(self) -> list[Record]:
        """The records that delete the group itself, without its offsets."""

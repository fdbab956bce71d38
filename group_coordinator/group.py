"""What every kind of group answers, whatever its protocol: offsets, deletion and the listing need no more."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol

from ..coordinator.outcome import Now, Record
from ..protocol.errors import ErrorCode


class GroupType(enum.Enum):
    """The protocol that a group's members speak; the value is the name that clients see."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


CheckPartition = Callable[[str, int], ErrorCode]
"""For a topic's name and a partition: whether a member may commit its offset; NONE if so."""


class Group(Protocol):
    """A group of either protocol."""

    @property
    def group_id(self) -> str: ...

    @property
    def type(self) -> GroupType: ...

    @property
    def protocol_type(self) -> str:
        """``consumer``, ``connect``, ...; empty for a group that has offsets only."""

    @property
    def state_name(self) -> str:
        """As ListGroups and the describing requests show it: ``Empty``, ``Stable``, ``PreparingRebalance``, ..."""

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> CheckPartition | None:
        """Whether such a member may commit; what is to be checked of each partition, None when nothing is.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH, FENCED_INSTANCE_ID,
                REBALANCE_IN_PROGRESS, UNSUPPORTED_VERSION.
        """

    def committed(self, member_id: str, now: Now) -> None:
        """A member has committed offsets: for a classic member that is a sign of life."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH as a `KafkaError`; who names no member may always fetch."""

    def check_offset_delete(self) -> None:
        """Raises NON_EMPTY_GROUP as a `KafkaError` where no offset may be deleted whatever the topic."""

    def check_delete(self) -> None:
        """Raises NON_EMPTY_GROUP as a `KafkaError` unless the group may be deleted."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads this topic: its offsets are neither deleted nor expired then."""

    def expiration_base_ms(self, commit_timestamp_ms: int) -> int | None:
        """Since when the retention of an offset that was committed then is counted; None while it is kept."""

    def tombstones(self) -> list[Record]:
        """The records that delete the group itself, without its offsets."""

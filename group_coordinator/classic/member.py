"""A member of a classic group."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller
    from ...protocol.messages.join_group import JoinGroupRequestProtocol


def protocols_of(protocols: Iterable[JoinGroupRequestProtocol]) -> dict[str, bytes]:
    """The protocols of a request by name, in order of preference. Of two with the same name, the first counts."""
    by_name: dict[str, bytes] = {}
    for protocol in protocols:
        by_name.setdefault(protocol.name, protocol.metadata)
    return by_name


class ClassicMember:
    """The state of a member, and the callers that wait for its responses.

    A caller is either kept here or part of an `Outcome`, never both: code that answers a caller removes it here.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        *,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: dict[str, bytes],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        """The metadata by supported protocol, in order of preference. After loading, only that of the group's
        protocol."""
        self.assignment = assignment
        self.awaiting_join: Caller | None = None
        """Changed only by `ClassicGroup`, which counts waiting callers."""
        self.awaiting_sync: Caller | None = None
        self.is_new = False
        """Its first JoinGroup has not been answered: its session runs although its request waits."""
        self.session: Hashable = session_name(member_id)

    @property
    def is_static(self) -> bool:
        """It has an instance ID (KIP-345): it may rejoin as the same member."""
        return self.group_instance_id is not None

    @property
    def stays_alive_by_waiting(self) -> bool:
        """It cannot send heartbeats while its request waits, so its session does not expire."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def has_protocols(self, protocols: dict[str, bytes]) -> bool:
        """Whether these are the same, in the same order."""
        return self.protocols == protocols and list(self.protocols) == list(protocols)


def session_name(member_id: str) -> Hashable:
    """The name of the deadline of a member's session, or of the time in which it must rejoin with its new member ID."""
    return "classic session", member_id

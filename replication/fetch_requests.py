"""The requesting side of a fetch session (KIP-227): a follower names a partition only when its request has changed.

    epoch 0    a full request, which begins a session; the leader may refuse the session with the id 0
    epoch n    an incremental request: new and changed partitions, and those to forget

After a failure, it is unknown what the leader knows. The next request is full. It ends the old session if the leader
may still have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..protocol.errors import ErrorCode
from .following import Position

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = 0x7FFF_FFFF

Key = tuple[bytes, int]
"""A partition: the id of its topic, and its index."""


class SessionRequest(NamedTuple):
    """The session fields and the partitions of one request."""

    session_id: int
    session_epoch: int
    named: dict[Key, Position]
    forgotten: list[Key]


class RequestSession:
    """See the module docstring. One request at a time."""

    __slots__ = ("_epoch", "_id", "_known", "_requested")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: dict[Key, Position] = {}  # of the leader
        self._requested: dict[Key, Position] = {}

    @property
    def requested(self) -> Mapping[Key, Position]:
        """All partitions of the latest request, also those that it did not name."""
        return self._requested

    def request(self, wanted: dict[Key, Position]) -> SessionRequest:
        """The next request for exactly these partitions."""
        self._requested = wanted
        if self._epoch == INITIAL_EPOCH:
            return SessionRequest(self._id, INITIAL_EPOCH, wanted, [])
        known = self._known
        named = {key: position for key, position in wanted.items() if known.get(key) != position}
        return SessionRequest(self._id, self._epoch, named, [key for key in known if key not in wanted])

    def succeeded(self, session_id: int) -> None:
        """The response has arrived, with this session id."""
        self._known = dict(self._requested)
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        elif self._epoch == INITIAL_EPOCH:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1

    def failed(self, code: ErrorCode | None = None) -> None:
        """The leader has rejected the request with this error, or there was no response (None)."""
        if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH

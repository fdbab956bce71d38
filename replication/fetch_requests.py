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
    """See the module docstring. One request at a time.

    A request costs as much as has changed since the previous one, whatever the number of partitions.
    """

    __slots__ = ("_changed", "_epoch", "_id", "_known", "_wanted")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: dict[Key, Position] = {}  # of the leader
        self._wanted: dict[Key, Position] = {}
        self._changed: dict[Key, None] = {}  # partitions that may differ between `_known` and `_wanted`

    @property
    def wanted(self) -> Mapping[Key, Position]:
        """All partitions of the next request; after `request`, also those that it did not name."""
        return self._wanted

    def want(self, key: Key, position: Position) -> None:
        """Request this partition from now on, from this position."""
        self._wanted[key] = position
        self._changed[key] = None

    def drop(self, key: Key) -> None:
        """Do not request this partition any longer."""
        if self._wanted.pop(key, None) is not None:
            self._changed[key] = None

    def request(self) -> SessionRequest:
        """The next request."""
        wanted, known = self._wanted, self._known
        if self._epoch == INITIAL_EPOCH:
            return SessionRequest(self._id, INITIAL_EPOCH, dict(wanted), [])
        named = {key: wanted[key] for key in self._changed if key in wanted and known.get(key) != wanted[key]}
        forgotten = [key for key in self._changed if key in known and key not in wanted]
        return SessionRequest(self._id, self._epoch, named, forgotten)

    def succeeded(self, session_id: int) -> None:
        """The response has arrived, with this session id. Called before any further change of what is wanted."""
        if self._epoch == INITIAL_EPOCH:
            self._known = dict(self._wanted)
        else:
            for key in self._changed:
                if key in self._wanted:
                    self._known[key] = self._wanted[key]
                else:
                    self._known.pop(key, None)
        self._changed.clear()
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

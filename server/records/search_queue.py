"""Searches by timestamp that `decoder` runs away from the event loop, with a limit on the bytes of their batches.

A search that must wait releases its batch and remembers which one it was. When there is room, it gets a `Permit`, finds
its batch in the log again and submits the search again: the log may have changed. Identical searches run once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING

from .decoder import complete_safely

if TYPE_CHECKING:
    from .decode_jobs import Outcome, Search
    from .decoder import Decoder

MAX_BYTES = 16 << 20
"""Limit for the total size of batches under search, in bytes; a larger batch is searched without others."""

_PERMITS_PER_CALL = 4


class Permit:
    """Permission for a search that has waited. Its receiver submits the search again, or releases the permit."""

    __slots__ = ("_queue", "entry", "identity")

    def __init__(self, queue: SearchQueue, identity: Hashable, entry: _Entry) -> None:
        self._queue: SearchQueue | None = queue
        self.identity = identity
        self.entry = entry

    def release(self) -> None:
        """The search is no longer needed. Further calls do nothing."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.release(self)

    def use(self) -> bool:
        """Whether the permit can be used. It can be used once."""
        queue, self._queue = self._queue, None
        return queue is not None


Done = Callable[["Outcome | Permit"], None]


class _Entry:
    """A search and its callers."""

    __slots__ = ("cancel", "dones", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.dones: dict[object, Done] = {}
        self.cancel: Callable[[], None] | None = None  # set while the search runs


class SearchQueue:
    """All searches of one server that could not be done immediately. Belongs to the event loop."""

    def __init__(self, decoder: Decoder, max_bytes: int = MAX_BYTES) -> None:
        self._decoder = decoder
        self._max_bytes = max_bytes
        self._running: dict[Hashable, _Entry] = {}
        self._waiting: dict[Hashable, _Entry] = {}  # the longest wait first
        self._is_granting = False
        self.held_bytes = 0
        """Total size of the batches that are being searched, or may be read again for a search."""

    def __len__(self) -> int:
        """The number of different searches that wait for room."""
        return len(self._waiting)

    def submit(self, search: Search, done: Done, permit: Permit | None = None) -> Callable[[], None]:
        """Run the search; ``done`` is called later with the outcome, or with a permit to submit the search again.

        Call the returned function to cancel. ``permit``: the permit of this search, if it has waited.
        """
        identity = search.identity
        size = len(search.batch)
        inherited: dict[object, Done] = {}
        has_permit = permit is not None and permit.use()
        if has_permit:
            assert permit is not None
            self.held_bytes -= permit.entry.size
            if permit.identity == identity:
                inherited = permit.entry.dones
            else:
                self._wait_again(permit)
        entry = self._running.get(identity)
        if entry is None and self._fits(size) and (has_permit or not self._waiting):
            entry = self._running[identity] = _Entry(size)
            self.held_bytes += size
            entry.cancel = self._decoder.submit(search, partial(self._ended, identity, entry))
        if entry is None:
            entry = self._waiting.setdefault(identity, _Entry(size))
        token = object()
        entry.dones |= inherited
        entry.dones[token] = done
        if has_permit:
            self._grant_permits()
        return partial(self._remove, identity, token)

    def release(self, permit: Permit) -> None:
        """See `Permit.release`."""
        self.held_bytes -= permit.entry.size
        self._wait_again(permit)
        self._grant_permits()

    def _wait_again(self, permit: Permit) -> None:
        """If other callers wait for the same search, one of them gets the permit."""
        if permit.entry.dones:
            first = {permit.identity: permit.entry}
            waiting = self._waiting.pop(permit.identity, None)
            if waiting is not None:
                permit.entry.dones |= waiting.dones
            self._waiting = first | self._waiting

    def _fits(self, size: int) -> bool:
        return not self.held_bytes or self.held_bytes + size <= self._max_bytes

    def _grant_permits(self) -> None:
        """Grant a limited number of permits. While any wait, others have permits or run: this is called again."""
        if self._is_granting:
            return
        self._is_granting = True
        for _ in range(_PERMITS_PER_CALL):
            if not self._waiting:
                break
            identity, entry = next(iter(self._waiting.items()))
            if not self._fits(entry.size):
                break
            del self._waiting[identity]
            self.held_bytes += entry.size
            token = next(iter(entry.dones))
            done = entry.dones.pop(token)
            complete_safely(done, Permit(self, identity, entry))
        self._is_granting = False

    def _ended(self, identity: Hashable, entry: _Entry, outcome: Outcome) -> None:
        del self._running[identity]
        self.held_bytes -= entry.size
        dones, entry.dones = entry.dones, {}
        for done in dones.values():
            complete_safely(done, outcome)
        self._grant_permits()

    def _remove(self, identity: Hashable, token: object) -> None:
        """The caller has cancelled the search."""
        for entries in (self._running, self._waiting):
            entry = entries.get(identity)
            if entry is None or entry.dones.pop(token, None) is None or entry.dones:
                continue
            del entries[identity]
            if entry.cancel is not None:
                self.held_bytes -= entry.size
                entry.cancel()
            self._grant_permits()

"""Received bytes that were not served yet, for all connections together.

A connection that waits (for its turn, for its peer to read responses, for a request that is served in slices) keeps the
bytes behind the request at which it stopped. They may be as many as one call receives, and there may be thousands of
connections. Above `MAX_BYTES`, each connection receives only `SMALL_BYTES` per call, until less is kept. The rest stays
in the sockets.
"""

from __future__ import annotations

RECEIVE_BYTES = 256 * 1024
SMALL_BYTES = 8 * 1024
MAX_BYTES = 16 * 1024 * 1024


class Unserved:
    """Counts the kept bytes, and owns the buffer into which all connections receive."""

    __slots__ = ("_all", "_small", "buffer", "kept_bytes")

    def __init__(self) -> None:
        self._all = memoryview(bytearray(RECEIVE_BYTES))
        self._small = self._all[:SMALL_BYTES]
        self.buffer = self._all
        self.kept_bytes = 0
        """The total of all connections."""

    def count(self, more: int) -> None:
        """A connection keeps ``more`` bytes in addition, or fewer if the number is negative."""
        self.kept_bytes += more
        self.buffer = self._all if self.kept_bytes <= MAX_BYTES else self._small

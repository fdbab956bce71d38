"""The start offset of each leader epoch (KIP-101, KIP-320): the `leader-epoch-checkpoint` of a partition.

A follower or a consumer asks for the end offset of an epoch, and compares it with its own offset to detect whether its
log diverged from the leader's.

Entries are (epoch, start offset), both growing. The file is Apache Kafka's:

    0                       version
    <number of entries>
    <epoch> <start offset>  one line for each

The file is behind the state in memory, and is updated when the log is flushed, sealed or closed. An entry that is lost
in an unclean shutdown is after the recovery point, and is restored from the batches there.
"""

from __future__ import annotations

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class LeaderEpochs:
    """The entries of one partition; see the module docstring."""

    __slots__ = ("dirty", "entries", "latest")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries: list[tuple[int, int]] = []
        self.latest = UNDEFINED_EPOCH
        """The latest epoch; -1 if there is none."""
        self.dirty = False
        """The file does not contain the current entries."""
        for epoch, start_offset in entries or ():
            self.assign(epoch, start_offset)
        self.dirty = False

    def assign(self, epoch: int, start_offset: int) -> None:
        """Records of `epoch` begin at `start_offset`. No effect if the epoch is the latest, and does not begin
        earlier. Conflicting entries, with the same or a later epoch or offset, are removed.
        """
        if epoch < 0 or start_offset < 0:
            return
        entries = self.entries
        if entries and entries[-1][0] == epoch and start_offset >= entries[-1][1]:
            return
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        self.latest = epoch
        self.dirty = True

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch` and its end offset; (-1, -1) if unknown.

        The latest epoch ends at `log_end_offset`. For an epoch before all known ones, the result is the epoch itself
        and the start of the first known one, from which the follower must begin.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        floor = None
        for known, start_offset in self.entries:
            if known > epoch:
                return (epoch if floor is None else floor), start_offset
            floor = known
        return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET

    def epoch_of(self, offset: int) -> int:
        """The epoch of the record at `offset`; -1 if unknown."""
        epoch = UNDEFINED_EPOCH
        for known, start_offset in self.entries:
            if start_offset > offset:
                break
            epoch = known
        return epoch

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`."""
        entries = self.entries
        while entries and entries[-1][1] >= end_offset:
            entries.pop()
            self.dirty = True
        self.latest = entries[-1][0] if entries else UNDEFINED_EPOCH

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now begins at `start_offset`, and so does the epoch of this offset."""
        entries = self.entries
        passed = 0
        while passed < len(entries) and entries[passed][1] <= start_offset:
            passed += 1
        if passed and entries[:passed] != [(entries[passed - 1][0], start_offset)]:
            entries[:passed] = [(entries[passed - 1][0], start_offset)]
            self.dirty = True

    def extend_to_start(self, earlier: LeaderEpochs) -> None:
        """Add the epochs of the batches before the first entry. No effect if they conflict with the entries."""
        entries = self.entries
        if not earlier.entries or not entries or earlier.latest > entries[0][0]:
            return
        if earlier.latest == entries[0][0]:
            del entries[0]
        entries[:0] = earlier.entries
        self.dirty = True

    def clear(self) -> None:
        self.dirty = self.dirty or bool(self.entries)
        self.entries.clear()
        self.latest = UNDEFINED_EPOCH

    def encode(self) -> bytes:
        """The content of the checkpoint file."""
        lines = ["0", str(len(self.entries)), *(f"{epoch} {offset}" for epoch, offset in self.entries)]
        return ("\n".join(lines) + "\n").encode()

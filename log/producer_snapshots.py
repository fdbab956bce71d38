"""The producer snapshots of a partition as files: `<offset>.snapshot` is the producer state at that offset.

They are written where a segment begins and at a clean shutdown, so that startup and truncation need not read the log
from its beginning. Only those at the beginning of a segment, and the latest one, are useful.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..protocol.records import InvalidRecordsError
from ..protocol.steps import Steps, completed
from .files import FileSystem, join
from .names import PRODUCER_SNAPSHOT, offset_file_name
from .producer_state import CorruptSnapshotError, ProducerState
from .segments import Segments

BATCHES_PER_STEP = 50
"""Batches whose headers are read in one step: about 0.2 ms."""


class ProducerSnapshots:
    """The snapshot files of one partition. `OSError` propagates."""

    __slots__ = ("_file_system", "directory", "offsets")

    def __init__(self, file_system: FileSystem, directory: str, offsets: Iterable[int]) -> None:
        self._file_system = file_system
        self.directory = directory
        self.offsets = sorted(offsets)
        """The offsets of the snapshots on disk, in order."""

    def path(self, offset: int) -> str:
        return join(self.directory, offset_file_name(offset, PRODUCER_SNAPSHOT))

    def take(self, offset: int, producers: ProducerState, *, sync: bool) -> bool:
        """Write the state at `offset`. Returns False if there already is a snapshot at this offset or a later one."""
        if not offset or (self.offsets and self.offsets[-1] >= offset):
            return False
        self._file_system.replace_file(self.path(offset), producers.encode_snapshot(), sync=sync)
        self.offsets.append(offset)
        return True

    def drop(self, condition: Callable[[int], bool]) -> None:
        """Unlink the snapshots for whose offset `condition` holds."""
        for offset in [offset for offset in self.offsets if condition(offset)]:
            self.offsets.remove(offset)
            try:
                self._file_system.unlink(self.path(offset))
            except FileNotFoundError:
                continue

    def restore(
        self, producers: ProducerState, segments: Segments | None, start: int, end: int, *, complete: bool = False
    ) -> list[str]:
        """Set `producers` to the state at offset `end`; returns one text for each problem.

        Uses the latest readable snapshot between `start` and `end`, and the batches after it. `complete`: if there were
        producers, there is a snapshot; without one the log is not read.
        """
        return completed(self.restoring(producers, segments, start, end, complete=complete))

    def restoring(
        self, producers: ProducerState, segments: Segments | None, start: int, end: int, *, complete: bool = False
    ) -> Steps[list[str]]:
        """`restore` in steps of at most `BATCHES_PER_STEP` batches."""
        problems: list[str] = []
        producers.clear()
        position = start
        for offset in [offset for offset in reversed(self.offsets) if start <= offset <= end]:
            try:
                producers.load_snapshot(self._file_system.read_file(self.path(offset)))
            except (CorruptSnapshotError, FileNotFoundError) as error:
                problems.append(f"removed {self.path(offset)}: {error}")
                self.drop(lambda found, broken=offset: found == broken)  # type: ignore[misc]
                continue
            position = offset
            break
        else:
            if complete and not problems:
                return problems
        if segments is not None and position < end:
            try:
                yield from _replaying(producers, segments, position, end)
            except InvalidRecordsError as error:
                problems.append(f"the producer state of {self.directory} is incomplete: {error}")
        return problems


def _replaying(producers: ProducerState, segments: Segments, position: int, end: int) -> Steps[None]:
    for number, (segment, header, at) in enumerate(segments.located_headers(position, end), 1):
        if header.producer_id >= 0 and header.last_offset < end:
            producers.replay(header, segment.read_batch(at, header.size) if header.is_control else None)
        if not number % BATCHES_PER_STEP:
            yield 0

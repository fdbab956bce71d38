"""The repairs of one partition's files. Each function makes one repair, which is synced when it returns.

Only derived data is rebuilt. `cut_log`, which removes batches, keeps them in separate files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..log.checkpoints import decode_leader_epochs
from ..log.config import LogConfig
from ..log.descriptors import DescriptorCache
from ..log.files import FileSystem, join
from ..log.leader_epochs import LeaderEpochs
from ..log.names import (
    CUT,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    PRODUCER_SNAPSHOT,
    SEGMENT_SUFFIXES,
    offset_file_name,
    parse_offset_file_name,
)
from ..log.partition_loading import reindex, whole_batches
from ..log.producer_state import CorruptSnapshotError, ProducerState
from ..log.segment import Segment
from ..log.transaction_index import AbortedTransaction
from ..protocol.records import BATCH_OVERHEAD, RecordBatch, read_batch_header

_COPY_BYTES = 1 << 22
_EPOCH_POSITION = 12
_CONFIG = LogConfig()


def cut_log(file_system: FileSystem, directory: str, base_offset: int, position: int) -> list[str]:
    """Truncate the log at `position` of a segment; the removed bytes are kept in `.cut-` files. Returns their names.

    The segment itself remains, even if it is empty: its name contains the log end offset.
    """
    kept = []
    for base in _segments(file_system, directory):
        if base < base_offset:
            continue
        name = offset_file_name(base, LOG)
        start = position if base == base_offset else 0
        copy = f"{name}{CUT}{start}"
        _copy(file_system, join(directory, name), start, join(directory, copy))
        kept.append(copy)
    file_system.sync_directory(directory)
    # From the end: an interrupted truncation may leave a shorter log, but not a log with a hole.
    for base in reversed(_segments(file_system, directory)):
        if base > base_offset:
            for suffix in SEGMENT_SUFFIXES:
                _unlink(file_system, join(directory, offset_file_name(base, suffix)))
    file = file_system.open(join(directory, offset_file_name(base_offset, LOG)))
    try:
        file.truncate(position)
        file.sync()
    finally:
        file.close()
    file_system.sync_directory(directory)
    return kept


def _copy(file_system: FileSystem, path: str, position: int, copy_path: str) -> None:
    source = file_system.open(path, read_only=True)
    try:
        copy = file_system.open(copy_path, create=True)
        try:
            copy.truncate(0)
            written = 0
            while data := source.read_at(position + written, _COPY_BYTES):
                copy.write_at((data,), written, len(data))
                written += len(data)
            copy.sync()
        finally:
            copy.close()
    finally:
        source.close()


def rebuild_indexes(file_system: FileSystem, directory: str, base_offset: int) -> None:
    """Rebuild `.index` and `.timeindex` of an intact segment, with an entry for each `index.interval.bytes` of Kafka's
    default."""
    files = DescriptorCache(file_system, 8)
    try:
        segment = _open_segment(files, directory, base_offset)
        problem = reindex(segment, _CONFIG.index_interval_bytes)
        assert problem is None, f"{segment.path} was intact when it was checked, but is damaged now: {problem}"
        for index in (segment.offset_index, segment.time_index):
            index.persist()
            index.opened().file.sync()
    finally:
        files.close()
    file_system.sync_directory(directory)


def rebuild_producers(file_system: FileSystem, directory: str, wrong: Iterable[int], *, clean: bool) -> None:
    """Rebuild the snapshots at the offsets `wrong` and all indexes of aborted transactions from the batches.

    The correct snapshots are used: they contain producers whose records are deleted. After a clean shutdown there must
    be a snapshot at the log end offset.
    """
    wrong = set(wrong)
    names, _ = file_system.list_directory(directory)
    parsed = [found for found in map(parse_offset_file_name, names) if found is not None]
    snapshots = sorted(offset for offset, suffix in parsed if suffix == PRODUCER_SNAPSHOT)
    for offset in wrong.intersection(snapshots):
        _unlink(file_system, join(directory, offset_file_name(offset, PRODUCER_SNAPSHOT)))
    right = [offset for offset in snapshots if offset not in wrong]
    producers = ProducerState()
    files = DescriptorCache(file_system, 8)
    bases = _segments(file_system, directory)
    end = 0
    try:
        for base in bases:
            segment = _open_segment(files, directory, base)
            end = max(end, base)
            _pass_snapshots(file_system, directory, right, base, producers)
            if base in wrong and base != bases[0]:
                _write_snapshot(file_system, directory, base, producers)
            aborted: list[AbortedTransaction] = []
            for batch, _position in whole_batches(segment, segment.size):
                _pass_snapshots(file_system, directory, right, batch.base_offset, producers)
                _replay(producers, batch, aborted)
                end = batch.next_offset
            segment.transaction_index.rebuild(aborted)
    finally:
        files.close()
    _pass_snapshots(file_system, directory, right, end, producers)
    if clean and end and not file_system.exists(join(directory, offset_file_name(end, PRODUCER_SNAPSHOT))):
        _write_snapshot(file_system, directory, end, producers)
    file_system.sync_directory(directory)


def _replay(producers: ProducerState, batch: RecordBatch, aborted: list[AbortedTransaction]) -> None:
    completed = producers.replay(batch, batch if batch.is_control else None)
    if completed is not None and completed.aborted:
        stable = producers.last_stable_offset_after(completed)
        aborted.append(AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable))


def _pass_snapshots(
    file_system: FileSystem, directory: str, snapshots: list[int], offset: int, producers: ProducerState
) -> None:
    """Load the snapshots up to `offset`."""
    while snapshots and snapshots[0] <= offset:
        path = join(directory, offset_file_name(snapshots.pop(0), PRODUCER_SNAPSHOT))
        try:
            producers.load_snapshot(file_system.read_file(path))
        except CorruptSnapshotError:
            _unlink(file_system, path)


def _write_snapshot(file_system: FileSystem, directory: str, offset: int, producers: ProducerState) -> None:
    path = join(directory, offset_file_name(offset, PRODUCER_SNAPSHOT))
    file_system.replace_file(path, producers.encode_snapshot(), sync=True)


def correct_batch_epoch(file_system: FileSystem, directory: str, base_offset: int, position: int) -> None:
    """Write the checkpoint's leader epoch to the header of one batch: 4 bytes that no CRC covers."""
    path = join(directory, LEADER_EPOCH_CHECKPOINT)
    epochs = LeaderEpochs(decode_leader_epochs(file_system.read_file(path), path))
    file = file_system.open(join(directory, offset_file_name(base_offset, LOG)))
    try:
        header = read_batch_header(file.read_at(position, BATCH_OVERHEAD))
        epoch = epochs.epoch_of(header.base_offset)
        file.write_at((epoch.to_bytes(4, "big", signed=True),), position + _EPOCH_POSITION, 4)
        file.sync()
    finally:
        file.close()


def rebuild_leader_epochs(file_system: FileSystem, directory: str, log_start_offset: int | None) -> None:
    """Rebuild `leader-epoch-checkpoint` from the batches."""
    epochs = LeaderEpochs()
    files = DescriptorCache(file_system, 8)
    bases = _segments(file_system, directory)
    try:
        for base in bases:
            segment = _open_segment(files, directory, base)
            for batch, _position in whole_batches(segment, segment.size):
                if batch.partition_leader_epoch != epochs.latest:
                    epochs.assign(batch.partition_leader_epoch, batch.base_offset)
    finally:
        files.close()
    epochs.truncate_from_start(max(log_start_offset or 0, bases[0] if bases else 0))
    file_system.replace_file(join(directory, LEADER_EPOCH_CHECKPOINT), epochs.encode(), sync=True)


def _open_segment(files: DescriptorCache, directory: str, base_offset: int) -> Segment:
    path = join(directory, offset_file_name(base_offset, LOG))
    return Segment(
        files,
        directory,
        base_offset,
        size=files.file_system.size(path),
        max_index_bytes=_CONFIG.segment_index_bytes,
        created_ms=0,
        new=False,
    )


def _segments(file_system: FileSystem, directory: str) -> Sequence[int]:
    names, _ = file_system.list_directory(directory)
    return sorted(parsed[0] for parsed in map(parse_offset_file_name, names) if parsed is not None and parsed[1] == LOG)


def _unlink(file_system: FileSystem, path: str) -> None:
    try:
        file_system.unlink(path)
    except FileNotFoundError:
        return

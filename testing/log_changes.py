"""Changes to the log of a stopped server: offsets without records, as compaction and transactions leave them, and the
loss of the last records.

What a log cleaner leaves of batches whose records are all gone, where their last offset still matters, is the bare
header of a batch: it covers their offsets and holds nothing. Producers cannot send one (a server refuses a batch that
counts fewer records than offsets), a follower takes it from its leader. So the data is opened as the server opens it,
the header is appended as a follower would, and the data is closed as the server closes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..log.files import RealFileSystem
from ..protocol.records import build_batch
from ..server.storage.opening import open_storage
from .builders import batch

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig
    from ..log.partition_log import Log

# A batch counts its offsets with 31 bits.
LARGEST_GAP = 2**31 - 1


def insert_offset_gap(config: BrokerConfig, data_dir: Path, topic: str, partition: int, count: int) -> int:
    """Skip ``count`` offsets at the end of the partition, and return the next one.

    Raises ValueError if the partition does not exist, or ``count`` is 0 or too large for a batch.
    """
    if not 1 <= count <= LARGEST_GAP:
        raise ValueError(f"a gap has 1 to {LARGEST_GAP} offsets, not {count}")
    now_ms = int(time.time() * 1000)
    with _opened(config, data_dir, topic, partition, now_ms) as log:
        gap = build_batch(
            [], base_offset=log.log_end_offset, last_offset_delta=count - 1, leader_epoch=log.latest_epoch
        )
        log.append_as_follower(gap, now_ms=now_ms, leader_epoch=log.latest_epoch)
        return log.log_end_offset


def truncate(
    config: BrokerConfig, data_dir: Path, topic: str, partition: int, offset: int, values: Sequence[bytes]
) -> int:
    """Remove the batch with ``offset`` and everything after it, append records of the next leader epoch, and return the
    next offset.

    Raises ValueError if the partition does not exist, or does not have this offset.
    """
    now_ms = int(time.time() * 1000)
    with _opened(config, data_dir, topic, partition, now_ms) as log:
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise ValueError(
                f"{topic}-{partition} has the offsets {log.log_start_offset} to {log.log_end_offset}, not {offset}"
            )
        epoch = log.latest_epoch + 1  # the controller is ahead: each restart begins an epoch
        log.truncate_to(offset, now_ms)
        if values:
            records = batch(*values, base_offset=log.log_end_offset, leader_epoch=epoch)
            log.append_as_follower(records, now_ms=now_ms, leader_epoch=epoch)
        return log.log_end_offset


@contextmanager
def _opened(config: BrokerConfig, data_dir: Path, topic: str, partition: int, now_ms: int) -> Iterator[Log]:
    storage = open_storage(config, [str(data_dir)], config.listeners, now_ms=now_ms, file_system=RealFileSystem())
    try:
        log = storage.log_manager.get(topic, partition)
        if log is None:
            raise ValueError(f"there is no partition {topic}-{partition}")
        yield log
    finally:
        storage.close(now_ms)

"""End transaction markers for logs in memory."""

from __future__ import annotations

import struct

from moldau.protocol.records import Record, build_batch


def build_marker(producer_id: int, producer_epoch: int, *, coordinator_epoch: int, committed: bool) -> bytes:
    """A control batch, as the log writes it (KIP-98)."""
    record = Record(key=struct.pack(">hh", 0, int(committed)), value=struct.pack(">hi", 0, coordinator_epoch))
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )

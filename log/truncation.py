"""What a truncation of a log needs to know, read before it in steps.

A truncation restores the state of the producers from the batches before its offset. There may be a whole segment of
them, which a caller that must not pause reads before: `Log.prepare_truncation`.
"""

from __future__ import annotations

from typing import NamedTuple

from .producer_state import ProducerState


class PreparedTruncation(NamedTuple):
    """The producers before a batch, of a log in a certain state."""

    offset: int
    """The batch with it is the first one that the truncation removes."""
    log_end_offset: int
    cuts: int
    """`Log.cuts`. The files are those that were read while it and the log end offset are the same."""
    producers: ProducerState

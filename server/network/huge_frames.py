"""Buffers of tens of megabytes: each is a separate memory mapping, and is returned to the system in steps.

The allocator could move such a buffer when it grows. Freeing it in one call would block the event loop for several
milliseconds, because the system frees page by page.
"""

from __future__ import annotations

import mmap
from collections.abc import Generator

from ...protocol.records import Buffer

HUGE_FRAME_BYTES = 2 << 20
"""Frames up to this size use ordinary buffers, which are reused (`spare_frames`)."""
HUGE_FRAME_GROWTH_BYTES = 4 << 20
"""The maximum number of bytes that a frame reserves in one step."""
_STEP_BYTES = 8 << 20


def huge_frame(size: int) -> mmap.mmap | None:
    """A buffer of ``size`` bytes, which takes memory as it is written; None if the system refuses."""
    try:
        # Private: of a shared mapping, the system would only remove the pages of the process, and keep their contents.
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        return None


def free_steps(data: Buffer) -> Generator[int, None, None]:
    """Free the memory of a part of a huge buffer, in steps of about 0.5 ms. Its contents are lost.

    Does nothing if the buffer is not huge, or if the system lacks the call.
    """
    whole = data.obj if isinstance(data, memoryview) else None
    advice = getattr(mmap, "MADV_DONTNEED", None)
    if not isinstance(whole, mmap.mmap) or advice is None:
        return
    # The position of the part is unknown, but at most this many bytes are before it or behind it.
    others = len(whole) - len(data)
    start = -(-others // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (len(whole) - others) // mmap.PAGESIZE * mmap.PAGESIZE
    for position in range(start, end, _STEP_BYTES):
        whole.madvise(advice, position, min(_STEP_BYTES, end - position))
        yield 0

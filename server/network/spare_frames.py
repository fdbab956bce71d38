"""Reusable buffers of large frames that were served.

A producer with batches of a megabyte sends one such frame after another. New memory costs a page fault for every 4 kB,
which is more than the cost of filling it. In addition, a buffer that grows while its frame arrives is copied. So a few
buffers are kept. They are already allocated: assigning one to a frame that is only beginning takes no memory that a
peer could claim by declaring a length.
"""

from __future__ import annotations

MAX_SPARES = 4
MAX_SPARE_BYTES = 2 * 1024 * 1024


class SpareFrames:
    """See the module docstring."""

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        self._frames: list[bytearray] = []

    def take(self, size: int) -> bytearray | None:
        """A buffer of exactly ``size`` bytes with arbitrary contents; None if no spare buffer has about that size."""
        frames = self._frames
        for index, frame in enumerate(frames):
            # Within these bounds the buffer is resized in place, or nearly so.
            if len(frame) // 2 < size <= len(frame) + len(frame) // 8:
                del frames[index]
                if size <= len(frame):
                    del frame[size:]
                else:
                    frame.extend(bytes(size - len(frame)))
                return frame
        return None

    def keep(self, frame: bytearray) -> None:
        """Keep a buffer for reuse. Its contents must no longer be in use."""
        if len(frame) > MAX_SPARE_BYTES:
            return
        try:
            frame.append(0)
        except BufferError:
            return  # a view of it still exists
        if len(self._frames) == MAX_SPARES:
            del self._frames[0]  # its size may no longer be in use
        self._frames.append(frame)

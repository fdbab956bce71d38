"""Buffers of large frames that were served, for the next ones.

A producer with batches of a megabyte sends one such frame after another. Memory that is new to the process costs a page
fault for every 4 kB, which is more than it costs to fill it; a buffer that was grown while its frame arrived was copied
besides. So a few are kept. They are there already: to give one to a frame that is only beginning takes no memory that a
peer could make us take by declaring a length.
"""

from __future__ import annotations

MAX_SPARES = 4
MAX_SPARE_BYTES = 2 * 1024 * 1024


class SpareFrames:
    """See the module's text."""

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        self._frames: list[bytearray] = []

    def take(self, size: int) -> bytearray | None:
        """A buffer of exactly ``size`` bytes with anything in it; None if there is none of about that size."""
        frames = self._frames
        for index, frame in enumerate(frames):
            # Within these bounds it is made to fit in place, or nearly so.
            if len(frame) // 2 < size <= len(frame) + len(frame) // 8:
                del frames[index]
                if size <= len(frame):
                    del frame[size:]
                else:
                    frame.extend(bytes(size - len(frame)))
                return frame
        return None

    def keep(self, frame: bytearray) -> None:
        """Take a buffer back. Nobody may use what is in it any more."""
        if len(frame) > MAX_SPARE_BYTES:
            return
        try:
            frame.append(0)
        except BufferError:
            return  # somebody still has a view of it
        if len(self._frames) == MAX_SPARES:
            del self._frames[0]  # perhaps of a size that is not used any more
        self._frames.append(frame)

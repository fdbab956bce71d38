"""The outstanding parts of a response.

A request may concern several partitions, groups or files, each of which completes independently, now or later. A
`Pending` counts these parts, keeps their results in the order in which they began, and calls back once, when all are
complete:

    pending = Pending(completed, failed)
    for each part:
        number = pending.add()
        begin the part; it ends with `complete(number, result)` or `fail(number, error)`, perhaps immediately
    pending.start()

There is no callback before `start`, so a part may complete while others are still being started. A part may add other
parts before it completes. If a part has failed, `failed` is called instead of `completed`, with the first error. It is
also called only when all parts are complete, so nothing of the response is still in progress.

If the request itself is work in slices, it waits for a `slices.SlicedFuture`, which is one result:
`Pending(later.succeed, later.fail)` combines several parts into one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

_OUTSTANDING: Final[Any] = object()


class Pending(Generic[T, E]):
    """See the module docstring. The results are T, the errors E."""

    __slots__ = ("_completed", "_error", "_failed", "_outstanding", "_results", "_started")

    def __init__(self, completed: Callable[[list[T]], object], failed: Callable[[E], object] | None = None) -> None:
        """``completed`` gets the results in the order of `add`. Without ``failed``, no part may fail."""
        self._completed: Callable[[list[T]], object] | None = completed
        self._failed = failed
        self._results: list[T] = []
        self._error: E | None = None
        self._outstanding = 0
        self._started = False

    @property
    def is_outstanding(self) -> bool:
        """Whether a part is not complete."""
        return self._outstanding > 0

    def add(self) -> int:
        """Begin a part. Returns its number."""
        if self._started and not self._outstanding:
            raise RuntimeError("a part was added after the response")
        self._outstanding += 1
        self._results.append(_OUTSTANDING)
        return len(self._results) - 1

    def start(self) -> None:
        """All parts have begun. Call back when they are complete, which may be now."""
        if self._started:
            raise RuntimeError("started twice")
        self._started = True
        if not self._outstanding:
            self._call_back()

    def complete(self, number: int, result: T) -> None:
        """Complete a part with its result."""
        if self._results[number] is not _OUTSTANDING:
            raise RuntimeError(f"part {number} has ended twice")
        self._results[number] = result
        self._outstanding -= 1
        if self._started and not self._outstanding:
            self._call_back()

    def fail(self, number: int, error: E) -> None:
        """Complete a part with an error instead of a result."""
        if self._results[number] is _OUTSTANDING:
            if self._failed is None:
                raise RuntimeError(f"part {number} failed, and no error is expected") from error
            if self._error is None:
                self._error = error
        self.complete(number, None)  # type: ignore[arg-type]  # the results are not used

    def _call_back(self) -> None:
        completed, failed = self._completed, self._failed
        self._completed = self._failed = None  # they often refer to the owner of this object: a reference cycle
        if self._error is None:
            assert completed is not None
            completed(self._results)
        else:
            assert failed is not None
            failed(self._error)

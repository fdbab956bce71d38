"""Tasks in steps: generators between whose steps other tasks can run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")

Steps = Generator[int, None, T]
"""Each step is well below a millisecond. It yields the number of result elements it has created; see
`server.concurrency.slices`."""

_ITEMS_PER_STEP = 512
"""Strings that are processed in one step: about 0.1 ms."""


def completed(steps: Generator[object, None, T]) -> T:
    """Run all steps without a pause, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def each(make: Callable[[T], U], items: Iterable[T]) -> Steps[list[U]]:
    """The results of ``make`` for each item."""
    made = []
    for item in items:
        made.append(make(item))
        yield 1
    return made


def each_once(items: Iterable[T]) -> Steps[list[T]]:
    """The items without duplicates, in the order of their first occurrence."""
    once: dict[T, None] = {}
    iterator = iter(items)
    while some := dict.fromkeys(islice(iterator, _ITEMS_PER_STEP)):
        once |= some
        yield 0
    return list(once)


def in_order(items: Sequence[Any]) -> Steps[list[Any]]:
    """The items sorted."""
    if len(items) <= _ITEMS_PER_STEP:
        return sorted(items)
    runs = []
    for first in range(0, len(items), _ITEMS_PER_STEP):
        runs.append(sorted(items[first : first + _ITEMS_PER_STEP]))
        yield 0
    ordered = []
    merged = merge(*runs)
    while some := list(islice(merged, _ITEMS_PER_STEP // 8)):
        ordered += some
        yield 0
    return ordered


def freed(items: list[Any]) -> Steps[None]:
    """Empty a list in steps, because freeing hundreds of thousands of objects takes time."""
    while items:
        del items[-_ITEMS_PER_STEP:]
        yield 0

"""Operations on lists in steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.protocol.steps import completed, each, each_once, freed, in_order

NAMES = [str(number % 4321) for number in range(10_000)]


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda names: each(int, names), [int(name) for name in NAMES]),
        (each_once, list(dict.fromkeys(NAMES))),
        (in_order, sorted(NAMES)),
    ],
)
def test_the_result_is_that_of_one_step(work: Callable[[Any], Any], expected: list[Any]) -> None:
    assert completed(work(NAMES)) == expected
    assert completed(work([])) == []
    for length in (1, 511, 512, 513, 1024, 1025):
        some = NAMES[:length]
        if work is in_order:
            assert completed(work(some)) == sorted(some)
        elif work is each_once:
            assert completed(work(some)) == list(dict.fromkeys(some))


@pytest.mark.parametrize("work", [lambda names: each(int, names), each_once, in_order])
def test_it_has_many_steps(work: Callable[[Any], Any]) -> None:
    assert sum(1 for _ in work(NAMES)) >= len(NAMES) // 512


def test_each_counts_the_created_items() -> None:
    assert sum(each(int, NAMES)) == len(NAMES)


def test_a_list_is_emptied_in_steps() -> None:
    items = list(NAMES)
    lengths = [len(items) for _ in freed(items)]
    assert items == []
    assert len(lengths) >= len(NAMES) // 512
    assert lengths == sorted(lengths, reverse=True)

"""``kill -9`` repeatedly while clients write; the checks of the rounds detect wrong records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from moldau.compat_tests.kill_rounds import (
    CompactedWriter,
    OnceWriter,
    RepeatedWriter,
    RetainedWriter,
    TransactionalWriter,
    WrongError,
    kill_rounds,
)
from moldau.testing.full_run import in_extended_run, in_full_run

NOWHERE = "127.0.0.1:1"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("rounds", [3, *in_full_run(10), *in_extended_run(20)])
def test_no_acknowledged_record_is_lost_or_duplicated(request: pytest.FixtureRequest, rounds: int) -> None:
    if request.config.getoption("apache") or request.config.getoption("bootstrap_server"):
        pytest.skip("starts and kills its own server")
    outcome = kill_rounds(rounds, seed=8)
    assert outcome.problems == []
    details = {topic: more for topic, _written, more in outcome.table}
    assert not details["compacted"].startswith("0 "), "nothing was compacted during the rounds"
    assert not details["retained"].startswith("0 "), "nothing was deleted during the rounds"


# Would it be seen?


@dataclass
class Found:
    """A record as the client returns it."""

    at: int
    text: str
    of: bytes = b""

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return self.text.encode()

    def key(self) -> bytes:
        return self.of

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0


class FakeReader:
    """A reader that has read these values, by partition."""

    def __init__(self, *partitions: list[str]) -> None:
        self.found = [[Found(at, text, text.encode()) for at, text in enumerate(values)] for values in partitions]

    def read(self, topic: str, partition: int, offset: int) -> list[Found]:
        return [found for found in self.found[partition] if found.at >= offset]


def numbers(*values: int) -> list[str]:
    return [str(value) for value in values]


Make = Callable[[str, str, int], Any]


@pytest.mark.parametrize(
    ("make", "values", "last"),
    [
        (OnceWriter, numbers(0, 1, 2, 3), 3),
        (OnceWriter, numbers(0, 1, 2, 3), 1),  # more than was acknowledged
        (RepeatedWriter, numbers(0, 1, 0, 1, 2), 2),
        (CompactedWriter, numbers(0, 1, 2, 3), 3),
        (RetainedWriter, numbers(0, 1, 2), 2),
        (RetainedWriter, [], 2),
    ],
)
def test_the_checks_accept_correct_records(make: Make, values: list[str], last: int) -> None:
    make(NOWHERE, "t", 1).check(FakeReader(values), [last])


@pytest.mark.parametrize(
    ("make", "values", "last"),
    [
        (OnceWriter, numbers(0, 1, 2), 3),  # the end is lost
        (OnceWriter, numbers(0, 2, 3), 3),  # a record in the middle
        (OnceWriter, numbers(0, 1, 1, 2), 2),  # one is there twice
        (OnceWriter, numbers(0, 2, 1, 3), 3),  # out of order
        (OnceWriter, [], 0),
        (RepeatedWriter, numbers(0, 1, 2), 3),
        (RepeatedWriter, numbers(0, 2, 3), 3),
        (CompactedWriter, numbers(0, 1, 3), 3),  # the latest of its key
        (CompactedWriter, numbers(0, 1, 3, 2), 3),
        (RetainedWriter, numbers(0, 1, 2), 3),
        (RetainedWriter, numbers(0, 2, 3), 3),
    ],
)
def test_the_checks_detect_wrong_records(make: Make, values: list[str], last: int) -> None:
    with pytest.raises(WrongError):
        make(NOWHERE, "t", 1).check(FakeReader(values), [last])


def transactions(*, committed: list[int], aborted: set[int]) -> TransactionalWriter:
    writer = TransactionalWriter(NOWHERE, "t", 1)
    writer.committed = committed
    writer.aborted = aborted
    return writer


def test_complete_transactions_are_accepted() -> None:
    reader: Any = FakeReader(["0 0", "1 0", "1 1", "3 0", "4 0"])
    transactions(committed=[0, 1, 3], aborted={2}).check(reader, 3)


@pytest.mark.parametrize(
    "values",
    [
        ["0 0", "1 0", "1 1", "2 0", "3 0"],  # an aborted one can be read
        ["0 0", "1 0", "3 0"],  # a part
        ["0 0", "1 0", "1 1", "1 1", "3 0"],  # twice
        ["1 0", "1 1", "0 0", "3 0"],  # out of order
    ],
)
def test_incomplete_transactions_are_detected(values: list[str]) -> None:
    reader: Any = FakeReader(values)
    with pytest.raises(WrongError):
        transactions(committed=[0, 1, 3], aborted={2}).check(reader, 3)

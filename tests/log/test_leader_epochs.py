"""Leader epochs: the start and end offsets, as followers and consumers of Apache Kafka receive them."""

from __future__ import annotations

import pytest

from moldau.log.checkpoints import CorruptCheckpointError, decode_leader_epochs
from moldau.log.leader_epochs import LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(list(entries))


def test_an_epoch_begins_once() -> None:
    known = epochs()
    known.assign(3, 10)
    known.assign(3, 20)
    known.assign(3, 30)
    assert known.entries == [(3, 10)]
    assert known.latest == 3


def test_entries_that_contradict_a_new_one_are_removed() -> None:
    known = epochs((1, 0), (2, 10), (4, 30))
    known.assign(5, 25)
    assert known.entries == [(1, 0), (2, 10), (5, 25)]
    known.assign(2, 12)
    assert known.entries == [(1, 0), (2, 12)]
    known.assign(2, 5)
    assert known.entries == [(1, 0), (2, 5)]
    assert known.latest == 2


def test_an_epoch_without_records_is_replaced_by_the_next_at_the_same_offset() -> None:
    known = epochs((1, 0), (2, 10))
    known.assign(3, 10)
    assert known.entries == [(1, 0), (3, 10)]


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 5), (2, -1)])
def test_no_epoch_and_no_offset_are_no_entry(epoch: int, offset: int) -> None:
    known = epochs()
    known.assign(epoch, offset)
    assert known.entries == []


@pytest.mark.parametrize(
    ("requested", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 5)),  # before all that is known: begin at the first
        (1, (1, 10)),
        (2, (1, 10)),  # unknown: the one before it
        (3, (3, 20)),
        (5, (5, 30)),
        (6, (6, 100)),  # the latest epoch has not ended
        (7, (-1, -1)),
    ],
)
def test_where_an_epoch_ends(requested: int, answer: tuple[int, int]) -> None:
    assert epochs((1, 5), (3, 10), (5, 20), (6, 30)).end_offset(requested, 100) == answer


def test_an_empty_log_has_no_epochs() -> None:
    assert epochs().end_offset(0, 100) == (-1, -1)
    assert epochs().epoch_of(5) == -1
    assert epochs().latest == -1


def test_the_epoch_of_an_offset() -> None:
    known = epochs((1, 5), (3, 10), (5, 20))
    assert [known.epoch_of(offset) for offset in (4, 5, 9, 10, 19, 20, 1_000)] == [-1, 1, 1, 3, 3, 5, 5]


def test_truncating_the_end_removes_epochs_that_begin_there_or_later() -> None:
    known = epochs((1, 0), (2, 10), (3, 20))
    known.truncate_from_end(20)
    assert known.entries == [(1, 0), (2, 10)]
    assert known.latest == 2
    known.truncate_from_end(15)
    assert known.entries == [(1, 0), (2, 10)]
    known.truncate_from_end(0)
    assert (known.entries, known.latest) == ([], -1)


def test_truncating_the_start_moves_the_epoch_of_that_offset() -> None:
    known = epochs((1, 0), (2, 10), (3, 20))
    known.truncate_from_start(15)
    assert known.entries == [(2, 15), (3, 20)]
    known.truncate_from_start(20)
    assert known.entries == [(3, 20)]
    known.truncate_from_start(5)
    assert known.entries == [(3, 20)]


def test_it_detects_that_the_file_is_outdated() -> None:
    known = epochs((1, 0))
    assert not known.dirty
    known.assign(1, 5)
    known.truncate_from_end(10)
    known.truncate_from_start(0)
    assert not known.dirty
    known.assign(2, 5)
    assert known.dirty


def test_the_file_is_apache_kafkas() -> None:
    known = epochs((1, 0), (2, 10))
    assert known.encode() == b"0\n2\n1 0\n2 10\n"
    assert decode_leader_epochs(known.encode(), "file") == known.entries
    assert decode_leader_epochs(b"0\n0\n", "file") == []


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0\0\0", b"0", b"1\n0\n", b"0\n2\n1 0\n", b"0\n1\n1\n", b"0\n1\na b\n", b"\xff\n0\n", b"0\nx\n"],
)
def test_a_damaged_file_is_rejected(content: bytes) -> None:
    with pytest.raises(CorruptCheckpointError):
        decode_leader_epochs(content, "file")

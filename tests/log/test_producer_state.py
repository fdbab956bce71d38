"""Idempotence and open transactions, from the state's own view: Apache Kafka's answers to every sequence of batches."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log.producer_state import CorruptSnapshotError, EndTransactionMarker, ProducerState
from moldau.protocol.checksum import crc32c
from moldau.protocol.errors import KafkaError
from moldau.protocol.records import increment_sequence, iter_batches

LAST = 2**31 - 1


class Producer:
    """Sends batches of one producer id to a state, as the log does."""

    def __init__(self, producer_id: int = 7) -> None:
        self.state = ProducerState()
        self.producer_id = producer_id
        self.offset = 0

    def send(
        self, first: int, last: int, *, epoch: int = 0, transactional: bool = False, verified: bool = False
    ) -> tuple[int, int] | str:
        """The offsets that the batch is answered with, or "duplicate of ..." or the error's name."""
        try:
            duplicate = self.state.check(self.producer_id, epoch, first, last, transactional, verified)
        except KafkaError as error:
            return error.code.name
        if duplicate is not None:
            return f"duplicate of {duplicate.first_offset}-{duplicate.last_offset}"
        start = self.offset
        self.offset = end = start + (last - first) % (LAST + 1) + 1
        self.state.update(self.producer_id, epoch, first, last, start, end - 1, 1_000 + start, transactional)
        return start, end - 1

    def end(self, *, committed: bool, epoch: int = 0) -> object:
        marker = EndTransactionMarker(committed, 3)
        self.offset += 1
        return self.state.end_transaction(self.producer_id, epoch, marker, self.offset - 1, 2_000)


def test_batches_in_order_are_accepted() -> None:
    producer = Producer()
    assert producer.send(0, 0) == (0, 0)
    assert producer.send(1, 5) == (1, 5)
    assert producer.send(6, 6) == (6, 6)


def test_the_last_five_batches_are_recognized_and_answered_with_their_offsets() -> None:
    producer = Producer()
    for number in range(8):
        producer.send(number * 2, number * 2 + 1)
    for number in range(3, 8):
        assert producer.send(number * 2, number * 2 + 1) == f"duplicate of {number * 2}-{number * 2 + 1}"
    assert producer.send(4, 5) == "OUT_OF_ORDER_SEQUENCE_NUMBER", "the sixth last is forgotten"


def test_a_part_of_an_earlier_batch_is_no_duplicate() -> None:
    producer = Producer()
    producer.send(0, 9)
    assert producer.send(0, 4) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.send(5, 9) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.send(0, 10) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_a_gap_is_out_of_order() -> None:
    producer = Producer()
    producer.send(0, 4)
    assert producer.send(6, 6) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.send(5, 5) == (5, 5)


def test_an_unknown_producer_may_begin_with_any_sequence_number() -> None:
    producer = Producer()
    assert producer.send(1_234, 1_240) == (0, 6)
    assert producer.send(1_241, 1_241) == (7, 7)


def test_sequence_numbers_wrap_to_zero() -> None:
    producer = Producer()
    assert producer.send(LAST - 1, LAST) == (0, 1)
    assert producer.send(0, 2) == (2, 4)
    producer = Producer()
    assert producer.send(LAST, 1) == (0, 2), "a batch may wrap in its middle"
    assert producer.send(2, 2) == (3, 3)
    assert producer.send(LAST, 1) == "duplicate of 0-2"


def test_a_new_epoch_begins_at_zero_and_the_old_one_is_fenced() -> None:
    producer = Producer()
    producer.send(0, 4)
    assert producer.send(5, 5, epoch=1) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert producer.send(0, 0, epoch=1) == (5, 5)
    assert producer.send(5, 5, epoch=0) == "INVALID_PRODUCER_EPOCH"
    assert producer.send(0, 4, epoch=0) == "INVALID_PRODUCER_EPOCH", "a duplicate of an older epoch is fenced too"
    assert producer.send(1, 1, epoch=1) == (6, 6)


def test_producers_do_not_disturb_one_another() -> None:
    first, second = Producer(1), Producer(2)
    second.state = first.state
    first.send(0, 0)
    assert second.send(50, 50) == (0, 0)
    assert first.send(1, 1) == (1, 1)
    assert len(first.state) == 2


def test_a_transaction_must_be_verified_until_it_is_open() -> None:
    producer = Producer()
    assert producer.send(0, 0, transactional=True) == "INVALID_TXN_STATE"
    assert producer.send(0, 0, transactional=True, verified=True) == (0, 0)
    assert producer.state.first_open_transaction() == 0
    assert producer.send(1, 1, transactional=True) == (1, 1)
    assert producer.send(2, 2) == "INVALID_TXN_STATE", "a plain write in the middle of a transaction"
    producer.end(committed=True)
    assert producer.state.first_open_transaction() is None
    assert producer.send(2, 2, transactional=True) == "INVALID_TXN_STATE"
    assert producer.send(1, 1, transactional=True) == "duplicate of 1-1"


def test_a_stale_epoch_is_told_before_a_missing_verification() -> None:
    producer = Producer()
    producer.send(0, 0, epoch=5)
    assert producer.send(0, 0, epoch=4, transactional=True) == "INVALID_PRODUCER_EPOCH"


def test_the_oldest_open_transaction_holds_back_the_last_stable_offset() -> None:
    first, second = Producer(1), Producer(2)
    second.state = first.state
    first.send(0, 0, transactional=True, verified=True)
    second.offset = first.offset
    second.send(0, 0, transactional=True, verified=True)
    assert first.state.first_open_transaction() == 0
    first.offset = second.offset
    completed = first.end(committed=False)
    assert completed is not None
    assert completed.aborted  # type: ignore[attr-defined]
    assert (completed.first_offset, completed.last_offset) == (0, 2)  # type: ignore[attr-defined]
    assert first.state.first_open_transaction() == 1
    assert first.state.last_stable_offset_after(completed) == 1  # type: ignore[arg-type]
    second.offset = 3
    assert first.state.last_stable_offset_after(second.end(committed=True)) == 4  # type: ignore[arg-type]


def test_an_empty_transaction_completes_nothing_and_a_marker_may_raise_the_epoch() -> None:
    producer = Producer()
    producer.send(0, 3)
    assert producer.end(committed=False, epoch=1) is None
    assert producer.send(4, 4) == "INVALID_PRODUCER_EPOCH"
    assert producer.send(0, 0, epoch=1) == (5, 5)


def test_silent_producers_are_forgotten_but_not_in_a_transaction() -> None:
    producer = Producer()
    producer.send(0, 0)
    producer.state.expire(1_000 + 499, 500)
    assert len(producer.state) == 1
    producer.state.expire(1_000 + 500, 500)
    assert len(producer.state) == 0
    producer.send(0, 0, transactional=True, verified=True)
    producer.state.expire(10**9, 500)
    assert len(producer.state) == 1


def snapshot_of(state: ProducerState) -> ProducerState:
    loaded = ProducerState()
    loaded.load_snapshot(state.encode_snapshot())
    return loaded


def test_a_snapshot_keeps_the_last_batch_of_each_producer() -> None:
    producer = Producer()
    producer.send(LAST - 2, 1, epoch=4)
    producer.send(2, 9, epoch=4)
    other = Producer(2**60)
    other.state, other.offset = producer.state, producer.offset
    other.send(0, 0, transactional=True, verified=True)
    loaded = snapshot_of(producer.state)
    assert [entry.producer_id for entry in loaded] == [7, 2**60]
    assert loaded.first_open_transaction() == producer.state.first_open_transaction() == 13
    producer.state = loaded
    assert producer.send(2, 9, epoch=4) == "duplicate of 5-12"
    assert producer.send(LAST - 2, 1, epoch=4) == "OUT_OF_ORDER_SEQUENCE_NUMBER", "only the last is kept"
    assert producer.send(10, 10, epoch=4) == (13, 13)


def test_a_snapshot_has_apache_kafkas_format() -> None:
    producer = Producer()
    producer.send(3, 5, epoch=2)
    producer.end(committed=True, epoch=2)
    data = producer.state.encode_snapshot()
    entry = struct.pack(">qhiqiqiq", 7, 2, 5, 2, 2, 2_000, 3, -1)
    assert data[:2] == b"\x00\x01"
    assert data[6:] == b"\x00\x00\x00\x01" + entry
    assert int.from_bytes(data[2:6], "big") == crc32c(data[6:])


def test_a_producer_known_by_a_marker_only_survives_a_snapshot() -> None:
    producer = Producer()
    producer.end(committed=True, epoch=3)
    entry = next(iter(snapshot_of(producer.state)))
    assert (entry.epoch, entry.coordinator_epoch, entry.last_sequence, entry.last_offset) == (3, 3, -1, -1)


def test_damaged_snapshots_are_refused_and_leave_the_state_alone() -> None:
    producer = Producer()
    producer.send(0, 0)
    good = producer.state.encode_snapshot()
    for damaged in (b"", good[:5], good[:-1], good + b"\0", b"\0\2" + good[2:], good[:20] + b"\xff" + good[21:]):
        with pytest.raises(CorruptSnapshotError):
            producer.state.load_snapshot(damaged)
    assert producer.send(0, 0) == "duplicate of 0-0"


def test_replaying_batches_gives_the_state_that_appending_gave(producer_batch: Callable[..., bytes]) -> None:
    state = ProducerState()
    for first, count in ((0, 3), (3, 1), (4, 6)):
        (batch,) = iter_batches(producer_batch(first, count, base_offset=first))
        state.replay(batch, None)
    entry = next(iter(state))
    assert [(b.first_sequence, b.last_sequence, b.first_offset, b.last_offset) for b in entry.batches] == [
        (0, 2, 0, 2),
        (3, 3, 3, 3),
        (4, 9, 4, 9),
    ]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("next"), st.integers(1, 5)),
            st.tuples(st.just("retry"), st.integers(0, 7)),
            st.tuples(st.just("gap"), st.integers(1, 5)),
            st.tuples(st.just("epoch"), st.integers(1, 2)),
            st.tuples(st.just("restart"), st.just(0)),
        ),
        max_size=40,
    ),
    st.sampled_from([0, LAST - 7]),
)
def test_nothing_is_stored_twice_and_nothing_skipped(steps: list[tuple[str, int]], first: int) -> None:
    """Whatever a producer retries or skips: what was accepted is each sequence number once, in order."""
    producer = Producer()
    epoch, next_sequence = 0, first
    sent: list[tuple[int, int, int]] = []  # since the epoch began: (first, last, offset)
    remembered = 5
    for step, number in steps:
        last = increment_sequence(next_sequence, number - 1)
        if step == "next":
            answer = producer.send(next_sequence, last, epoch=epoch)
            assert answer == (producer.offset - number, producer.offset - 1)
            sent.append((next_sequence, last, producer.offset - number))
            next_sequence = increment_sequence(last, 1)
            remembered = min(5, remembered + 1)
        elif step == "retry" and number < len(sent):
            start, end, offset = sent[-1 - number]
            answer = producer.send(start, end, epoch=epoch)
            if number < min(remembered, 5):
                assert answer == f"duplicate of {offset}-{offset + (end - start) % (LAST + 1)}"
            else:
                assert answer == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        elif step == "gap" and sent:
            beyond = increment_sequence(next_sequence, number)
            assert producer.send(beyond, beyond, epoch=epoch) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        elif step == "epoch" and sent:
            epoch += number
            assert producer.send(1, 1, epoch=epoch) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
            next_sequence = 0
            assert producer.send(0, 0, epoch=epoch) == (producer.offset - 1, producer.offset - 1)
            sent = [(0, 0, producer.offset - 1)]
            next_sequence = 1
            remembered = 1
        elif step == "restart":
            producer.state = snapshot_of(producer.state)
            remembered = min(remembered, 1)

"""Idempotence and open transactions in the producer state: every sequence of batches has the results of Apache
Kafka."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log.producer_state import CorruptSnapshotError, EndTransactionMarker, ProducerState
from moldau.log.verification import DISABLED, Verification
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
        """The offsets of the batch, or "duplicate of ...", or the name of the error."""
        try:
            verification = (
                self.state.start_verification(self.producer_id, epoch, first, epoch_per_transaction=False, now_ms=0)
                if verified
                else None
            )
            duplicate = self.state.check(self.producer_id, epoch, first, last, transactional, verification)
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


def test_the_last_five_batches_are_recognized_with_their_offsets() -> None:
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


def test_a_stale_epoch_is_reported_before_a_missing_verification() -> None:
    producer = Producer()
    producer.send(0, 0, epoch=5)
    assert producer.send(0, 0, epoch=4, transactional=True) == "INVALID_PRODUCER_EPOCH"


def test_the_oldest_open_transaction_determines_the_last_stable_offset() -> None:
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


# Verification (KIP-890)


def verify(producer: Producer, first: int, *, epoch: int = 0, epoch_per_transaction: bool = False) -> Verification:
    verification = producer.state.start_verification(
        producer.producer_id, epoch, first, epoch_per_transaction=epoch_per_transaction, now_ms=1_000
    )
    assert verification is not None
    return verification


def checked(producer: Producer, first: int, verification: Verification | None, *, epoch: int = 0) -> str:
    """The result for a transactional batch with one record."""
    try:
        duplicate = producer.state.check(producer.producer_id, epoch, first, first, True, verification)
    except KafkaError as error:
        return error.code.name
    return "NONE" if duplicate is None else "duplicate"


def test_a_verification_is_valid_until_a_marker() -> None:
    producer = Producer()
    before = verify(producer, 0)
    assert verify(producer, 1) is before, "several batches wait for one answer"
    assert checked(producer, 0, before) == "NONE"
    producer.end(committed=False)
    assert checked(producer, 0, before) == "INVALID_TXN_STATE"
    after = verify(producer, 0)
    assert checked(producer, 0, before) == "INVALID_TXN_STATE", "an old answer is not taken for a new one"
    assert checked(producer, 0, after) == "NONE"


def test_a_verification_is_valid_only_for_its_producer() -> None:
    producer, other = Producer(1), Producer(2)
    other.state = producer.state
    verification = verify(producer, 0)
    verify(other, 0)
    assert checked(other, 0, verification) == "INVALID_TXN_STATE"


def test_an_open_transaction_needs_no_verification_and_the_next_one_does() -> None:
    producer = Producer()
    producer.send(0, 0, transactional=True, verified=True)
    assert producer.state.has_open_transaction(7, 0)
    assert not producer.state.has_open_transaction(7, 1)
    assert not producer.state.has_open_transaction(8, 0)
    assert producer.state.start_verification(7, 0, 1, epoch_per_transaction=False, now_ms=0) is None
    producer.end(committed=True)
    assert not producer.state.has_open_transaction(7, 0)
    assert producer.send(1, 1, transactional=True, verified=True) == (2, 2)


def test_the_first_batch_of_a_transaction_uses_its_verification_up() -> None:
    producer = Producer()
    verification = verify(producer, 0)
    producer.state.update(7, 0, 0, 0, 0, 0, 1_000, True)
    producer.offset = 1
    producer.end(committed=True)
    assert checked(producer, 1, verification) == "INVALID_TXN_STATE"


def test_a_verification_with_an_epoch_that_is_past_does_not_begin() -> None:
    producer = Producer()
    producer.send(0, 0, epoch=2)
    with pytest.raises(KafkaError) as caught:
        verify(producer, 1, epoch=1)
    assert caught.value.code.name == "INVALID_PRODUCER_EPOCH"


def test_the_marker_of_the_transaction_before_leaves_the_next_ones_verification() -> None:
    """With an epoch for each transaction, the marker has the producer's next epoch."""
    producer = Producer()
    producer.send(0, 0, transactional=True, verified=True)
    next_transaction = verify(producer, 0, epoch=1, epoch_per_transaction=True)
    producer.end(committed=True, epoch=1)
    assert checked(producer, 0, next_transaction, epoch=1) == "NONE"
    producer.end(committed=True, epoch=2)
    assert checked(producer, 0, next_transaction, epoch=2) == "INVALID_TXN_STATE"


def test_the_lowest_sequence_seen_of_an_unknown_producer_is_expected_first() -> None:
    producer = Producer()
    verification = verify(producer, 8)
    verify(producer, 5)
    verify(producer, 6)
    assert checked(producer, 8, verification) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert checked(producer, 5, verification) == "NONE"
    verify(producer, 9, epoch=1)
    assert checked(producer, 9, verification, epoch=1) == "NONE", "a new epoch starts its own sequence"
    verify(producer, 3)
    assert checked(producer, 9, verification, epoch=1) == "NONE", "an old one no longer counts"


def test_no_batch_of_a_known_producer_overtakes_a_pending_one() -> None:
    """As in Apache Kafka, even where the one that waits is a duplicate."""
    producer = Producer()
    producer.send(0, 0, transactional=True, verified=True)
    producer.send(1, 1, transactional=True)
    producer.end(committed=True)
    verification = verify(producer, 1)
    assert checked(producer, 2, verification) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert checked(producer, 1, verification) == "duplicate"
    producer.end(committed=False)
    assert checked(producer, 2, verify(producer, 2)) == "NONE"


def test_with_an_epoch_for_each_transaction_an_unknown_producer_begins_at_zero() -> None:
    producer = Producer()
    verification = verify(producer, 4, epoch_per_transaction=True)
    assert checked(producer, 4, verification) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    verify(producer, 0, epoch_per_transaction=True)
    assert checked(producer, 0, verification) == "NONE"


def test_without_verification_every_transactional_batch_is_accepted() -> None:
    producer = Producer()
    assert checked(producer, 3, DISABLED) == "NONE"
    producer.send(0, 0)
    assert checked(producer, 1, DISABLED) == "NONE"
    assert checked(producer, 2, DISABLED) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_an_unfinished_verification_expires() -> None:
    producer = Producer()
    verification = verify(producer, 0)
    producer.state.expire(1_499, 500)
    assert checked(producer, 0, verification) == "NONE"
    producer.state.expire(1_500, 500)
    assert checked(producer, 0, verification) == "INVALID_TXN_STATE"


def own(producer: Producer, *, epoch: int = 0, transactional: bool = True, verified: bool = False) -> str:
    """The result for a coordinator's batch with the producer's id."""
    verification = verify(producer, -1, epoch=epoch) if verified else None
    try:
        producer.state.check_own(producer.producer_id, epoch, transactional, verification)
    except KafkaError as error:
        return error.code.name
    return "NONE"


def test_a_coordinators_batches_are_checked_by_their_epoch_and_have_no_sequence() -> None:
    producer = Producer()
    assert own(producer) == "INVALID_TXN_STATE"
    assert own(producer, verified=True) == "NONE"
    for offset in range(3):
        producer.state.update(7, 1, -1, -1, offset, offset, 1_000, True)
        assert own(producer, epoch=1) == "NONE", "there are no duplicates among batches without sequence numbers"
    assert own(producer, epoch=0) == "INVALID_PRODUCER_EPOCH"
    assert own(producer, epoch=1, transactional=False) == "INVALID_TXN_STATE"
    assert own(producer, epoch=2) == "INVALID_TXN_STATE", "another transaction"
    assert own(producer, epoch=2, verified=True) == "NONE"


# Markers


def marker(producer: Producer, epoch: int, *, version: int = 2, coordinator_epoch: int = 3) -> str:
    try:
        producer.state.check_marker(producer.producer_id, epoch, coordinator_epoch, version)
    except KafkaError as error:
        return error.code.name
    return "NONE"


@pytest.mark.parametrize(
    ("version", "epoch", "in_transaction", "answer"),
    [
        (0, 4, True, "INVALID_PRODUCER_EPOCH"),
        (0, 5, True, "NONE"),
        (0, 6, True, "NONE"),
        (1, 4, False, "INVALID_PRODUCER_EPOCH"),
        (1, 5, False, "NONE"),
        (1, 6, False, "NONE"),
        (2, 4, True, "INVALID_PRODUCER_EPOCH"),
        (2, 5, True, "INVALID_PRODUCER_EPOCH"),
        (2, 6, True, "NONE"),
        (2, 4, False, "INVALID_PRODUCER_EPOCH"),
        (2, 5, False, "NONE"),  # a retry of the marker after a lost response
        (2, 6, False, "NONE"),
    ],
)
def test_the_epoch_of_a_marker_by_transaction_version(
    version: int, epoch: int, in_transaction: bool, answer: str
) -> None:
    producer = Producer()
    assert marker(producer, epoch, version=version) == "NONE", "nothing is known of the producer"
    producer.send(0, 0, epoch=5, transactional=in_transaction, verified=True)
    assert marker(producer, epoch, version=version) == answer


def test_the_largest_epoch_ends_its_own_transaction() -> None:
    producer = Producer()
    producer.send(0, 0, epoch=32_767, transactional=True, verified=True)
    assert marker(producer, 32_767) == "NONE"
    assert marker(producer, 32_766) == "INVALID_PRODUCER_EPOCH"


def test_a_marker_of_an_old_coordinator_is_rejected() -> None:
    producer = Producer()
    producer.send(0, 0, transactional=True, verified=True)
    producer.end(committed=True)  # coordinator epoch 3
    assert marker(producer, 1, coordinator_epoch=2) == "TRANSACTION_COORDINATOR_FENCED"
    assert marker(producer, 1, coordinator_epoch=3) == "NONE"
    assert marker(producer, 1, coordinator_epoch=4) == "NONE"


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


def test_damaged_snapshots_are_rejected_and_do_not_change_the_state() -> None:
    producer = Producer()
    producer.send(0, 0)
    good = producer.state.encode_snapshot()
    for damaged in (b"", good[:5], good[:-1], good + b"\0", b"\0\2" + good[2:], good[:20] + b"\xff" + good[21:]):
        with pytest.raises(CorruptSnapshotError):
            producer.state.load_snapshot(damaged)
    assert producer.send(0, 0) == "duplicate of 0-0"


def test_replaying_batches_restores_the_state_of_appending(producer_batch: Callable[..., bytes]) -> None:
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
def test_no_batch_is_stored_twice_or_skipped(steps: list[tuple[str, int]], first: int) -> None:
    """Whatever a producer retries or skips, each accepted sequence number occurs once, in order."""
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

"""The runtime of a shard: decide, append, replay, reply. The shard of the tests counts."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.coordinator.deadlines import Deadlines
from moldau.coordinator.outcome import Caller, Now, Outcome, Producer, Record, Reply
from moldau.coordinator.runtime import CoordinatorRuntime, State
from moldau.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.records import Record as LogRecord
from moldau.protocol.records import build_batch, iter_batches, iter_records


def added(group_id: str, amount: int) -> Record:
    """A record that adds to the number of a group."""
    return Record(HeartbeatRequest(group_id=group_id), HeartbeatResponse(error_code=amount))


class Counting:
    """A shard that keeps a number for each group."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.numbers: dict[str, int] = {}
        self.unstable: dict[int, list[Record]] = {}
        self.replayed: list[str] = []
        self.was_loaded = 0
        self.waiting: list[Caller] = []

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        assert isinstance(record.key, HeartbeatRequest)
        assert isinstance(record.value, HeartbeatResponse)
        return record.key.group_id.encode(), struct.pack(">i", record.value.error_code)

    def decode(self, key: bytes, value: bytes | None) -> Record | None:
        if key == b"unknown":
            return None
        if value is None or len(value) != 4:
            raise MalformedMessage("no number", 0)
        return added(key.decode(), struct.unpack(">i", value)[0])

    def replay(self, record: Record, *, producer_id: int) -> None:
        assert isinstance(record.key, HeartbeatRequest)
        assert isinstance(record.value, HeartbeatResponse)
        if producer_id >= 0:
            self.unstable.setdefault(producer_id, []).append(record)
            return
        group_id = record.key.group_id
        if group_id == "poison":
            raise RuntimeError("poison")
        self.replayed.append(group_id)
        self.numbers[group_id] = self.numbers.get(group_id, 0) + record.value.error_code

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        for record in self.unstable.pop(producer_id, []):
            if committed:
                self.replay(record, producer_id=-1)

    def loaded(self, now: Now) -> Outcome:
        self.was_loaded += 1
        return Outcome()

    def resign(self) -> Sequence[Caller]:
        waiting, self.waiting = self.waiting, []
        return waiting


class Writer:
    """A log in memory."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.replicated = True
        self._high_watermark = 0
        self.max_batch_bytes = 1000
        self.error: ErrorCode | None = None
        self.verifications: list[object] = []

    @property
    def high_watermark(self) -> int:
        return self.end_offset if self.replicated else self._high_watermark

    def append(self, batch: bytes, *, verification: object = None) -> int:
        if self.error is not None:
            raise KafkaError(self.error)
        self.verifications.append(verification)
        self.batches.append(batch)
        self.end_offset += sum(one.record_count for one in iter_batches(batch))
        return self.end_offset

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int,
    ) -> int:
        return self.append(marker(producer_id, int(committed)))

    def replicate(self, offset: int) -> None:
        self._high_watermark = offset

    def records(self) -> list[list[str]]:
        return [
            [(record.key or b"").decode() for one in iter_batches(batch) for record in iter_records(one)]
            for batch in self.batches
        ]


class FakeCaller:
    """A client's request."""

    api_version = 0
    client_id = ""
    client_host = "/127.0.0.1"
    principal = "User:ANONYMOUS"
    listener_name = "PLAINTEXT"

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.after_answer: Callable[[], None] = lambda: None

    def reply(self, response: Any) -> None:
        self.replies.append(response.error_code)
        self.after_answer()

    def fail(self, error: KafkaError) -> None:
        self.replies.append(error.code)


class Bench:
    """A runtime with its shard, log and clock."""

    def __init__(self) -> None:
        self.shard = Counting()
        self.writer = Writer()
        self.clock = Now(1_000_000, 0)
        self.flushes_wanted = 0
        self.failures = 0
        self.runtime = CoordinatorRuntime(
            "test-0",
            self.shard,
            self.writer,
            lambda: self.clock,
            request_flush=self._request_flush,
            failed=self._failed,
        )

    def _request_flush(self) -> None:
        self.flushes_wanted += 1

    def _failed(self) -> None:
        self.failures += 1

    def add(
        self,
        group_id: str,
        *amounts: int,
        effects: Sequence[object] = (),
        refused: Callable[[KafkaError], Sequence[Reply]] | None = None,
        producer: Producer | None = None,
        verification: object = None,
    ) -> FakeCaller:
        """Submit a request that adds numbers. Its response has the sum before them."""
        caller = FakeCaller()

        def decide(shard: Counting, now: Now) -> Outcome:
            seen = HeartbeatResponse(error_code=shard.numbers.get(group_id, 0))
            records = [added(group_id, amount) for amount in amounts]
            return Outcome(records, [(caller, seen)], effects, refused=refused, producer=producer)

        self.runtime.run(group_id, caller, decide, verification=verification)
        return caller


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.runtime.activate()
    return bench


def test_no_response_is_sent_before_the_records_are_written(bench: Bench) -> None:
    caller = bench.add("a", 1)
    assert caller.replies == []
    assert bench.writer.batches == []
    assert bench.flushes_wanted == 1
    bench.runtime.flush()
    assert caller.replies == [0]
    assert bench.shard.numbers == {"a": 1}


def test_requests_of_one_iteration_share_a_batch(bench: Bench) -> None:
    callers = [bench.add(group_id, 1) for group_id in ("a", "b", "c")]
    assert bench.flushes_wanted == 1
    bench.runtime.flush()
    assert bench.writer.records() == [["a", "b", "c"]]
    assert [caller.replies for caller in callers] == [[0], [0], [0]]


def test_a_decision_sees_earlier_decisions_for_its_group(bench: Bench) -> None:
    bench.add("a", 5)
    second = bench.add("a", 1)
    bench.runtime.flush()
    assert second.replies == [5]
    assert bench.writer.records() == [["a"], ["a"]]


def test_without_records_the_response_is_immediate(bench: Bench) -> None:
    caller = bench.add("a")
    assert caller.replies == [0]
    assert bench.flushes_wanted == 0


def add_twice(bench: Bench, group_id: str) -> list[FakeCaller]:
    """Add 1, and 10 more as soon as the response arrives. Returns the callers of the second request."""
    again: list[FakeCaller] = []
    bench.add(group_id, 1).after_answer = lambda: again.append(bench.add(group_id, 10))
    return again


def test_a_decision_sees_requests_that_a_response_has_caused(bench: Bench) -> None:
    again = add_twice(bench, "a")
    last = bench.add("a", 1)
    bench.runtime.flush()
    assert (again[0].replies, last.replies) == ([1], [11])
    assert bench.writer.records() == [["a"], ["a"], ["a"]]


def test_no_response_is_sent_before_all_records_of_the_iteration_are_written(bench: Bench) -> None:
    """Otherwise a caller with a response could send a request for a pending group and not see its decisions."""
    seen: list[object] = []
    bench.add("a", 1).after_answer = lambda: seen.append(bench.writer.records())
    bench.add("b", 1, producer=Producer(7, 3))
    bench.add("c", 1)
    bench.runtime.flush()
    assert seen == [[["a"], ["b"], ["c"]]]


def test_no_record_is_written_if_the_state_may_be_wrong(bench: Bench) -> None:
    bench.add("poison", 1)
    later = [bench.add("b", 1, producer=Producer(7, 3)), bench.add("c", 1)]
    bench.runtime.flush()
    assert bench.writer.records() == [["poison"]]
    assert [caller.replies for caller in later] == [[ErrorCode.NOT_COORDINATOR]] * 2
    assert bench.add("a", 1).replies == [ErrorCode.NOT_COORDINATOR]
    assert bench.failures == 1


def test_requests_during_close_get_a_response(bench: Bench) -> None:
    again = add_twice(bench, "a")
    bench.runtime.close()
    assert again[0].replies == [1]


def test_reading_one_group_does_not_flush_others(bench: Bench) -> None:
    bench.add("a", 1)
    bench.runtime.read("b")
    assert bench.writer.batches == []
    assert bench.runtime.read("a").numbers == {"a": 1}


def test_reading_all_groups_sees_all_decisions(bench: Bench) -> None:
    bench.add("a", 1)
    assert bench.runtime.read().numbers == {"a": 1}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_rejected_append_changes_no_state_and_returns_an_error(
    bench: Bench, error: ErrorCode, expected: ErrorCode
) -> None:
    bench.writer.error = error
    callers = [bench.add("a", 1), bench.add("b", 1)]
    bench.runtime.flush()
    assert [caller.replies for caller in callers] == [[expected], [expected]]
    assert bench.shard.numbers == {}
    bench.writer.error = None
    again = bench.add("a", 1)
    bench.runtime.flush()
    assert again.replies == [0]


def test_a_custom_response_to_a_rejected_change_keeps_other_responses(bench: Bench) -> None:
    bench.writer.error = ErrorCode.KAFKA_STORAGE_ERROR
    other = FakeCaller()

    def refused(error: KafkaError) -> Sequence[Reply]:
        assert error.code == ErrorCode.NOT_COORDINATOR
        return [(other, HeartbeatResponse(error_code=42))]

    caller = bench.add("a", 1, refused=refused)
    bench.runtime.flush()
    assert other.replies == [42]
    assert caller.replies == [ErrorCode.NOT_COORDINATOR]


def test_replay_callbacks_run_before_responses_and_only_after_a_replay(bench: Bench) -> None:
    called: list[object] = []

    def decide(shard: Counting, now: Now) -> Outcome:
        answer = caller, HeartbeatResponse()
        return Outcome(
            [added("a", 1)], [answer], replayed=lambda: called.append((shard.numbers["a"], caller.replies[:]))
        )

    caller = FakeCaller()
    bench.runtime.run("a", caller, decide)
    assert called == []
    bench.runtime.flush()
    assert called == [(1, [])]
    assert caller.replies == [0]

    caller = FakeCaller()
    bench.writer.error = ErrorCode.NOT_ENOUGH_REPLICAS
    bench.runtime.run("a", caller, decide)
    bench.runtime.flush()
    assert len(called) == 1


def test_only_a_change_that_is_too_large_for_a_batch_is_rejected(bench: Bench) -> None:
    small = bench.add("a", 1)
    large = bench.add("b", *[1] * 100)
    bench.runtime.flush()
    assert small.replies == [0]
    assert large.replies == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert bench.shard.numbers == {"a": 1}


def test_changes_that_do_not_fit_into_one_batch_are_split(bench: Bench) -> None:
    bench.add("a", *[1] * 20)
    bench.add("b", *[1] * 20)
    bench.runtime.flush()
    assert bench.writer.records() == [["a"] * 20, ["b"] * 20]
    assert all(len(batch) <= bench.writer.max_batch_bytes for batch in bench.writer.batches)


def test_responses_wait_for_the_high_watermark_in_order(bench: Bench) -> None:
    bench.writer.replicated = False
    first, second = bench.add("a", 1), bench.add("b", 1)
    bench.runtime.flush()
    third = bench.add("c", 1)
    bench.runtime.flush()
    assert [first.replies, second.replies, third.replies] == [[], [], []]
    bench.writer.replicate(2)
    bench.runtime.high_watermark_changed()
    assert [first.replies, second.replies, third.replies] == [[0], [0], []]
    bench.writer.replicate(3)
    bench.runtime.high_watermark_changed()
    assert third.replies == [0]


def test_effects_are_released_once_at_the_high_watermark_after_responses(bench: Bench) -> None:
    bench.writer.replicated = False
    first = bench.add("a", 1, effects=["first"])
    bench.add("b", 1, effects=["second", "third"])
    bench.runtime.flush()
    bench.add("c", effects=["without records"])
    assert bench.runtime.take_effects() == ()
    seen: list[object] = []
    first.after_answer = lambda: seen.extend(bench.runtime.take_effects())
    bench.writer.replicate(2)
    bench.runtime.high_watermark_changed()
    assert (first.replies, seen) == ([0], [])
    assert bench.runtime.take_effects() == ["first", "second", "third", "without records"]
    assert bench.runtime.take_effects() == ()


def test_effects_of_committed_records_are_released_with_the_flush(bench: Bench) -> None:
    bench.add("a", 1, effects=["effect"])
    assert bench.runtime.take_effects() == ()
    bench.runtime.flush()
    assert bench.runtime.take_effects() == ["effect"]


def test_a_rejected_append_has_no_effects(bench: Bench) -> None:
    bench.writer.error = ErrorCode.KAFKA_STORAGE_ERROR
    bench.add("a", 1, effects=["effect"])
    bench.runtime.flush()
    assert bench.runtime.take_effects() == ()


def test_a_closed_shard_releases_no_effects(bench: Bench) -> None:
    bench.writer.replicated = False
    bench.add("a", 1, effects=["effect"])
    bench.runtime.flush()
    bench.runtime.close()
    bench.writer.replicated = True
    bench.runtime.high_watermark_changed()
    assert bench.runtime.take_effects() == ()


def test_loaded_records_above_the_high_watermark_delay_responses(bench: Bench) -> None:
    bench.writer.replicated = False
    writer = bench.add("a", 1)
    bench.runtime.flush()
    other = Bench()
    other.writer.replicated = False
    load(other, *bench.writer.batches)
    other.runtime.activate()
    reader, requested = other.add("a"), FakeCaller()
    assert other.runtime.has_uncommitted
    other.runtime.respond_when_committed(requested, SimpleNamespace(error_code=7))
    assert [writer.replies, reader.replies, requested.replies] == [[], [], []]
    other.writer.replicate(1)
    other.runtime.high_watermark_changed()
    assert [reader.replies, requested.replies] == [[1], [7]]
    assert not other.runtime.has_uncommitted
    other.runtime.respond_when_committed(requested, SimpleNamespace(error_code=8))
    assert requested.replies == [7, 8]


def test_a_reader_of_uncommitted_records_waits_for_them(bench: Bench) -> None:
    bench.writer.replicated = False
    writer = bench.add("a", 1)
    reader = bench.add("a")
    assert [writer.replies, reader.replies] == [[], []]
    bench.writer.replicate(1)
    bench.runtime.high_watermark_changed()
    assert [writer.replies, reader.replies] == [[0], [1]]


def test_an_internal_error_in_a_decision_fails_only_its_request(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caller, other = FakeCaller(), bench.add("a", 1)

    def broken(shard: Counting, now: Now) -> Outcome:
        raise RuntimeError("an unexpected error")

    bench.runtime.run("b", caller, broken)
    bench.runtime.flush()
    assert caller.replies == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert other.replies == [0]
    assert "failed with an unexpected error" in caplog.text


def test_a_client_error_is_returned_as_its_code(bench: Bench) -> None:
    caller = FakeCaller()

    def refusing(shard: Counting, now: Now) -> Outcome:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    bench.runtime.run("a", caller, refusing)
    assert caller.replies == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_record_that_cannot_be_replayed_causes_a_reload(bench: Bench) -> None:
    caller = bench.add("poison", 1)
    bench.runtime.flush()
    assert bench.failures == 1
    assert caller.replies == [ErrorCode.NOT_COORDINATOR]


def test_deadlines_run_when_they_are_due(bench: Bench) -> None:
    bench.shard.deadlines.set("a", "one", 100, lambda now: Outcome([added("a", now.monotonic_ms)]))
    assert bench.runtime.next_deadline() == 100
    bench.clock = Now(0, 99)
    bench.runtime.tick()
    bench.runtime.flush()
    assert bench.shard.numbers == {}
    bench.clock = Now(0, 100)
    bench.runtime.tick()
    bench.runtime.flush()
    assert bench.shard.numbers == {"a": 100}


def test_an_earlier_decision_may_cancel_a_due_deadline(bench: Bench) -> None:
    called: list[Now] = []

    def due(now: Now) -> Outcome:
        called.append(now)
        return Outcome()

    class Cancelling(Counting):
        def replay(self, record: Record, *, producer_id: int) -> None:
            super().replay(record, producer_id=producer_id)
            self.deadlines.cancel("a", "name")

    bench.shard = Cancelling()
    bench.runtime.shard = bench.shard
    bench.shard.deadlines.set("a", "name", 0, due)
    bench.add("a", 1)
    bench.runtime.tick()
    assert bench.shard.replayed == ["a"]
    assert called == []


def test_a_deadline_that_raises_does_not_stop_the_others(bench: Bench) -> None:
    def broken(now: Now) -> Outcome:
        raise RuntimeError("an unexpected error")

    bench.shard.deadlines.set("a", "one", 1, broken)
    bench.shard.deadlines.set("b", "one", 2, lambda now: Outcome([added("b", 1)]))
    bench.clock = Now(0, 5)
    bench.runtime.tick()
    bench.runtime.flush()
    assert bench.shard.numbers == {"b": 1}


def log_batches(*batches: bytes) -> Iterator[Any]:
    return iter_batches(b"".join(batches))


def number(amount: int) -> bytes:
    return struct.pack(">i", amount)


def load(bench: Bench, *batches: bytes) -> int:
    return sum(1 for batch in log_batches(*batches) for _ in bench.runtime.load(batch))


def test_while_loading_requests_are_rejected() -> None:
    bench = Bench()
    assert bench.add("a", 1).replies == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    with pytest.raises(KafkaError) as refused:
        bench.runtime.read()
    assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.runtime.next_deadline() is None


def test_loading_restores_the_state(bench: Bench) -> None:
    for amount in (1, 2, 3):
        bench.add("a", amount)
        bench.add("b", 10 * amount)
        bench.runtime.flush()
    other = Bench()
    load(other, *bench.writer.batches)
    other.writer.end_offset = bench.writer.end_offset
    other.runtime.activate()
    assert other.shard.numbers == bench.shard.numbers == {"a": 6, "b": 60}
    assert other.shard.was_loaded == 1
    assert other.add("a").replies == [6]


def test_loading_yields_within_a_large_batch() -> None:
    bench = Bench()
    batch = build_batch([LogRecord(key=b"a", value=number(1))] * 1000)
    assert load(bench, batch) >= 1000 / 100
    assert bench.shard.numbers == {"a": 1000}
    assert bench.runtime.load_offset == 1000


def test_unreadable_records_are_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    records = [
        LogRecord(key=b"a", value=number(1)),
        LogRecord(key=b"a", value=b"broken"),
        LogRecord(key=None, value=number(1)),
        LogRecord(key=b"unknown", value=number(1)),
        LogRecord(key=b"a", value=number(2)),
    ]
    load(bench, build_batch(records))
    assert bench.shard.numbers == {"a": 3}
    assert "offset 1" in caplog.text
    assert "offset 2" in caplog.text


def marker(producer_id: int, kind: int) -> bytes:
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    return build_batch(
        [LogRecord(key=key, value=value)], producer_id=producer_id, producer_epoch=0, transactional=True, control=True
    )


def in_transaction(producer_id: int, group_id: str, amount: int) -> bytes:
    return build_batch(
        [LogRecord(key=group_id.encode(), value=number(amount))],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def test_records_of_a_transaction_take_effect_when_it_commits() -> None:
    bench = Bench()
    load(bench, in_transaction(7, "a", 1), in_transaction(8, "b", 1))
    assert bench.shard.numbers == {}
    load(bench, marker(7, 1), marker(8, 0))
    assert bench.shard.numbers == {"a": 1}


def test_closing_completes_all_requests(bench: Bench) -> None:
    bench.writer.replicated = False
    unsafe = bench.add("a", 1)
    bench.runtime.flush()
    unwritten, waiting = bench.add("b", 1), FakeCaller()
    bench.shard.waiting.append(waiting)
    bench.runtime.close()
    assert bench.runtime.state is State.CLOSED
    assert [unsafe.replies, unwritten.replies, waiting.replies] == [[ErrorCode.NOT_COORDINATOR]] * 3
    assert bench.writer.records() == [["a"], ["b"]]
    assert bench.add("a", 1).replies == [ErrorCode.NOT_COORDINATOR]


def test_a_change_of_all_groups_is_visible_to_the_next_decision(bench: Bench) -> None:
    bench.runtime.decide("", lambda now: Outcome([added("a", 5), added("b", 6)]))
    assert bench.add("a").replies == [5]
    assert bench.runtime.read("b").numbers["b"] == 6


def test_a_record_that_cannot_be_encoded_fails_only_its_request(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    waiting, caller = FakeCaller(), FakeCaller()

    def decide(shard: Counting, now: Now) -> Outcome:
        broken = Record(HeartbeatRequest(group_id="\ud800"), HeartbeatResponse())
        replies = [(waiting, HeartbeatResponse()), (caller, HeartbeatResponse())]
        return Outcome([broken], replies, refused=lambda error: [(waiting, HeartbeatResponse(error_code=42))])

    bench.runtime.run("a", caller, decide)
    assert waiting.replies == [42]
    assert caller.replies == [ErrorCode.UNKNOWN_SERVER_ERROR]
    other = bench.add("b", 1)
    bench.runtime.flush()
    assert other.replies == [0]
    assert "cannot encode a record" in caplog.text


def test_an_append_with_an_internal_error_fails_all_requests_and_causes_a_reload(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append(batch: bytes) -> int:
        raise ValueError("no such codec")

    monkeypatch.setattr(bench.writer, "append", append)
    callers = [bench.add("a", 1), bench.add("b", 1)]
    bench.runtime.flush()
    assert [caller.replies for caller in callers] == [[ErrorCode.NOT_COORDINATOR]] * 2
    assert bench.failures == 1


def test_an_error_in_a_response_does_not_block_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(response: Any) -> None:
        raise RuntimeError("an unexpected error")

    first, second = bench.add("a", 1), bench.add("b", 1)
    monkeypatch.setattr(first, "reply", reply)
    bench.runtime.flush()
    assert second.replies == [0]


def test_a_deadline_that_sets_the_next_one_yields(bench: Bench) -> None:
    seen: list[int] = []

    def again(now: Now) -> Outcome:
        seen.append(now.monotonic_ms)
        bench.clock = Now(0, bench.clock.monotonic_ms + 1)  # the action takes a millisecond
        bench.shard.deadlines.set("a", "one", now.monotonic_ms + 1, again)
        return Outcome()

    bench.shard.deadlines.set("a", "one", 0, again)
    bench.runtime.tick()
    assert seen == [0]


def test_a_tick_yields_if_many_deadlines_are_due(bench: Bench) -> None:
    def slow(now: Now) -> Outcome:
        bench.clock = Now(0, bench.clock.monotonic_ms + 1)
        return Outcome([added("a", 1)])

    for number in range(10):
        bench.shard.deadlines.set("a", number, 0, slow)
    ticks = 0
    while (deadline := bench.runtime.next_deadline()) is not None and deadline <= bench.clock.monotonic_ms:
        bench.runtime.tick()
        ticks += 1
    bench.runtime.flush()
    assert bench.shard.numbers == {"a": 10}
    assert ticks == 5


def headers(bench: Bench) -> list[tuple[int, int, int, bool]]:
    """For every batch: producer id, producer epoch, base sequence, and whether it is transactional."""
    return [
        (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional)
        for written in bench.writer.batches
        for batch in iter_batches(written)
    ]


PLAIN = (-1, -1, -1, False)


def end(bench: Bench, producer_id: int, *, committed: bool) -> None:
    bench.runtime.end_transaction(producer_id, 3, coordinator_epoch=0, committed=committed, transaction_version=2)


@pytest.mark.parametrize(("committed", "numbers"), [(True, {"a": 3}), (False, {})])
def test_decisions_for_a_producer_take_effect_when_its_transaction_commits(
    bench: Bench, committed: bool, numbers: dict[str, int]
) -> None:
    caller = bench.add("a", 1, 2, producer=Producer(7, 3))
    bench.runtime.flush()
    assert caller.replies == [0]
    assert headers(bench) == [(7, 3, -1, True)]
    assert bench.shard.numbers == {}
    end(bench, 7, committed=committed)
    assert bench.shard.numbers == numbers

    loaded = Bench()
    load(loaded, *bench.writer.batches)
    assert loaded.shard.numbers == numbers


def test_a_transaction_shares_no_batch_with_other_requests(bench: Bench) -> None:
    callers = [
        bench.add("a", 1),
        bench.add("b", 1, producer=Producer(7, 3)),
        bench.add("c", 1, producer=Producer(7, 3)),
        bench.add("d", 1),
        bench.add("e", 1),
    ]
    bench.runtime.flush()
    assert bench.writer.records() == [["a"], ["b"], ["c"], ["d", "e"]]
    assert headers(bench) == [PLAIN, (7, 3, -1, True), (7, 3, -1, True), PLAIN]
    assert [caller.replies for caller in callers] == [[0]] * 5
    assert bench.shard.numbers == {"a": 1, "d": 1, "e": 1}


def test_each_batch_has_only_the_verification_of_its_transaction(bench: Bench) -> None:
    guard = object()
    bench.add("a", 1)
    bench.add("b", 1, producer=Producer(7, 3), verification=guard)
    bench.add("c", 1, producer=Producer(8, 0))
    bench.add("d", 1)
    bench.runtime.flush()
    assert bench.writer.verifications == [None, guard, None, None]


def test_a_rejected_append_of_a_transaction_fails_no_other_request(bench: Bench) -> None:
    first = bench.add("a", 1)
    bench.runtime.flush()
    bench.writer.error = ErrorCode.INVALID_PRODUCER_EPOCH
    fenced = bench.add("b", 1, producer=Producer(7, 3))
    bench.runtime.flush()
    bench.writer.error = None
    last = bench.add("c", 1)
    bench.runtime.flush()
    assert [first.replies, fenced.replies, last.replies] == [[0], [ErrorCode.INVALID_PRODUCER_EPOCH], [0]]
    assert bench.shard.numbers == {"a": 1, "c": 1}
    assert bench.shard.unstable == {}


def test_a_marker_is_written_after_all_earlier_decisions(bench: Bench) -> None:
    other = bench.add("a", 1)
    late = bench.add("b", 1, producer=Producer(7, 3))
    end(bench, 7, committed=True)
    assert [other.replies, late.replies] == [[0], [0]]
    assert headers(bench) == [PLAIN, (7, 3, -1, True), (7, 0, -1, True)]
    assert bench.shard.numbers == {"a": 1, "b": 1}


def test_a_rejected_marker_returns_the_error_of_the_log_and_the_transaction_stays_open(bench: Bench) -> None:
    bench.add("a", 1, producer=Producer(7, 3))
    bench.runtime.flush()
    bench.writer.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as refused:
        end(bench, 7, committed=True)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert bench.shard.numbers == {}
    assert bench.failures == 0
    bench.writer.error = None
    end(bench, 7, committed=True)
    assert bench.shard.numbers == {"a": 1}


@pytest.mark.parametrize(
    ("closed", "expected"),
    [(False, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), (True, ErrorCode.NOT_COORDINATOR)],
)
def test_no_marker_is_written_without_a_loaded_state(closed: bool, expected: ErrorCode) -> None:
    bench = Bench()
    if closed:
        bench.runtime.close()
    with pytest.raises(KafkaError) as refused:
        end(bench, 7, committed=True)
    assert refused.value.code == expected
    assert bench.writer.batches == []


def test_no_marker_is_written_if_the_flush_before_it_fails(bench: Bench) -> None:
    bench.add("poison", 1)
    with pytest.raises(KafkaError) as refused:
        end(bench, 7, committed=True)
    assert refused.value.code == ErrorCode.NOT_COORDINATOR
    assert bench.writer.records() == [["poison"]]


def test_a_marker_with_an_internal_error_causes_a_reload(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def append_marker(*positional: Any, **named: Any) -> int:
        raise ValueError("an unexpected error")

    monkeypatch.setattr(bench.writer, "append_marker", append_marker)
    with pytest.raises(KafkaError) as refused:
        end(bench, 7, committed=True)
    assert refused.value.code == ErrorCode.NOT_COORDINATOR
    assert bench.failures == 1


def test_a_marker_that_cannot_be_replayed_is_written_anyway(bench: Bench) -> None:
    bench.add("poison", 1, producer=Producer(7, 3))
    bench.runtime.flush()
    end(bench, 7, committed=True)
    assert headers(bench) == [(7, 3, -1, True), (7, 0, -1, True)]
    assert bench.failures == 1


def test_a_reader_of_uncommitted_markers_waits_for_them(bench: Bench) -> None:
    bench.add("a", 5, producer=Producer(7, 3))
    bench.runtime.flush()
    bench.writer.replicated = False
    bench.writer.replicate(1)
    end(bench, 7, committed=True)
    reader = bench.add("a")
    assert reader.replies == []
    bench.writer.replicate(2)
    bench.runtime.high_watermark_changed()
    assert reader.replies == [5]


def test_loading_unreadable_records_yields_and_logs_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    assert load(bench, build_batch([LogRecord(0, 1, None, b"x")] * 3_200)) >= 100
    assert len(caplog.records) == 11
    assert "3190 more records" in caplog.records[-1].message

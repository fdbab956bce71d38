"""A coordinator in a test: a shard in its runtime, with a log in memory and a clock that the test moves.

`Harness` is the common part of the harnesses of groups and transactions, which add requests. A test runs one iteration
of the event loop, which `settle` ends: decide, append, replay, respond. There are no sleeps and no randomness.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, Generic

from moldau.coordinator.outcome import Now, Record
from moldau.coordinator.runtime import CoordinatorRuntime, S
from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.records import Record as LogRecord
from moldau.protocol.records import RecordBatch, iter_batches, iter_records

from .markers import build_marker

EPOCH_MS = 1_700_000_000_000


def decoded(record: LogRecord, decode: Callable[[bytes, bytes | None], Record | None]) -> Record:
    """Decode a record of a log. Its type must be known."""
    assert record.key is not None
    found = decode(bytes(record.key), None if record.value is None else bytes(record.value))
    assert found is not None
    return found


class FakeCaller:
    """The caller of one request. It keeps the response and fails the test at a second one."""

    def __init__(self, api_version: int, client_id: str = "client", client_host: str = "/127.0.0.1") -> None:
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
        self.principal = "User:ANONYMOUS"
        self.listener_name = "PLAINTEXT"
        self._answers: list[Any] = []

    def reply(self, response: Any) -> None:
        # A response that cannot be encoded in the version of the caller never reaches a client.
        if hasattr(response, "VERSIONS"):
            encode(response, self.api_version)
        self._answers.append(response)
        assert len(self._answers) == 1, "answered twice"

    def fail(self, error: KafkaError) -> None:
        self._answers.append(error)
        assert len(self._answers) == 1, "answered twice"

    @property
    def waits(self) -> bool:
        return not self._answers

    @property
    def failed(self) -> bool:
        """Whether an error was raised in place of a response."""
        return not self.waits and isinstance(self._answers[0], KafkaError)

    @property
    def response(self) -> Any:
        """The response. The test fails if there is none or if an error was raised in its place."""
        assert self._answers, "not answered yet"
        assert not isinstance(self._answers[0], KafkaError), self._answers[0]
        return self._answers[0]

    @property
    def answer(self) -> Any:
        """The response, or the code of the error that was raised in its place."""
        return self.error if self.failed else self.response

    @property
    def error(self) -> ErrorCode:
        """The error code of the response, or of the error that was raised in its place."""
        assert self._answers, "not answered yet"
        answer = self._answers[0]
        return answer.code if isinstance(answer, KafkaError) else ErrorCode(answer.error_code)


class MemoryLog:
    """The log of the shard's partition, in memory."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.end_offset = 0
        self.max_batch_bytes = 1 << 20
        self.replicated = True
        """While False, the high watermark does not advance."""
        self.refuses_with: ErrorCode | None = None
        self._high_watermark = 0

    @property
    def high_watermark(self) -> int:
        if self.replicated:
            self._high_watermark = self.end_offset
        return self._high_watermark

    def append(self, batch: bytes, *, verification: object = None) -> int:
        if self.refuses_with is not None:
            raise KafkaError(self.refuses_with)
        assert len(batch) <= self.max_batch_bytes
        at_offset = bytearray(batch)
        at_offset[:8] = self.end_offset.to_bytes(8, "big")
        (appended,) = iter_batches(bytes(at_offset))
        self.data += at_offset
        self.end_offset = appended.next_offset
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
        marker = build_marker(producer_id, producer_epoch, coordinator_epoch=coordinator_epoch, committed=committed)
        return self.append(marker)

    def batches(self) -> list[RecordBatch]:
        return list(iter_batches(bytes(self.data)))


class Harness(ABC, Generic[S]):
    """One shard. It serves requests after `restart` has been called."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.now_ms = 0
        self._read_offset = 0

    @abstractmethod
    def new_shard(self) -> S:
        """Create an empty shard."""

    def restart(self) -> None:
        """Simulate that the process was killed and another one loads the log. Waiting callers never get a response."""
        self.shard = self.new_shard()
        self.runtime = CoordinatorRuntime(
            "test", self.shard, self.log, self.now, request_flush=lambda: None, failed=self._failed
        )
        for batch in self.log.batches():
            for _ in self.runtime.load(batch):
                pass
        self.runtime.activate()
        self.settle()

    def _failed(self) -> None:
        raise AssertionError("a record could not be replayed")

    def now(self) -> Now:
        return Now(EPOCH_MS + self.now_ms, self.now_ms)

    # -- time and written records --------------------------------------------------------------------------------------

    def settle(self) -> None:
        """End the iteration: write the decided records and run due deadlines."""
        self.runtime.flush()
        while (at_ms := self.runtime.next_deadline()) is not None and at_ms <= self.now_ms:
            self.runtime.tick()
            self.runtime.flush()

    def advance(self, milliseconds: int) -> None:
        """Advance the clock in milliseconds and run every deadline at its time."""
        until_ms = self.now_ms + milliseconds
        while (at_ms := self.runtime.next_deadline()) is not None and at_ms <= until_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self.settle()
        self.now_ms = until_ms

    def written(self) -> list[Any]:
        """The records (`Record`) that were written since the previous call. Tests know the classes of their values."""
        records: list[Record] = []
        for batch in self.log.batches():
            logged = () if batch.is_control else iter_records(batch)
            records += (decoded(one, self.shard.decode) for one in logged if one.offset >= self._read_offset)
        self._read_offset = self.log.end_offset
        return records

    @contextmanager
    def log_refuses(self, error: ErrorCode) -> Any:
        """Reject appends with this error in the context."""
        self.log.refuses_with = error
        try:
            yield
        finally:
            self.log.refuses_with = None

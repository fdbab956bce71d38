"""Jobs that process the records of one batch. A job is small, runs anywhere, and can be sent to another process.

A job runs in steps of about 2 ms (`steps`), because nothing in a batch predicts how long it takes: 175 kB may hold 15
million records. `attempt` runs a job within limits.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Hashable
from typing import Protocol, cast

from ...log.config import LogConfig
from ...log.lookup import BatchSearch
from ...log.validation import (
    InvalidRecordBatchError,
    Prepared,
    TooMuchWorkError,
    batch_in,
    look_steps,
    prepare_steps,
)
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.named_tuples import NamedTuple
from ...protocol.paged_bytes import PagedBytes
from ...protocol.records import BATCH_OVERHEAD, HEADER, Buffer
from .spool import Spool

logger = logging.getLogger(__name__)


class Job(Protocol):
    """Processes the records of one batch."""

    @property
    def batch(self) -> Buffer:
        """The bytes of the batch. They may be malformed."""

    def steps(self, max_size: int | None) -> Generator[None, None, object]:
        """Run the job. Raises `KafkaError`, and `TooMuchWorkError` above ``max_size`` decompressed bytes."""

    def to_send(self) -> Job:
        """The same job, in a form that can be pickled."""

    def without_records(self) -> Job:
        """The same job for a large batch, with only the batch's header."""

    def steps_with(self, records: PagedBytes) -> Generator[None, None, object]:
        """The same as `steps`, for a job without records and the records of its batch."""

    @property
    def identity(self) -> Hashable | None:
        """Equal for jobs that need to run only once; None if the job must run."""


class Prepare(NamedTuple):
    """Check and recompress a producer's batch: `log.validation.prepare_steps`."""

    batch: Buffer
    config: LogConfig
    now_ms: int
    checked: bool = False
    """The header and the CRC have been checked: true for all batches above `LARGE_BYTES`."""
    directory: str | None = None
    """The directory for an unnamed file with the recompressed bytes; None: the system's temporary directory."""

    def steps(self, max_size: int | None) -> Generator[None, None, Prepared]:
        parts = Spool(self.directory) if max_size is None else None
        if not self.checked:
            return prepare_steps(self.batch, self.config, now_ms=self.now_ms, max_size=max_size, parts=parts)
        batch = batch_in(self.batch)
        return look_steps(batch, batch.data[BATCH_OVERHEAD:], self.config, self.now_ms, max_size, parts)

    def to_send(self) -> Prepare:
        from pickle import PickleBuffer  # see `worker_pipe`

        return self._replace(batch=cast(bytes, PickleBuffer(self.batch)))

    def without_records(self) -> Prepare:
        assert self.checked
        return self._replace(batch=bytes(self.batch[:BATCH_OVERHEAD]))

    def steps_with(self, records: PagedBytes) -> Generator[None, None, Prepared]:
        return look_steps(batch_in(self.batch), records, self.config, self.now_ms, None, Spool(self.directory))

    @property
    def identity(self) -> None:
        return None


class Search(NamedTuple):
    """Finds a record of a stored batch by its timestamp: `log.lookup.BatchSearch`."""

    search: BatchSearch

    @property
    def batch(self) -> Buffer:
        return self.search.batch

    def steps(self, max_size: int | None) -> Generator[None, None, tuple[int, int] | None]:
        return self.search.steps(max_size)

    def to_send(self) -> Search:
        return self

    def without_records(self) -> Search:
        return Search(self.search._replace(batch=self.search.batch[:BATCH_OVERHEAD]))

    def steps_with(self, records: PagedBytes) -> Generator[None, None, tuple[int, int] | None]:
        return self.search.steps(None, records)

    @property
    def identity(self) -> Hashable:
        search = self.search
        # The header contains the checksum of the batch.
        return search.place, search.timestamp, search.start_offset, search.batch[:BATCH_OVERHEAD]


def declared_records(job: Job) -> int:
    """The number of records that the header declares: no more are processed."""
    batch = job.batch
    if len(batch) < BATCH_OVERHEAD:
        return 0
    return max(0, int(HEADER.unpack_from(batch)[-1]))


class Outcome:
    """The result of a job: a value or an error. The error has no traceback, whose frames would refer to the batch and
    to the decompressed data."""

    __slots__ = ("error", "held_bytes", "value")

    def __init__(self, value: object = None, error: KafkaError | None = None) -> None:
        self.value = value
        self.error = error
        self.held_bytes = 0
        """The size of the value in bytes, to be released with `DecodeProcess.release_result`."""


def copy_of(error: KafkaError) -> KafkaError:
    """The same error without a traceback."""
    made = type(error).__new__(type(error))
    made.__dict__.update(error.__dict__)
    made.args = error.args
    return made


def build_error(code: int, message: str | None, record_errors: list[tuple[int, str]] | None) -> KafkaError:
    """The error that was sent as these parts."""
    if record_errors is None:
        return KafkaError(ErrorCode(code), message)
    return InvalidRecordBatchError(ErrorCode(code), message or "", record_errors)


def attempt(job: Job, max_steps: int, max_size: int) -> Outcome | None:
    """Run the job with at most this many steps and decompressed bytes; None if it takes more."""
    steps = job.steps(max_size)
    try:
        for _ in range(max_steps):
            next(steps)
    except TooMuchWorkError:
        return None
    except StopIteration as end:
        return Outcome(end.value)
    except KafkaError as error:
        return Outcome(error=copy_of(error))
    except Exception:
        logger.exception("Checking the records of a batch failed with an unexpected error")
        return Outcome(error=internal_error())
    finally:
        steps.close()
    return None


def internal_error() -> KafkaError:
    """The error for a job that failed with an unexpected error."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Internal server error; see the server log.")

"""Looks at the records of one batch, as jobs: something small that can be done anywhere, and sent to another process.

A job is done in steps of about 2 ms (`steps`), because nothing in a batch says how long it takes: 175 kB may hold 15
million records. `attempt` does one within bounds.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Hashable
from dataclasses import dataclass, replace
from pickle import PickleBuffer
from typing import Protocol, cast

from ..log.config import LogConfig
from ..log.lookup import BatchSearch
from ..log.validation import InvalidRecordBatchError, Prepared, TooMuchWorkError, prepare_steps
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.records import BATCH_OVERHEAD, HEADER

logger = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview


class Job(Protocol):
    """A look at the records of one batch."""

    @property
    def batch(self) -> Buffer:
        """The bytes of the batch; perhaps no batch."""

    def steps(self, max_size: int | None) -> Generator[None, None, object]:
        """Do it. Raises `KafkaError`, and `TooMuchWorkError` for more than ``max_size`` decompressed bytes."""

    def to_send(self) -> Job:
        """The same, to be pickled."""

    @property
    def identity(self) -> Hashable | None:
        """What is equal for jobs of which one has to be done; None if each has to be."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Check and recompress a producer's batch: `log.validation.prepare_steps`."""

    batch: Buffer
    config: LogConfig
    now_ms: int

    def steps(self, max_size: int | None) -> Generator[None, None, Prepared]:
        return prepare_steps(self.batch, self.config, now_ms=self.now_ms, max_size=max_size)

    def to_send(self) -> Prepare:
        return replace(self, batch=cast(bytes, PickleBuffer(self.batch)))

    @property
    def identity(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Search:
    """Find a record of a stored batch by its timestamp: `log.lookup.BatchSearch`."""

    search: BatchSearch

    @property
    def batch(self) -> Buffer:
        return self.search.batch

    def steps(self, max_size: int | None) -> Generator[None, None, tuple[int, int] | None]:
        return self.search.steps(max_size)

    def to_send(self) -> Search:
        return self

    @property
    def identity(self) -> Hashable:
        search = self.search
        # The header has the checksum of the batch.
        return search.place, search.timestamp, search.start_offset, search.batch[:BATCH_OVERHEAD]


def declared_records(job: Job) -> int:
    """How many records the header declares: no more are looked at."""
    batch = job.batch
    if len(batch) < BATCH_OVERHEAD:
        return 0
    return max(0, int(HEADER.unpack_from(batch)[-1]))


class Outcome:
    """What has come of a job: a value or an error. The error is a value too, without the frames that it went through,
    for these hold the batch and what was decompressed."""

    __slots__ = ("error", "value")

    def __init__(self, value: object = None, error: KafkaError | None = None) -> None:
        self.value = value
        self.error = error


def copy_of(error: KafkaError) -> KafkaError:
    """The same error without a traceback."""
    made = type(error).__new__(type(error))
    made.__dict__.update(error.__dict__)
    made.args = error.args
    return made


def made_error(code: int, message: str | None, record_errors: list[tuple[int, str]] | None) -> KafkaError:
    """The error that these parts were sent of."""
    if record_errors is None:
        return KafkaError(ErrorCode(code), message)
    return InvalidRecordBatchError(ErrorCode(code), message or "", record_errors)


def attempt(job: Job, max_steps: int, max_size: int) -> Outcome | None:
    """Do the job in at most so many steps and with so many decompressed bytes; None if it takes more."""
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
        logger.exception("Looking at the records of a batch failed with an unexpected error")
        return Outcome(error=internal_error())
    finally:
        steps.close()
    return None


def internal_error() -> KafkaError:
    """The answer to what failed with an unexpected error."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Internal server error; see the server log.")

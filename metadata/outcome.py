"""What a decision of the controller is: an answer, and the records that make it true.

Every request of the controller is a pure function from an image and a request to an `Outcome`. Nothing has happened
when it returns; the records have to be committed (`quorum.py`), and only then may the answer be sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from ..protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from .records import MetadataRecord

T = TypeVar("T")

MAX_RECORDS_PER_REQUEST: Final = 10_000
"""A request whose records would be more is refused whole, because its batch has to be written at once."""


class Versioned(NamedTuple):
    """A metadata record and the version to write it in."""

    record: MetadataRecord
    version: int = 0


class Outcome(NamedTuple, Generic[T]):
    """An answer and its records, which are committed in one batch if they are at most 10,000, otherwise in several."""

    response: T
    records: list[Versioned]


class ApiError(NamedTuple):
    """The error of one element of a response, where requests succeed and fail element by element."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None

    @classmethod
    def of(cls, error: KafkaError) -> ApiError:
        return cls(error.code, error.message)


NO_ERROR: Final = ApiError()


def check_record_count(records: list[Versioned]) -> None:
    """Raise POLICY_VIOLATION when the records of one request are too many."""
    if len(records) > MAX_RECORDS_PER_REQUEST:
        raise too_many_records()


def too_many_records() -> KafkaError:
    """POLICY_VIOLATION, for a request that would change more than one batch can hold."""
    message = f"The request changes too much at once: more than {MAX_RECORDS_PER_REQUEST} records."
    return KafkaError(ErrorCode.POLICY_VIOLATION, message)

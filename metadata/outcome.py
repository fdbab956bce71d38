"""The result of a controller decision: a response and its records.

Every request of the controller is a pure function from an image and a request to an `Outcome`. It has no side effects.
The records must be committed (`controller.py`) before the response may be sent. A decision that may take long also
exists in steps (`protocol.steps`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from ..protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .records import MetadataRecord

T = TypeVar("T")

MAX_RECORDS_PER_REQUEST: Final = 10_000
"""A request with more records is rejected as a whole, because its batch must be written in one piece."""


class Versioned(NamedTuple):
    """A metadata record and the version in which it is written."""

    record: MetadataRecord
    version: int = 0


class Outcome(NamedTuple, Generic[T]):
    """A response and its records, which are committed in one batch if they are at most 10,000, otherwise in several."""

    response: T
    records: list[Versioned]
    on_appended: Callable[[], None] | None = None
    """Changes the soft state of the controller, once the records are appended. A decision that is repeated, or whose
    records cannot be appended, changes nothing."""


class ApiError(NamedTuple):
    """The error of one element of a response whose elements succeed or fail separately."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None

    @classmethod
    def of(cls, error: KafkaError) -> ApiError:
        return cls(error.code, error.message)


NO_ERROR: Final = ApiError()


def check_record_count(records: list[Versioned]) -> None:
    """Raise POLICY_VIOLATION if one request has too many records."""
    if len(records) > MAX_RECORDS_PER_REQUEST:
        raise too_many_records()


def too_many_records() -> KafkaError:
    """POLICY_VIOLATION for a request with more records than one batch may contain."""
    message = f"The request needs more than {MAX_RECORDS_PER_REQUEST} metadata records; split it into smaller requests."
    return KafkaError(ErrorCode.POLICY_VIOLATION, message)

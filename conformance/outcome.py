"""The verdict of a case, and the exceptions by which a case ends early."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .case import Case
    from .exchange import Frame


class Verdict(StrEnum):
    """The values are those of the JSON report."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"
    """The server does not have what the case tests."""
    INCONCLUSIVE = "inconclusive"
    """The case could not be set up, or the server was lost."""


class MismatchError(Exception):
    """The server does something else than the case expects; the verdict is "failed"."""

    def __init__(self, what: str, expected: str, actual: str) -> None:
        super().__init__(f"{what}: expected {expected}, got {actual}")
        self.what = what
        """A field of a response such as `topics[0].error_code`, or a description of the step."""
        self.expected = expected
        self.actual = actual


class NotApplicableError(Exception):
    """The case does not apply to this server; the message is the reason."""


class InconclusiveError(Exception):
    """The case could not test what it is for; the message is the reason."""


class Result(NamedTuple):
    """The result of one case."""

    case: Case
    verdict: Verdict
    seconds: float
    reason: str = ""
    """Why the verdict is not "passed"; empty if it is."""
    what: str = ""
    """For "failed": the field or step that differs, and the two values."""
    expected: str = ""
    actual: str = ""
    frames: tuple[Frame, ...] = ()
    """What was sent and received; empty unless the verdict is "failed" or "inconclusive"."""

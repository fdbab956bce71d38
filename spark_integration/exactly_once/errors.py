"""The two kinds of errors: those that come again, and those that need not."""

from __future__ import annotations


class ExactlyOnceError(Exception):
    """The batch cannot be written exactly once, and trying again would not change that; the text says what would."""


class AttemptFailedError(Exception):
    """This attempt is over; the next one, of Spark or of a query that is started again, finds out how far it came."""

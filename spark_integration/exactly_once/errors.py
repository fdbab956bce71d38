"""The two kinds of errors: permanent ones, and those after which a retry may succeed."""

from __future__ import annotations


class ExactlyOnceError(Exception):
    """The batch cannot be written exactly once, and a retry would not help; the text states what would."""


class AttemptFailedError(Exception):
    """This attempt is over. The next one, by Spark or by a restarted query, determines how far this one came."""

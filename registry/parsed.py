"""What all kinds of schemas have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod


class SchemaError(ValueError):
    """A schema is not valid; the message says why."""


class Parsed(ABC):
    """A valid schema of one kind."""

    text: str
    """As it is stored."""
    normalized: str
    """As it is stored if the client has asked for ``normalize``."""
    identity: str
    """Equal for schemas that differ in formatting only: they share one id."""

    def may_equal(self, text: str) -> bool:
        """Whether a schema of this kind with this text can have the same identity; without parsing the text."""
        return True

    @abstractmethod
    def problems_reading(self, written: Parsed) -> list[str]:
        """Why a reader with this schema cannot read values written with the other one; empty if it can."""

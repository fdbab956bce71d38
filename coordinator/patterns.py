"""Regular expressions of clients.

They are matched by RE2 (Apache Kafka uses RE2/J for topics, and Java's own for transactional IDs), in time that is
linear in the name for every expression; with Python's `re`, an expression can block the event loop. An expression must
match the whole name. The library is loaded with the first expression.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..config.regular_expressions import compiled
from ..protocol.errors import ErrorCode, KafkaError

# The maximum size of a compiled expression: about 16,000 instructions, enough for an alternation of hundreds of names.
# The time for one name grows with it.
_COMPILED_BYTES_MAX: Final = 1 << 20


class Pattern:
    """A compiled regular expression."""

    __slots__ = ("_pattern",)

    def __init__(self, regex: str, *, name: str) -> None:
        """Compile an expression; ``name`` is its name in the error.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION.
        """
        try:
            self._pattern = compiled(regex, captures=False, max_bytes=_COMPILED_BYTES_MAX)
        except ValueError as error:
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION, f"{name} `{regex}` is not a valid regular expression: {error}."
            ) from None

    def matches(self, name: str) -> bool:
        """Whether it matches this whole name."""
        return self._pattern.fullmatch(name) is not None

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """The names that it matches completely."""
        matches = self._pattern.fullmatch
        return frozenset(name for name in names if matches(name) is not None)

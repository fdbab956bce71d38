"""Regular expressions that come from clients.

They are matched by RE2 (Apache Kafka has RE2/J for topics, and Java's own for transactional ids), in time that is
linear in the name whatever the expression: Python's own `re` can be made to hang the loop. An expression has to match a
whole name. The library is loaded with the first expression.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..protocol.errors import ErrorCode, KafkaError

# Of a compiled expression: one that is larger is refused. Some 16,000 instructions, enough for an alternation of
# hundreds of names; and the time for one name grows with it.
_COMPILED_BYTES_MAX: Final = 1 << 20


class Pattern:
    """A compiled regular expression."""

    __slots__ = ("_pattern",)

    def __init__(self, regex: str, *, name: str) -> None:
        """Compile it; ``name`` is what the error calls the expression.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION.
        """
        import re2

        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = _COMPILED_BYTES_MAX
        try:
            self._pattern: Any = re2.compile(regex, options)
        except re2.error as error:
            reason = error.args[0]
            if isinstance(reason, bytes):
                reason = reason.decode(errors="replace")
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION, f"{name} `{regex}` is not a valid regular expression: {reason}."
            ) from None

    def matches(self, name: str) -> bool:
        """Whether it matches this name as a whole."""
        return self._pattern.fullmatch(name) is not None

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """Those that match as a whole."""
        matches = self._pattern.fullmatch
        return frozenset(name for name in names if matches(name) is not None)

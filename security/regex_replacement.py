"""Patterns and replacements, as of Java's regular expressions, in the rules from names to principals.

``$1`` is the first group of the pattern, ``$0`` the whole match, and a backslash makes the next character literal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from ..config.regular_expressions import compiled

_DIGITS: Final = re.compile(r"[0-9]+")


def pattern_of(text: str) -> Any:
    """A regular expression of RE2. Raises ValueError."""
    try:
        return compiled(text)
    except ValueError as error:
        raise ValueError(f"'{text}' is not a regular expression of RE2: {error}") from None


def replacement_of(text: str, groups: int) -> Callable[[Any], str]:
    """What replaces a match of a pattern with this many groups. ValueError for a group that it does not have.

    Of several digits, those that would exceed the number of groups are literal, as in Java.
    """
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            parts.append(text[position])
            position += 1
        elif character == "$":
            digits = _DIGITS.match(text, position)
            number = digits[0] if digits else ""
            while len(number) > 1 and int(number) > groups:
                number = number[:-1]
            if not number or int(number) > groups:
                raise ValueError(f"the replacement '{text}' uses a group that the pattern does not have")
            parts.append(int(number))
            position += len(number)
        else:
            parts.append(character)
    return lambda match: "".join(part if isinstance(part, str) else match.group(part) or "" for part in parts)

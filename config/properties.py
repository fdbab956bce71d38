r"""Java's ``.properties`` format, the format of ``server.properties``.

A file consists of natural lines (ended by LF, CR or CRLF). A natural line is ignored if it is blank or if its first
non-blank character is ``#`` or ``!``. Any other natural line begins a logical line: an odd number of backslashes at its
end joins the next natural line to it, without that line's leading blanks. In a logical line

    key  separator  value        separator: blanks, or blanks around one '=' or ':'

the key ends at the first ``=``, ``:`` or blank that has no backslash before it. The value is the rest, including blanks
at its end. In both, ``\t \n \r \f`` and ``\u`` with four digits have the same meaning as in Java, and a backslash
before any other character is dropped. Blanks are space, tab and form feed. The last of several values of a key wins.
"""

from collections.abc import Iterator
from typing import Final

from .definition import ConfigError

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a file's text; ConfigError for a ``\\u`` without four hexadecimal digits."""
    pairs: dict[str, str] = {}
    for line in _logical_lines(text):
        key_end, value_start = _split(line)
        pairs[_unescape(line[:key_end])] = _unescape(line[value_start:])
    return pairs


def _logical_lines(text: str) -> Iterator[str]:
    joined: str | None = None
    # Not splitlines(), which also ends a line at form feeds and at Unicode's separators.
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANKS)
        if joined is None and (not line or line[0] in "#!"):
            continue
        joined = line if joined is None else joined + line
        if _ends_with_odd_backslashes(joined):
            joined = joined[:-1]
            continue
        yield joined
        joined = None
    if joined is not None:
        yield joined


def _ends_with_odd_backslashes(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[int, int]:
    """The end of the key in a logical line, and the start of its value."""
    key_end = 0
    while key_end < len(line) and line[key_end] not in "=:" + _BLANKS:
        key_end += 2 if line[key_end] == "\\" else 1
    key_end = min(key_end, len(line))
    value_start = _skip_blanks(line, key_end)
    if value_start < len(line) and line[value_start] in "=:":
        value_start = _skip_blanks(line, value_start + 1)
    return key_end, value_start


def _skip_blanks(line: str, start: int) -> int:
    while start < len(line) and line[start] in _BLANKS:
        start += 1
    return start


def _unescape(raw: str) -> str:
    if "\\" not in raw:
        return raw
    parts: list[str] = []
    position = 0
    while position < len(raw):
        character = raw[position]
        if character != "\\":
            parts.append(character)
            position += 1
        elif raw[position + 1 : position + 2] == "u":
            parts.append(_unicode_escape(raw[position + 2 : position + 6]))
            position += 6
        else:
            escaped = raw[position + 1 : position + 2]
            parts.append(_ESCAPES.get(escaped, escaped))
            position += 2
    # Characters beyond the basic plane are written as two escapes, Java's surrogate pair.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unicode_escape(digits: str) -> str:
    if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
        raise ConfigError(f"\\u must be followed by four hexadecimal digits, found '\\u{digits}'")
    return chr(int(digits, 16))

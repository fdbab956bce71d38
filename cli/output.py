"""The output of commands: tables and JSON.

On a terminal, rich draws the tables; in a file or a pipe they are plain columns without wrapping or truncation.
"""

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Final

# The width of a terminal that reports none (in tests, or a dumb terminal).
_GAP: Final = "  "
# The maximum number of digits that `int` parses (sys.get_int_max_str_digits).
_MAX_DIGITS: Final = 4300


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    print(json.dumps(value, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under column names. Columns of numbers are right-aligned."""
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [bool(rows) and all(isinstance(row[index], int | float) for row in rows) for index in range(len(columns))]
    if sys.stdout.isatty():
        _print_rich(columns, texts, numeric)
    else:
        _print_plain(columns, texts, numeric)


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, is_number in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False, emoji=False).print(table)


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    lines = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, numeric, strict=True)
        ]
        print(_GAP.join(cells).rstrip())


def binary_as_json(name: str, data: bytes | None) -> dict[str, str | None]:
    """``{"value": text}`` for valid UTF-8, else ``{"value_base64": ...}``; None becomes null."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def binary_from_json(name: str, fields: Mapping[str, object], texts: Mapping[str, str] | None = None) -> bytes | None:
    """The inverse of ``binary_as_json``; a missing name is None. Raises ValueError.

    An object or an array becomes its unchanged source text, from ``texts``.
    """
    encoded = fields.get(f"{name}_base64")
    value = fields.get(name)
    if encoded is not None:
        if value is not None:
            raise ValueError(f"both {name} and {name}_base64 are given; remove one")
        if not isinstance(encoded, str):
            raise ValueError(f"{name}_base64 is not a string")
        try:
            return base64.b64decode(encoded, validate=True)
        except ValueError as error:
            raise ValueError(f"{name}_base64 is not valid base64: {error}") from error
    if value is None:
        return None
    if isinstance(value, dict | list) and texts is not None:
        return texts[name].encode()
    if not isinstance(value, str):
        kinds = "a string" if texts is None else "a string, an object or an array"
        raise ValueError(f"{name} is not {kinds}; write {json.dumps(json.dumps(value))} to send its text")
    return value.encode()


def any_integer(text: str) -> int | float:
    """A number parser for `json`: a number with more digits than `int` accepts becomes infinity, not an error."""
    return int(text) if len(text) <= _MAX_DIGITS else float(text)


def member_texts(text: str) -> dict[str, str]:
    """The source text of each member of a JSON object, so that numbers keep their digits. ``text`` is valid JSON."""
    decode = json.JSONDecoder(parse_int=any_integer).raw_decode
    members: dict[str, str] = {}
    position = _skip_blanks(text, text.index("{") + 1)
    while text[position] != "}":
        name, position = decode(text, position)
        start = _skip_blanks(text, text.index(":", position) + 1)
        _, end = decode(text, start)
        members[name] = text[start:end]
        position = _skip_blanks(text, end)
        if text[position] == ",":
            position = _skip_blanks(text, position + 1)
    return members


def _skip_blanks(text: str, position: int) -> int:
    while text[position] in " \t\n\r":
        position += 1
    return position

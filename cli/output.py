"""What commands print: tables for people, JSON for programs.

On a terminal a table is drawn by rich; into a file or a pipe it goes as plain columns, with nothing folded or cut.
"""

import base64
import json
import sys
from collections.abc import Sequence
from typing import Final

# A terminal without a width (a test's, a dumb one) gets this.
_GAP: Final = "  "


def print_json(value: object) -> None:
    """One JSON document on a line of its own."""
    print(json.dumps(value, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows under column names. Columns whose values are all numbers are aligned to the right."""
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
    """``{"value": text}`` for bytes that are UTF-8, else ``{"value_base64": ...}``; null is null."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def binary_from_json(name: str, fields: dict[str, object]) -> bytes | None:
    """The inverse of ``binary_as_json``; a name that is missing is null. ValueError for anything else."""
    encoded = fields.get(f"{name}_base64")
    if isinstance(encoded, str):
        return base64.b64decode(encoded, validate=True)
    text = fields.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"{name} is not a string")
    return text.encode()

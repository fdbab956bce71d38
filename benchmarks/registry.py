"""All rows, as listed by the modules of ``rows/``."""

import importlib
import pkgutil
from collections.abc import Sequence

from . import rows
from .row import Row

# In reading order, from whole clients to single costs; modules that are not listed here come last.
_ORDER = (
    "producers",
    "consumers",
    "python_clients",
    "spark",
    "latency",
    "requests",
    "groups",
    "groups_consumers",
    "groups_loading",
    "transactions",
    "encryption",
    "access",
    "lifetime",
    "scaling",
    "cold_reader",
    "durability",
    "recovery",
    "starts",
    "deletion",
    "compaction",
)


def all_rows() -> tuple[Row, ...]:
    """Every row, in the order of the modules and then of their lists; names are unique."""
    found: dict[str, Row] = {}
    there = sorted(module.name for module in pkgutil.iter_modules(rows.__path__))
    for name in [*(name for name in _ORDER if name in there), *(name for name in there if name not in _ORDER)]:
        listed: Sequence[Row] = getattr(importlib.import_module(f"{rows.__name__}.{name}"), "ROWS", ())
        for row in listed:
            assert row.name not in found, f"two rows are named {row.name}"
            found[row.name] = row
    return tuple(found.values())


def select(all_of_them: Sequence[Row], wanted: Sequence[str]) -> tuple[Row, ...]:
    """The rows that ``wanted`` names, by name or group; all of them if it is empty. KeyError for an unknown name."""
    if not wanted:
        return tuple(all_of_them)
    known = {name.casefold() for row in all_of_them for name in (row.name, row.group)}
    names = {name.casefold() for name in wanted}
    unknown = [name for name in wanted if name.casefold() not in known]
    if unknown:
        raise KeyError(*unknown)
    return tuple(row for row in all_of_them if not names.isdisjoint((row.name.casefold(), row.group.casefold())))

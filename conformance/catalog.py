"""All cases, by ID, in the order of their IDs."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Final

from . import cases
from .case import Case, Layer, Level, declared


@cache
def all_cases() -> dict[str, Case]:
    """Import the modules of `cases`, and return what they declare. Raises ValueError if two cases have the same ID."""
    for module in pkgutil.walk_packages(cases.__path__, f"{cases.__name__}."):
        import_module(module.name)
    found: dict[str, Case] = {}
    for each in sorted(declared, key=lambda case: _sort_key(case.id)):
        if each.id in found:
            raise ValueError(f"two cases have the ID {each.id}")
        found[each.id] = each
    return found


def _sort_key(identifier: str) -> list[tuple[str, int]]:
    """`v10` after `v9`."""
    return [
        ("v", int(part[1:])) if part[0] == "v" and part[1:].isdigit() else (part, 0) for part in identifier.split(".")
    ]


PARTS: Final = {
    "acl": ("security.acls", "security.allowed", "security.denied"),
    "sasl": ("security.sasl", "security.scram", "protocol.sasl-authenticate", "protocol.sasl-handshake"),
}
"""Areas whose cases have the IDs of other areas, which never change."""


def areas() -> list[str]:
    """The areas, sorted."""
    return sorted({case.area for case in all_cases().values()} | PARTS.keys())


def _is_part(case: Case, area: str) -> bool:
    return any(case.id == id or case.id.startswith(f"{id}.") for id in PARTS.get(area, ()))


_STRICTNESS = {Level.MUST: 0, Level.SHOULD: 1, Level.APACHE: 2}


def select(
    *,
    areas: Sequence[str] = (),
    ids: Sequence[str] = (),
    level: Level = Level.APACHE,
    layers: Sequence[Layer] = (),
) -> list[Case]:
    """The cases of these areas and layers (default: all), up to a level.

    An ID selects the case, and all cases below it: `produce.acks` selects `produce.acks.invalid.2`.
    """
    return [
        case
        for case in all_cases().values()
        if (not areas or case.area in areas or any(_is_part(case, area) for area in areas))
        and (not ids or any(case.id == id or case.id.startswith(f"{id}.") for id in ids))
        and (not layers or case.layer in layers)
        and _STRICTNESS[case.level] <= _STRICTNESS[level]
    ]

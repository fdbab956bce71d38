"""The declaration of a scenario: like `..case`, with a docstring of three paragraphs.

@scenario("produce.not-leader", "the leader moves", source="Protocol: Errors", variants={...})
def not_leader(s: Scene) -> None:
    \"""Broker: responds twice with NOT_LEADER_OR_FOLLOWER.

    Job: produce ten records.

    Expects: all records are acknowledged and stored, once and in order.
    \"""
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from ..case import Level


class Scenario(NamedTuple):
    """One scenario. `area`, `level`, `title` and `source` have the meaning that they have for a case."""

    id: str
    title: str
    area: str
    level: Level
    source: str
    broker: str
    job: str
    expects: str
    body: Callable[..., None]
    arguments: tuple[Any, ...]

    def run(self, scene: object) -> None:
        self.body(scene, *self.arguments)


_PARAGRAPHS: Final = re.compile(r"Broker: (.+)\n\nJob: (.+)\n\nExpects: (.+)", re.DOTALL)

declared: Final[list[Scenario]] = []


def scenario(
    identifier: str,
    title: str,
    *,
    source: str,
    level: Level = Level.MUST,
    variants: Mapping[str, tuple[Any, ...]] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a scenario, or one for each of the `variants`: a suffix of the ID, and arguments for the body."""

    def declare(body: Callable[..., None]) -> Callable[..., None]:
        text = _PARAGRAPHS.fullmatch(inspect.cleandoc(body.__doc__ or ""))
        if text is None:
            raise ValueError(f"{identifier}: the docstring must have the paragraphs Broker, Job and Expects")
        broker, job, expects = (" ".join(paragraph.split()) for paragraph in text.groups())
        for suffix, arguments in (variants or {"": ()}).items():
            name = f"{identifier}.{suffix}" if suffix else identifier
            area = name.partition(".")[0]
            declared.append(Scenario(name, title, area, level, source, broker, job, expects, body, arguments))
        return body

    return declare


@cache
def all_scenarios() -> dict[str, Scenario]:
    """By ID, sorted. Raises ValueError if two have the same ID."""
    from . import scenarios

    for module in pkgutil.iter_modules(scenarios.__path__, f"{scenarios.__name__}."):
        import_module(module.name)
    found: dict[str, Scenario] = {}
    for each in sorted(declared, key=lambda scenario: scenario.id):
        if each.id in found:
            raise ValueError(f"two scenarios have the ID {each.id}")
        found[each.id] = each
    return found


def select(ids: tuple[str, ...] = ()) -> list[Scenario]:
    """Those with these IDs, or below them; all if there are none."""
    return [
        each
        for each in all_scenarios().values()
        if not ids or any(each.id == id or each.id.startswith(f"{id}.") for id in ids)
    ]

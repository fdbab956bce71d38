"""A seeded simulation of groups: members that come, go, crash, pause and commit, on a coordinator that is restarted.

A run has three parts. In the first anything goes (`happenings`), and after each step the invariants are looked at. Then
no more is broken, and all groups must come to rest. At the end all members leave, and no state may remain in
memory (`rest`).

A seed that breaks an invariant can be run again: everything is decided by one `random.Random`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from .happenings import Happenings
from .rest import come_to_rest, go_away
from .world import World

LONGEST_TRACE = int(os.environ.get("MOLDAU_SIMULATION_TRACE", "300"))
"""So many lines of what happened are shown when an invariant is broken."""

_HAPPENING = 0.08
_CHECK_OF_STATE = 64


class BrokenInvariantError(AssertionError):
    """The message has the seed, and what happened last."""


def simulate(kind: str, seed: int, steps: int) -> list[bytes]:
    """One run; returns the log that it leaves.

    Raises:
        BrokenInvariantError: something went wrong.
    """
    world = World(Random(f"{kind} {seed}"), longest_trace=LONGEST_TRACE)
    with _complaints_noted(world.complaints):
        try:
            _break_things(world, Happenings(world, kind), steps)
            come_to_rest(world)
            go_away(world)
        except Exception as error:
            raise BrokenInvariantError(_report(world, kind, seed, error)) from error
    return world.log.batches


def _break_things(world: World, happenings: Happenings, steps: int) -> None:
    for _ in range(world.random.randint(1, 3)):
        happenings.a_member_starts()
    for number in range(1, steps + 1):
        if world.random.random() < _HAPPENING:
            happenings.one()
        else:
            world.step()
        world.invariants.after_step()
        if number % _CHECK_OF_STATE == 0:
            world.check_state()


def _report(world: World, kind: str, seed: int, error: Exception) -> str:
    happened = "\n".join(f"{at:8d} {text.format(*values)}" for at, text, values in world.trace)
    what = f"{type(error).__name__}: {error}"
    return f"{what}\n\n{happened}\n\n{what}\nThis alone: MOLDAU_SEED={seed} pytest -k 'simulation and {kind}'"


@contextmanager
def _complaints_noted(complaints: list[str]) -> Iterator[None]:
    """Warnings and errors of the coordinator are failures here: it has no reason for them."""
    listener = _Listener(complaints)
    logger = logging.getLogger("moldau")
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)


class _Listener(logging.Handler):
    def __init__(self, complaints: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._complaints = complaints
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._complaints.append(self.format(record))

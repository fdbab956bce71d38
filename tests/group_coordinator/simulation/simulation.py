"""A seeded simulation of groups: members join, leave, crash, pause and commit, and the coordinator restarts.

A run has three parts. The first has random faults (`events`), and the invariants are checked after each step. Then the
faults end, and all groups must become stable. At the end all members leave, and no state may remain in memory (`rest`).

One `random.Random` makes all decisions, so a seed that violates an invariant reproduces the failure.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from .events import Events
from .rest import check_removal, check_stabilization
from .world import World

MAX_TRACE = int(os.environ.get("MOLDAU_SIMULATION_TRACE", "300"))
"""The number of last events that a failure shows."""

_EVENT_PROBABILITY = 0.08
_STEPS_PER_STATE_CHECK = 64


class BrokenInvariantError(AssertionError):
    """An invariant is violated. The message has the seed and the last events."""


def simulate(kind: str, seed: int, steps: int) -> list[bytes]:
    """Run one simulation; returns the batches of its log.

    Raises:
        BrokenInvariantError: an invariant is violated.
    """
    world = World(Random(f"{kind} {seed}"), max_trace=MAX_TRACE)
    with _warnings_collected(world.warnings):
        try:
            _run_with_faults(world, Events(world, kind), steps)
            check_stabilization(world)
            check_removal(world)
        except Exception as error:
            raise BrokenInvariantError(_report(world, kind, seed, error)) from error
    return world.log.batches


def _run_with_faults(world: World, events: Events, steps: int) -> None:
    for _ in range(world.random.randint(1, 3)):
        events.a_member_starts()
    for number in range(1, steps + 1):
        if world.random.random() < _EVENT_PROBABILITY:
            events.one()
        else:
            world.step()
        world.invariants.after_step()
        if number % _STEPS_PER_STATE_CHECK == 0:
            world.check_state()


def _report(world: World, kind: str, seed: int, error: Exception) -> str:
    happened = "\n".join(f"{at:8d} {text.format(*values)}" for at, text, values in world.trace)
    what = f"{type(error).__name__}: {error}"
    return (
        f"{what}\n\n{happened}\n\n{what}\nTo run only this seed: MOLDAU_SEED={seed} pytest -k 'simulation and {kind}'"
    )


@contextmanager
def _warnings_collected(warnings: list[str]) -> Iterator[None]:
    """Collect warnings and errors in the log messages of the coordinator, which are failures here."""
    listener = _Listener(warnings)
    logger = logging.getLogger("moldau")
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)


class _Listener(logging.Handler):
    def __init__(self, warnings: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._warnings = warnings
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._warnings.append(self.format(record))

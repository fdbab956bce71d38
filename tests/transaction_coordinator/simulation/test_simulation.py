"""Simulations of transactions with faults: see `world`. `seeds` selects the runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ...coordinator.seeds import printed_whatever_hashes_are, seeds
from .world import World

STEPS = 1000
SHORT_RUN_SEEDS = 40
FULL_RUN_SEEDS = 1000


def simulate(seed: int) -> World:
    world = World(seed)
    try:
        world.run(STEPS)
    except Exception as error:
        trace = "\n".join(world.trace)
        what = f"{type(error).__name__}: {error}\nTo run only this seed: MOLDAU_SEED={seed} pytest -k simulation"
        raise AssertionError(f"{what}\n\n{trace}\n\n{what}") from error
    return world


def test_simulation() -> None:
    for seed in seeds(0, SHORT_RUN_SEEDS):
        simulate(seed)


@pytest.mark.full
def test_simulation_of_many_seeds() -> None:
    for seed in seeds(SHORT_RUN_SEEDS, FULL_RUN_SEEDS):
        simulate(seed)


@pytest.mark.skipif("MOLDAU_SEED" in os.environ, reason="requires many runs")
def test_the_simulation_covers_all_outcomes() -> None:
    """A simulation without crashes, aborts and lost responses would prove nothing."""
    worlds = [simulate(seed) for seed in range(20)]

    histories = [history for world in worlds for history in world.transactions]
    assert sum(history.outcome is True for history in histories) > 100
    assert sum(history.outcome is False for history in histories) > 50
    assert sum(history.outcome is None for history in histories) > 50
    assert sum(world.coordinator.crashes for world in worlds) > 60
    outcomes = [outcome for world in worlds for one in world.partitions for outcome in one.outcomes.values()]
    assert outcomes.count(True) > 200
    assert outcomes.count(False) > 100


@pytest.mark.slow
def test_a_seed_determines_the_run() -> None:
    program = """
import hashlib
from {package}.test_simulation import simulate
print([hashlib.md5(b"".join(simulate(seed).coordinator.log.batches)).hexdigest() for seed in range(8)])
"""
    assert printed_whatever_hashes_are(program, Path(__file__).parent).count(",") == 7

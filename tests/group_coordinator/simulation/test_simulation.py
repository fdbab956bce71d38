"""Simulations of groups with faults: see `simulation`. `seeds` selects the runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...coordinator.seeds import printed_whatever_hashes_are, seeds
from .events import KINDS
from .simulation import simulate

STEPS = 300

SHORT_RUN_SEEDS = 60
FULL_RUN_SEEDS = 400
EXTENDED_RUN_SEEDS = 1000


@pytest.mark.parametrize("kind", KINDS)
def test_simulation(kind: str) -> None:
    for seed in seeds(0, SHORT_RUN_SEEDS):
        simulate(kind, seed, STEPS)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("first", "end"),
    [
        (SHORT_RUN_SEEDS, FULL_RUN_SEEDS),
        pytest.param(FULL_RUN_SEEDS, EXTENDED_RUN_SEEDS, marks=pytest.mark.extended),
    ],
)
def test_simulation_of_many_seeds(kind: str, first: int, end: int) -> None:
    for seed in seeds(first, end):
        simulate(kind, seed, STEPS)


@pytest.mark.slow
def test_a_seed_determines_the_run() -> None:
    program = """
import hashlib
from {package}.events import KINDS
from {package}.simulation import simulate
from {package}.test_simulation import STEPS
logs = [simulate(kind, seed, STEPS) for kind in KINDS for seed in range(8)]
print([hashlib.md5(b"".join(log)).hexdigest() for log in logs])
"""
    assert printed_whatever_hashes_are(program, Path(__file__).parent).count(",") == 5 * 8 - 1

"""Groups under everything that can go wrong: see `simulation`, and `seeds` for what is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...coordinator.seeds import printed_whatever_hashes_are, seeds
from .happenings import KINDS
from .simulation import simulate

STEPS = 300

A_FEW = 60
MANY = 1000


@pytest.mark.parametrize("kind", KINDS)
def test_simulation(kind: str) -> None:
    for seed in seeds(0, A_FEW):
        simulate(kind, seed, STEPS)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_simulation_many_times(kind: str) -> None:
    for seed in seeds(A_FEW, MANY):
        simulate(kind, seed, STEPS)


@pytest.mark.slow
def test_a_seed_is_a_whole_history() -> None:
    program = """
import hashlib
from {package}.happenings import KINDS
from {package}.simulation import simulate
from {package}.test_simulation import STEPS
logs = [simulate(kind, seed, STEPS) for kind in KINDS for seed in range(8)]
print([hashlib.md5(b"".join(log)).hexdigest() for log in logs])
"""
    assert printed_whatever_hashes_are(program, Path(__file__).parent).count(",") == 5 * 8 - 1

"""Seeded histories of logs with all operations; see simulation.py. A failure has the command that reproduces it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.log.files import RealFileSystem
from moldau.testing.full_run import in_full_run

from .simulation import Simulation, simulate

STEPS = 500


@pytest.mark.parametrize("seed", [*range(40), *in_full_run(*range(40, 70))])
def test_no_guaranteed_record_is_lost(seed: int) -> None:
    simulate(seed, STEPS)


@pytest.mark.parametrize("seed", range(500, 510))
def test_no_record_is_lost_on_a_real_file_system_when_the_process_is_killed(seed: int, tmp_path: Path) -> None:
    simulation = Simulation(seed, RealFileSystem(durable=False), str(tmp_path))
    try:
        simulation.run(250)
    finally:
        simulation.close()


def test_all_operations_happen_in_a_simulation() -> None:
    """A history without compaction, deletion or loss would prove nothing."""
    simulation = simulate(0, 1_500)
    wanted = {*Simulation.STEPS, "segments deleted", "records compacted away", "passes", "killed", "power lost"}
    assert not [name for name in sorted(wanted) if not simulation.counts[name]]
    assert sum(count for name, count in simulation.counts.items() if name.startswith("crash in ")) > 10


def test_a_seed_produces_the_same_history_with_any_order_of_sets() -> None:
    repository = Path(__file__).parents[2]

    def run(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.simulation.simulation", "--seed", "3", "--seeds", "4", "--steps", "150"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    assert run("1") == run("2")

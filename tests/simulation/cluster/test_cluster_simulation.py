"""A controller and brokers under faults, from seeds: see `simulation`. `coordinator.seeds` selects the runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ...coordinator.seeds import printed_whatever_hashes_are, seeds
from .faults import Faults
from .simulation import SECONDS, simulate

SHORT_RUN_SEEDS = 2
SHORT_RUN_SECONDS = 20
FULL_RUN_SEEDS = 1000
SEEDS_PER_TEST = 50


def test_a_cluster_under_faults_loses_nothing() -> None:
    counts: Counter[str] = Counter()
    for seed in seeds(0, SHORT_RUN_SEEDS):
        cluster = simulate(seed, SHORT_RUN_SECONDS)
        counts += cluster.responses + cluster.faults.counts + cluster.invariants.eligible_leaders
        counts["compared images"] += cluster.invariants.compared
    wanted = {"killed", "lost answer", "cut", "paused", "ProduceRequest", "EndTxnRequest", "compared images"}
    wanted |= {"eligible leaders", "eligible leader elected"}
    assert not [name for name in sorted(wanted) if not counts[name]], "a simulation without these would prove nothing"


@pytest.mark.extended
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(SHORT_RUN_SEEDS, FULL_RUN_SEEDS, SEEDS_PER_TEST))
def test_clusters_under_faults_lose_nothing(first: int) -> None:
    for seed in seeds(first, min(SEEDS_PER_TEST, FULL_RUN_SEEDS - first)):
        simulate(seed, SECONDS)


def test_a_seed_determines_the_run_whatever_ran_before_in_the_process() -> None:
    program = """
import os
from {package}.simulation import simulate
seeds = (0, 2) if os.environ["PYTHONHASHSEED"] == "1" else (2, 0)
clusters = {seed: simulate(seed, 4) for seed in seeds}
for seed in (0, 2):
    print(clusters[seed].digest.hexdigest(), len(clusters[seed].events))
"""
    assert len(printed_whatever_hashes_are(program, Path(__file__).parent).split()) == 4


def test_every_kind_of_fault_has_a_method() -> None:
    assert all(callable(getattr(Faults, f"_{kind}", None)) for kind in Faults.KINDS)

"""Seeds of simulations: their selection, and a check that runs are deterministic.

``MOLDAU_SIMULATIONS`` is the number of runs of each kind. With ``MOLDAU_SEED``, only that seed is run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


def seeds(first: int, count: int) -> Iterable[int]:
    """``count`` seeds from ``first`` on, unless the environment overrides them."""
    seed = os.environ.get("MOLDAU_SEED")
    if seed is not None:
        return [int(seed)]
    return range(first, first + int(os.environ.get("MOLDAU_SIMULATIONS", count)))


def printed_whatever_hashes_are(program: str, package: Path) -> str:
    """Check that a program prints the same with different hash values of strings. Otherwise a failing seed could not be
    reproduced elsewhere. ``{package}`` in the program is the name of the package in this folder."""
    root = Path(__file__).parents[2]
    name = ".".join(package.relative_to(root).parts)
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program.replace("{package}", name)],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "2")
    )
    assert first == second
    return first

"""Seeds of simulations: which are run, and that each is a whole history.

``MOLDAU_SIMULATIONS`` is the number of runs of each kind, ``MOLDAU_SEED`` the only seed to run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


def seeds(first: int, count: int) -> Iterable[int]:
    """So many from the first on, unless the environment says otherwise."""
    seed = os.environ.get("MOLDAU_SEED")
    if seed is not None:
        return [int(seed)]
    return range(first, first + int(os.environ.get("MOLDAU_SIMULATIONS", count)))


def printed_whatever_hashes_are(program: str, package: Path) -> str:
    """What a program prints, twice the same though strings hash to other values: otherwise a seed that fails here could
    not be run again elsewhere. ``{package}`` in it is the name of the package in this folder."""
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

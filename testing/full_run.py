"""Parameters of tests for longer runs only: `make test` runs one of them, the full run repeats the test with the
others, and the extended run with still more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def in_full_run(*values: Any) -> list[Any]:
    """These parameters, for `pytest.mark.parametrize`, marked ``full``."""
    return [pytest.param(value, marks=pytest.mark.full) for value in values]


def in_extended_run(*values: Any) -> list[Any]:
    """These parameters, marked ``extended``."""
    return [pytest.param(value, marks=pytest.mark.extended) for value in values]


def first_of(values: Iterable[Any]) -> list[Any]:
    """The first parameter, and the others in the full run."""
    first, *rest = values
    return [first, *in_full_run(*rest)]

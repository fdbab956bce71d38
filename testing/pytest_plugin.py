"""The pytest plugin of ``pip install moldau``: the fixture ``kafka``, an empty broker for each test.

One broker process serves the whole session: it is started by the first test that asks, and emptied (``Broker.reset``)
before each test that uses it, so that a test costs milliseconds and never sees what another one left. A test may stop,
kill or restart it; the next one finds it running again. Under pytest-xdist each worker has its own.

    def test_orders(kafka):
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

Other settings for the session's broker, in ``conftest.py``:

    @pytest.fixture(scope="session")
    def kafka_config():
        return {"num.partitions": 6, "auto.create.topics.enable": False}

A test that needs a broker with settings of its own makes one: ``with moldau.testing.Broker(config=...)``.

The server's log of a failed test is shown in its report, under "moldau broker log".
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

import pytest

from .broker import Broker, ConfigValue


@pytest.fixture(scope="session")
def kafka_config() -> Mapping[str, ConfigValue]:
    """Broker settings for the session's broker; override it in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def kafka_session(kafka_config: Mapping[str, ConfigValue]) -> Iterator[Broker]:
    """The session's broker, never reset: for fixtures of a wider scope than one test."""
    with Broker(config=kafka_config) as broker:
        yield broker


@pytest.fixture
def kafka(kafka_session: Broker) -> Broker:
    """A running broker without topics, for one test. ``kafka.bootstrap_servers`` is what clients want to know."""
    kafka_session.start()
    kafka_session.reset()
    return kafka_session


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the broker logged during a failed test beside the test's own output."""
    report = yield
    broker = getattr(item, "funcargs", {}).get("kafka")
    if not isinstance(broker, Broker):
        return report
    if report.when == "setup":
        item.stash[_LOG_START] = len(broker.log())
    elif report.failed:
        log = broker.log()[item.stash.get(_LOG_START, 0) :]
        report.sections.append(("moldau broker log", log or "(nothing)"))
    return report


_LOG_START = pytest.StashKey[int]()

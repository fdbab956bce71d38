"""The pytest plugin of ``pip install moldau``: the fixture ``kafka``, an empty broker for each test.

One broker process serves the whole session: it is started by the first test that asks, and emptied (``Broker.reset``)
before each test that uses it, so that a test costs milliseconds and never sees what another one left. A test may stop,
kill or restart it; the next one finds it running again. Under pytest-xdist each worker has its own.

    def test_orders(kafka):
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

What consumers do is waited for without a sleep: the broker tells when a group has its members, and when it has read
and committed everything; and a member is lost when the test says so, not when its session has timed out.

    def test_billing(kafka):
        workers = [start_worker(kafka.bootstrap_servers, group="billing") for _ in range(2)]
        kafka.await_group_stable("billing", members=2)
        place_orders(kafka.bootstrap_servers, 100)
        kafka.expire_member("billing", "worker-1")
        kafka.await_lag_zero("billing", "orders")
        assert billed() == 100

Time is let pass, too: retention deletes what is old by the server's clock, when the test says so.

    def test_a_consumer_that_was_away_too_long(kafka):
        place_orders(kafka.bootstrap_servers, 100)
        kafka.advance(8 * 24 * 3600)
        kafka.delete_old_segments()
        place_orders(kafka.bootstrap_servers, 1)
        assert read_orders(group="away") == 1

And the broker dies in the middle of its work, and comes back:

    def test_orders_survive_a_crash(kafka):
        producer = start_to_place_orders(kafka.bootstrap_servers, 100)
        kafka.crash()
        producer.flush()
        assert read_orders() == 100

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

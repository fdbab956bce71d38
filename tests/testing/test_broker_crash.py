"""`broker.crash`: a process is killed, a broker in memory loses its power."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.records import iter_batches, iter_records
from moldau.testing import Broker, BrokerError
from moldau.testing.builders import batch, fetch, produce
from moldau.testing.wire import WireClient

DURABLE, PLAIN = "durable", "plain"


def create_topics(broker: Broker) -> None:
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
        )
        for name, settings in ((DURABLE, {"flush.messages": "1"}), (PLAIN, {}))
    ]
    with WireClient(broker.bootstrap_servers) as wire:
        answers = wire.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000)).topics
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 2


def append(broker: Broker, topic: str, *values: bytes) -> None:
    with WireClient(broker.bootstrap_servers) as wire:
        assert produce(wire, topic, batch(*values), acks=-1).error_code == ErrorCode.NONE


def read(broker: Broker, topic: str) -> list[bytes | None]:
    """The visible records. Records that must be flushed first become visible a little later."""
    with WireClient(broker.bootstrap_servers) as wire:
        answer = fetch(wire, topic, max_wait_ms=10_000 if topic == DURABLE else 0)
    assert answer.error_code == ErrorCode.NONE
    found = iter_batches(bytes(cast(memoryview, answer.records or b"")))
    return [record.value for one in found for record in iter_records(one)]


@pytest.fixture
def in_memory() -> Iterator[Broker]:
    with Broker(thread=True, memory=True) as started:
        create_topics(started)
        yield started


@pytest.fixture
def process() -> Iterator[Broker]:
    with Broker() as started:
        create_topics(started)
        yield started


def test_a_killed_process_loses_no_records(process: Broker) -> None:
    address, pid = process.bootstrap_servers, process.pid
    append(process, PLAIN, b"a", b"b")

    process.crash()

    assert process.running
    assert (process.bootstrap_servers, process.pid != pid) == (address, True)
    assert read(process, PLAIN) == [b"a", b"b"]
    assert "after an unclean shutdown" in process.log()
    append(process, PLAIN, b"c")
    assert read(process, PLAIN) == [b"a", b"b", b"c"]


def test_a_power_failure_loses_unsynced_records(in_memory: Broker) -> None:
    address = in_memory.bootstrap_servers
    append(in_memory, DURABLE, b"a", b"b")
    append(in_memory, PLAIN, b"a", b"b")

    in_memory.crash()

    assert in_memory.bootstrap_servers == address
    assert read(in_memory, DURABLE) == [b"a", b"b"]
    assert read(in_memory, PLAIN) == []
    append(in_memory, DURABLE, b"c")
    in_memory.crash()
    assert read(in_memory, DURABLE) == [b"a", b"b", b"c"]


def test_a_clean_stop_of_a_broker_in_memory_keeps_everything(in_memory: Broker) -> None:
    append(in_memory, PLAIN, b"a", b"b")
    in_memory.restart()
    assert read(in_memory, PLAIN) == [b"a", b"b"]
    in_memory.crash()
    assert read(in_memory, PLAIN) == [b"a", b"b"]


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_determines_what_a_disk_keeps(in_memory: Broker, seed: int) -> None:
    values = [b"%d" % number for number in range(8)]
    append(in_memory, DURABLE, *values)
    for value in values:
        append(in_memory, PLAIN, value)

    in_memory.crash(seed)

    assert read(in_memory, DURABLE) == values
    found = read(in_memory, PLAIN)
    assert found == values[: len(found)]


def test_records_acknowledged_at_the_moment_of_the_crash_are_kept(in_memory: Broker) -> None:
    """Producers write all the time, and the power fails five times."""
    acknowledged: list[bytes] = []
    ended = threading.Event()
    heard = threading.Condition()

    def write() -> None:
        number = 0
        while not ended.is_set() and number < 5_000:
            try:
                with WireClient(in_memory.bootstrap_servers) as wire:
                    while not ended.is_set() and number < 5_000:
                        value = b"%d" % number
                        number += 1
                        if produce(wire, DURABLE, batch(value), acks=-1).error_code == ErrorCode.NONE:
                            with heard:
                                acknowledged.append(value)
                                heard.notify_all()
            except OSError:
                ended.wait(0.01)  # it is down

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for seed in range(5):
            with heard:
                before = len(acknowledged)
                assert heard.wait_for(lambda before=before: len(acknowledged) >= before + 20, 60)  # type: ignore[misc]
            in_memory.crash(seed)
            with heard:
                known = list(acknowledged)
            found = read(in_memory, DURABLE)
            assert [value for value in known if value not in found] == []
    finally:
        ended.set()
        thread.join(60)


def test_a_moved_clock_stays_moved(in_memory: Broker) -> None:
    in_memory.advance(3600)
    in_memory.crash()
    append(in_memory, DURABLE, b"a")
    in_memory.delete_old_segments()
    in_memory.reset()


def test_brokers_that_cannot_crash_raise_an_error(tmp_path: Path) -> None:
    with Broker(thread=True) as in_thread, pytest.raises(BrokerError, match="thread"):
        in_thread.crash()
    with Broker(ephemeral=True) as ephemeral, pytest.raises(BrokerError, match="ephemeral"):
        ephemeral.crash()
    with pytest.raises(BrokerError, match="not running"):
        Broker().crash()
    for wrong in ({}, {"thread": True, "ephemeral": True}, {"thread": True, "data_dir": tmp_path}):
        with pytest.raises(ValueError, match="memory"):
            Broker(memory=True, **wrong)
    with Broker(thread=True, memory=True) as in_memory, pytest.raises(BrokerError, match="memory"):
        in_memory.data_dir  # noqa: B018

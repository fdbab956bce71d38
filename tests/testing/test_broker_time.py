"""Tests move the time: retention, and the clock that it uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.records import iter_batches
from moldau.testing import Broker, BrokerError
from moldau.testing.builders import batch, fetch, produce
from moldau.testing.wire import WireClient

TOPIC = "t"
DAY = 24 * 3600


@pytest.fixture(params=["process", "thread"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(thread=request.param == "thread") as started:
        yield started


def create_topic(broker: Broker, **configs: str) -> None:
    chosen = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=chosen)
    with WireClient(broker.bootstrap_servers) as wire:
        (answer,) = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics
    assert answer.error_code == ErrorCode.NONE


def append(broker: Broker, *values: bytes) -> None:
    with WireClient(broker.bootstrap_servers) as wire:
        assert produce(wire, TOPIC, batch(*values)).error_code == ErrorCode.NONE


def earliest(broker: Broker) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-2)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[wanted])])
    with WireClient(broker.bootstrap_servers) as wire:
        return int(wire.call(request).topics[0].partitions[0].offset)


def timestamps(broker: Broker, offset: int) -> list[int]:
    with WireClient(broker.bootstrap_servers) as wire:
        return [found.max_timestamp for found in iter_batches(cast(bytes, fetch(wire, TOPIC, offset).records or b""))]


def test_a_week_passes_in_no_time(broker: Broker) -> None:
    create_topic(broker, retention_ms=str(7 * DAY * 1000), file_delete_delay_ms=str(3600_000))
    append(broker, b"a", b"b")
    broker.advance(6 * DAY)
    broker.delete_old_segments()
    assert earliest(broker) == 0
    broker.advance(1.5 * DAY)
    broker.delete_old_segments()
    assert earliest(broker) == 2
    waiting = list(broker.data_dir.glob(f"{TOPIC}-0/*.deleted"))
    assert waiting
    broker.advance(3600)
    broker.delete_old_segments()
    assert not list(broker.data_dir.glob(f"{TOPIC}-0/*.deleted"))


def test_segments_are_deleted_and_the_one_that_is_written_to_is_not(broker: Broker) -> None:
    create_topic(broker, retention_bytes="100")
    append(broker, b"a" * 100)
    broker.roll(TOPIC, 0)
    broker.roll(TOPIC, 0)
    append(broker, b"b" * 100)
    broker.delete_old_segments()
    assert earliest(broker) == 1


def test_timestamps_of_the_server_follow_its_clock_which_stays_ahead_after_restarts(broker: Broker) -> None:
    create_topic(broker, message_timestamp_type="LogAppendTime", retention_ms="-1")
    append(broker, b"a")
    broker.advance(DAY)
    append(broker, b"b")
    broker.restart()
    append(broker, b"c")
    (first, second, third) = timestamps(broker, 0)
    assert second - first >= DAY * 1000
    assert third >= second
    broker.reset()
    create_topic(broker, message_timestamp_type="LogAppendTime")
    append(broker, b"d")
    (fourth,) = timestamps(broker, 0)
    assert fourth < second, "it is right again"


def test_a_missing_partition_cannot_be_rolled(broker: Broker) -> None:
    with pytest.raises(BrokerError, match="t-7"):
        broker.roll(TOPIC, 7)


def test_a_broker_that_does_not_run_has_no_clock() -> None:
    broker = Broker()
    with pytest.raises(BrokerError, match="not running"):
        broker.advance(1)
    broker.close()

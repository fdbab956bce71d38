"""The broker for tests: its guarantees to the tests of users."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.testing import Broker, BrokerError
from moldau.testing.wire import WireClient

BROKER_RESOURCE = 4


def create_topics(broker: Broker, *names: str, partitions: int = 1) -> None:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    with WireClient(broker.bootstrap_servers) as wire:
        response = wire.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.NONE] * len(names)


def topic_names(broker: Broker) -> set[str]:
    with WireClient(broker.bootstrap_servers) as wire:
        return {topic.name for topic in wire.call(MetadataRequest(topics=None)).topics}


def broker_setting(broker: Broker, name: str) -> str:
    with WireClient(broker.bootstrap_servers) as wire:
        node_id = wire.call(MetadataRequest(topics=[])).brokers[0].node_id
        resource = DescribeConfigsResource(
            resource_type=BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=[name]
        )
        (result,) = wire.call(DescribeConfigsRequest(resources=[resource])).results
    (config,) = result.configs
    return str(config.value)


@pytest.fixture(params=["process", "thread"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(thread=request.param == "thread") as started:
        yield started


def test_it_is_ready_when_the_block_begins(broker: Broker) -> None:
    assert topic_names(broker) == set()


def test_it_has_its_own_port() -> None:
    with Broker() as one, Broker() as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        create_topics(one, "only-here")
        assert topic_names(other) == set()


def test_it_ends_with_the_block_and_leaves_no_files(broker: Broker) -> None:
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    create_topics(broker, "t")
    directory = broker.data_dir
    assert directory.exists()

    broker.close()

    assert not broker.running
    assert not directory.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


def test_a_restart_keeps_address_and_topics(broker: Broker) -> None:
    address = broker.bootstrap_servers
    create_topics(broker, "t")

    broker.restart()

    assert broker.bootstrap_servers == address
    assert topic_names(broker) == {"t"}


def test_a_killed_broker_restarts_with_address_and_topics() -> None:
    with Broker() as broker:
        address, pid = broker.bootstrap_servers, broker.pid
        create_topics(broker, "t")

        broker.kill()
        assert not broker.running
        broker.start()

        assert broker.pid != pid
        assert broker.bootstrap_servers == address
        assert topic_names(broker) == {"t"}


def test_a_broker_that_somebody_else_killed_can_be_started_again() -> None:
    with Broker() as broker:
        pid = broker.pid  # querying it after the end of the process is an error
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

        broker.start()

        assert topic_names(broker) == set()


def test_starting_twice_is_starting_once() -> None:
    with Broker() as broker:
        pid = broker.pid
        broker.start()
        assert broker.pid == pid


def test_reset_deletes_every_topic(broker: Broker) -> None:
    create_topics(broker, *(f"t{number}" for number in range(20)), partitions=3)

    broker.reset()

    assert topic_names(broker) == set()
    assert not list(broker.data_dir.glob("t*-[0-9]"))


def test_a_topic_created_after_reset_is_empty(broker: Broker) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    assert producer.send("t", b"before").get(60).offset == 0
    broker.reset()
    create_topics(broker, "t")

    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=None, enable_auto_commit=False)
    partition = TopicPartition("t", 0)
    assert consumer.end_offsets([partition]) == {partition: 0}
    consumer.close()
    producer.close()


def test_settings_are_kafkas(broker: Broker) -> None:
    assert broker_setting(broker, "offsets.topic.num.partitions") == "1"
    with Broker(config={"num.partitions": 7, "auto.create.topics.enable": False}) as other:
        assert broker_setting(other, "num.partitions") == "7"
        assert broker_setting(other, "auto.create.topics.enable") == "false"


def test_a_changed_setting_holds_after_a_restart() -> None:
    with Broker() as broker:
        broker.config["num.partitions"] = 5
        broker.restart()
        assert broker_setting(broker, "num.partitions") == "5"


def test_variables_for_clients_are_not_settings_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "9")
    with Broker() as broker:
        assert broker_setting(broker, "num.partitions") == "1"


def test_the_error_for_an_invalid_setting_is_the_servers_message() -> None:
    message = r"(?s)exit code 1; .*num\.partitions"
    with pytest.raises(BrokerError, match=message), Broker(config={"num.partitions": "x"}):
        pass


@pytest.mark.parametrize("thread", [False, True])
def test_the_error_for_a_port_in_use_is_the_servers_message(thread: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(BrokerError, match=f"127.0.0.1:{port}"),
            Broker(listen=f"127.0.0.1:{port}", thread=thread),
        ):
            pass


def test_data_can_be_kept_for_the_next_broker(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        assert broker.data_dir == tmp_path / "data"
        create_topics(broker, "kept")
    with Broker(data_dir=tmp_path / "data") as broker:
        assert topic_names(broker) == {"kept"}


@pytest.mark.parametrize("thread", [False, True])
def test_an_ephemeral_broker_forgets_at_a_restart(thread: bool) -> None:
    with Broker(ephemeral=True, thread=thread) as broker:
        create_topics(broker, "t")
        broker.restart()
        assert topic_names(broker) == set()
        with pytest.raises(BrokerError, match="ephemeral"):
            broker.data_dir  # noqa: B018


def test_an_ephemeral_broker_has_no_data_dir(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ephemeral"):
        Broker(ephemeral=True, data_dir=tmp_path)


def test_methods_that_need_a_running_broker_raise_an_error() -> None:
    broker = Broker()
    with pytest.raises(BrokerError, match="never started"):
        broker.bootstrap_servers  # noqa: B018
    with pytest.raises(BrokerError, match="not running"):
        broker.kill()
    broker.close()


def test_a_thread_cannot_be_killed() -> None:
    with Broker(thread=True) as broker:
        assert broker.pid == os.getpid()
        with pytest.raises(BrokerError, match="thread"):
            broker.kill()
        assert topic_names(broker) == set()


def test_the_log_is_kept_over_restarts() -> None:
    with Broker() as broker:
        before = broker.log()
        broker.restart()
        assert broker.log().startswith(before)
        assert len(broker.log()) > len(before)


def test_it_dies_with_the_process_that_started_it() -> None:
    """Also if the process ends by SIGKILL, after which it cannot clean up."""
    program = (
        "import sys, moldau.testing\n"
        "broker = moldau.testing.Broker().start()\n"
        "print(broker.bootstrap_servers, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, WireClient(parent.stdout.readline().strip(), timeout_s=60) as wire:
        assert wire.call(MetadataRequest(topics=[])).brokers

        parent.kill()

        assert wire.closed_by_server()

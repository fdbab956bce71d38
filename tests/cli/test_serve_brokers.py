"""``moldau serve --brokers N`` as processes: two brokers of one directory."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from moldau.log.files import LockHeldError, RealFileSystem
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.testing.producer_load import ProducerLoad, read_all
from moldau.testing.served_brokers import ServedBrokers
from moldau.testing.server_process import ServerProcess
from moldau.testing.server_run import BrokerError
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .conftest import Run

TIMEOUT_S = 180


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[ServedBrokers]:
    serve = ServedBrokers(folder, *options)
    try:
        yield serve
    finally:
        if serve.process.alive:
            serve.process.stop(TIMEOUT_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBrokers]:
    with serving(tmp_path_factory.mktemp("cluster"), "--brokers", "2") as serve:
        yield serve


def create(address: str, topic: str, *leaders: int) -> None:
    """A topic with a partition on each of these brokers."""
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[leader]) for index, leader in enumerate(leaders)
    ]
    wanted = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=assignments)
    with WireClient(address) as wire:
        (result,) = wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000)).topics
    assert result.error_code == ErrorCode.NONE, result


def delete(address: str, topic: str) -> None:
    with WireClient(address) as wire:
        wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=60_000))


def produce(address: str, topic: str, value: bytes, *partitions: int) -> None:
    producer = KafkaProducer(bootstrap_servers=address, acks="all")
    for sent in [producer.send(topic, value, partition=partition) for partition in partitions]:
        sent.get(timeout=TIMEOUT_S)
    producer.close()


def consume(address: str, topic: str, partitions: int, count: int) -> list[tuple[int, bytes]]:
    """This many records of the first partitions, ordered by partition."""
    consumer = KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
    consumer.seek_to_beginning()
    records = [(record.partition, record.value) for record in itertools.islice(consumer, count)]
    consumer.close()
    return sorted(records, key=lambda record: record[0])


def is_in_use(directory: Path) -> bool:
    try:
        RealFileSystem().lock(str(directory / ".lock")).release()
    except LockHeldError:
        return True
    return False


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_each_broker_serves_partitions(cluster: ServedBrokers) -> None:
    assert len(set(cluster.addresses)) == 2
    create(cluster.addresses[1], "both", 1, 2)
    produce(cluster.addresses[1], "both", b"x", 0, 1)
    assert consume(cluster.addresses[0], "both", 2, 2) == [(0, b"x"), (1, b"x")]


def test_a_killed_broker_returns_with_its_partitions(cluster: ServedBrokers) -> None:
    create(cluster.addresses[0], "killed", 1, 2)
    produce(cluster.addresses[0], "killed", b"before", 0, 1)
    before = cluster.pids()
    os.kill(dict(before)[2], signal.SIGKILL)
    produce(cluster.addresses[0], "killed", b"meanwhile", 0)
    wait_until(lambda: len(cluster.pids()) > len(before))
    assert cluster.pids()[-1][0] == 2
    produce(cluster.addresses[1], "killed", b"after", 1)
    records = [(0, b"before"), (0, b"meanwhile"), (1, b"before"), (1, b"after")]
    assert consume(cluster.addresses[1], "killed", 2, 4) == records


def test_the_controller_returns_while_the_others_serve(cluster: ServedBrokers) -> None:
    create(cluster.addresses[0], "controller", 1, 2)
    before = cluster.pids()
    os.kill(dict(before)[1], signal.SIGKILL)
    produce(cluster.addresses[1], "controller", b"meanwhile", 1)
    wait_until(lambda: len(cluster.pids()) > len(before))
    create(cluster.addresses[1], "afterwards", 2, 1)
    produce(cluster.addresses[1], "afterwards", b"x", 0, 1)


@pytest.mark.parametrize(
    "rounds", [pytest.param(3, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.extended)]
)
def test_brokers_that_are_killed_under_load_lose_nothing(tmp_path: Path, rounds: int) -> None:
    """Acknowledged records are read once, in their order. No other broker is restarted."""
    with serving(tmp_path, "--brokers", "3") as serve:
        create(serve.addresses[0], "load", 1, 2, 3)
        load = ProducerLoad(serve.addresses, "load", partitions=3)
        with load:
            for round_number in range(rounds):
                killed = (2, 3, 1)[round_number % 3]
                before = serve.pids()
                load.wait_for_more(range(3))
                os.kill(dict(before)[killed], signal.SIGKILL)
                load.wait_for_more({0, 1, 2} - {killed - 1})
                serve.wait_for_ready(len(before) + 1)
                load.wait_for_more([killed - 1])
                assert [broker for broker, _ in serve.pids()[len(before) :]] == [killed]
        assert load.errors == []
        for partition, acknowledged in enumerate(load.acknowledged):
            assert read_all(serve.addresses[0], "load", partition, len(acknowledged)) == acknowledged


def test_the_controller_stops_last(tmp_path: Path) -> None:
    with serving(tmp_path, "--brokers", "2") as serve:
        serve.process.stop(TIMEOUT_S)
    log = serve.log()
    assert log.index("Broker 2 is in state SHUTTING_DOWN") < log.index("broker 1 moldau.server.main: Stopping")
    assert "it is started again" not in log
    assert not any(is_running(pid) for _, pid in serve.pids())


def test_the_brokers_end_with_their_parent(tmp_path: Path) -> None:
    serve = ServedBrokers(tmp_path, "--brokers", "2")
    create(serve.addresses[0], "topic", 1, 2)
    produce(serve.addresses[0], "topic", b"x", 0, 1)
    serve.process.kill()
    wait_until(lambda: not any(is_in_use(tmp_path / "data" / name) for name in (".", "brokers/2")))
    with serving(tmp_path, "--brokers", "2") as again:
        assert consume(again.addresses[0], "topic", 2, 2) == [(0, b"x"), (1, b"x")]


WITHOUT_FORKS = """
import sys
from moldau.server.processes import forking
forking.CAN_FORK = False
from moldau.cli.main import main
main(sys.argv[1:])
"""


def test_where_processes_cannot_fork_brokers_are_new_interpreters(tmp_path: Path) -> None:
    serve = ServedBrokers(tmp_path, "--brokers", "2", program=("-c", WITHOUT_FORKS))
    create(serve.addresses[0], "topic", 1, 2)
    produce(serve.addresses[1], "topic", b"x", 0, 1)
    serve.process.stop(TIMEOUT_S)
    assert not any(is_running(pid) for _, pid in serve.pids())


def test_a_single_server_grows_and_shrinks(tmp_path: Path) -> None:
    with serving(tmp_path) as single:
        create(single.addresses[0], "old", 1)
        produce(single.addresses[0], "old", b"x", 0)
    with serving(tmp_path, "--brokers", "2") as several:
        assert consume(several.addresses[1], "old", 1, 1) == [(0, b"x")]
        create(several.addresses[0], "new", 2)
    with pytest.raises(
        BrokerError, match=r"broker 2 has replicas, for example of new-0\. Start all brokers .*=?--brokers 2"
    ):
        ServedBrokers(tmp_path)
    with serving(tmp_path, "--brokers", "2") as several:
        delete(several.addresses[0], "new")
    with serving(tmp_path) as single:
        assert consume(single.addresses[0], "old", 1, 1) == [(0, b"x")]


def test_an_ephemeral_cluster_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-m", "moldau", "serve", "--exit-with-stdin", "--ephemeral", "--brokers", "2"]
    process = ServerProcess([*command, "--listen", "127.0.0.1:0"], tmp_path / "log")
    assert len(process.wait_ready(TIMEOUT_S).split(",")) == 2
    assert len(list(tmp_path.glob("moldau-*"))) == 1
    process.stop(TIMEOUT_S)
    assert list(tmp_path.glob("moldau-*")) == []


def test_a_broker_that_cannot_start_stops_all(tmp_path: Path, cluster: ServedBrokers) -> None:
    command = [sys.executable, "-m", "moldau", "serve", "--data-dir", str(tmp_path / "data"), "--brokers", "2"]
    process = ServerProcess([*command, "--listen", cluster.addresses[0]], tmp_path / "log")
    with pytest.raises(BrokerError, match=r"(?s)exit code 1 .* is in use by another server.* all brokers stop"):
        process.wait_ready(TIMEOUT_S)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--brokers", "many"), "--brokers many: give the number of brokers, or auto for one per core"),
        (("--brokers", "0"), "--brokers 0: the number must be between 1 and 64, or auto"),
        (("--brokers", "2", "--control", "127.0.0.1:0"), "--control and --brokers are mutually exclusive; remove one"),
        (
            ("--brokers", "2", "--set", "controller.quorum.bootstrap.servers=h:1"),
            "--brokers starts a cluster with its own controller, but controller.quorum.bootstrap.servers or "
            "controller.quorum.voters names another one; remove one of them",
        ),
    ],
)
def test_wrong_options_are_explained_in_one_line(
    run: Run, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    result = run("serve", "--data-dir", str(tmp_path / "data"), *options)
    assert result.code == 1
    assert result.err == f"moldau: {words}\n"

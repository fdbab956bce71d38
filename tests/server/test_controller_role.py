"""Moldau as the only controller of a cluster (`process.roles=controller`), with brokers of Apache Kafka and of Moldau.

The controller is node 3000, Apache Kafka's broker is node 1, Moldau's is node 2.
"""

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from moldau.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.testing import Broker, BrokerError, jvm
from moldau.testing.builders import batch, produce_request
from moldau.testing.controllers import CONTROLLER, ApacheBroker, Controller
from moldau.testing.joined_brokers import format_directory, joined_broker
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

BROKER = 1
MOLDAU = 2
_numbers = itertools.count()


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    controller = Controller(tmp_path_factory.mktemp("cluster"))
    controller.start()
    yield controller
    controller.stop()


@pytest.fixture(scope="module")
def apache(controller: Controller, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheBroker]:
    folder = tmp_path_factory.mktemp("broker")
    with ApacheBroker(controller.address, controller.cluster_id, folder, BROKER) as broker:
        yield broker


@pytest.fixture(scope="module")
def moldau_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("moldau") / "data"


@pytest.fixture(scope="module")
def moldau(controller: Controller, moldau_directory: Path) -> Iterator[Broker]:
    directory = moldau_directory
    format_directory(controller.cluster_id, directory, MOLDAU)
    settings = {
        "process.roles": "broker",
        "node.id": str(MOLDAU),
        "controller.quorum.bootstrap.servers": controller.address,
        "broker.heartbeat.interval.ms": "500",
    }
    with Broker(config=settings, data_dir=directory) as broker:
        yield broker


def leaders(address: str) -> dict[str, int]:
    """The leader of partition 0, by topic."""
    with WireClient(address) as wire:
        response = wire.call(MetadataRequest(topics=None))
    return {topic.name: topic.partitions[0].leader_id for topic in response.topics if topic.partitions}


def create(address: str, node_id: int = BROKER) -> str:
    """A new topic on this broker, which asks the controller to create it (Envelope)."""
    name = f"topic-{next(_numbers)}"
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[node_id])
    requested = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    with WireClient(address) as wire:
        response = wire.call(CreateTopicsRequest(topics=[requested], timeout_ms=20_000))
    assert [result.error_code for result in response.topics] == [ErrorCode.NONE], response
    wait_until(lambda: leaders(address).get(name) == node_id)
    return name


def produce(address: str, topic: str, *values: bytes, idempotent: bool = True) -> list[int]:
    producer = KafkaProducer(bootstrap_servers=address, acks="all", enable_idempotence=idempotent)
    sent = [producer.send(topic, value, partition=0) for value in values]
    offsets = [each.get(timeout=60).offset for each in sent]
    producer.close()
    return offsets


def consume(address: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    values = [next(consumer).value for _ in range(count)]
    consumer.close()
    return values


def test_a_topic_is_created_written_read_and_deleted(apache: ApacheBroker) -> None:
    address = apache.bootstrap_servers
    topic = create(address)
    values = [str(number).encode() for number in range(100)]
    assert produce(address, topic, *values) == list(range(100))
    assert consume(address, topic, 100) == values
    with WireClient(address) as wire:
        deleted = wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=20_000))
    assert [each.error_code for each in deleted.responses] == [ErrorCode.NONE]
    wait_until(lambda: topic not in leaders(address))


def test_a_group_commits_its_offsets(apache: ApacheBroker) -> None:
    """The broker asks for the internal topic itself, and assigns it to its directory."""
    address = apache.bootstrap_servers
    topic = create(address)
    produce(address, topic, b"a", b"b")
    for expected in (b"a", b"b"):
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id="group",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=1,
        )
        assert next(consumer).value == expected
        consumer.commit()
        consumer.close()


def test_apache_kafka_describes_the_quorum(apache: ApacheBroker, controller: Controller) -> None:
    """Through the broker, and directly at the controller."""
    for option in (["--bootstrap-server", apache.bootstrap_servers], ["--bootstrap-controller", controller.address]):
        command = jvm.command("org.apache.kafka.tools.MetadataQuorumCommand", *option, "describe", "--replication")
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = [line.split() for line in done.stdout.splitlines() if line[:1].isdigit()]
        assert {(int(row[0]), row[-1]) for row in rows} == {(CONTROLLER, "Leader"), (BROKER, "Observer")}, done.stdout


def test_the_broker_stops_while_the_controller_runs(apache: ApacheBroker) -> None:
    """It gives up its leaderships first, and its session ends, so that it can register again immediately."""
    topic = create(apache.bootstrap_servers)
    produce(apache.bootstrap_servers, topic, b"before")
    apache.restart()
    wait_until(lambda: leaders(apache.bootstrap_servers).get(topic) == BROKER)
    assert consume(apache.bootstrap_servers, topic, 1) == [b"before"]


def test_a_killed_broker_is_fenced_and_rejoins(apache: ApacheBroker, controller: Controller) -> None:
    topic = create(apache.bootstrap_servers)
    produce(apache.bootstrap_servers, topic, b"before")
    fenced = f"Fenced broker {BROKER}"
    before = controller.log().count(fenced)
    apache.kill()
    wait_until(lambda: controller.log().count(fenced) > before)
    apache.start()
    wait_until(lambda: leaders(apache.bootstrap_servers).get(topic) == BROKER)
    assert consume(apache.bootstrap_servers, topic, 1) == [b"before"]


# From here on the cluster has two brokers.


def test_a_broker_of_moldau_serves_clients(moldau: Broker) -> None:
    address = moldau.bootstrap_servers
    topic = create(address, MOLDAU)
    values = [str(number).encode() for number in range(100)]
    assert produce(address, topic, *values) == list(range(100))
    assert consume(address, topic, 100) == values


def test_a_broker_of_moldau_restarts(moldau: Broker, controller: Controller) -> None:
    address = moldau.bootstrap_servers
    topic = create(address, MOLDAU)
    produce(address, topic, b"before")
    for end in (moldau.stop, moldau.kill):
        end()
        moldau.start()
        wait_until(lambda: leaders(address).get(topic) == MOLDAU)
        assert consume(address, topic, 1) == [b"before"]


def test_another_broker_with_the_same_node_id_is_refused(
    moldau: Broker, controller: Controller, tmp_path: Path
) -> None:
    format_directory(controller.cluster_id, tmp_path / "data", MOLDAU)
    controllers = {"controller.quorum.bootstrap.servers": controller.address}
    other = joined_broker(tmp_path / "data", MOLDAU, controllers, **{"initial.broker.registration.timeout.ms": "1000"})
    with pytest.raises(BrokerError, match=r"Broker 2 is registered.*\(DUPLICATE_BROKER_REGISTRATION\)"):
        other.start()
    topic = create(moldau.bootstrap_servers, MOLDAU)
    assert produce(moldau.bootstrap_servers, topic, b"served") == [0]


def test_both_brokers_serve_the_partitions_of_a_topic(apache: ApacheBroker, moldau: Broker) -> None:
    name = f"topic-{next(_numbers)}"
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[node_id])
        for index, node_id in enumerate((BROKER, MOLDAU))
    ]
    requested = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
    with WireClient(moldau.bootstrap_servers) as wire:
        response = wire.call(CreateTopicsRequest(topics=[requested], timeout_ms=20_000))
    assert [result.error_code for result in response.topics] == [ErrorCode.NONE]
    addresses = sorted((apache.bootstrap_servers, moldau.bootstrap_servers))
    wait_until(lambda: all(name in leaders(address) for address in addresses))
    for address in addresses:
        producer = KafkaProducer(bootstrap_servers=address, acks="all")
        for partition in (0, 1):
            producer.send(name, address.encode(), partition=partition).get(timeout=60)
        producer.close()
    consumer = KafkaConsumer(bootstrap_servers=moldau.bootstrap_servers, auto_offset_reset="earliest")
    partitions = [TopicPartition(name, 0), TopicPartition(name, 1)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    read = sorted((record.partition, record.value.decode()) for record in itertools.islice(consumer, 4))
    consumer.close()
    assert read == [(partition, address) for partition in (0, 1) for address in addresses]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_the_broker_serves_while_the_controller_restarts(
    apache: ApacheBroker, moldau: Broker, controller: Controller, end: str
) -> None:
    topic = create(apache.bootstrap_servers)
    # The producer may request the topic from Moldau.
    wait_until(lambda: leaders(moldau.bootstrap_servers).get(topic) == BROKER)
    getattr(controller, end)()
    # An idempotent producer needs an id, and the broker may have used up its block.
    assert produce(apache.bootstrap_servers, topic, b"1", idempotent=False) == [0]
    assert consume(apache.bootstrap_servers, topic, 1) == [b"1"]
    controller.start()
    create(apache.bootstrap_servers)
    assert leaders(apache.bootstrap_servers)[topic] == BROKER


def test_a_missing_topic_is_unknown_while_there_is_no_controller(moldau: Broker, controller: Controller) -> None:
    """The request to create it must not hold back the client's other requests until it times out."""
    controller.kill()
    with WireClient(moldau.bootstrap_servers, timeout_s=25) as wire:
        response = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name="missing")]))
        assert [topic.error_code for topic in response.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    controller.start()
    wait_until(lambda: "missing" in known(moldau.bootstrap_servers, "missing"))


def known(address: str, name: str) -> set[str | None]:
    """The topic of this name, which the broker creates if it does not exist."""
    with WireClient(address) as wire:
        response = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
    return {topic.name for topic in response.topics if topic.error_code == ErrorCode.NONE}


# Partitions with a replica on each of the brokers.


def create_replicated(address: str, *replicas: int) -> str:
    """A new topic, led by the first of these brokers."""
    name = f"topic-{next(_numbers)}"
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    requested = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    with WireClient(address) as wire:
        response = wire.call(CreateTopicsRequest(topics=[requested], timeout_ms=20_000))
    assert [result.error_code for result in response.topics] == [ErrorCode.NONE], response
    return name


def state_of(address: str, topic: str) -> tuple[int, set[int]]:
    """The leader of the partition and its in-sync replicas."""
    with WireClient(address) as wire:
        response = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    (partition,) = response.topics[0].partitions
    return partition.leader_id, set(partition.isr_nodes)


def log_of(directory: Path, topic: str) -> bytes:
    return (directory / f"{topic}-0" / "00000000000000000000.log").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("leader", [pytest.param(BROKER, marks=pytest.mark.full), MOLDAU])
def test_both_brokers_replicate_each_others_partitions(
    apache: ApacheBroker, moldau: Broker, moldau_directory: Path, leader: int
) -> None:
    follower = BROKER if leader == MOLDAU else MOLDAU
    brokers: dict[int, ApacheBroker | Broker] = {BROKER: apache, MOLDAU: moldau}
    addresses = [broker.bootstrap_servers for broker in brokers.values()]
    topic = create_replicated(apache.bootstrap_servers, leader, follower)
    wait_until(lambda: all(topic in leaders(address) for address in addresses))
    values = [str(number).encode() for number in range(50)]
    assert produce(brokers[leader].bootstrap_servers, topic, *values) == list(range(50))
    assert state_of(brokers[follower].bootstrap_servers, topic) == (leader, {BROKER, MOLDAU})
    assert log_of(apache.data_dir, topic) == log_of(moldau_directory, topic)
    brokers[leader].kill()
    there = brokers[follower].bootstrap_servers
    wait_until(lambda: state_of(there, topic) == (follower, {follower}))
    assert produce(there, topic, b"meanwhile") == [50]
    assert consume(there, topic, 51) == [*values, b"meanwhile"]
    brokers[leader].start()
    wait_until(lambda: state_of(there, topic) == (follower, {BROKER, MOLDAU}))
    assert produce(there, topic, b"after") == [51]
    assert log_of(apache.data_dir, topic) == log_of(moldau_directory, topic)


def test_a_quota_is_set_through_a_broker_and_in_effect(moldau: Broker) -> None:
    address = moldau.bootstrap_servers
    topic = create(address, MOLDAU)
    entry = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name="limited")],
        ops=[OpData(key="producer_byte_rate", value=10_000)],
    )
    with WireClient(address) as wire:
        assert [each.error_code for each in wire.call(AlterClientQuotasRequest(entries=[entry])).entries] == [0]
        wait_until(lambda: wire.call(DescribeClientQuotasRequest(components=[])).entries)
    with WireClient(address, client_id="limited") as wire:
        response = wire.call(produce_request(topic, batch(bytes(200_000))), 9)
    assert response.throttle_time_ms > 0

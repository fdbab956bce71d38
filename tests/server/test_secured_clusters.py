"""Clusters whose nodes talk to each other with TLS and SASL, and whose brokers have ACLs.

The clusters are `moldau serve --brokers 3 --secure`, a broker of Moldau and one of Apache Kafka under a controller of
Apache Kafka, and the same under a controller of Moldau. Clients are those of librdkafka.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from moldau.config.sources import read_file
from moldau.security.sasl_client import credentials_of
from moldau.testing import Broker
from moldau.testing.apache_kafka import ApacheKafka, free_ports
from moldau.testing.joined_brokers import cluster_id_of, format_directory, joined_broker
from moldau.testing.served_brokers import ServedBrokers
from moldau.testing.waiting import wait_until

from .secured_nodes import ADMIN, ALICE, NODES, PASSWORDS, SecuredNodes

TIMEOUT_S = 180
INTERNAL_TOPICS = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
}
_numbers = itertools.count()


class SecuredCluster(NamedTuple):
    """A running cluster, and the settings of its clients."""

    addresses: list[str]
    client_config: Callable[[str], dict[str, str]]
    log: Callable[[], str]

    def config(self, user: str, **more: Any) -> dict[str, Any]:
        dotted = {name.replace("_", "."): value for name, value in more.items()}
        return {"bootstrap.servers": ",".join(self.addresses), **self.client_config(user), **dotted}

    def admin(self) -> AdminClient:
        return AdminClient(self.config(ADMIN))

    def create(self, replicas: int) -> str:
        """A topic with a partition for each broker, which leads it."""
        name, count = f"topic-{next(_numbers)}", len(self.addresses)
        replicas_of = [[(first + more) % count + 1 for more in range(replicas)] for first in range(count)]
        admin = self.admin()
        admin.create_topics([NewTopic(name, count, replica_assignment=replicas_of)])[name].result(TIMEOUT_S)
        return name

    def allow(self, user: str, *allowed: tuple[AclOperation, ResourceType, str]) -> None:
        """Add ACLs for literal names."""
        bindings = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for operation, kind, name in allowed
        ]
        admin = self.admin()
        for created in admin.create_acls(bindings).values():
            created.result(TIMEOUT_S)

    def produce(self, user: str, topic: str, values: list[str]) -> list[KafkaError | None]:
        """The error of each record, or None. The partitions take turns, and all replicas acknowledge.

        ``error == None`` is not possible: a comparison of a KafkaError with None leaves an exception to the next call.
        """
        producer = Producer(self.config(user, acks="all", enable_idempotence=True))
        errors: list[KafkaError | None] = []
        for number, value in enumerate(values):
            producer.produce(
                topic, value, partition=number % len(self.addresses), on_delivery=lambda error, _: errors.append(error)
            )
        assert producer.flush(TIMEOUT_S) == 0
        return errors

    def read(self, user: str, topic: str, group: str, count: int) -> set[str]:
        """Committed records of a group, whose offsets are committed."""
        consumer = Consumer(
            self.config(
                user,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            )
        )
        consumer.subscribe([topic])
        found: set[str] = set()

        def complete() -> bool:
            for message in consumer.consume(count, timeout=1):
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
                found.add(message.value().decode())
            return len(found) >= count

        try:
            wait_until(complete)
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return found


def check_clients(cluster: SecuredCluster, replicas: int) -> None:
    """Records, groups and transactions of a user with ACLs; and what ACLs refuse, through each broker."""
    topic, group, transactional_id = cluster.create(replicas), f"group-{next(_numbers)}", f"id-{next(_numbers)}"
    refused = cluster.produce(ALICE, topic, ["x"])
    assert [error.code() for error in refused if error] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    cluster.allow(
        ALICE,
        (AclOperation.READ, ResourceType.TOPIC, topic),
        (AclOperation.WRITE, ResourceType.TOPIC, topic),
        (AclOperation.READ, ResourceType.GROUP, group),
        (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id),
    )
    count = len(cluster.addresses)
    # The brokers know the ACLs a moment after the controller; one that knows one of them knows all.
    wait_until(lambda: not any(cluster.produce(ALICE, topic, ["first"] * count)))
    values = {f"value-{number}" for number in range(20)}
    assert not any(cluster.produce(ALICE, topic, sorted(values)))
    assert cluster.read(ALICE, topic, group, len(values) + 1) == {"first"} | values
    with pytest.raises(KafkaException) as raised:
        cluster.read(ALICE, topic, f"{group}-of-others", 1)
    assert raised.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    producer = Producer(cluster.config(ALICE, transactional_id=transactional_id))
    producer.init_transactions(TIMEOUT_S)
    reader = Consumer(cluster.config(ALICE, group_id=group))
    committed = reader.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    for value, ends in (("committed", True), ("aborted", False)):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, f"{value}-{partition}", partition=partition)
        producer.send_offsets_to_transaction(committed, reader.consumer_group_metadata(), TIMEOUT_S)
        if ends:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
    reader.close()
    assert cluster.read(ALICE, topic, group, 2) == {"committed-0", "committed-1"}
    for address in cluster.addresses:
        admin = AdminClient({**cluster.config(ALICE), "bootstrap.servers": address})
        name = f"{topic}-of-alice"
        with pytest.raises(KafkaException) as raised:
            admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
        assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    cluster.allow(ALICE, (AclOperation.CREATE, ResourceType.TOPIC, f"{topic}-of-alice"))
    for number, address in enumerate(cluster.addresses):
        # The controller decides, so the ACL is in effect with each broker at once.
        admin = AdminClient({**cluster.config(ALICE), "bootstrap.servers": address})
        created = admin.create_topics([NewTopic(f"{topic}-of-alice", 1, 1)])[f"{topic}-of-alice"]
        if number == 0:
            created.result(TIMEOUT_S)
        else:
            with pytest.raises(KafkaException) as raised:
                created.result(TIMEOUT_S)
            assert raised.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


# -- moldau serve --brokers 3 --secure ---------------------------------------------------------------------------------


def assert_files_are_not_revealed(config: dict[str, str], broker_id: int) -> None:
    """A client that may not alter brokers does not learn which files exist. The controller is another process."""
    admin = AdminClient(config)
    for path in ("/etc/passwd", "/a/missing/file"):
        entry = ConfigEntry(
            "listener.name.sasl_ssl.ssl.keystore.location",
            path,
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id), incremental_configs=[entry])
        with pytest.raises(KafkaException) as raised:
            admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
        assert raised.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.slow
def test_three_brokers_with_secure(tmp_path: Path) -> None:
    served = ServedBrokers(tmp_path, "--brokers", "3", "--secure", "--set", "offsets.topic.num.partitions=3",
                           "--set", "transaction.state.log.num.partitions=3")  # fmt: skip
    try:
        folder = tmp_path / "data-security"
        login = read_file(folder / "admin.properties")["sasl.jaas.config"].text
        passwords = {ADMIN: credentials_of("SCRAM-SHA-512", login).password, ALICE: PASSWORDS[ALICE]}

        def client_config(user: str) -> dict[str, str]:
            return {
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(folder / "ca.pem"),
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": user,
                "sasl.password": passwords[user],
            }

        cluster = SecuredCluster(served.addresses, client_config, served.log)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(ALICE, info, PASSWORDS[ALICE].encode())
        admin = cluster.admin()
        for changed in admin.alter_user_scram_credentials([change]).values():
            changed.result(TIMEOUT_S)
        check_clients(cluster, replicas=3)
        for number, address in enumerate(served.addresses, 1):
            assert_files_are_not_revealed({**cluster.config(ALICE), "bootstrap.servers": address}, number)
        assert "ERROR" not in served.log()
        password = read_file(folder / "brokers.properties")["sasl.jaas.config"].text.partition('password="')[2][:24]
        assert password not in served.log()
    finally:
        served.process.stop(TIMEOUT_S)


# -- with Apache Kafka -------------------------------------------------------------------------------------------------


def apache_broker(nodes: SecuredNodes, controller: str, cluster_id: str, folder: Path, node_id: int) -> ApacheKafka:
    (port,) = free_ports(1)
    directory = folder / f"apache-{node_id}"
    format_directory(cluster_id, directory, node_id)
    address = f"CLIENTS://127.0.0.1:{port}"
    config = {
        **nodes.settings(),
        **INTERNAL_TOPICS,
        "node.id": str(node_id),
        "listeners": address,
        "advertised.listeners": address,
    }
    return ApacheKafka(config, data_dir=directory, parent=folder, roles="broker", controllers=controller)


def address_of(kafka: ApacheKafka) -> str:
    settings = read_file(kafka.properties)
    return settings["listeners"].text.partition("://")[2]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> SecuredNodes:
    return SecuredNodes(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def under_apache_kafka(nodes: SecuredNodes, tmp_path: Path) -> Iterator[SecuredCluster]:
    settings = nodes.settings()
    of_controller = {name: text for name, text in settings.items() if name != "inter.broker.listener.name"}
    with ExitStack() as stack:
        controller = ApacheKafka(
            {**of_controller, "node.id": "3000", "broker.session.timeout.ms": "30000"}, roles="controller", heap_mb=400
        )
        stack.enter_context(controller)
        directory = tmp_path / "moldau"
        format_directory(controller.cluster_id, directory, 1)
        quorum = {"controller.quorum.bootstrap.servers": controller.controllers}
        moldau = joined_broker(
            directory, 1, quorum, **{**settings, **INTERNAL_TOPICS, "listeners": "CLIENTS://127.0.0.1:0"}
        )
        stack.enter_context(moldau)
        apache = apache_broker(nodes, controller.controllers, controller.cluster_id, tmp_path, 2)
        stack.enter_context(apache)
        yield SecuredCluster([moldau.bootstrap_servers, address_of(apache)], nodes.confluent, moldau.log)


@pytest.fixture
def under_moldau(nodes: SecuredNodes, tmp_path: Path) -> Iterator[SecuredCluster]:
    client_port, controller_port = free_ports(2)
    config = {
        **nodes.settings(),
        **INTERNAL_TOPICS,
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"CLIENTS://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{controller_port}",
        "broker.session.timeout.ms": "30000",
    }
    with Broker(config=config, data_dir=tmp_path / "moldau") as moldau:
        cluster_id = cluster_id_of(moldau.data_dir)
        with apache_broker(nodes, f"127.0.0.1:{controller_port}", cluster_id, tmp_path, 2) as apache:
            yield SecuredCluster([moldau.bootstrap_servers, address_of(apache)], nodes.confluent, moldau.log)


@pytest.mark.full
@pytest.mark.parametrize("controller", ["under_apache_kafka", "under_moldau"])
def test_a_broker_of_each_kind(controller: str, request: pytest.FixtureRequest) -> None:
    cluster: SecuredCluster = request.getfixturevalue(controller)
    check_clients(cluster, replicas=2)
    assert PASSWORDS[NODES] not in cluster.log()

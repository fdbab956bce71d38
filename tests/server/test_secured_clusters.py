"""Clusters whose nodes talk to each other with TLS and SASL, and whose brokers have ACLs.

The cluster is `moldau serve --brokers 3 --secure`. Clients are those of librdkafka.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from moldau.config.sources import read_file
from moldau.security.sasl_client import credentials_of
from moldau.testing.served_brokers import ServedBrokers
from moldau.testing.waiting import wait_until

from .secured_nodes import ADMIN, ALICE, PASSWORDS

TIMEOUT_S = 60
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
        """A topic with two partitions, which is known when this returns."""
        name = f"topic-{next(_numbers)}"
        admin = self.admin()
        admin.create_topics([NewTopic(name, 2, replicas)])[name].result(TIMEOUT_S)
        for address in self.addresses:
            asked = AdminClient({**self.config(ADMIN), "bootstrap.servers": address})
            wait_until(lambda asked=asked: _has_leaders(asked, name))  # type: ignore[misc]
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
        """The error of each record; all replicas acknowledge."""
        producer = Producer(self.config(user, acks="all", enable_idempotence=True))
        errors: list[KafkaError | None] = []
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % 2, on_delivery=lambda error, _: errors.append(error))
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

        wait_until(complete)
        consumer.commit(asynchronous=False)
        consumer.close()
        return found


def _has_leaders(admin: AdminClient, topic: str) -> bool:
    partitions = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions.values()
    return len(partitions) == 2 and all(each.leader >= 0 for each in partitions)


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
    for address in cluster.addresses:
        # Other brokers than the one that has created the ACLs know them a moment later.
        client = Producer({**cluster.config(ALICE), "bootstrap.servers": address})
        wait_until(lambda client=client: client.list_topics(topic, timeout=TIMEOUT_S).topics[topic].error is None)  # type: ignore[misc]
    values = [f"value-{number}" for number in range(20)]
    assert cluster.produce(ALICE, topic, values) == [None] * len(values)
    assert cluster.read(ALICE, topic, group, len(values)) == set(values)
    with pytest.raises(KafkaException) as raised:
        cluster.read(ALICE, topic, f"{group}-of-others", 1)
    assert raised.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    producer = Producer(cluster.config(ALICE, transactional_id=transactional_id))
    producer.init_transactions(TIMEOUT_S)
    reader = Consumer(cluster.config(ALICE, group_id=group))
    for value, ends in (("committed", True), ("aborted", False)):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, f"{value}-{partition}", partition=partition)
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, 10)], reader.consumer_group_metadata(), TIMEOUT_S
        )
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
        assert "ERROR" not in served.log()
        password = read_file(folder / "brokers.properties")["sasl.jaas.config"].text.partition('password="')[2][:24]
        assert password not in served.log()
    finally:
        served.process.stop(TIMEOUT_S)

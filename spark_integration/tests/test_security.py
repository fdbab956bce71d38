"""Spark over SASL_SSL, with the settings of `Broker.client_config`: a batch and a stream of a user with ACLs, also with
a delegation token instead of the password. And each mechanism of SASL, with ``--apache`` on Apache Kafka."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.compat_tests.secured_clients import PASSWORDS, TOKEN, Secured
from moldau.compat_tests.test_security_matrix import secured  # noqa: F401 - a fixture
from moldau.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.security.jaas import SCRAM_MODULE
from moldau.testing import Broker
from moldau.testing.wire import WireClient

from .support import content, frame_of, load, multiset, read_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.full

SOURCE, COPY, OTHER = "events-source", "events-copy", "others"
ACLS = (
    f"reader read topic {SOURCE}",
    f"reader write topic {COPY}",
    f"reader read topic {COPY}",
    f"writer write topic {SOURCE}",
    # Spark names a group for each query; with its current admin client it needs no group to find offsets.
    "reader read group spark-kafka- --prefix",
    "admin all cluster",
    "admin delete topic events- --prefix",
    "admin describe topic events- --prefix",
)


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    if request.config.getoption("bootstrap_server") or request.config.getoption("apache"):
        pytest.skip("starts its own broker of Moldau")
    users = {"reader": "secret-of-reader", "writer": "secret-of-writer", "admin": "secret-of-admin"}
    config = {"delegation.token.secret.key": "secret-of-tokens"}
    with Broker(tls=True, users=users, acls=ACLS, config=config) as started:
        admin = AdminClient(started.client_config("admin"))
        for created in admin.create_topics([NewTopic(name, 3, 1) for name in (SOURCE, COPY, OTHER)]).values():
            created.result(60)
        yield started
        assert "secret-of" not in started.log()


def options_of(broker: Broker, user: str, **more: str) -> Mapping[str, str]:
    return {**broker.client_config(user, client="spark", mechanism="SCRAM-SHA-512"), "includeHeaders": "true", **more}


def empty(broker: Broker, *topics: str) -> None:
    """Delete the records of topics with three partitions."""
    admin = AdminClient(broker.client_config("admin"))
    ends = [TopicPartition(topic, partition, OFFSET_END) for topic in topics for partition in range(3)]
    for deleted in admin.delete_records(ends).values():
        deleted.result(60)


def token_options(broker: Broker, user: str, **more: str) -> Mapping[str, str]:
    """The options of a job that has a new delegation token of a user, and not the password."""
    config = broker.client_config(user, mechanism="PLAIN")
    host, _, port = str(config["bootstrap.servers"]).rpartition(":")
    context = ssl.create_default_context(cafile=str(config["ssl.ca.location"]))
    with WireClient(f"{host}:{port}") as wire:
        wire._socket = context.wrap_socket(wire._socket, server_hostname=host)
        assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        login = f"\0{user}\0{config['sasl.password']}".encode()
        assert wire.call(SaslAuthenticateRequest(auth_bytes=login), 2).error_code == 0
        token = wire.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
        assert token.error_code == 0, token
    password = b64encode(bytes(token.hmac)).decode()
    module = f'{SCRAM_MODULE} required username="{token.token_id}" password="{password}" tokenauth=true;'
    return {**options_of(broker, user, **more), "kafka.sasl.jaas.config": module}


@pytest.mark.parametrize("options", [options_of, token_options], ids=["password", "delegation token"])
def test_a_batch_is_written_and_a_stream_copies_it(
    spark: SparkSession, broker: Broker, tmp_path: Path, options: Callable[..., Mapping[str, str]]
) -> None:
    empty(broker, SOURCE, COPY)
    written = content(500)
    frame_of(spark, written, partitions=3).write.format("kafka").options(
        **options(broker, "writer", topic=SOURCE)
    ).save()
    reading = options(broker, "reader", subscribe=SOURCE, startingOffsets="earliest")
    assert multiset(load(spark, reading)) == Counter(written)
    query = (
        read_stream(spark, {**reading, "maxOffsetsPerTrigger": "200"})
        .select("key", "value", "headers", "partition")
        .writeStream.format("kafka")
        .options(**options(broker, "reader", topic=COPY))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = load(spark, options(broker, "reader", subscribe=COPY, startingOffsets="earliest"))
    assert multiset(copied) == Counter(written)


def test_what_acls_refuse_fails_the_query(spark: SparkSession, broker: Broker) -> None:
    frame = frame_of(spark, content(3), partitions=3)
    with pytest.raises(Exception, match="TopicAuthorizationException"):
        frame.write.format("kafka").options(**options_of(broker, "writer", topic=OTHER)).save()
    with pytest.raises(Exception, match="TopicAuthorizationException"):
        load(spark, options_of(broker, "reader", subscribe=OTHER, startingOffsets="earliest")).collect()


@pytest.mark.parametrize("mechanism", [*PASSWORDS, TOKEN])
def test_each_mechanism(spark: SparkSession, secured: Secured, mechanism: str) -> None:  # noqa: F811 - the fixture
    properties = {**secured.java(mechanism), "bootstrap.servers": secured.address}
    options = {f"kafka.{name}": value for name, value in properties.items()} | {"includeHeaders": "true"}
    topic = f"spark-{mechanism}"
    written = content(50)
    frame_of(spark, written).write.format("kafka").options(**options, topic=topic).save()
    read = load(spark, {**options, "subscribe": topic, "startingOffsets": "earliest"})
    assert multiset(read) == Counter(written)

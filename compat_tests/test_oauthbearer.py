"""Clients with OAUTHBEARER: librdkafka and kafka-python with tokens of a provider, Java with tokens of its own.

Moldau only: these are the configurations of clients.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from moldau.compat_tests.conftest import OpenClient
from moldau.testing import Broker
from moldau.testing.clients.java import JavaClient

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Provider(NamedTuple):
    """A broker that accepts signed tokens at one listener, and unsigned ones at the other."""

    signed: str
    unsigned: str

    def token(self, **claims: Any) -> str:
        now = int(time.time())
        found = {"sub": "alice", "aud": "moldau", "iat": now, "exp": now + 3600} | claims
        return jwt.encode(found, KEY, algorithm="RS256", headers={"kid": "1"})


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    path = tmp_path_factory.mktemp("oauth") / "jwks.json"
    key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key())) | {"kid": "1"}
    path.write_text(json.dumps({"keys": [key]}))
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SIGNED://127.0.0.1:0,UNSIGNED://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SIGNED:SASL_PLAINTEXT,UNSIGNED:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.signed.oauthbearer.sasl.jaas.config": f"{MODULE} required;",
        "listener.name.signed.oauthbearer.sasl.server.callback.handler.class": HANDLER,
        "listener.name.unsigned.oauthbearer.sasl.jaas.config": f"{MODULE} required;",
        "listener.name.unsigned.moldau.allow.unsecured.tokens": "true",
        "sasl.oauthbearer.jwks.endpoint.url": path.as_uri(),
        "sasl.oauthbearer.expected.audience": "moldau",
        "org.apache.kafka.sasl.oauthbearer.allowed.files": path.as_uri(),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
    }
    with Broker(config=config) as broker:
        yield Provider(broker.address_of("SIGNED"), broker.address_of("UNSIGNED"))
        assert "Traceback" not in broker.log()


def test_librdkafka(provider: Provider) -> None:
    from confluent_kafka import Consumer, Producer

    options = {
        "bootstrap.servers": provider.signed,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (provider.token(), time.time() + 3600),
    }
    producer = Producer(options)
    producer.produce("oauth-librdkafka", b"one")
    assert producer.flush(60) == 0
    consumer = Consumer({**options, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["oauth-librdkafka"])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    assert (message.error(), message.value()) == (None, b"one")


def test_librdkafka_learns_that_a_token_is_invalid(provider: Provider) -> None:
    from confluent_kafka import Producer

    errors: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": provider.signed,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (provider.token(aud="other"), time.time() + 3600),
            "error_cb": lambda error: errors.append(error.str()),
        }
    )
    deadline = time.monotonic() + 60
    while not any("invalid_token" in error for error in errors) and time.monotonic() < deadline:
        producer.poll(0.1)
    assert any("invalid_token" in error for error in errors), errors


def test_kafka_python(provider: Provider) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return provider.token()

    options = {
        "bootstrap_servers": provider.signed,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Tokens(),
    }
    producer = KafkaProducer(**options)
    producer.send("oauth-kafka-python", b"one").get(60)
    producer.close()
    consumer = KafkaConsumer("oauth-kafka-python", auto_offset_reset="earliest", group_id="h", **options)
    assert next(consumer).value == b"one"
    consumer.close()


def test_java(provider: Provider, client_of: OpenClient, tmp_path: Path) -> None:
    java = client_of("java")
    assert isinstance(java, JavaClient)

    def topics(user: str, *arguments: str) -> str:
        path = tmp_path / f"{user}.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
            f'sasl.jaas.config={MODULE} required unsecuredLoginStringClaim_sub="{user}";\n'
        )
        result = java.tool(
            "org.apache.kafka.tools.TopicCommand",
            ["--bootstrap-server", provider.unsigned, "--command-config", str(path), *arguments],
        )
        assert result.exit_code == 0, result
        return result.stdout

    topics("alice", "--create", "--topic", "oauth-java")
    assert "oauth-java" in topics("alice", "--list")
    assert "oauth-java" not in topics("bob", "--list")

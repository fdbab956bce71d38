"""Clients over SASL_SSL, with each mechanism that they support: each produces `VALUES`, and returns what it reads."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from moldau.security.jaas import KERBEROS_MODULE, OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE
from moldau.testing.client import Record
from moldau.testing.clients.franz_go import FranzGoClient, FranzGoWithKerberos
from moldau.testing.clients.java import JavaClient, java_command
from moldau.testing.clients.kcat import KcatClient
from moldau.testing.clients.program import ProgramClient

PASSWORD: Final = "p,a=s s"
OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
ALLOWED_FILES: Final = "org.apache.kafka.sasl.oauthbearer.allowed.files"
VALUES: Final = [b"%d" % number for number in range(10)]

PLAIN, SCRAM_256, SCRAM_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
TOKEN, KERBEROS = "OAUTHBEARER", "GSSAPI"
PASSWORDS: Final = (PLAIN, SCRAM_256, SCRAM_512)


class Secured(NamedTuple):
    """A server with a listener for SASL_SSL, and what alice has for each mechanism that the server enables."""

    address: str
    authority: Path
    token_file: Path | None = None
    keytab: Path | None = None
    """The environment names the realm. It also has a ticket, which Python's clients use."""

    @property
    def token(self) -> str:
        assert self.token_file is not None
        return self.token_file.read_text()

    def java(self, mechanism: str) -> dict[str, str]:
        """The properties of a Java client."""
        module = {PLAIN: PLAIN_MODULE, TOKEN: OAUTHBEARER_MODULE}.get(mechanism, SCRAM_MODULE)
        found = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="alice" password="{PASSWORD}";',
        }
        if mechanism == KERBEROS:
            found |= {
                "sasl.kerberos.service.name": "kafka",
                "sasl.jaas.config": f'{KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="{self.keytab}" '
                'principal="alice";',
            }
        if mechanism == TOKEN:
            assert self.token_file is not None
            found |= {
                "sasl.jaas.config": f"{module} required;",
                "sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": self.token_file.as_uri(),
            }
        return found

    def librdkafka(self, mechanism: str) -> dict[str, Any]:
        """The properties of a client with librdkafka."""
        found: dict[str, Any] = {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": mechanism,
        }
        if mechanism in PASSWORDS:
            found |= {"sasl.username": "alice", "sasl.password": PASSWORD}
        if mechanism == KERBEROS:
            found |= {"sasl.kerberos.principal": "alice", "sasl.kerberos.keytab": str(self.keytab)}
        return found

    def python(self, mechanism: str, provider: Any) -> dict[str, Any]:
        """The arguments of kafka-python and aiokafka. ``provider`` has the tokens. Their tickets are those of the
        environment."""
        found: dict[str, Any] = {
            "bootstrap_servers": self.address,
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=str(self.authority)),
            "sasl_mechanism": mechanism,
        }
        if mechanism == TOKEN:
            return found | {"sasl_oauth_token_provider": provider}
        if mechanism == KERBEROS:
            return found | {"sasl_kerberos_service_name": "kafka"}
        return found | {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}


def kafka_python(secured: Secured, mechanism: str, topic: str) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return secured.token

    options = secured.python(mechanism, Tokens())
    producer = KafkaProducer(**options)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", group_id=topic, **options)
    received = [next(consumer).value for _ in VALUES]
    consumer.close()
    return received


def confluent_kafka(secured: Secured, mechanism: str, topic: str) -> list[bytes]:
    from confluent_kafka import Consumer, Producer

    options = secured.librdkafka(mechanism) | {"bootstrap.servers": secured.address}
    if mechanism == TOKEN:
        options["oauth_cb"] = lambda _: (secured.token, time.time() + 3600)
    producer = Producer(options)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    consumer = Consumer({**options, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    received: list[bytes] = []
    while len(received) < len(VALUES):
        messages = consumer.consume(len(VALUES), 60)
        assert messages
        for message in messages:
            assert message.error() is None, message.error()
            received.append(message.value())
    consumer.close()
    return received


def aiokafka(secured: Secured, mechanism: str, topic: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return secured.token

    async def run() -> list[bytes]:
        options = secured.python(mechanism, Tokens())
        async with AIOKafkaProducer(**options) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", group_id=topic, **options) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), 60)).value for _ in VALUES]

    return asyncio.run(run())


class SecuredKcat(KcatClient):
    """kcat with more settings."""

    security: Mapping[str, str]

    def _run(self, options: Any, settings: Mapping[str, str], standard_input: bytes = b"") -> Any:
        return super()._run(options, {**settings, **self.security}, standard_input)


def kcat(secured: Secured, mechanism: str, topic: str) -> list[bytes]:
    client = SecuredKcat(secured.address)
    client.security = secured.librdkafka(mechanism)
    return produced_and_read(client, topic)


class JavaWithTokens(JavaClient):
    """A JVM that may read the file with the token."""

    allowed: ClassVar[Path]

    @classmethod
    def command(cls) -> list[str]:
        files = f"-D{ALLOWED_FILES}={cls.allowed.as_uri()},{cls.allowed}"
        return java_command("CompatDriver", options=[files, files.replace("files", "urls")])


class JavaWithKerberos(JavaClient):
    """A JVM with the realm of the environment."""


def program(
    kind: type[ProgramClient],
    security: Callable[[Secured, str], Mapping[str, str]],
    secured: Secured,
    mechanism: str,
    topic: str,
) -> list[bytes]:
    with kind(secured.address, security(secured, mechanism)) as client:
        return produced_and_read(client, topic)


def produced_and_read(client: Any, topic: str) -> list[bytes]:
    client.produce(topic, [Record(partition=0, value=value) for value in VALUES])
    return [received.value for received in client.read(topic, 0)]


def java(secured: Secured, mechanism: str, topic: str) -> list[bytes]:
    kind = {TOKEN: JavaWithTokens, KERBEROS: JavaWithKerberos}.get(mechanism, JavaClient)
    return program(kind, Secured.java, secured, mechanism, topic)


def franz_go(secured: Secured, mechanism: str, topic: str) -> list[bytes]:
    def security(secured: Secured, mechanism: str) -> Mapping[str, str]:
        return secured.librdkafka(mechanism) | {"sasl.oauthbearer.token": secured.token if mechanism == TOKEN else ""}

    kind = FranzGoWithKerberos if mechanism == KERBEROS else FranzGoClient
    return program(kind, security, secured, mechanism, topic)


Run = Callable[[Secured, str, str], list[bytes]]

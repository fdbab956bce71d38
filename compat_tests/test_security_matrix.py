"""Each client with each mechanism that it supports, over SASL_SSL: records are produced and read back.

Tokens of OAUTHBEARER are signed, and the server has the provider's keys (JWKS). The only authorized user is the one
that authenticates. With ``--apache``, the server is Apache Kafka.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from moldau.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.security.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE
from moldau.security.scram import SHA_256, SHA_512, salted_password
from moldau.server.authorizer import STANDARD_AUTHORIZER
from moldau.testing import Broker, jvm
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.authority import Authority
from moldau.testing.client import Record
from moldau.testing.clients.franz_go import FranzGoClient
from moldau.testing.clients.java import JavaClient, java_command
from moldau.testing.clients.kcat import KcatClient
from moldau.testing.clients.program import ProgramClient
from moldau.testing.full_run import first_of
from moldau.testing.topic_requests import wait_for_topic
from moldau.testing.wire import WireClient

pytestmark = pytest.mark.slow

PASSWORD: Final = "p,a=s s"
OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
ALLOWED_FILES: Final = "org.apache.kafka.sasl.oauthbearer.allowed.files"
KEY: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
VALUES: Final = [b"%d" % number for number in range(10)]

PLAIN, SCRAM_256, SCRAM_512, TOKEN = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"
PASSWORDS: Final = (PLAIN, SCRAM_256, SCRAM_512)


class Secured(NamedTuple):
    """A server with a listener for SASL_SSL."""

    address: str
    authority: Path
    token_file: Path

    @property
    def token(self) -> str:
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
        if mechanism == TOKEN:
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
        if mechanism != TOKEN:
            found |= {"sasl.username": "alice", "sasl.password": PASSWORD}
        return found

    def python(self, mechanism: str, provider: Any) -> dict[str, Any]:
        """The arguments of kafka-python and aiokafka. ``provider`` has the tokens."""
        found: dict[str, Any] = {
            "bootstrap_servers": self.address,
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=str(self.authority)),
            "sasl_mechanism": mechanism,
        }
        if mechanism == TOKEN:
            return found | {"sasl_oauth_token_provider": provider}
        return found | {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}


def settings(folder: Path) -> tuple[dict[str, str], Path, Path, Path]:
    """The settings of a server, the certificate of its authority, the keys of the provider, and a token of it."""
    authority = Authority()
    certificate, keys, token = (folder / name for name in ("authority.pem", "keys.json", "token"))
    certificate.write_text(authority.certificate)
    key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key())) | {"kid": "1", "alg": "RS256"}
    keys.write_text(json.dumps({"keys": [key]}))
    now = int(time.time())
    claims = {"sub": "alice", "aud": "kafka", "iat": now, "exp": now + 3600}
    token.write_text(jwt.encode(claims, KEY, algorithm="RS256", headers={"kid": "1"}))
    name = "listener.name.secure"
    config = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.server().write(folder / "server.pem")),
        f"{name}.sasl.enabled.mechanisms": ",".join((*PASSWORDS, TOKEN)),
        f"{name}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="{PASSWORD}";',
        f"{name}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        f"{name}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        f"{name}.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
        f"{name}.oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:alice",
    }
    return config, certificate, keys, token


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if request.config.getoption("bootstrap_server"):
        pytest.skip("needs a server with these users")
    config, certificate, keys, token = settings(tmp_path_factory.mktemp("matrix"))
    server: AbstractContextManager[Any]
    if request.config.getoption("apache"):
        allowed = f"-D{ALLOWED_FILES}={keys.as_uri()},{keys}"
        options = (*jvm.OPTIONS, "-Xmx512M", allowed, allowed.replace("files", "urls"))
        server = ApacheKafka(config, listeners={"SECURE": "SASL_SSL"}, jvm_options=options)
    else:
        listeners = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
            ALLOWED_FILES: keys.as_uri(),
        }
        server = Broker(config=config | listeners)
    with server as started:
        with WireClient(started.bootstrap_servers) as wire:
            for mechanism in (SHA_256, SHA_512):
                user = ScramCredentialUpsertion(
                    name="alice",
                    mechanism=mechanism.code,
                    iterations=4096,
                    salt=b"salt",
                    salted_password=salted_password(mechanism, PASSWORD, b"salt", 4096),
                )
                (result,) = wire.call(AlterUserScramCredentialsRequest(upsertions=[user]), 0).results
                assert result.error_code == 0, result
            topics = [
                CreatableTopic(name=topic_of(*each), num_partitions=1, replication_factor=1) for each in COMBINATIONS
            ]
            wire.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
        for each in COMBINATIONS:
            wait_for_topic(started.bootstrap_servers, topic_of(*each), 1)
        JavaWithTokens.allowed = token
        yield Secured(started.address_of("SECURE"), certificate, token)
        log = started.log()
        assert PASSWORD not in log
        if isinstance(started, Broker):
            assert "Traceback" not in log


# -- clients: each produces `VALUES`, and returns what it reads ------------------------------------------------------


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


def of_franz_go(secured: Secured, mechanism: str) -> Mapping[str, str]:
    return secured.librdkafka(mechanism) | {"sasl.oauthbearer.token": secured.token if mechanism == TOKEN else ""}


Run = Callable[[Secured, str, str], list[bytes]]

# The first mechanism of each client is tested in the normal run. The kcat of distributions has librdkafka 2.0.2: its
# last message of SCRAM has the client's nonce twice, which also Apache Kafka rejects (CVE-2024-56128), and its tokens
# of OAUTHBEARER have no signature.
CLIENTS: Final[dict[str, tuple[Run, tuple[str, ...]]]] = {
    "kafka-python": (kafka_python, (TOKEN, *PASSWORDS)),
    "confluent-kafka": (confluent_kafka, (SCRAM_512, PLAIN, SCRAM_256, TOKEN)),
    "aiokafka": (aiokafka, (SCRAM_256, PLAIN, SCRAM_512, TOKEN)),
    "kcat": (kcat, (PLAIN,)),
    "java": (partial(program, JavaWithTokens, Secured.java), (TOKEN, *PASSWORDS)),
    "franz-go": (partial(program, FranzGoClient, of_franz_go), (TOKEN, *PASSWORDS)),
}
COMBINATIONS: Final = [(client, mechanism) for client, (_, mechanisms) in CLIENTS.items() for mechanism in mechanisms]


def topic_of(client: str, mechanism: str) -> str:
    return f"{client}-{mechanism}"


@pytest.mark.parametrize(
    "combination",
    [
        each
        for client, (_, mechanisms) in CLIENTS.items()
        for each in first_of([(client, mechanism) for mechanism in mechanisms])
    ],
    ids="-".join,
)
def test_a_client_produces_and_reads(secured: Secured, combination: tuple[str, str]) -> None:
    client, mechanism = combination
    run, _ = CLIENTS[client]
    assert run(secured, mechanism, topic_of(client, mechanism)) == VALUES

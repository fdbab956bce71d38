"""Each client with each mechanism that it supports, over SASL_SSL: records are produced and read back.

GSSAPI is in `test_gssapi`. Tokens of OAUTHBEARER are signed, and the server has the provider's keys (JWKS). The only
authorized user is the one that authenticates. With ``--apache``, the server is Apache Kafka.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from moldau.compat_tests import secured_clients as clients
from moldau.compat_tests.secured_clients import (
    ALLOWED_FILES,
    OAUTH,
    PASSWORD,
    PASSWORDS,
    PLAIN,
    SCRAM_256,
    SCRAM_512,
    TOKEN,
    VALUES,
    Run,
    Secured,
)
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
from moldau.testing.full_run import first_of
from moldau.testing.topic_requests import wait_for_topic
from moldau.testing.wire import WireClient

pytestmark = pytest.mark.slow

KEY: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)


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
        clients.JavaWithTokens.allowed = token
        yield Secured(started.address_of("SECURE"), certificate, token)
        log = started.log()
        assert PASSWORD not in log
        if isinstance(started, Broker):
            assert "Traceback" not in log


# The first mechanism of each client is tested in the normal run. The kcat of distributions has librdkafka 2.0.2: its
# last message of SCRAM has the client's nonce twice, which also Apache Kafka rejects (CVE-2024-56128), and its tokens
# of OAUTHBEARER have no signature.
CLIENTS: Final[dict[str, tuple[Run, tuple[str, ...]]]] = {
    "kafka-python": (clients.kafka_python, (TOKEN, *PASSWORDS)),
    "confluent-kafka": (clients.confluent_kafka, (SCRAM_512, PLAIN, SCRAM_256, TOKEN)),
    "aiokafka": (clients.aiokafka, (SCRAM_256, PLAIN, SCRAM_512, TOKEN)),
    "kcat": (clients.kcat, (PLAIN,)),
    "java": (clients.java, (TOKEN, *PASSWORDS)),
    "franz-go": (clients.franz_go, (TOKEN, *PASSWORDS)),
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

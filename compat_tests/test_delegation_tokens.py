"""Apache Kafka's kafka-delegation-tokens, clients that log in with a token, and `moldau tokens`.

Moldau only: these are the tools and configurations of Apache Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.compat_tests.conftest import OpenClient
from moldau.testing import Broker
from moldau.testing.clients.java import JavaClient

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
NAME = "listener.name.sasl_plaintext"
CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    f"{NAME}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{NAME}.plain.sasl.jaas.config": f"{PLAIN} required user_alice=secret user_bob=secret;",
    f"{NAME}.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
    f"{NAME}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:alice",
    "delegation.token.secret.key": "the secret of the cluster",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config=CONFIG) as started:
        yield started


Settings = Callable[..., str]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """``settings("PLAIN", "alice", "secret")``: the path of a client's properties."""

    def write(mechanism: str, user: str, password: str, options: str = "") -> str:
        path = tmp_path / f"{user}.properties"
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} required username="{user}" password="{password}"{options};\n'
        )
        return str(path)

    return write


def test_a_token_of_kafka_delegation_tokens(broker: Broker, settings: Settings, client_of: OpenClient) -> None:
    java = client_of("java")
    assert isinstance(java, JavaClient)
    address = broker.address_of("SASL_PLAINTEXT")
    alice = settings("PLAIN", "alice", "secret")

    def run(tool: str, *arguments: str, config: str = alice) -> str:
        result = java.tool(tool, ["--bootstrap-server", address, "--command-config", config, *arguments])
        assert result.exit_code == 0, result
        return result.stdout

    created = run(TOKENS, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    found = re.search(r"^(\S{22})\s+(\S{88})\s+User:alice\s+User:alice\s+\[User:bob\]", created, re.MULTILINE)
    assert found is not None, created
    token_id, token_hmac = found.groups()
    with_token = settings("SCRAM-SHA-256", token_id, token_hmac, " tokenauth=true")
    bob = settings("PLAIN", "bob", "secret")

    run("org.apache.kafka.tools.TopicCommand", "--create", "--topic", "by-token", config=with_token)
    assert "by-token" in run("org.apache.kafka.tools.TopicCommand", "--list", config=alice)
    refused = java.tool(TOKENS, ["--bootstrap-server", address, "--command-config", with_token, "--describe"])
    assert "DelegationTokenDisabledException" not in refused.stdout + refused.stderr
    assert "Delegation Token requests are not allowed" in refused.stdout + refused.stderr

    assert token_id in run(TOKENS, "--describe", "--owner-principal", "User:alice", config=bob)
    run(TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", token_hmac, config=bob)
    run(TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", token_hmac)
    assert token_id not in run(TOKENS, "--describe")
    listed = java.tool(
        "org.apache.kafka.tools.TopicCommand",
        ["--bootstrap-server", address, "--command-config", with_token, "--list"],
    )
    assert listed.exit_code == 1
    assert "invalid credentials" in listed.stdout + listed.stderr

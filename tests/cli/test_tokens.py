"""``moldau tokens`` against a server with SASL, and commands that connect with a token."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.testing import Broker

from .conftest import Result, Run

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    config = {"delegation.token.secret.key": "the secret of the cluster"}
    with Broker(
        config=config, users={"alice": "alice-secret", "bob": "bob-secret"}, acls=["bob all cluster"]
    ) as started:
        yield started


@pytest.fixture
def ask_as(run: Run, broker: Broker, tmp_path: Path) -> Callable[..., Result]:
    """``ask_as("alice", "tokens", "list")``: run a command as a user, or as (token, hmac)."""

    def ask(user: str | tuple[str, str], *arguments: str) -> Result:
        name, password = user if isinstance(user, tuple) else (user, f"{user}-secret")
        extension = " tokenauth=true" if isinstance(user, tuple) else ""
        path = tmp_path / "client.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            f'sasl.jaas.config={SCRAM} required username="{name}" password="{password}"{extension};\n'
        )
        return run(*arguments, "-b", broker.bootstrap_servers, "--command-config", str(path))

    return ask


def test_a_token_is_created_used_renewed_and_removed(ask_as: Callable[..., Result]) -> None:
    created = ask_as("alice", "tokens", "create", "--renewer", "bob", "--max-lifetime", "2h", "--json").json()
    token, token_hmac = created["token"], created["hmac"]
    assert (created["owner"], len(b64decode(token_hmac))) == ("User:alice", 64)
    assert created["expires"] == created["renewable_until"]

    (listed,) = ask_as("alice", "tokens", "list", "--json").json()
    assert (listed["token"], listed["owner"], listed["renewers"]) == (token, "User:alice", ["User:bob"])
    assert token_hmac not in ask_as("alice", "tokens", "list").text

    assert ask_as((token, token_hmac), "topics", "list").code == 0
    refused = ask_as((token, token_hmac), "tokens", "list")
    assert refused.code == 1
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused.err

    renewed = ask_as("bob", "tokens", "renew", token, "--period", "1h")
    assert renewed.text.startswith(f"{token} expires at 2")
    (listed,) = ask_as("bob", "tokens", "list", "--owner", "alice", "--json").json()
    assert listed["expires"] < created["expires"]

    assert ask_as("alice", "tokens", "expire", token).lines == [f"Removed {token}."]
    assert ask_as("alice", "tokens", "list", "--json").json() == []
    gone = ask_as((token, token_hmac), "topics", "list")
    assert gone.code == 1


def test_a_token_is_named_by_its_hmac_which_is_not_shown(ask_as: Callable[..., Result]) -> None:
    created = ask_as("alice", "tokens", "create", "--json").json()
    later = ask_as("alice", "tokens", "expire", created["hmac"], "--period", "1m")
    assert later.text.startswith("the token expires at ")
    assert ask_as("alice", "tokens", "expire", created["hmac"]).lines == ["Removed the token."]
    again = ask_as("alice", "tokens", "expire", created["hmac"])
    assert again.code == 1
    assert "there is no such token" in again.err
    assert created["hmac"] not in again.err


def test_what_is_refused(ask_as: Callable[..., Result], run: Run, broker: Broker) -> None:
    other = ask_as("alice", "tokens", "create", "--owner", "carol")
    assert "DELEGATION_TOKEN_AUTHORIZATION_FAILED" in other.err
    unknown = ask_as("alice", "tokens", "renew", "AAAAAAAAAAAAAAAAAAAAAA")
    assert "there is no token AAAAAAAAAAAAAAAAAAAAAA" in unknown.err
    assert (other.code, unknown.code) == (1, 1)

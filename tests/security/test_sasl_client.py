"""The client's side of SASL, with the server's side of `scram` and `plain` as its peer."""

from __future__ import annotations

from base64 import b64encode

import pytest

from moldau.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from moldau.security.plain import PlainExchange
from moldau.security.sasl import Identity, SaslFailure
from moldau.security.sasl_client import Credentials, SaslClientError, credentials_of, new_client
from moldau.security.scram import MECHANISMS, Credential, ScramExchange, TokenLogin, credential, salted_password

from .evaluation import evaluate

NAMES = ["alice", "a,b=c", "žofie"]
PASSWORD = "p,a=s sž"


def server_of(mechanism: str, password: str = PASSWORD) -> ScramExchange:
    chosen = MECHANISMS[mechanism]
    known = credential(chosen, salted_password(chosen, password, b"salt", 4096), b"salt", 4096)

    def find(user: str) -> Credential | None:
        return known if user in NAMES else None

    return ScramExchange(chosen, find, server_nonce="server", secret=b"secret")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scram(mechanism: str, name: str) -> None:
    client, server = new_client(Credentials(mechanism, name, PASSWORD), "client"), server_of(mechanism)
    final = client.next(evaluate(server, client.first()))
    assert final is not None
    assert client.next(evaluate(server, final)) is None
    assert server.identity == Identity(name)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_token_authenticates_as_its_owner(mechanism: str) -> None:
    jaas = f'{SCRAM_MODULE} required username="token id" password="{PASSWORD}" tokenauth=true;'
    client = new_client(credentials_of(mechanism, jaas), "client")
    chosen = MECHANISMS[mechanism]
    jobs = []

    def compute() -> Credential:
        jobs.append("computed")
        return credential(chosen, salted_password(chosen, PASSWORD, b"salt", 4096), b"salt", 4096)

    def find(token_id: str) -> TokenLogin | None:
        return TokenLogin("alice", 1234, compute) if token_id == "token id" else None

    server = ScramExchange(chosen, lambda name: None, find, server_nonce="-server", secret=b"x")
    job = server.evaluate(client.first())
    assert not isinstance(job, bytes)
    assert not jobs
    final = client.next(job())
    assert final is not None
    assert client.next(evaluate(server, final)) is None
    assert server.identity == Identity("alice", 1234, by_token=True)
    assert jobs == ["computed"]


def test_plain() -> None:
    client, server = new_client(Credentials("PLAIN", "alice", PASSWORD), ""), PlainExchange({"alice": PASSWORD})
    assert client.next(evaluate(server, client.first())) is None
    assert server.identity == Identity("alice")


def test_a_wrong_password_is_refused_by_the_server() -> None:
    client, server = new_client(Credentials("SCRAM-SHA-256", "alice", "wrong"), "client"), server_of("SCRAM-SHA-256")
    final = client.next(evaluate(server, client.first()))
    assert final is not None
    with pytest.raises(SaslFailure):
        evaluate(server, final)


@pytest.mark.parametrize("answer", [b"", b"v=", b"v=%%%", b"v=" + b64encode(bytes(32)), b"e=invalid-proof", b"\xff"])
def test_a_server_that_does_not_know_the_password_is_not_believed(answer: bytes) -> None:
    client = new_client(Credentials("SCRAM-SHA-256", "alice", PASSWORD), "client")
    client.next(evaluate(server_of("SCRAM-SHA-256"), client.first()))
    with pytest.raises(SaslClientError):
        client.next(answer)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff\xfe",
        b"r=client,s=c2FsdA==,i=4096",
        b"r=other-server,s=c2FsdA==,i=4096",
        b"r=client-server,i=4096",
        b"r=client-server,s=%,i=4096",
        b"r=client-server,s=c2FsdA==",
        b"r=client-server,s=c2FsdA==,i=4095",
        b"r=client-server,s=c2FsdA==,i=1000000000",
        b"r=client-server,s=c2FsdA==,i=-1",
        b"e=unknown-user",
    ],
)
def test_a_first_message_that_is_not_valid(answer: bytes) -> None:
    client = new_client(Credentials("SCRAM-SHA-256", "alice", PASSWORD), "client")
    client.first()
    with pytest.raises(SaslClientError):
        client.next(answer)


def test_credentials_of_a_jaas_configuration() -> None:
    found = credentials_of("SCRAM-SHA-512", f'{SCRAM_MODULE} required username="alice" password="a secret";')
    assert found == Credentials("SCRAM-SHA-512", "alice", "a secret")
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("mechanism", "jaas", "words"),
    [
        ("GSSAPI", f"{PLAIN_MODULE} required username=a password=secret;", "is not supported"),
        ("PLAIN", f"{SCRAM_MODULE} required username=a password=secret;", "the login module of PLAIN must be"),
        ("PLAIN", f"{PLAIN_MODULE} required username=a password=secret", "semicolon"),
        ("PLAIN", f"{PLAIN_MODULE} required password=secret;", "username is missing"),
    ],
)
def test_why_credentials_cannot_be_used(mechanism: str, jaas: str, words: str) -> None:
    with pytest.raises(SaslClientError, match=words) as raised:
        credentials_of(mechanism, jaas)
    assert "secret" not in str(raised.value)

"""SASL GSSAPI: the order of messages, with security contexts that have any number of tokens."""

from __future__ import annotations

import pytest

from moldau.security.gssapi import GssapiExchange, SecurityContextError
from moldau.security.gssapi_client import GssapiClient
from moldau.security.kerberos_names import KerberosNames
from moldau.security.sasl import Identity, SaslFailure
from moldau.security.sasl_client import SaslClientError

from .evaluation import evaluate

CHOICE = b"wrapped \x01\0\0\0"


class Context:
    """Is established after as many tokens as there are answers."""

    client = "alice@REALM"

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)

    @property
    def established(self) -> bool:
        return not self.answers

    def step(self, token: bytes) -> bytes:
        if token != b"token":
            raise SecurityContextError("an invalid token")
        return self.answers.pop(0)

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped " + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"wrapped "):
            raise SecurityContextError("an invalid signature")
        return message.removeprefix(b"wrapped ")


class Exchange:
    def __init__(self, *answers: bytes, realm: str = "REALM") -> None:
        self.exchange = GssapiExchange(Context(*answers), KerberosNames(["DEFAULT"], realm))

    def send(self, *tokens: bytes) -> list[bytes]:
        return [evaluate(self.exchange, token) for token in tokens]

    def fails(self, token: bytes, reason: str) -> None:
        with pytest.raises(SaslFailure, match=r"due to invalid credentials with SASL mechanism GSSAPI$") as raised:
            self.send(token)
        assert reason in raised.value.reason
        assert self.exchange.identity is None


@pytest.mark.parametrize("answers", [(b"last",), (b"first", b"last"), (b"", b"last")])
def test_the_client_answers_the_last_token_with_nothing(answers: tuple[bytes, ...]) -> None:
    exchange = Exchange(*answers)
    assert exchange.send(*[b"token"] * len(answers), b"") == [*answers, b"wrapped \x01\0\0\0"]
    assert exchange.exchange.identity is None
    assert exchange.send(CHOICE) == [b""]
    assert exchange.exchange.identity == Identity("alice")


def test_without_a_last_token_the_offer_follows_immediately() -> None:
    exchange = Exchange(b"")
    assert exchange.send(b"token", CHOICE + b"authorization id") == [b"wrapped \x01\0\0\0", b""]
    assert exchange.exchange.identity == Identity("alice")


def test_failures() -> None:
    Exchange(b"last").fails(b"", "an invalid token")
    exchange = Exchange(b"last")
    exchange.send(b"token")
    exchange.fails(b"more", "although the security context is established")
    for choice, reason in (
        (b"\x01\0\0\0", "an invalid signature"),
        (b"wrapped \x01\0\0", "a security layer"),
        (b"wrapped ", "a security layer"),
        (b"wrapped \x02\0\0\0", "a security layer"),
        (b"wrapped \x05\0\0\0", "a security layer"),
    ):
        exchange = Exchange(b"")
        exchange.send(b"token")
        exchange.fails(choice, reason)
    exchange = Exchange(b"", realm="OTHER")
    exchange.send(b"token")
    exchange.fails(CHOICE, "no rule")


class Initiator(Context):
    """Is established after the server's last token, to which it has no answer."""

    def step(self, token: bytes) -> bytes:
        if self.answers[0] == b"first" and token:
            raise SecurityContextError("the first token is the client's")
        return self.answers.pop(0)


@pytest.mark.parametrize("answers", [(b"last",), (b"middle", b"last")])
def test_a_node_authenticates_as_a_client(answers: tuple[bytes, ...]) -> None:
    server = Exchange(*answers).exchange
    client = GssapiClient(lambda: Initiator(b"token", *[b"token"] * (len(answers) - 1), b""))
    message: bytes | None = client.first()
    while message is not None:
        message = client.next(evaluate(server, message))
    assert server.identity == Identity("alice")


def test_a_node_refuses_a_security_layer_and_invalid_tokens() -> None:
    client = GssapiClient(lambda: Initiator(b"token", b""))
    client.first()
    assert client.next(b"last") == b""
    for token, reason in ((b"wrapped \x06\0\0\0", "requires a security layer"), (b"x", "an invalid signature")):
        with pytest.raises(SaslClientError, match=f"Kerberos: .*{reason}"):
            client.next(token)
    assert client.next(CHOICE) == CHOICE + b"alice@REALM"
    assert client.next(b"") is None


def test_a_node_without_a_ticket_states_why() -> None:
    def new_context() -> Context:
        raise SecurityContextError("Cannot contact any KDC")

    with pytest.raises(SaslClientError, match="Kerberos: Cannot contact any KDC"):
        GssapiClient(new_context).first()

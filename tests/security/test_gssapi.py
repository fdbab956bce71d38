"""SASL GSSAPI: the order of messages, with security contexts that have any number of tokens."""

from __future__ import annotations

import pytest

from moldau.security.gssapi import GssapiExchange, SecurityContextError
from moldau.security.kerberos_names import KerberosNames
from moldau.security.sasl import Identity, SaslFailure

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

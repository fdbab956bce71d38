"""SASL PLAIN."""

from __future__ import annotations

import pytest

from moldau.security.plain import PlainExchange, users_of
from moldau.security.sasl import Identity, SaslFailure

USERS = {"alice": "secret", "žofie": "heslo", "nobody": ""}


def test_users_are_the_options_with_a_prefix() -> None:
    options = {"username": "admin", "password": "x", "user_alice": "secret", "user_user_b": "c", "user_": "none"}
    assert users_of(options) == {"alice": "secret", "user_b": "c"}


@pytest.mark.parametrize(
    ("token", "user"), [("\0alice\0secret", "alice"), ("alice\0alice\0secret", "alice"), ("\0žofie\0heslo", "žofie")]
)
def test_a_password_that_fits(token: str, user: str) -> None:
    exchange = PlainExchange(USERS)
    assert exchange.evaluate(token.encode()) == b""
    assert exchange.identity == Identity(user)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"", "expected 3 tokens, got 1"),
        (b"alice\0secret", "expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "expected 3 tokens, got 4"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0nobody\0", "password not specified"),
        (b"\0alice\0Secret", "Invalid username or password"),
        (b"\0alice\0secret ", "Invalid username or password"),
        (b"\0Alice\0secret", "Invalid username or password"),
        (b"\0nobody\0x", "Invalid username or password"),
        (b"bob\0alice\0secret", "authorization id"),
        (b"\0alice\0secre\xff", "Invalid username or password"),
    ],
)
def test_anything_else_fails(token: bytes, message: str) -> None:
    exchange = PlainExchange(USERS)
    with pytest.raises(SaslFailure, match=message):
        exchange.evaluate(token)
    assert exchange.identity is None

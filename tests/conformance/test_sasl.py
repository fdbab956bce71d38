"""SCRAM with the example of RFC 7677, and servers that are wrong. `compat_tests` has the tests with Apache Kafka."""

from __future__ import annotations

import pytest

from moldau.conformance.sasl import MECHANISMS, AuthenticationError, Credentials, ScramClient, authenticator

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()


def client(username: str = "user") -> ScramClient:
    return ScramClient(Credentials("SCRAM-SHA-256", username, "pencil"), NONCE)


def test_the_example_of_the_rfc() -> None:
    scram = client()
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert scram.final(SERVER_FIRST) == f"c=biws,r={SERVER_NONCE},p={proof}".encode()
    scram.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_user_with_characters_that_separate_fields() -> None:
    assert client("a,b=c").first().startswith(b"n,,n=a=2Cb=3Dc,")


@pytest.mark.parametrize(
    ("server_first", "expected"),
    [
        (b"", "lacks a field"),
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(), "nonce"),
        (f"r={SERVER_NONCE},s=?,i=4096".encode(), "lacks a field"),
        (f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=many".encode(), "lacks a field"),
        (f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1".encode(), "too few"),
        (f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=2000000000".encode(), "too many"),
        (b"\xff\xfe", "lacks a field"),
    ],
)
def test_a_first_message_that_is_wrong(server_first: bytes, expected: str) -> None:
    with pytest.raises(AuthenticationError, match=expected):
        client().final(server_first)


@pytest.mark.parametrize(
    ("server_final", "expected"),
    [(b"v=AAAA", "does not know the password"), (b"", "does not know"), (b"e=other-error", "other-error")],
)
def test_a_server_that_does_not_know_the_password(server_final: bytes, expected: str) -> None:
    scram = client()
    scram.final(SERVER_FIRST)
    with pytest.raises(AuthenticationError, match=expected):
        scram.verify(server_final)


def test_the_command_has_the_same_mechanisms() -> None:
    from moldau.cli import conformance_security

    assert conformance_security.MECHANISMS == MECHANISMS
    with pytest.raises(ValueError, match="GSSAPI"):
        authenticator(Credentials("GSSAPI", "ann", "secret"))

"""SASL SCRAM: the example of RFC 7677, and a client that is written from the RFC."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.sasl import Identity, SaslFailure
from moldau.security.scram import (
    MAX_FIRST_BYTES,
    MECHANISMS,
    MIN_ITERATIONS,
    SHA_256,
    Credential,
    ScramExchange,
    ScramMechanism,
    credential,
    salted_password,
)

from .evaluation import evaluate

SALT = b"0123456789abcdef"
SECRET = b"the server's secret"
NAMES = {"alice": "secret", "a,b=c": "p=ä,s", "x=2Cy": "x"}


def exchange(mechanism: ScramMechanism, iterations: int = MIN_ITERATIONS) -> ScramExchange:
    def find(user: str) -> Credential | None:
        if user not in NAMES:
            return None
        return credential(mechanism, salted_password(mechanism, NAMES[user], SALT, iterations), SALT, iterations)

    return ScramExchange(mechanism, find, server_nonce="server", secret=SECRET)


def client_final(mechanism: ScramMechanism, bare: str, server_first: str, password: str, **change: str) -> str:
    """The last message of a client, by RFC 5802; ``change`` replaces its attributes."""
    fields = dict(each.split("=", 1) for each in server_first.split(","))
    salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    without_proof = f"c={change.get('c', 'biws')},r={change.get('r', fields['r'])}"
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    signature = hmac.digest(stored_key, f"{bare},{server_first},{without_proof}".encode(), mechanism.digest)
    proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    return f"{without_proof},p={change.get('p', proof)}"


def test_the_example_of_the_rfc() -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = credential(SHA_256, salted_password(SHA_256, "pencil", salt, 4096), salt, 4096)
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    server = ScramExchange(SHA_256, {"user": known}.get, server_nonce=nonce, secret=SECRET)
    first = evaluate(server, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = evaluate(
        server,
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    )
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.identity == Identity("user")


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
@pytest.mark.parametrize(("escaped", "name"), [("alice", "alice"), ("a=2Cb=3Dc", "a,b=c"), ("x=3D2Cy", "x=2Cy")])
@pytest.mark.parametrize("header", ["n,,", "n,a={},"])
@pytest.mark.parametrize("extensions", ["", ",tokenauth=false", ",a=b,cde="])
def test_a_user_with_the_right_password(
    mechanism: ScramMechanism, escaped: str, name: str, header: str, extensions: str
) -> None:
    server = exchange(mechanism)
    bare = f"n={escaped},r=client{extensions}"
    first = evaluate(server, (header.format(escaped) + bare).encode()).decode()
    assert first.startswith("r=clientserver,")
    assert server.identity is None
    final = evaluate(server, client_final(mechanism, bare, first, NAMES[name]).encode()).decode()
    salted = hashlib.pbkdf2_hmac(mechanism.digest, NAMES[name].encode(), SALT, MIN_ITERATIONS)
    server_key = hmac.digest(salted, b"Server Key", mechanism.digest)
    signed = f"{bare},{first},c=biws,r=clientserver".encode()
    assert final == "v=" + b64encode(hmac.digest(server_key, signed, mechanism.digest)).decode()
    assert server.identity == Identity(name)
    with pytest.raises(SaslFailure):
        evaluate(server, b"")


@pytest.mark.parametrize(
    "message",
    [
        b"", b"n", b"n,,", b"y,,n=alice,r=x", b"p=tls-unique,,n=alice,r=x", b"n,,n=alice", b"n,,r=x,n=alice",
        b"n,,n=,r=x", b"n,,n=alice,r=", b"n,a=bob,n=alice,r=x", b"n,,n=al=ice,r=x", b"n,,n=al=2cice,r=x",
        b"n,,n=alice,r=x,", b"n,,n=alice,r=\xc3\xa4", b"n,,n=\xff,r=x",
        b"n,,n=alice,r=x\0", b"n,,n=alice,r=x y",
    ],
)  # fmt: skip
def test_invalid_first_messages(message: bytes) -> None:
    with pytest.raises(SaslFailure):
        exchange(SHA_256).evaluate(message)


@pytest.mark.parametrize(
    "change",
    [{"r": "clientserve"}, {"r": "clientserverX"}, {"p": "AAAA"}, {"p": "!"}, {"p": b64encode(bytes(32)).decode()}],
)
def test_invalid_last_messages(change: dict[str, str]) -> None:
    server = exchange(SHA_256)
    first = evaluate(server, b"n,,n=alice,r=client").decode()
    with pytest.raises(SaslFailure):
        evaluate(server, client_final(SHA_256, "n=alice,r=client", first, "secret", **change).encode())
    assert server.identity is None


def test_a_replayed_message_fails() -> None:
    """The server's nonce is different in each exchange."""
    server = exchange(SHA_256)
    first = evaluate(server, b"n,,n=alice,r=client").decode()
    final = client_final(SHA_256, "n=alice,r=client", first, "secret").encode()
    evaluate(server, final)
    again = ScramExchange(SHA_256, server._find, server_nonce="another", secret=SECRET)
    evaluate(again, b"n,,n=alice,r=client")
    with pytest.raises(SaslFailure):
        evaluate(again, final)


def test_unknown_users_and_wrong_passwords_cannot_be_distinguished() -> None:
    messages = []
    for user in ("alice", "mallory"):
        server = exchange(SHA_256)
        first = evaluate(server, f"n,,n={user},r=client".encode()).decode()
        with pytest.raises(SaslFailure) as raised:
            evaluate(server, client_final(SHA_256, f"n={user},r=client", first, "wrong").encode())
        messages.append((str(raised.value), len(first)))
    assert messages[0] == messages[1]
    assert exchange(SHA_256).evaluate(b"n,,n=mallory,r=c") == exchange(SHA_256).evaluate(b"n,,n=mallory,r=c")
    assert exchange(SHA_256).evaluate(b"n,,n=mallory,r=c") != exchange(SHA_256).evaluate(b"n,,n=malory,r=c")


def test_a_user_does_not_authenticate_as_a_token() -> None:
    server = exchange(SHA_256)
    bare = "n=alice,r=client,tokenauth=true"
    first = evaluate(server, f"n,,{bare}".encode()).decode()
    with pytest.raises(SaslFailure):
        evaluate(server, client_final(SHA_256, bare, first, NAMES["alice"]).encode())
    assert server.identity is None


def test_a_credential_with_too_few_iterations_fails() -> None:
    with pytest.raises(SaslFailure):
        exchange(SHA_256, MIN_ITERATIONS - 1).evaluate(b"n,,n=alice,r=client")


@given(st.lists(st.binary(max_size=80), max_size=3))
def test_any_bytes_fail_without_another_error(tokens: list[bytes]) -> None:
    server = exchange(SHA_256)
    for token in [b"n,,n=mallory,r=client", *tokens]:
        try:
            evaluate(server, token)
        except SaslFailure:
            continue
    assert server.identity is None


def test_credentials_do_not_show_their_keys() -> None:
    assert repr(Credential(b"salt", b"stored", b"server", 4096)) == "Credential([hidden])"


def test_a_first_message_of_a_stranger_is_kept_only_if_it_is_short() -> None:
    begin = b"n,,n=alice,r="
    assert evaluate(exchange(SHA_256), begin + b"x" * (MAX_FIRST_BYTES - len(begin)))
    with pytest.raises(SaslFailure):
        evaluate(exchange(SHA_256), begin + b"x" * (MAX_FIRST_BYTES - len(begin) + 1))

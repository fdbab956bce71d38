"""Listeners with OAUTHBEARER: unsigned tokens, keys in a file and of a server, sessions, settings that are refused."""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from moldau.protocol.errors import ErrorCode
from moldau.security.jwt_signatures import JwksError
from moldau.server.nodes.node_server import StartError
from moldau.server.nodes.provider_keys import FileKeys, RemoteKeys
from moldau.testing.wire import WireClient

from .http_provider import Handler, served
from .test_sasl import Sasl, authenticate, handshake, is_served

NAME = "listener.name.sasl_plaintext"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
UNSIGNED = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    f"{NAME}.sasl.enabled.mechanisms": "OAUTHBEARER",
    f"{NAME}.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    ),
    "connection.failed.authentication.delay.ms": "0",
    f"{NAME}.moldau.allow.unsecured.tokens": "true",
}
SIGNED = UNSIGNED | {
    f"{NAME}.moldau.allow.unsecured.tokens": "false",
    f"{NAME}.oauthbearer.sasl.server.callback.handler.class": HANDLER,
    "sasl.oauthbearer.expected.audience": "moldau",
}
KEYS = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("first", "second")}
YEAR_3000_S = 32_503_680_000


def document(*names: str) -> bytes:
    keys = [json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEYS[name].public_key())) | {"kid": name} for name in names]
    return json.dumps({"keys": keys}).encode()


def signed(key: str = "first", **claims: Any) -> str:
    found = {"sub": "alice", "aud": "moldau", "iat": 1_700_000_000, "exp": YEAR_3000_S} | claims
    return jwt.encode(found, KEYS[key], algorithm="ES256", headers={"kid": key})


def unsigned(**claims: Any) -> str:
    parts = ({"alg": "none"}, {"sub": "alice", "exp": YEAR_3000_S} | claims)
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def log_in(wire: WireClient, token: str) -> Any:
    handshake(wire, "OAUTHBEARER")
    return authenticate(wire, f"n,,\x01auth=Bearer {token}\x01\x01".encode())


def write(path: Path, data: bytes) -> None:
    """Replace a file, as a tool for deployment does."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)


@pytest.fixture
def serve(make_server: Any) -> Any:
    return lambda config: Sasl(make_server(config=config))


def test_unsigned_tokens_where_they_are_allowed(serve: Any) -> None:
    server = serve(UNSIGNED)
    with server.wire() as wire:
        assert log_in(wire, unsigned()).error_code == 0
        assert server.principal_of(wire) == "User:alice"
        assert is_served(wire)
    with server.wire() as wire:
        refused = log_in(wire, unsigned(exp=1))
        assert (refused.error_code, refused.auth_bytes) == (0, b'{"status":"invalid_token"}')
        ended = authenticate(wire, b"\x01")
        assert (ended.error_code, ended.error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED, '{"status":"invalid_token"}',
        )  # fmt: skip


def test_a_session_ends_with_its_token(serve: Any) -> None:
    server = serve(UNSIGNED)
    now_s = server.running.clock() // 1000
    with server.wire() as wire:
        lifetime_ms = log_in(wire, unsigned(exp=now_s + 3600)).session_lifetime_ms
        assert 3_500_000 < lifetime_ms <= 3_600_000
        # The client authenticates again, with another token of the same user.
        assert log_in(wire, unsigned(exp=now_s + 7200)).session_lifetime_ms > lifetime_ms
        assert is_served(wire)


def test_keys_in_a_file_which_changes(serve: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "jwks.json"
    write(path, document("first"))
    url = path.as_uri()
    server = serve(
        SIGNED
        | {
            f"{NAME}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": url,
            "org.apache.kafka.sasl.oauthbearer.allowed.files": url,
        }
    )
    with server.wire() as wire:
        assert log_in(wire, signed()).auth_bytes == b""
        assert server.principal_of(wire) == "User:alice"
        assert is_served(wire)
    invalid = b'{"status":"invalid_token"}'
    for token in (signed("second"), signed(aud="other"), signed(exp=1), unsigned(aud="moldau", iat=1)):
        with server.wire() as wire:
            assert log_in(wire, token).auth_bytes == invalid
        assert token not in caplog.text
    write(path, document("second"))
    with server.wire() as wire:
        assert log_in(wire, signed("second")).auth_bytes == b""
    with server.wire() as wire:
        assert log_in(wire, signed("first")).auth_bytes == invalid
    write(path, b"no JSON")
    with server.wire() as wire:
        assert log_in(wire, signed("second")).auth_bytes == b""


class _Provider(Handler):
    method = "GET"
    document = b""
    requests = 0

    def answer(self) -> None:
        type(self).requests += 1
        if self.path == "/moved":
            self.respond(self.document, 302, "/jwks")
        else:
            self.respond(self.document)


@pytest.fixture
def provider() -> Iterator[tuple[type[_Provider], str]]:
    handler = type("Provider", (_Provider,), {"document": document("first")})
    with served(handler) as address:
        yield handler, f"{address}/jwks"


def test_keys_of_a_server_and_a_new_key(serve: Any, provider: tuple[type[_Provider], str]) -> None:
    handler, url = provider
    server = serve(
        SIGNED
        | {
            "sasl.oauthbearer.jwks.endpoint.url": url,
            "org.apache.kafka.sasl.oauthbearer.allowed.urls": f"https://other.example/,{url}",
        }
    )
    with server.wire() as wire:
        assert log_in(wire, signed()).auth_bytes == b""
    assert handler.requests == 1
    handler.document = document("first", "second")
    with server.wire() as wire:
        assert log_in(wire, signed("second")).auth_bytes == b""
    assert handler.requests == 2


def test_redirections_are_not_followed(provider: tuple[type[_Provider], str]) -> None:
    _, url = provider
    keys = RemoteKeys(url.replace("/jwks", "/moved"), lambda: 0, refresh_ms=1, backoff_ms=1, max_backoff_ms=1)
    assert keys.find("first") == []


class Remote:
    """Keys of a scripted server, on a clock that the test moves."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.document: bytes | None = document("first")
        self.requests = 0
        self.keys = RemoteKeys(
            "https://provider.example/jwks",
            lambda: self.now_ms,
            refresh_ms=3_600_000,
            backoff_ms=100,
            max_backoff_ms=10_000,
            fetch=lambda _url, _context: self.fetch(),
        )

    def fetch(self) -> bytes:
        self.requests += 1
        if self.document is None:
            raise JwksError("the server does not respond")
        return self.document

    def has(self, key: str | None) -> bool:
        return bool(self.keys.find(key))


def test_keys_are_requested_again_after_the_interval() -> None:
    remote = Remote()
    assert remote.has("first")
    remote.document = document("second")
    remote.now_ms = 3_599_999
    assert remote.has("first")
    remote.now_ms = 3_600_000
    assert not remote.has("first")
    assert remote.has("second")
    assert remote.requests == 3  # the last one because the key was unknown


def test_unknown_keys_cause_few_requests() -> None:
    remote = Remote()
    for number in range(100):
        assert not remote.has(f"unknown {number}")
    assert remote.requests == 2
    remote.document = document("first", "second")
    assert not remote.has("second")
    remote.now_ms = 10_000
    assert remote.has("second")
    assert remote.requests == 3


def test_the_previous_keys_stay_while_the_server_does_not_respond() -> None:
    remote = Remote()
    assert remote.has("first")
    remote.document = None
    remote.now_ms = 3_600_000
    assert remote.has("first")
    assert remote.has("first")
    assert remote.requests == 2
    remote.now_ms += 100
    assert remote.has("first")
    assert remote.requests == 3
    remote.now_ms += 199  # the pauses grow
    assert remote.has("first")
    assert remote.requests == 3
    remote.now_ms += 1
    remote.document = document("second")
    assert remote.has("second")
    assert not remote.has("first")


@pytest.mark.parametrize("data", [b"", b"{}", b'{"keys": []}', b"x" * 2_000_000])
def test_a_file_without_keys(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(data)
    with pytest.raises(JwksError):
        FileKeys(str(path))


def test_a_file_that_cannot_be_read_again_is_one_line_for_all_tokens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(document("first"))
    keys = FileKeys(str(path))
    for _ in range(2):
        path.unlink()
        for _ in range(3):
            assert keys.find("first")
        path.write_bytes(document("first"))
        assert keys.find("first")
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["No such file or directory"] * 2


URL = "sasl.oauthbearer.jwks.endpoint.url"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {f"{NAME}.moldau.allow.unsecured.tokens": "false"},
            f"{NAME}.oauthbearer.sasl.server.callback.handler.class: without it, .* every client can be any user",
        ),
        ({f"{NAME}.oauthbearer.sasl.server.callback.handler.class": "com.example.Handler"}, "Java classes"),
        ({**SIGNED}, "it is missing"),
        ({**SIGNED, URL: "ftp://provider.example"}, "is no address"),
        ({**SIGNED, URL: "https://provider.example/jwks"}, "allowed.urls"),
        ({**SIGNED, URL: "file:///jwks.json"}, "allowed.files"),
        ({**SIGNED, "sasl.oauthbearer.expected.audience": ""}, "it is empty, so tokens for other services"),
        ({**SIGNED, "sasl.oauthbearer.jwt.validator.class": "a.B"}, "validator.class: Java classes are not loaded"),
        (
            {**SIGNED, URL: "file:///no/jwks.json",
             "org.apache.kafka.sasl.oauthbearer.allowed.files": "file:///no/jwks.json"},
            "No such file",
        ),
    ],
)  # fmt: skip
def test_settings_that_prevent_startup(make_server: Any, changes: dict[str, str], words: str) -> None:
    with pytest.raises(StartError, match=words):
        make_server(config=UNSIGNED | changes)

"""Tokens with which a node authenticates at others: of a file, and of a provider for a client; refused settings."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs

import pytest

from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.config.definition import ConfigError
from moldau.security.sasl_client import Credentials, SaslClientError, new_client
from moldau.server.nodes.jaas_entries import find_entry
from moldau.server.nodes.oauthbearer_login import IssuedTokens, token_credentials

from .http_provider import Handler, served
from .test_oauthbearer import signed

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
JAAS = f"{PACKAGE}.OAuthBearerLoginModule required;"
NAME = "listener.name.internal.oauthbearer.sasl.jaas.config"
HANDLER = {"sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler"}
URL = "sasl.oauthbearer.token.endpoint.url"
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed"
CLIENT = {
    "sasl.oauthbearer.client.credentials.client.id": "node",
    "sasl.oauthbearer.client.credentials.client.secret": "a secret",
}


def credentials(settings: dict[str, str], jaas: str = JAAS) -> Credentials:
    config = BrokerConfig({name: StaticValue(text, "test") for name, text in ({NAME: jaas} | settings).items()})
    listener = config.for_listener("INTERNAL")
    entry = find_entry(listener, "OAUTHBEARER")
    assert entry is not None
    return token_credentials(listener, entry, lambda: 0)


def first_message(found: Credentials) -> bytes:
    return new_client(found, "nonce").first()


def test_the_token_of_a_file_is_read_for_each_authentication(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    found = credentials({**HANDLER, URL: path.as_uri(), f"{ALLOWED}.files": path.as_uri()})
    assert first_message(found) == b"n,,\x01auth=Bearer first\x01\x01"
    path.write_text("second")
    assert first_message(found) == b"n,,\x01auth=Bearer second\x01\x01"
    for invalid in ("", "two words", "ä"):
        path.write_text(invalid)
        with pytest.raises(SaslClientError, match="token"):
            first_message(found)
    path.unlink()
    with pytest.raises(SaslClientError, match="cannot be read: No such file"):
        first_message(found)
    assert "second" not in repr(found)


def test_a_client_ends_the_exchange_after_an_invalid_token() -> None:
    client = new_client(Credentials("OAUTHBEARER", "x", "", token=lambda: "token"), "nonce")
    client.first()
    assert client.next(b'{"status":"invalid_token"}') == b"\x01"
    assert client.next(b"") is None


class Provider(Handler):
    method = "POST"
    requests: ClassVar[list[tuple[str, dict[str, list[str]]]]]
    response: ClassVar[bytes]

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        kind, _, encoded = self.headers["Authorization"].partition(" ")
        assert kind == "Basic"
        self.requests.append((b64decode(encoded).decode(), parse_qs(body)))
        self.respond(self.response)


@pytest.fixture
def provider() -> Iterator[tuple[type[Provider], str]]:
    handler = type("Issuing", (Provider,), {"requests": [], "response": b'{"access_token":"issued"}'})
    with served(handler) as address:
        yield handler, f"{address}/token"


def test_a_provider_issues_a_token_for_a_client(provider: tuple[type[Provider], str]) -> None:
    handler, url = provider
    settings = {**HANDLER, **CLIENT, URL: url, f"{ALLOWED}.urls": url, "sasl.oauthbearer.scope": "kafka nodes"}
    found = credentials(settings)
    assert first_message(found) == b"n,,\x01auth=Bearer issued\x01\x01"
    expected = {"grant_type": ["client_credentials"], "scope": ["kafka nodes"]}
    assert handler.requests == [("node:a secret", expected)]
    for response in (b"", b"[]", b"{}", b'{"access_token":1}', b'{"access_token":"a b"}'):
        handler.response = response
        with pytest.raises(SaslClientError):
            first_message(found)
    assert "a secret" not in repr(found)


def test_the_options_of_the_login_module_may_have_the_client(provider: tuple[type[Provider], str]) -> None:
    handler, url = provider
    jaas = JAAS.replace(";", ' clientId="old" clientSecret="s" scope="x";')
    first_message(credentials({**HANDLER, URL: url, f"{ALLOWED}.urls": url}, jaas))
    assert handler.requests == [("old:s", {"grant_type": ["client_credentials"], "scope": ["x"]})]


def test_a_token_is_used_until_a_part_of_its_lifetime_has_passed() -> None:
    now_ms = 0
    issued = []

    def post(url: str, body: bytes, headers: dict[str, str]) -> bytes:
        issued.append(signed(iat=now_ms // 1000, exp=now_ms // 1000 + 100))
        return f'{{"access_token":"{issued[-1]}"}}'.encode()

    tokens = IssuedTokens("https://provider.example/", "id", "secret", None, lambda: now_ms, post)
    assert tokens.token() == tokens.token() == issued[0]
    now_ms = 79_999
    assert tokens.token() == issued[0]
    now_ms = 80_000
    assert tokens.token() == issued[1]
    assert len(issued) == 2


def test_a_provider_that_does_not_respond_is_an_error_of_the_authentication() -> None:
    def post(url: str, body: bytes, headers: dict[str, str]) -> bytes:
        raise ConnectionRefusedError("refused")

    with pytest.raises(SaslClientError, match=r"https://provider\.example/ issues no token: refused"):
        IssuedTokens("https://provider.example/", "id", "secret", None, lambda: 0, post).token()


@pytest.mark.parametrize(
    ("changes", "jaas", "words"),
    [
        ({"sasl.login.callback.handler.class": "a.B"}, JAAS, "sasl.login.callback.handler.class is a.B, but must be"),
        ({URL: "ftp://x/"}, JAAS, "is no address of a file or a server"),
        ({f"{ALLOWED}.urls": "https://other/"}, JAAS, "is not allowed. Add it to org.apache.kafka.sasl"),
        ({"sasl.oauthbearer.client.credentials.client.id": ""}, JAAS, "client.credentials.client.id is missing"),
        ({}, "a.B required;", "the login module of OAUTHBEARER must be"),
        ({}, "x", "oauthbearer.sasl.jaas.config"),
    ],
)
def test_settings_that_prevent_startup(changes: dict[str, str], jaas: str, words: str) -> None:
    url = "https://provider.example/"
    with pytest.raises(ConfigError) as raised:
        credentials({**HANDLER, **CLIENT, URL: url, f"{ALLOWED}.urls": url} | changes, jaas)
    assert words in str(raised.value)
    assert "a secret" not in str(raised.value)


def test_an_address_is_required() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.token\.endpoint\.url is missing"):
        credentials(HANDLER)

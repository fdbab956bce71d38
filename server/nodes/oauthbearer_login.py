"""Tokens of OAUTHBEARER with which a node authenticates at others, from the settings of their listener (KIP-768).

``sasl.oauthbearer.token.endpoint.url`` is a file with a token, or the address of an OAuth provider, which issues a
token for the id and the secret of a client (RFC 6749, section 4.4). All links to a listener use the same token until a
part of its lifetime has passed. A file is read for each authentication. The methods run in threads, because they wait
for files and servers.
"""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from ...config.definition import ConfigError
from ...security.jwt_claims import claims_of
from ...security.oauthbearer import MECHANISM, InvalidTokenError
from ...security.sasl_client import Credentials, SaslClientError
from .oauthbearer_security import ALLOWED_FILES, ALLOWED_URLS, check_allowed, tls_to_provider

if TYPE_CHECKING:
    import ssl

    from ...config.broker_config import ListenerConfig
    from ...security.jaas import JaasEntry

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_HANDLERS: Final = frozenset(
    {f"{_PACKAGE}.OAuthBearerLoginCallbackHandler", f"{_PACKAGE}.secured.OAuthBearerLoginCallbackHandler"}
)
_HANDLER: Final = "sasl.login.callback.handler.class"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_TIMEOUT_S: Final = 10
_MAX_BYTES: Final = 1 << 20
_RENEWED_AT: Final = 0.8
"""The part of its lifetime after which a token is not used for further authentications: the default of
``sasl.login.refresh.window.factor``. A session is renewed later, with a new token."""

Fetch = Callable[[str, bytes, dict[str, str]], bytes]
"""Sends a body and headers to an address; the body of the response. Raises OSError."""


def token_credentials(settings: ListenerConfig, entry: JaasEntry, now_ms: Callable[[], int]) -> Credentials:
    """What a node authenticates with. ``entry``: its JAAS configuration. Raises ConfigError."""
    where = f"This node cannot connect to the listener {settings.listener_name} of other nodes"
    handler_name, handler = settings.of_mechanism(MECHANISM, _HANDLER)
    if handler not in _HANDLERS:
        problem = f"{handler_name} is {handler or 'missing'}, but must be {min(_HANDLERS)}: tokens must be signed"
        raise ConfigError(f"{where}: {problem}", handler_name)
    url_name, url = settings.of_mechanism(MECHANISM, _URL)
    if not isinstance(url, str):
        raise ConfigError(f"{where}: {url_name} is missing: file:///... or https://...", url_name)
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = unquote(parts.path)
        check_allowed(settings, url_name, url, ALLOWED_FILES, path)
        return Credentials(MECHANISM, f"the user of the token in {path}", "", token=lambda: _token_in(path))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{where}: {url_name}: {url} is no address of a file or a server", url_name)
    check_allowed(settings, url_name, url, ALLOWED_URLS, url)
    client_id, secret = (_client(settings, entry, *names) for names in (_ID, _SECRET))
    scope = _text(settings, "sasl.oauthbearer.scope") or entry.options.get("scope")
    context = tls_to_provider(settings, entry.options) if parts.scheme == "https" else None
    tokens = IssuedTokens(url, client_id, secret, scope, now_ms, partial(_post, context))
    return Credentials(MECHANISM, f"the OAuth client {client_id}", "", token=tokens.token)


_ID: Final = ("sasl.oauthbearer.client.credentials.client.id", "clientId")
_SECRET: Final = ("sasl.oauthbearer.client.credentials.client.secret", "clientSecret")


def _client(settings: ListenerConfig, entry: JaasEntry, setting: str, option: str) -> str:
    """The id or the secret, from a setting or from an older option of the login module."""
    name, value = settings.of_mechanism(MECHANISM, setting)
    found = value if isinstance(value, str) else entry.options.get(option)
    if not found:
        where = f"This node cannot connect to the listener {settings.listener_name} of other nodes"
        raise ConfigError(f"{where}: {name} is missing", name)
    return found


def _text(settings: ListenerConfig, setting: str) -> str | None:
    value = settings.of_mechanism(MECHANISM, setting)[1]
    return value if isinstance(value, str) else None


def _token_in(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return _checked(file.read(_MAX_BYTES).strip(), f"the file {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise SaslClientError(f"the token in {path} cannot be read: {getattr(error, 'strerror', error)}") from None


def _checked(token: str, where: str) -> str:
    if not token or any(character.isspace() or character == "\x01" for character in token):
        raise SaslClientError(f"{where} does not contain a token")
    return token


class IssuedTokens:
    """The tokens that a provider issues for one client."""

    def __init__(
        self, url: str, client_id: str, secret: str, scope: str | None, now_ms: Callable[[], int], post: Fetch
    ) -> None:
        """``now_ms``: since the epoch."""
        self._url = url
        # As Apache Kafka sends it; RFC 6749 requires the form of URLs, which changes only special characters.
        self._authorization = f"Basic {b64encode(f'{client_id}:{secret}'.encode()).decode()}"
        self._body = urlencode(
            {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {}), quote_via=quote_plus
        ).encode()
        self._now_ms = now_ms
        self._post = post
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at_ms = 0.0

    def token(self) -> str:
        """A token with a remaining lifetime. Raises `SaslClientError`."""
        with self._lock:
            if not self._token or self._now_ms() >= self._renew_at_ms:
                self._token = self._issue()
            return self._token

    def _issue(self) -> str:
        headers = {
            "Accept": "application/json",
            "Authorization": self._authorization,
            "Content-Type": "application/x-www-form-urlencoded",
        }
        try:
            response = self._post(self._url, self._body, headers)
        except OSError as error:
            raise SaslClientError(f"{self._url} issues no token: {error}") from None
        try:
            found: Any = json.loads(response)
        except (ValueError, RecursionError):
            found = None
        token = found.get("access_token") if isinstance(found, dict) else None
        if not isinstance(token, str):
            raise SaslClientError(f"{self._url} issues no token: the response has no access_token")
        token = _checked(token, f"the response of {self._url}")
        try:
            expires_ms = claims_of(token)["exp"] * 1000
        except (InvalidTokenError, KeyError, TypeError):
            expires_ms = 0  # the server of the link decides about it
        now_ms = self._now_ms()
        self._renew_at_ms = now_ms + max(0, expires_ms - now_ms) * _RENEWED_AT
        return token


def _post(context: ssl.SSLContext | None, url: str, body: bytes, headers: dict[str, str]) -> bytes:
    import http.client
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

    class NoRedirections(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None  # the secret is for this address only

    opener = build_opener(NoRedirections, HTTPSHandler(context=context))
    try:
        with opener.open(Request(url, body, headers), timeout=_TIMEOUT_S) as response:
            data: bytes = response.read(_MAX_BYTES)
            return data
    except http.client.HTTPException as error:
        raise OSError(str(error)) from None

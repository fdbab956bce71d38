"""Which HTTP requests the console serves.

The console can delete topics, so web pages of others must not reach it through the browser of its user:

- The Host header must name this machine, if the console listens on loopback: a name that an attacker points to
  127.0.0.1 (DNS rebinding) is refused.
- A request that changes something must come from a page of the console, which browsers state in Origin and
  Sec-Fetch-Site. Programs that are not browsers send neither.
- If the console listens elsewhere, each request needs the token, in a cookie that the link with the token sets, or as
  ``Authorization: Bearer``.
- With ``--read-only``, nothing is changed.

Every response has a Content-Security-Policy without inline scripts and other hosts.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_COOKIE: Final = "moldau_console"
_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send the origin "null" with forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """ASGI middleware. ``token`` None: the console listens on loopback, and requests must name this machine."""

    def __init__(self, app: ASGIApp, *, token: str | None, read_only: bool) -> None:
        self._app = app
        self._token = token
        self._read_only = read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """The response to a request that is not served."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._token is None:
            if not is_this_machine(host):
                return _refused(
                    421, f"The console does not serve the host {host!r}; open it as 127.0.0.1 or localhost."
                )
        else:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[-1]
            if given and scope["method"] == "GET" and hmac.compare_digest(given.encode(), self._token.encode()):
                response = RedirectResponse(scope["path"], status_code=303)
                response.set_cookie(_COOKIE, self._token, httponly=True, samesite="strict", path="/")
                return response
            if not self._has_token(headers):
                return _refused(401, "The token is missing or wrong; open the link that `moldau console` has printed.")
        if scope["method"] in _SAFE_METHODS:
            return None
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if site not in (None, "same-origin") or (origin is not None and not is_of_host(origin, host)):
            return _refused(403, "The request comes from another site, so it was refused.")
        if self._read_only:
            return _refused(403, "The console was started with --read-only, so it changes nothing.")
        return None

    def _has_token(self, headers: Headers) -> bool:
        assert self._token is not None
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            return False
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        candidates = [cookies[_COOKIE].value] if _COOKIE in cookies else []
        candidates += [bearer.strip()] if kind.lower() == "bearer" else []
        return any(hmac.compare_digest(each.encode(), self._token.encode()) for each in candidates)


def is_of_host(origin: str, host: str) -> bool:
    """Whether an Origin header names this host."""
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def is_this_machine(host: str) -> bool:
    """Whether a Host header names loopback, with any port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _refused(status: int, text: str) -> Response:
    return PlainTextResponse(text + "\n", status_code=status)

"""Which HTTP requests the registry serves.

Web pages of others must not reach it through the browser of its user, and other machines not without a token:

- On loopback, the Host header must name this machine, so that a name that an attacker points to 127.0.0.1 is refused.
- A request from a page of another site, which browsers state in Origin and Sec-Fetch-Site, is refused.
- Elsewhere, each request needs the token: as ``Authorization: Bearer``, or as the password of basic authentication,
  which serializers know as ``basic.auth.user.info``.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..console.guard import is_of_host, is_this_machine


class Guard:
    """ASGI middleware. ``token`` None: the registry listens on loopback. ``refuse`` makes the response of an error."""

    def __init__(self, app: ASGIApp, *, token: str | None, refuse: Callable[[int, str], Response]) -> None:
        self._app = app
        self._token = token
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            # Subjects may contain an encoded slash, so routes match the path as it was sent.
            scope = {**scope, "path": scope["raw_path"].decode("latin-1")}
            refusal = self._refusal(Headers(scope=scope))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if self._token is None and not is_this_machine(host):
            return self._refuse(421, f"The registry does not serve the host {host!r}; use 127.0.0.1 or localhost.")
        if self._token is not None and not _has_token(headers.get("authorization", ""), self._token):
            return self._refuse(401, "The token is missing or wrong; `moldau registry` has printed it at its start.")
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none") or (origin is not None and not is_of_host(origin, host)):
            return self._refuse(403, "The request comes from a page of another site, so it was refused.")
        return None


def _has_token(authorization: str, token: str) -> bool:
    kind, _, given = authorization.partition(" ")
    if kind.lower() == "basic":
        try:
            given = base64.b64decode(given).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return False
    elif kind.lower() != "bearer":
        return False
    return hmac.compare_digest(given.strip().encode(), token.encode())

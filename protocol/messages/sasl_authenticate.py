"""SaslAuthenticate (API key 36): versions 0-2, flexible from 2.

Carries the tokens of a SASL exchange (KIP-152). The session's lifetime, after which the client must authenticate
again, since version 1 (KIP-368).
"""

from ..schema import Request, Response, bytes_, int16, int64, string


class SaslAuthenticateRequest(Request, api_key=36, versions="0-2", flexible="2+", listeners=("broker", "controller")):
    auth_bytes: bytes = bytes_("0+")


class SaslAuthenticateResponse(Response, api_key=36, versions="0-2", flexible="2+"):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = bytes_("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)

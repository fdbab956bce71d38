"""Envelope (API key 58): version 0, flexible.

From a broker to the controller: a client's request with the client's principal, forwarded unchanged (KIP-590).
"""

from ..schema import Request, Response, bytes_, int16


class EnvelopeRequest(Request, api_key=58, versions="0", flexible="0+", listeners=("controller",)):
    request_data: bytes = bytes_("0+")
    request_principal: bytes | None = bytes_("0+", nullable="0+")
    client_host_address: bytes = bytes_("0+")


class EnvelopeResponse(Response, api_key=58, versions="0", flexible="0+"):
    response_data: bytes | None = bytes_("0+", nullable="0+", default=None)
    error_code: int = int16("0+")

"""SASL requests on a connection that does not use SASL."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.metadata import MetadataRequest
from ...protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest
from ..case import Layer, Level, case, versions_of
from ..check import Check


@case(
    "protocol.sasl-handshake.unused",
    "SaslHandshake is rejected where SASL is not used",
    source="KIP-43",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    versions=versions_of(ApiKey.SASL_HANDSHAKE),
    variants={"plain": ("PLAIN",), "unknown": ("NO-SUCH-MECHANISM",)},
)
def handshake(c: Check, version: int, mechanism: str) -> None:
    """Sends: SaslHandshake on a listener without SASL, then Metadata on the same connection.

    Expects: ILLEGAL_SASL_STATE and no mechanisms; Metadata gets a response.

    Why: a client that is configured for SASL by mistake reports the reason instead of a closed connection.
    """
    if c.target.security.authenticate is not None:
        c.not_applicable("the listener uses SASL")
    response = c.call(SaslHandshakeRequest(mechanism=mechanism), version)
    c.error(response.error_code, ErrorCode.ILLEGAL_SASL_STATE)
    c.equal(response.mechanisms, [], "mechanisms")
    metadata = c.call(MetadataRequest(topics=[]))
    c.true(
        metadata.brokers, "brokers of Metadata on the same connection", expected="at least one", actual=metadata.brokers
    )


@case(
    "protocol.sasl-authenticate.unused",
    "SaslAuthenticate is rejected where SASL is not used",
    source="KIP-152",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    versions=versions_of(ApiKey.SASL_AUTHENTICATE),
)
def authenticate(c: Check, version: int) -> None:
    """Sends: SaslAuthenticate with a user and a password on a listener without SASL, then Metadata.

    Expects: ILLEGAL_SASL_STATE with a message, no bytes; Metadata gets a response.

    Why: a client that is configured for SASL by mistake reports the reason instead of a closed connection.
    """
    if c.target.security.authenticate is not None:
        c.not_applicable("the listener uses SASL")
    response = c.call(SaslAuthenticateRequest(auth_bytes=b"\0user\0password"), version)
    c.error(response.error_code, ErrorCode.ILLEGAL_SASL_STATE)
    c.true(response.error_message, "error_message", expected="a reason", actual=response.error_message)
    c.equal(bytes(response.auth_bytes), b"", "auth_bytes")
    metadata = c.call(MetadataRequest(topics=[]))
    c.true(
        metadata.brokers, "brokers of Metadata on the same connection", expected="at least one", actual=metadata.brokers
    )

"""TLS on the listener of the suite (`--tls`), and certificates of clients (`--tls-certificate`)."""

from __future__ import annotations

import contextlib
import ssl
import warnings

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ...protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ...protocol.messages.metadata import MetadataRequest
from .. import frames
from ..case import Layer, Level, case, needs
from ..check import Check
from ..exchange import Connection
from ..target import CLIENT_ID
from ..tls_sockets import ALERT, RawSocket, unverified, with_unknown_certificate

_PAYLOAD = frames.frame(ApiVersionsRequest(), 0)
API_VERSIONS = len(_PAYLOAD).to_bytes(4, "big") + _PAYLOAD
CERTIFICATES = "KIP-684 and the configuration ssl.client.auth"


def uses_tls(c: Check) -> None:
    if c.target.security.tls is None:
        c.not_applicable("the connection does not use TLS")


def uses_certificate(c: Check) -> None:
    """Otherwise it is unknown whether the server looks at certificates."""
    uses_tls(c)
    if not c.target.security.has_certificate:
        c.not_applicable("the connection has no certificate of a client")


def is_served(c: Check) -> None:
    metadata = c.call(MetadataRequest(topics=[]))
    c.true(metadata.brokers, "brokers of Metadata", expected="at least one", actual=metadata.brokers)


@case(
    "tls.plaintext",
    "a request without TLS is not served",
    source="RFC 8446",
    layer=Layer.WIRE,
    variants={
        "request": (API_VERSIONS,),
        "http": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",),
        "zeros": (bytes(64),),
    },
)
def plaintext(c: Check, data: bytes) -> None:
    """Sends: bytes that are not TLS: an ApiVersions request, an HTTP request, or zeros; then Metadata on a connection
    with TLS.

    Expects: the connection is closed without a response, or after an alert of TLS; Metadata gets a response.

    Why: a client that is configured without TLS must not send its password to a server that would read it.
    """
    uses_tls(c)
    raw = RawSocket(c)
    raw.send(data)
    received = raw.receive_all()
    c.true(
        not received or received[0] == ALERT,
        "the response to bytes without TLS",
        expected="none, or an alert of TLS",
        actual=received[:20],
    )
    is_served(c)


@case(
    "tls.handshake.truncated",
    "a handshake that ends early does not disturb others",
    source="RFC 8446",
    layer=Layer.WIRE,
    variants={"type": (1,), "header": (5,), "hello": (100,)},
)
def truncated(c: Check, size: int) -> None:
    """Sends: the first bytes of a handshake, then the end of the connection; then Metadata on another connection.

    Expects: the first connection is closed; Metadata gets a response.

    Why: scanners and load balancers open and close connections all the time.
    """
    uses_tls(c)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        unverified().wrap_bio(incoming, outgoing).do_handshake()
    raw = RawSocket(c)
    raw.send(outgoing.read()[:size])
    raw.end_of_stream()
    received = raw.receive_all()
    c.true(
        not received or received[0] == ALERT,
        "the response to a part of a handshake",
        expected="none, or an alert of TLS",
        actual=received[:20],
    )
    is_served(c)


@case(
    "tls.handshake.old-version",
    "TLS 1.1 is refused",
    source="KIP-553",
    layer=Layer.WIRE,
    level=Level.SHOULD,
)
def old_version(c: Check) -> None:
    """Sends: a handshake of a client that has no newer version than TLS 1.1.

    Expects: the handshake fails.

    Why: TLS 1.0 and 1.1 are deprecated (RFC 8996).
    """
    uses_tls(c)
    context = unverified()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
    except (ValueError, ssl.SSLError) as error:
        c.not_applicable(f"the OpenSSL of this machine has no TLS 1.1: {error}")
    try:
        raw = RawSocket(c, context)
    except TimeoutError:
        raise
    except ssl.SSLError as error:
        if "NO_PROTOCOLS_AVAILABLE" in str(error):
            c.not_applicable("the OpenSSL of this machine has no TLS 1.1")
        return
    except OSError:
        return
    raw.send(API_VERSIONS)
    received = raw.receive()
    c.equal(received, b"", "the response to a request over TLS 1.1")


@case(
    "tls.records",
    "a request may be in many records of TLS, and a record may have many requests",
    source="RFC 8446",
    layer=Layer.WIRE,
    variants={"bytes": (1, 1), "joined": (1 << 14, 20), "both": (7, 5)},
)
def records(c: Check, size: int, count: int) -> None:
    """Sends: ApiVersions requests in records of TLS of one byte each; 20 requests in one record; 5 in records of 7
    bytes.

    Expects: a response to each request.

    Why: libraries for TLS split and join what clients write.
    """
    uses_tls(c)
    connection = c.connect()
    data = API_VERSIONS * count
    for start in range(0, len(data), size):
        connection.send_bytes(data[start : start + size])
    for _ in range(count):
        frame = connection.receive_frame()
        c.equal(bytes(frame[:6]), API_VERSIONS[8:12] + bytes(2), "correlation_id and error_code of ApiVersions")


@case(
    "tls.client-certificate.principal",
    "a certificate identifies the client",
    source=CERTIFICATES,
    needs=needs(ApiKey.CREATE_DELEGATION_TOKEN, 3, ApiKey.EXPIRE_DELEGATION_TOKEN, 2),
)
def certificate_principal(c: Check) -> None:
    """Sends: CreateDelegationToken on a connection with a certificate, whose response has the principal.

    Expects: no error, or DELEGATION_TOKEN_AUTH_DISABLED; the principal is a user with a name, and not ANONYMOUS.

    Why: ACLs and quotas of a client with a certificate are those of its principal.
    """
    uses_certificate(c)
    if c.target.security.authenticate is not None:
        c.not_applicable("the principal is that of SASL")
    response = c.call(CreateDelegationTokenRequest(max_lifetime_ms=60_000))
    if response.hmac:
        c.at_end(ExpireDelegationTokenRequest(hmac=bytes(response.hmac), expiry_time_period_ms=-1))
    c.error(response.error_code, (ErrorCode.NONE, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED))
    principal = response.token_requester_principal_type, response.token_requester_principal_name
    c.true(
        principal[0] == "User" and principal[1] not in ("", "ANONYMOUS"),
        "the requester",
        expected="a user with a name",
        actual=principal,
    )


@case(
    "tls.client-certificate.missing",
    "a client without a certificate is refused, or anonymous",
    source=CERTIFICATES,
    layer=Layer.WIRE,
    needs=needs(ApiKey.CREATE_DELEGATION_TOKEN, 3),
)
def certificate_missing(c: Check) -> None:
    """Sends: a handshake without a certificate, and CreateDelegationToken.

    Expects: the handshake fails, or the connection is closed without a response; or, if the server does not require
    certificates, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for the principal ANONYMOUS.

    Why: without a certificate, a client has no identity that ACLs could name.
    """
    uses_certificate(c)
    if c.target.security.authenticate is not None:
        c.not_applicable("the principal is that of SASL")
    request = CreateDelegationTokenRequest(max_lifetime_ms=60_000)
    try:
        connection = Connection(
            c.target.address, c.recorder, client_id=CLIENT_ID, remaining=c.remaining, tls=unverified()
        )
        with connection:
            response = connection.call(request, 3)
    except TimeoutError:
        raise
    except OSError:
        return
    c.error(response.error_code, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    principal = response.token_requester_principal_type, response.token_requester_principal_name
    c.equal(principal, ("User", "ANONYMOUS"), "the requester")


@case(
    "tls.client-certificate.unknown",
    "a certificate of an unknown authority is refused",
    source=CERTIFICATES,
    layer=Layer.WIRE,
)
def certificate_unknown(c: Check) -> None:
    """Sends: a handshake with a self-signed certificate, and ApiVersions; then Metadata on another connection.

    Expects: the handshake fails, or the connection is closed without a response; Metadata gets a response.

    Why: everybody can make a certificate with any name.
    """
    uses_certificate(c)
    try:
        raw = RawSocket(c, with_unknown_certificate())
        raw.send(API_VERSIONS)
    except TimeoutError:
        raise
    except OSError:
        received = b""
    else:
        received = raw.receive_all()
    c.equal(received, b"", "the response to a client with an unknown certificate")
    is_served(c)

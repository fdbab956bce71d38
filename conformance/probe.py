"""What listens at an address, if the server there cannot be tested: the reason in words, before any case runs."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from typing import Final

from ..protocol.codec import encode
from ..protocol.errors import KafkaError, MalformedMessage
from ..protocol.messages.headers import RequestHeader
from .exchange import open_socket
from .sasl import AuthenticationError
from .target import CLIENT_ID, RESPONSE_SECONDS, Target

PROBE_SECONDS: Final = 3.0
LAST_PROBE_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 2.0
"""After this time without a response, a second request checks whether it is still the same server."""
_TLS_RECORDS: Final = (0x15, 0x16)
_TLS: Final = "a TLS listener. Use --tls."
_HTTP: Final = "an HTTP server, not a Kafka server. Use the port of the Kafka listener."
_CERTIFICATE_REASONS: Final = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")


class UnusableServerError(Exception):
    """The server cannot be tested; the message says what is there, and what to do."""


def describe(target: Target) -> None:
    """`Target.describe`, or `UnusableServerError` within seconds."""
    describing = _Describing(target)
    share = min(target.patience, 1.0)
    if target.security.tls is None and not describing.ends_within(QUIET_SECONDS * share):
        kind = _kind_of(target.address, PROBE_SECONDS * share)
        if kind is not None and not describing.ends_within(0):
            raise UnusableServerError(f"{target.address} is {kind}")
    describing.ends_within(None)
    failure = describing.failure
    if isinstance(failure, OSError | KafkaError | MalformedMessage | ValueError):
        raise UnusableServerError(_explain(target, failure)) from failure
    if failure is not None:
        raise failure


class _Describing:
    """`Target.describe` in a thread, because a server that is not a Kafka server may wait for more bytes."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._ended = threading.Event()
        self.failure: Exception | None = None
        """Set before `ends_within` returns true."""
        threading.Thread(target=self._describe, name="describe", daemon=True).start()

    def ends_within(self, seconds: float | None) -> bool:
        return self._ended.wait(seconds)

    def _describe(self) -> None:
        try:
            self._target.describe()
        except Exception as error:  # noqa: BLE001 - the caller's thread raises it
            self.failure = error
        finally:
            self._ended.set()


def _explain(target: Target, failure: Exception) -> str:
    address = target.address
    if isinstance(failure, socket.gaierror):
        return f"the host of {address} cannot be resolved: {failure.strerror}. Check the name."
    if isinstance(failure, UnicodeError):
        return f"the host of {address} is not a valid name. Check the name."
    if isinstance(failure, ConnectionRefusedError):
        return f"nothing listens at {address}. Start the server, or check host and port."
    if isinstance(failure, AuthenticationError):
        return f"{address}: {failure}. Check --sasl-mechanism, --username and the password."
    if isinstance(failure, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {address} is not trusted: {failure.verify_message}. Use --tls-ca FILE, or "
            "--tls-no-verify for a test server."
        )
    if target.security.tls is not None:
        reason = getattr(failure, "reason", None) or str(failure)
        if any(each in str(reason).upper() for each in _CERTIFICATE_REASONS):
            return f"{address} refused the TLS handshake ({reason}). Does it require --tls-certificate?"
        # A server without TLS takes the first bytes for the length of a request; some wait for the rest.
        if isinstance(failure, ssl.SSLError | ConnectionError | TimeoutError) and not _speaks_tls(
            address, PROBE_SECONDS
        ):
            return f"{address} does not use TLS ({reason}). Is it a plaintext listener? Omit --tls."
    else:
        # After a timeout, only a server with one connection at a time can still be another one.
        seconds = LAST_PROBE_SECONDS if isinstance(failure, TimeoutError) else PROBE_SECONDS
        kind = _kind_of(address, seconds * min(target.patience, 1.0))
        if kind is not None:
            return f"{address} is {kind}"
    if isinstance(failure, TimeoutError):
        return (
            f"{address} accepts connections and does not respond within {RESPONSE_SECONDS * target.patience:g} s. Is "
            "it a Kafka server that is still starting? --patience 3 waits three times as long."
        )
    if isinstance(failure, ConnectionError) and _is_end(failure) and target.apis:
        return (
            f"{address} responds to ApiVersions and closes the connection after the next request. Does the listener "
            "require SASL? Use --sasl-mechanism, --username and --password-file."
        )
    if isinstance(failure, KafkaError):
        return f"{address} is a server whose ApiVersions cannot be used: {failure}"
    if isinstance(failure, ConnectionError) and _is_end(failure):
        return f"{address} closed the connection without a response to ApiVersions ({failure}). Is it a Kafka server?"
    if isinstance(failure, OSError) and not isinstance(failure, ConnectionError):
        return f"there is no connection to {address}: {failure.strerror or failure}. Check host and port."
    return f"{address} sent something that is not a response to ApiVersions ({failure}). Is it a Kafka server?"


def _is_end(failure: ConnectionError) -> bool:
    """Whether the connection was closed; `WireClient` raises ConnectionError also for a response to another request."""
    return failure.errno is not None or "closed" in str(failure)


def _kind_of(address: str, seconds: float) -> str | None:
    """What a server that is not a Kafka server is, and what to do; None if it may be a Kafka server."""
    # An HTTP server waits for the end of a line.
    page = _first_bytes(address, b"GET / HTTP/1.0\r\n\r\n", seconds)
    if _is_http(page):
        return _HTTP
    if _is_tls(page) or _speaks_tls(address, seconds):
        return _TLS
    header = RequestHeader(request_api_key=18, request_api_version=0, correlation_id=0, client_id=CLIENT_ID)
    frame = encode(header, 1)
    seen = _first_bytes(address, len(frame).to_bytes(4, "big") + frame, seconds)
    if _is_tls(seen) or _is_http(seen):
        return _TLS if _is_tls(seen) else _HTTP
    if len(seen) >= 8:
        length, correlation_id = int.from_bytes(seen[:4], "big"), int.from_bytes(seen[4:8], "big")
        if correlation_id == 0 and 6 <= length <= 1 << 20:
            return None
    if seen[:4] == b"SSH-":
        return "an SSH server, not a Kafka server. Check the port."
    if seen:
        return f"not a Kafka server: its first bytes are {seen[:16].hex(' ')}. Check the port."
    return None


def _is_tls(data: bytes) -> bool:
    return len(data) >= 3 and data[0] in _TLS_RECORDS and data[1] == 3


def _is_http(data: bytes) -> bool:
    return data[:5] == b"HTTP/" or data.lstrip()[:5].lower() in (b"<html", b"<!doc")


def _first_bytes(address: str, question: bytes, seconds: float) -> bytes:
    """What the server sends first after `question`; empty if it sends nothing."""
    deadline = time.monotonic() + seconds
    data = b""
    with contextlib.suppress(OSError), open_socket(address, seconds) as peer:
        peer.sendall(question)
        while len(data) < 8:
            peer.settimeout(max(deadline - time.monotonic(), 0.01))
            piece = peer.recv(64)
            if not piece:
                break
            data += piece
    return data


def _speaks_tls(address: str, seconds: float) -> bool:
    """Whether a TLS handshake succeeds, or is refused by TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with open_socket(address, seconds) as peer, context.wrap_socket(peer):
            return True
    except ssl.SSLError as error:
        return "ALERT" in str(error.reason)
    except OSError:
        return False

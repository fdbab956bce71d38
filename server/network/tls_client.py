"""The client's side of TLS, for links to other nodes.

The dialer continues the handshake when the socket is ready, before the link receives the connection. Only nodes whose
links use TLS import this module; see `tls`.
"""

from __future__ import annotations

import contextlib
import errno
import ssl
from typing import TYPE_CHECKING, Final

from .tls import MAX_RECORDS, TlsTransport
from .transport import HandshakeFailed

if TYPE_CHECKING:
    import socket

_HANDSHAKE_RECEIVE_BYTES: Final = 32 * 1024

# What an alert of the server, or an error of OpenSSL, means for this side.
_EXPLANATIONS: Final = {
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS on this port",
    "HTTP_REQUEST": "the peer does not speak TLS on this port",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer requires a certificate, and this node has none",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the peer has no version or cipher suite of TLS in common with this node, or "
    "requires a certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust the certificate of this node",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer does not accept the certificate of this node",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer does not accept the certificate of this node",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "for the peer, the certificate of this node has expired",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the peer supports no version of TLS that this node allows",
}


class TlsClientTransport(TlsTransport):
    """A connection to a server with TLS. Nothing is sent or received before `shake_hands` has returned."""

    __slots__ = ("_hint",)

    def __init__(self, context: ssl.SSLContext, sock: socket.socket, host: str, hint: str) -> None:
        """``host`` is what the certificate of the server must be for. ``hint``: what to change if it is not."""
        try:
            super().__init__(context, sock, None, host)
        except ValueError as error:  # a name that cannot be in a certificate
            raise OSError(errno.EINVAL, f"TLS cannot be used with the host {host!r}: {error}") from None
        self._received_any = True  # OpenSSL recognizes a peer without TLS
        self._hint = hint

    def shake_hands(self) -> None:
        """Continue the handshake. Returns when it is complete.

        Raises:
            SendFirst: it continues when the socket is writable.
            BlockingIOError: it continues when data has arrived.
            OSError: the handshake has failed.
        """
        while True:
            self._send_flight()
            if self._complete:
                self._shaking_hands = False
                return
            try:
                self._tls.do_handshake()
                self._complete = True
            except ssl.SSLWantReadError:
                self._send_flight()
                self._may_decrypt = MAX_RECORDS
                if not self._receive(_HANDSHAKE_RECEIVE_BYTES):
                    raise HandshakeFailed(
                        "the peer has closed the connection during the TLS handshake; it may be a listener without "
                        "TLS. Check listener.security.protocol.map of both nodes"
                    ) from None
            except ssl.SSLError as error:
                with contextlib.suppress(OSError):
                    self._send_encrypted(0)  # the alert
                raise HandshakeFailed(f"the TLS handshake failed: {self._text(error)}") from None

    def receive_into(self, buffer: memoryview, /) -> int:
        try:
            return super().receive_into(buffer)
        except ssl.SSLError as error:  # with TLS 1.3, a server refuses a client after the client's handshake
            raise HandshakeFailed(f"TLS failed: {self._text(error)}") from None

    def _text(self, error: ssl.SSLError) -> str:
        """What is wrong, and what to change."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"the certificate of the peer is not accepted: {error.verify_message}. {self._hint}"
        reason = error.reason or str(error)
        return f"{_EXPLANATIONS[reason]} ({reason})" if reason in _EXPLANATIONS else reason


class TlsDialing:
    """How connections are secured; see `dialing.Secure`."""

    def __init__(self, context: ssl.SSLContext, hint: str) -> None:
        """See `TlsClientTransport`."""
        self.context = context
        """Of new connections. Replaced while the node runs."""
        self._hint = hint

    def __call__(self, sock: socket.socket, host: str) -> TlsClientTransport:
        """Create the transport of a connection to this host. Raises OSError."""
        return TlsClientTransport(self.context, sock, host, self._hint)

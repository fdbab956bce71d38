"""The first bytes of a TLS handshake, for tests that do not finish it."""

from __future__ import annotations

import contextlib
import ssl


def client_hello() -> bytes:
    """What a client sends first."""
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()

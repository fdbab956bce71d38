"""Whether an address is of this machine alone."""

from __future__ import annotations


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host. The one name that counts is the reserved one (RFC 6761): other names
    may stop resolving to loopback."""
    return host.lower() in ("localhost", "::1") or (host.startswith("127.") and host.replace(".", "").isdecimal())

"""The names of cipher suites: Java and the settings of Kafka use IANA's names, OpenSSL has its own."""

from __future__ import annotations

import re
from typing import Final

_TLS_1_2: Final = re.compile(r"TLS_(.+)_WITH_(.+)_(SHA|SHA256|SHA384|CCM|CCM_8)")
_TLS_1_3: Final = re.compile(r"TLS_(AES|CHACHA20)_[A-Z0-9_]+")


def is_of_tls_1_3(name: str) -> bool:
    """Whether this is a suite of TLS 1.3, whose names have no key exchange."""
    return _TLS_1_3.fullmatch(name) is not None


def openssl_name(name: str) -> str | None:
    """OpenSSL's name of a suite of TLS 1.2, from IANA's name. None if it is not the name of such a suite."""
    match = _TLS_1_2.fullmatch(name)
    if match is None:
        return None
    exchange, cipher, digest = match.groups()
    parts = [] if exchange == "RSA" else [exchange.replace("_", "-")]
    words = cipher.split("_")
    if words[0] in ("AES", "CAMELLIA", "ARIA") and len(words) > 1:
        words[:2] = [words[0] + words[1]]
    if words[-1] == "CBC":
        del words[-1]
    parts += words
    if digest in ("CCM", "CCM_8"):
        parts.append(digest.replace("_", ""))
    elif words[0] != "CHACHA20":
        parts.append(digest)
    return "-".join(parts)

"""Certificates for tests, made by OpenSSL's command."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .requirements import require_program


def certificate(folder: Path) -> Path:
    """A file in PEM with a self-signed certificate for 127.0.0.1, and its key."""
    key, pem = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [require_program("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(pem)],
        check=True,
        capture_output=True,
    )  # fmt: skip
    with pem.open("a") as both:
        both.write(key.read_text())
    return pem

"""Certificates for development in a directory: an authority, and what it signs. Used by ``tls make`` and ``serve``."""

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..testing.authority import Authority

AUTHORITY: Final = "ca.pem"
AUTHORITY_KEY: Final = "ca-key.pem"
SERVER: Final = "server.pem"
DEFAULT_DAYS: Final = 365
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

Report = Callable[[str], object]


class CertificateError(Exception):
    """The certificates cannot be created; the message states the reason and what to do."""


def make_certificates(
    folder: Path, hosts: Sequence[str], report: Report, *, clients: Sequence[str] = (), days: int = DEFAULT_DAYS
) -> None:
    """Create the authority, the certificate of a server on this machine and on ``hosts``, and those of clients.

    Files that exist are kept. ``report`` receives a line for each file. Raises CertificateError.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _authority(folder, days, report)
        names = tuple(dict.fromkeys((*hosts, *_LOOPBACK, socket.gethostname())))
        _issue(authority, folder / SERVER, names[0], days, names, report)
        for client in clients:
            _issue(authority, folder / f"{client}.pem", client, days, (), report)
    except OSError as error:
        raise CertificateError(f"{error.filename or folder}: {error.strerror or error}") from None


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Create a file that only this user can read. Raises OSError, also if it exists."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)


def _authority(folder: Path, days: int, report: Report) -> "Authority":
    """The authority of the directory, which is created if there is none."""
    try:
        from ..testing.authority import Authority
    except ImportError:
        raise CertificateError('certificates require the package cryptography: pip install "moldau[tls]"') from None
    path, key_path = folder / AUTHORITY, folder / AUTHORITY_KEY
    if key_path.exists():
        try:
            return Authority.load(path.read_text(encoding="ascii"), key_path.read_text(encoding="ascii"))
        except ValueError as error:
            raise CertificateError(f"{path} and {key_path} are not an authority of Moldau: {error}") from None
    if path.exists():
        raise CertificateError(f"{path} exists, but not its key {key_path}; use another directory")
    authority = Authority(f"Moldau development CA on {socket.gethostname()}", days=days)
    write_private(path, authority.certificate, 0o644)
    report(f"Created {path}.")
    write_private(key_path, authority.key)
    report(f"Created {key_path}.")
    return authority


def _issue(
    authority: "Authority", path: Path, name: str, days: int, alternative_names: tuple[str, ...], report: Report
) -> None:
    if path.exists():
        report(f"Kept {path}.")
        return
    issued = authority.issue(name, days=(-1, days), alternative_names=alternative_names)
    write_private(path, issued.pem)
    report(f"Created {path}.")

"""``moldau tls``: certificates for development."""

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from .failure import Failure
from .suggestions import CommandGroup

if TYPE_CHECKING:
    from ..testing.authority import Authority

_AUTHORITY: Final = "ca.pem"
_AUTHORITY_KEY: Final = "ca-key.pem"
_SERVER: Final = "server.pem"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@click.group("tls", cls=CommandGroup, short_help="Create certificates for development.")
def command() -> None:
    """Create certificates for development.

    \b
    Examples:
      moldau tls make certificates
    """


@command.command("make", short_help="Create an authority and certificates.")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host", "hosts", metavar="NAME", multiple=True,
    help="A name or an address of the server, besides those of this machine. Repeatable.",
)  # fmt: skip
@click.option(
    "--client", "clients", metavar="NAME", multiple=True,
    help="Create a certificate for a client, with which it is the principal User:CN=NAME. Repeatable.",
)  # fmt: skip
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long they are valid.")
def make(directory: Path, hosts: tuple[str, ...], clients: tuple[str, ...], days: int) -> None:
    """Create a certificate authority in DIRECTORY, and certificates that it signs, as files in PEM.

    ca.pem is what clients trust, and server.pem the key store of the server. An authority that exists is used again,
    and certificates that exist are kept, so later calls add certificates. Everyone who can read ca-key.pem can create
    certificates that your clients trust: use this for development only.

    \b
    Examples:
      moldau tls make certificates
      moldau tls make certificates --host kafka.example.com --client alice
    """
    for client in clients:
        if f"{client}.pem" in (_AUTHORITY, _AUTHORITY_KEY, _SERVER) or Path(client).name != client:
            raise click.UsageError(f"--client {client}: a client cannot have this name")
    folder = directory.absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _authority(folder, days)
        names = tuple(dict.fromkeys((*hosts, *_LOOPBACK, socket.gethostname())))
        _issue(authority, folder / _SERVER, names[0], days, names)
        for client in clients:
            _issue(authority, folder / f"{client}.pem", client, days, ())
    except OSError as error:
        raise Failure(f"{error.filename or folder}: {error.strerror or error}") from None
    print(f"""
The settings of a server:
  listeners=SSL://127.0.0.1:9092
  ssl.keystore.type=PEM
  ssl.keystore.location={folder / _SERVER}
The properties of a client, for --command-config:
  security.protocol=SSL
  ssl.truststore.type=PEM
  ssl.truststore.location={folder / _AUTHORITY}""")


def _authority(folder: Path, days: int) -> "Authority":
    """The authority of the directory, which is created if there is none. Raises Failure and OSError."""
    try:
        from ..testing.authority import Authority
    except ImportError:
        raise Failure('certificates require the package cryptography: pip install "moldau[tls]"') from None
    path, key_path = folder / _AUTHORITY, folder / _AUTHORITY_KEY
    if key_path.exists():
        try:
            return Authority.load(path.read_text(encoding="ascii"), key_path.read_text(encoding="ascii"))
        except ValueError as error:
            raise Failure(f"{path} and {key_path} are no authority of this command: {error}") from None
    if path.exists():
        raise Failure(f"{path} exists, but not its key {key_path}; use another directory")
    authority = Authority(f"Moldau development CA on {socket.gethostname()}", days=days)
    _write(key_path, authority.key, 0o600)
    _write(path, authority.certificate, 0o644)
    return authority


def _issue(authority: "Authority", path: Path, name: str, days: int, alternative_names: tuple[str, ...]) -> None:
    """Write a key and its certificate to a file, unless it exists."""
    if path.exists():
        print(f"Kept {path}.")
        return
    issued = authority.issue(name, days=(-1, days), alternative_names=alternative_names)
    _write(path, issued.pem, 0o600)


def _write(path: Path, text: str, mode: int) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="ascii") as file:
        file.write(text)
    print(f"Created {path}.")

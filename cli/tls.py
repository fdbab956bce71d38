"""``moldau tls``: certificates for development."""

from pathlib import Path

import click

from .certificates import AUTHORITY, AUTHORITY_KEY, DEFAULT_DAYS, SERVER, CertificateError, make_certificates
from .failure import Failure
from .suggestions import CommandGroup


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
@click.option(
    "--days", type=click.IntRange(1, 3650), default=DEFAULT_DAYS, show_default=True, help="How long they are valid."
)
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
        if f"{client}.pem" in (AUTHORITY, AUTHORITY_KEY, SERVER) or Path(client).name != client:
            raise click.UsageError(f"--client {client}: a client cannot have this name")
    folder = directory.absolute()
    try:
        make_certificates(folder, hosts, print, clients=clients, days=days)
    except CertificateError as error:
        raise Failure(str(error)) from None
    print(f"""
The settings of a server:
  listeners=SSL://127.0.0.1:9092
  ssl.keystore.type=PEM
  ssl.keystore.location={folder / SERVER}
The properties of a client, for --command-config:
  security.protocol=SSL
  ssl.truststore.type=PEM
  ssl.truststore.location={folder / AUTHORITY}""")

"""The options of ``moldau conformance`` for TLS and SASL."""

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from .failure import Failure

if TYPE_CHECKING:
    import ssl

    from ..conformance.target import Security

# Those of `conformance.sasl`, without its imports.
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class TlsOptions(NamedTuple):
    tls: bool
    ca: Path | None
    certificate: Path | None
    no_verify: bool


class SaslOptions(NamedTuple):
    mechanism: str | None
    username: str | None
    password: str | None
    password_file: Path | None


def connection_security(tls: TlsOptions, sasl: SaslOptions) -> "Security":
    """How connections are secured. Raises UsageError and Failure."""
    from ..conformance.sasl import Credentials, authenticator
    from ..conformance.target import Security

    context = _context(tls) if any(tls) else None
    has_certificate = tls.certificate is not None
    if sasl.mechanism is None:
        if any(sasl):
            raise click.UsageError("--username and the password need --sasl-mechanism")
        return Security(context, has_certificate=has_certificate)
    if not sasl.username:
        raise click.UsageError("--sasl-mechanism needs --username")
    credentials = Credentials(sasl.mechanism, sasl.username, _password(sasl))
    return Security(context, authenticator(credentials), credentials, has_certificate)


def _password(sasl: SaslOptions) -> str:
    if (sasl.password is None) == (sasl.password_file is None):
        raise click.UsageError("--sasl-mechanism needs either --password-file or --password")
    if sasl.password_file is None:
        return sasl.password or ""
    try:
        lines = sasl.password_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"the password cannot be read from {sasl.password_file}: {error}") from error
    if not lines or not lines[0]:
        raise Failure(f"the first line of {sasl.password_file} is empty; it must be the password")
    return lines[0]


def _context(tls: TlsOptions) -> "ssl.SSLContext":
    import ssl

    try:
        context = ssl.create_default_context(cafile=None if tls.ca is None else str(tls.ca))
    except (ssl.SSLError, OSError) as error:
        raise Failure(f"{tls.ca} has no CA certificates in PEM: {error}") from error
    if tls.no_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.certificate is not None:
        try:
            # Without a function, OpenSSL would ask for the password of an encrypted key.
            context.load_cert_chain(tls.certificate, password=lambda: "")
        except (ssl.SSLError, OSError) as error:
            raise Failure(
                f"{tls.certificate} does not contain a certificate and its key, unencrypted, in PEM: {error}"
            ) from error
    return context

"""TLS and SASL of the client commands, with the properties of Apache Kafka's tools.

The options ``--command-config`` and ``--command-property`` belong to every command that connects to a server. Their
properties are kept in click's context, and read when the first connection is opened (`security_of_command`).
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from .failure import Failure

if TYPE_CHECKING:
    import ssl

    from ..security.key_stores import KeyStore
    from ..security.sasl_client import Credentials, SaslClient

COMMAND_CONFIG_VARIABLE: Final = "MOLDAU_COMMAND_CONFIG"
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_META: Final = "moldau.client_properties"

_Function = TypeVar("_Function", bound=Callable[..., object])


def security_options(function: _Function) -> _Function:
    """The options ``--command-config`` and ``--command-property``. They set no argument of the function."""
    for option in (
        click.option(
            "--command-property",
            metavar="KEY=VALUE",
            multiple=True,
            is_eager=True,
            expose_value=False,
            callback=_keep_properties,
            help="A property of the connection, as in --command-config. Repeatable.",
        ),
        click.option(
            "--command-config",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            envvar=COMMAND_CONFIG_VARIABLE,
            show_envvar=True,
            is_eager=True,
            expose_value=False,
            callback=_keep_file,
            help="Properties of the connection, as for Apache Kafka's tools: security.protocol, ssl.*, sasl.*.",
        ),
    ):
        function = option(function)
    return function


def properties_of_command() -> Mapping[str, str]:
    """The properties that the current command was given."""
    context = click.get_current_context(silent=True)
    if context is None:
        return {}
    of_file, single = context.meta.get(_META, ({}, {}))
    return {**of_file, **single}


def security_of_command() -> Security:
    """How the current command connects. Raises Failure."""
    context = click.get_current_context(silent=True)
    if context is None or _META not in context.meta:
        return PLAINTEXT
    key = f"{_META}.security"
    if key not in context.meta:
        context.meta[key] = security_of(properties_of_command())
    found = context.meta[key]
    assert isinstance(found, Security)
    return found


class Security(NamedTuple):
    """How a client connects."""

    protocol: str = "PLAINTEXT"
    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None

    def secure(self, sock: socket.socket, host: str) -> socket.socket:
        """Begin TLS, if it is used. Raises OSError."""
        return sock if self.tls is None else self.tls.wrap_socket(sock, server_hostname=host)

    def new_sasl_client(self, host: str) -> SaslClient | None:
        """An authentication at a host, if SASL is used."""
        if self.credentials is None:
            return None
        from ..security.sasl_client import new_client

        return new_client(self.credentials, secrets.token_urlsafe(18), host)

    def of_kafka_python(self) -> dict[str, Any]:
        """The settings of clients of kafka-python."""
        if self.protocol == "PLAINTEXT":
            return {}
        settings: dict[str, Any] = {"security_protocol": self.protocol, "ssl_context": self.tls}
        if self.credentials is not None:
            if self.credentials.by_token:
                raise Failure("this command cannot authenticate with a delegation token (a limit of kafka-python)")
            if self.credentials.mechanism == "GSSAPI":
                raise Failure(
                    "this command cannot authenticate with GSSAPI, because it uses kafka-python; other commands can"
                )
            settings["sasl_mechanism"] = self.credentials.mechanism
            if self.credentials.token is not None:
                return settings | {"sasl_oauth_token_provider": _token_provider(self.credentials.token)}
            settings["sasl_plain_username"] = self.credentials.user
            settings["sasl_plain_password"] = self.credentials.password
        return settings


def _token_provider(token: Callable[[], str]) -> object:
    """Tokens for kafka-python. It reports an exception of the provider as a connection that failed."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token()

    return Tokens()


PLAINTEXT: Final = Security()


def security_of(properties: Mapping[str, str]) -> Security:
    """The security of these properties; others are for other clients. Raises Failure, without secrets."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise Failure(f"security.protocol {protocol!r} is not one of {', '.join(_PROTOCOLS)}")
    tls = _tls(properties) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL_"):
        return Security(protocol, tls)
    from .client_credentials import credentials

    return Security(protocol, tls, credentials(properties))


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    from ..security.key_stores import KeyStoreError
    from ..server.network.tls import TlsError, client_context

    try:
        return client_context(
            _key_store(properties),
            trusted=_trusted(properties),
            checks_host=bool(properties.get("ssl.endpoint.identification.algorithm", "https").strip()),
        )
    except (KeyStoreError, TlsError) as error:
        raise Failure(f"TLS cannot be used: {error}") from None


def _trusted(properties: Mapping[str, str]) -> str | None:
    """The trusted certificates, in PEM; None: those of the system."""
    from ..security.key_stores import pem_trusted_certificates, trusted_certificates

    location = properties.get("ssl.truststore.location")
    if location is not None:
        return _of_file(location, lambda data: trusted_certificates(data, properties.get("ssl.truststore.password")))
    certificates = properties.get("ssl.truststore.certificates")
    return None if certificates is None else pem_trusted_certificates(certificates)


def _key_store(properties: Mapping[str, str]) -> KeyStore | None:
    """The certificate of the client, if it has one."""
    from ..security.key_stores import KeyStoreError, key_store, pem_key_store

    key_password = properties.get("ssl.key.password")
    location = properties.get("ssl.keystore.location")
    if location is not None:
        password = properties.get("ssl.keystore.password")
        return _of_file(location, lambda data: key_store(data, password, key_password))
    key, chain = properties.get("ssl.keystore.key"), properties.get("ssl.keystore.certificate.chain")
    if key is None and chain is None:
        return None
    if key is None or chain is None:
        raise KeyStoreError("ssl.keystore.key and ssl.keystore.certificate.chain need each other")
    return pem_key_store(key, chain, key_password)


_Read = TypeVar("_Read")


def _of_file(path: str, read: Callable[[bytes], _Read]) -> _Read:
    """The contents of a store. Errors name the file."""
    from ..security.key_stores import KeyStoreError

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise KeyStoreError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        return read(data)
    except KeyStoreError as error:
        raise KeyStoreError(f"{path}: {error}") from None


def _keep_file(context: click.Context, _parameter: click.Parameter, path: Path | None) -> None:
    if path is not None:
        from ..config.definition import ConfigError
        from ..config.providers import resolved
        from ..config.sources import read_file

        try:
            of_file = {name: entry.text for name, entry in resolved(read_file(path), os.environ).items()}
        except ConfigError as error:
            raise click.BadParameter(str(error), param_hint="--command-config") from None
        context.meta[_META] = of_file, context.meta.get(_META, ({}, {}))[1]


def _keep_properties(context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> None:
    if values:
        single = {}
        for value in values:
            name, equals, text = value.partition("=")
            if not equals or not name.strip():
                raise click.BadParameter("it is not KEY=VALUE", param_hint="--command-property")
            single[name.strip()] = text
        context.meta[_META] = context.meta.get(_META, ({}, {}))[0], single

"""What the client commands authenticate with, from the properties of Apache Kafka's tools.

PLAIN and SCRAM have the name and the password of a user. OAUTHBEARER has a token, of a file or of a provider (KIP-768).
GSSAPI has Kerberos tickets: those of the user (``kinit``), or those for the key in a keytab.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from .failure import Failure

if TYPE_CHECKING:
    from ..security.jaas import JaasEntry
    from ..security.sasl_client import Credentials

_JAAS: Final = "sasl.jaas.config"
_LISTENER: Final = "SERVER"
"""The name under which the settings of OAUTHBEARER are read. It is in no message."""
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_HANDLER: Final = "sasl.login.callback.handler.class"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_ALLOWED: Final = "org.apache.kafka.sasl.oauthbearer.allowed"


def credentials(properties: Mapping[str, str]) -> Credentials:
    """The credentials of these properties. Raises Failure, without secrets."""
    from ..security.jaas import MODULES, JaasError, entry_of
    from ..security.sasl_client import SaslClientError, credentials_in

    if "sasl.mechanism" not in properties:
        raise Failure(f"sasl.mechanism is missing; set it to one of {', '.join(MODULES)}")
    mechanism = properties["sasl.mechanism"].strip()
    if mechanism not in MODULES:
        raise Failure(f"sasl.mechanism {mechanism} is not supported, only {', '.join(MODULES)}")
    if _JAAS not in properties:
        raise Failure(f"{_JAAS} is missing; it has the user and the password, or the options of {mechanism}")
    try:
        entry = entry_of(mechanism, properties[_JAAS])
        if mechanism == "OAUTHBEARER":
            return _token(properties, entry)
        if mechanism == "GSSAPI":
            return _kerberos(properties, entry)
        return credentials_in(mechanism, entry)
    except (JaasError, SaslClientError) as error:
        raise Failure(f"{_JAAS}: {error}") from None


def _token(properties: Mapping[str, str], entry: JaasEntry) -> Credentials:
    """The settings are those with which a node connects to others. The address needs no list of allowed ones: it is of
    the same file."""
    from ..config.broker_config import BrokerConfig, StaticValue
    from ..config.definition import ConfigError
    from ..server.concurrency.clock import wall_clock
    from ..server.nodes.oauthbearer_login import token_credentials

    url = properties.get(_URL, "").strip()
    given = {name: text for name, text in properties.items() if name.startswith("sasl.")}
    of_client = {_HANDLER: f"{_PACKAGE}.OAuthBearerLoginCallbackHandler"} | given
    of_client |= {f"{_ALLOWED}.{kind}": url for kind in ("urls", "files")}
    config = BrokerConfig({name: StaticValue(text, "--command-config") for name, text in of_client.items()})
    try:
        return token_credentials(config.for_listener(_LISTENER), entry, wall_clock)
    except ConfigError as error:
        raise Failure(f"OAUTHBEARER cannot be used: {error.message.partition(': ')[2] or error.message}") from None


def _kerberos(properties: Mapping[str, str], entry: JaasEntry) -> Credentials:
    from ..security.gssapi_client import GssapiClient
    from ..security.sasl_client import Credentials, SaslClient

    service = properties.get("sasl.kerberos.service.name", entry.options.get("serviceName", "")).strip()
    if not service:
        raise Failure("sasl.kerberos.service.name is missing: the first part of the server's principal, often kafka")
    principal, keytab = entry.options.get("principal"), entry.options.get("keyTab")
    has_keytab = entry.options.get("useKeyTab", "false").lower() == "true"
    if has_keytab and not principal:
        raise Failure(f"{_JAAS}: the option principal is missing, which has its key in the keytab")
    if has_keytab and keytab is not None:
        try:
            with open(keytab.removeprefix("FILE:"), "rb"):
                pass
        except OSError as error:
            raise Failure(f"{_JAAS}: the keytab {keytab} cannot be read: {error.strerror or error}") from None
    try:
        from ..server.nodes.kerberos import Initiator, TicketHolder
    except ImportError as error:
        raise Failure(f'GSSAPI requires the package gssapi ({error}): pip install "moldau[gssapi]"') from None

    def new_client(host: str) -> SaslClient:
        name = f"{service}@{host}"
        if has_keytab:
            return GssapiClient(partial(Initiator, str(principal), keytab, name))
        return GssapiClient(partial(TicketHolder, principal, name))

    return Credentials("GSSAPI", principal or "of the Kerberos tickets", "", new_client=new_client)

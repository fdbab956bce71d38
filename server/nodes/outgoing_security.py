"""The security of the links to other nodes: to the controllers, and to other brokers.

As in Apache Kafka, a node connects with the settings of the listener that it connects to, under its name: the
certificate, the trusted authorities, and the JAAS configuration, whose options ``username`` and ``password`` are those
of this node. A node that is only a broker has the settings of the controllers' listener, although it does not listen
there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ...config.definition import ConfigError
from ...security.gssapi import MECHANISM as GSSAPI
from ...security.jaas import MODULES
from ...security.oauthbearer import MECHANISM as OAUTHBEARER
from ...security.sasl_client import Credentials, SaslClientError, credentials_in
from ..concurrency.clock import wall_clock
from ..network.link_security import PLAINTEXT, LinkSecurity
from .jaas_entries import find_entry, jaas_setting
from .listener_security import key_store_of, trusted_by, versions_and_ciphers

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from ...config.broker_config import BrokerConfig, ListenerConfig
    from ...security.key_stores import KeyStore
    from ..network.tls_client import TlsDialing
    from .listener_reload import ListenerReload

_TO_BROKERS: Final = "sasl.mechanism.inter.broker.protocol"
_TO_CONTROLLERS: Final = "sasl.mechanism.controller.protocol"


def to_brokers(config: BrokerConfig, reload: Callable[[], ListenerReload]) -> LinkSecurity:
    """The security of links to the inter-broker listener. ``reload`` returns what its new certificates are added to.
    Raises ConfigError."""
    name = config.inter_broker_listener_name
    if config.security_protocols.get(name, "").startswith("SASL_"):
        mechanism, enabled = config.str(_TO_BROKERS), config.for_listener(name).list("sasl.enabled.mechanisms")
        if mechanism not in enabled:
            problem = (
                f"{_TO_BROKERS} is {mechanism}, but its sasl.enabled.mechanisms are {', '.join(enabled) or 'none'}"
            )
            raise ConfigError(f"Other brokers could not connect to the listener {name}: {problem}", _TO_BROKERS)
    return _security(config, name, _TO_BROKERS, reload)


def to_controllers(config: BrokerConfig, reload: Callable[[], ListenerReload]) -> LinkSecurity:
    """The security of links to the listener of the controllers; see `to_brokers`. Raises ConfigError."""
    return _security(config, config.controller_listener_name, _TO_CONTROLLERS, reload)


def _security(
    config: BrokerConfig, listener: str, mechanism_setting: str, reload: Callable[[], ListenerReload]
) -> LinkSecurity:
    protocol = config.security_protocols.get(listener, "PLAINTEXT")
    if protocol == "PLAINTEXT":
        return PLAINTEXT
    settings = config.for_listener(listener)
    secure = _tls(settings, reload()) if protocol in ("SSL", "SASL_SSL") else None
    if not protocol.startswith("SASL_"):
        return LinkSecurity(secure)
    mechanism = config.str(mechanism_setting)
    credentials = _credentials(settings, mechanism, mechanism_setting)
    return LinkSecurity(secure, credentials, jaas_setting(settings, mechanism), mechanism_setting)


def _credentials(settings: ListenerConfig, mechanism: str, mechanism_setting: str) -> Credentials:
    where = f"This node cannot connect to the listener {settings.listener_name} of other nodes"
    if mechanism not in MODULES:
        problem = f"{mechanism_setting} is {mechanism}, but only {', '.join(MODULES)} are supported"
        raise ConfigError(f"{where}: {problem}", mechanism_setting)
    name = jaas_setting(settings, mechanism)
    try:
        entry = find_entry(settings, mechanism)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", error.name) from None
    if entry is None:
        raise ConfigError(f"{where}: {name} is missing. It has the user and the password of this node", name)
    if mechanism == OAUTHBEARER:
        from .oauthbearer_login import token_credentials  # few nodes use it

        return token_credentials(settings, entry, wall_clock)
    if mechanism == GSSAPI:
        from .gssapi_security import kerberos_credentials  # few nodes use it

        return kerberos_credentials(settings, entry)
    try:
        return credentials_in(mechanism, entry)
    except SaslClientError as error:
        raise ConfigError(f"{where}: {name}: {error}", name) from None


class LinkTlsSettings(NamedTuple):
    """What the context of links is made from, with the contents of the files."""

    store: KeyStore | None
    trusted: str | None
    """Certificates in PEM; None: those of the system."""
    checks_host: bool
    versions: tuple[str, ...]
    ciphers: str | None


def link_tls_settings(settings: ListenerConfig) -> LinkTlsSettings:
    """Read the settings of TLS of links to a listener, and the files that they name. Raises ConfigError."""
    versions, ciphers = versions_and_ciphers(settings)
    return LinkTlsSettings(
        key_store_of(settings) if _has_key(settings) else None,
        trusted_by(settings),
        bool(settings.optional_str("ssl.endpoint.identification.algorithm")),
        versions,
        ciphers,
    )


def link_context(settings: ListenerConfig, tls: LinkTlsSettings) -> ssl.SSLContext:
    """The context of links to a listener. Raises ConfigError."""
    from ..network.tls import TlsError, client_context

    try:
        return client_context(
            tls.store, trusted=tls.trusted, checks_host=tls.checks_host, versions=tls.versions, ciphers=tls.ciphers
        )
    except TlsError as error:
        raise ConfigError(f"TLS to the listener {settings.listener_name} of other nodes: {error}") from None


def _tls(settings: ListenerConfig, reload: ListenerReload) -> TlsDialing:
    from ..network.tls_client import TlsDialing

    tls = link_tls_settings(settings)
    trust = settings.name_in_effect("ssl.truststore.location")
    dialing = TlsDialing(
        link_context(settings, tls),
        f"{trust} must have the authority that signed it, and it must be for the host of the peer (or set "
        f"{settings.own_name('ssl.endpoint.identification.algorithm')} to nothing)",
    )
    reload.add_link(settings.listener_name, dialing, tls)
    return dialing


def _has_key(settings: ListenerConfig) -> bool:
    names = ("ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain")
    return any(settings.optional_str(name) is not None for name in names)

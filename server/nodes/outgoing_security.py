"""The security of the links to other nodes: to the controllers, and to other brokers.

As in Apache Kafka, a node connects with the settings of the listener that it connects to, under its name: the
certificate, the trusted authorities, and the JAAS configuration, whose options ``username`` and ``password`` are those
of this node. A node that is only a broker has the settings of the controllers' listener, although it does not listen
there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...config.definition import ConfigError
from ...security.sasl_client import MECHANISMS, Credentials, SaslClientError, credentials_of
from ..network.link_security import PLAINTEXT, LinkSecurity
from .listener_security import key_store_of, trusted_by

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig, ListenerConfig
    from ..network.dialing import Secure

_TO_BROKERS: Final = "sasl.mechanism.inter.broker.protocol"
_TO_CONTROLLERS: Final = "sasl.mechanism.controller.protocol"


def to_brokers(config: BrokerConfig) -> LinkSecurity:
    """The security of links to the inter-broker listener. Raises ConfigError."""
    return _security(config, config.inter_broker_listener_name, _TO_BROKERS)


def to_controllers(config: BrokerConfig) -> LinkSecurity:
    """The security of links to the listener of the controllers. Raises ConfigError."""
    return _security(config, config.controller_listener_name, _TO_CONTROLLERS)


def _security(config: BrokerConfig, listener: str, mechanism_setting: str) -> LinkSecurity:
    protocol = config.security_protocols.get(listener, "PLAINTEXT")
    if protocol == "PLAINTEXT":
        return PLAINTEXT
    settings = config.for_listener(listener)
    secure = _tls(settings) if protocol in ("SSL", "SASL_SSL") else None
    if not protocol.startswith("SASL_"):
        return LinkSecurity(secure)
    mechanism = config.str(mechanism_setting)
    name = settings.own_name(f"{mechanism.lower()}.sasl.jaas.config")
    return LinkSecurity(secure, _credentials(settings, mechanism, mechanism_setting, name), name, mechanism_setting)


def _credentials(settings: ListenerConfig, mechanism: str, mechanism_setting: str, name: str) -> Credentials:
    where = f"This node cannot connect to the listener {settings.listener_name} of other nodes"
    if mechanism not in MECHANISMS:
        problem = f"{mechanism_setting} is {mechanism}, but only {', '.join(MECHANISMS)} are supported"
        raise ConfigError(f"{where}: {problem}", mechanism_setting)
    text = settings.text(name)
    if text is None:
        raise ConfigError(f"{where}: {name} is missing. It has the user and the password of this node", name)
    try:
        return credentials_of(mechanism, text)
    except SaslClientError as error:
        raise ConfigError(f"{where}: {name}: {error}", name) from None


def _tls(settings: ListenerConfig) -> Secure:
    from ..network.tls import TlsError, client_context
    from ..network.tls_client import tls_of

    checks_host = bool(settings.optional_str("ssl.endpoint.identification.algorithm"))
    store = key_store_of(settings) if _has_key(settings) else None
    try:
        context = client_context(store, trusted=trusted_by(settings), checks_host=checks_host)
    except TlsError as error:
        raise ConfigError(f"TLS to the listener {settings.listener_name} of other nodes: {error}") from None
    trust = settings.name_in_effect("ssl.truststore.location")
    return tls_of(
        context,
        f"{trust} must have the authority that signed it, and it must be for the host of the peer (or set "
        f"{settings.own_name('ssl.endpoint.identification.algorithm')} to nothing)",
    )


def _has_key(settings: ListenerConfig) -> bool:
    names = ("ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain")
    return any(settings.optional_str(name) is not None for name in names)

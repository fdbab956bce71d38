"""Dynamic settings of listeners: new key stores, trust stores and settings of SASL without a restart (KIP-226).

A change is checked before it is forwarded to the controller: the files are read, and a new context is built. A change
that cannot be used is INVALID_REQUEST, and nothing changes. When the change is committed, the files are read again, and
the new context is installed. Connections that exist keep theirs. The links to other nodes have the settings of the
listener that they connect to, so they change with it.

Other brokers must be able to connect to the inter-broker listener during the change: with its old stores to the new
ones, and with the new stores to the old ones. This is tried with handshakes in memory, as in Apache Kafka, if the
listener has a trust store.

A new key store has as many entries as the old one, and a certificate for the same name and at least the same
alternative names, so that a wrong file does not disconnect clients. ``ssl.allow.dn.changes`` and
``ssl.allow.san.changes`` permit other names. A trust store cannot be added, because it would change who may connect.

Mechanisms can be enabled, disabled and changed. New authentications use the new settings; authenticated clients stay so
until the end of their session.

The file of an unchanged path is read at each change of a setting of this broker.

Everything runs in one thread, one job after the other, so the latest settings win.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from ...config.definition import ConfigError
from ...security.der import DerError, alternative_names_of
from ...security.distinguished_names import subject_name
from ...security.key_stores import leaf_of
from .listener_security import mechanism_names, mechanism_settings, tls_context, tls_settings

if TYPE_CHECKING:
    import asyncio
    import ssl

    from ...config.broker_config import BrokerConfig, ListenerConfig
    from ...security.key_stores import KeyStore
    from ..concurrency.background import JobExecutor
    from ..network.tls import TlsSecurity
    from ..network.tls_client import TlsDialing
    from ..requests.sasl import Mechanism, SaslSecurity
    from .listener_security import TlsSettings
    from .outgoing_security import LinkTlsSettings

    NewMechanism = Callable[[ListenerConfig, str], Mechanism]
    """Creates a mechanism with the settings of a listener. Raises ConfigError."""

logger = logging.getLogger(__name__)

_OF_SASL: Final = ("sasl.", "connections.max.reauth.ms", "moldau.allow.unsecured.tokens", "org.apache.kafka.sasl.")
"""Prefixes of the settings of mechanisms, for a listener or for all."""


class ListenerReload:
    """The listeners of one node whose settings can change."""

    def __init__(self, executor: JobExecutor) -> None:
        """``executor`` runs one job at a time."""
        self._executor = executor
        self._listeners: list[_TlsListener | _SaslListener | _TlsLink] = []

    def add_tls(self, listener: str, security: TlsSecurity, settings: TlsSettings, *, identifies: bool) -> None:
        """A listener with TLS, which has these settings."""
        self._listeners.append(_TlsListener(listener, security, settings, identifies=identifies))

    def add_sasl(self, settings: ListenerConfig, security: SaslSecurity, new_mechanism: NewMechanism) -> None:
        """A listener with SASL, which has these settings."""
        self._listeners.append(_SaslListener(settings, security, new_mechanism))

    def add_link(self, listener: str, dialing: TlsDialing, settings: LinkTlsSettings) -> None:
        """Links with TLS to a listener of other nodes."""
        self._listeners.append(_TlsLink(listener, dialing, settings))

    def remove(self, listener: str) -> None:
        """A listener was removed."""
        self._listeners = [each for each in self._listeners if each.listener != listener or isinstance(each, _TlsLink)]

    def concerns(self, names: Iterable[str]) -> bool:
        """Whether a change of settings with these names is to be checked."""
        return bool(self._listeners) and any(
            any(f".{part}" in name for part in ("ssl.", *_OF_SASL))
            if name.startswith("listener.name.")
            else name.startswith(_OF_SASL)
            for name in names
        )

    def check(self, config: BrokerConfig) -> asyncio.Future[str | None]:
        """Why these settings cannot be used, or None."""
        return self._executor.run(partial(self._problem, config))

    def reload(self, config: BrokerConfig) -> asyncio.Future[None]:
        """Use these settings. If a listener cannot use them, it is logged, and the listener keeps its old ones."""
        return self._executor.run(partial(self._install, config, checked=True))

    def load(self, config: BrokerConfig) -> asyncio.Future[None]:
        """The same at startup, where the names in certificates may differ from those of the static settings."""
        return self._executor.run(partial(self._install, config, checked=False))

    def _problem(self, config: BrokerConfig) -> str | None:
        for each in self._listeners:
            try:
                each.prepare(config.for_listener(each.listener), checked=True)
            except ConfigError as error:
                return error.message
        return None

    def _install(self, config: BrokerConfig, *, checked: bool) -> None:
        for each in self._listeners:
            try:
                install = each.prepare(config.for_listener(each.listener), checked=checked)
            except ConfigError as error:
                logger.error("%s: the previous settings stay in effect: %s", each, error.message)
                continue
            if install is not None:
                install()
                logger.info("%s: new %s", each, each.subject)


class _TlsListener:
    """The context of a listener."""

    subject = "certificates"

    def __init__(self, listener: str, security: TlsSecurity, settings: TlsSettings, *, identifies: bool) -> None:
        self.listener = listener
        self._security = security
        self._settings = settings
        self._identifies = identifies

    def __str__(self) -> str:
        return f"The listener {self.listener}"

    def prepare(self, settings: ListenerConfig, *, checked: bool) -> Callable[[], None] | None:
        """What makes new settings effective; None if nothing has changed. Raises ConfigError."""
        new = tls_settings(settings, identifies=self._identifies)
        if new == self._settings:
            return None
        if checked:
            if self._settings.trusted is None and new.trusted is not None:
                _refuse(settings, "a trust store cannot be added while the server runs")
            _check_replacement(settings, self._settings.store, new.store)
            if settings.is_inter_broker and self._settings.trusted is not None:
                _check_connects(settings, self._settings, new, "the new key store, with the trust store of before")
                _check_connects(settings, new, self._settings, "the key store of before, with the new trust store")
        return partial(self._install, new, tls_context(settings, new))

    def _install(self, settings: TlsSettings, context: ssl.SSLContext) -> None:
        self._security.context = context
        self._settings = settings


class _TlsLink:
    """The context of links to a listener of other nodes."""

    subject = "certificates"

    def __init__(self, listener: str, dialing: TlsDialing, settings: LinkTlsSettings) -> None:
        self.listener = listener
        self._dialing = dialing
        self._settings = settings

    def __str__(self) -> str:
        return f"Connections to the listener {self.listener} of other nodes"

    def prepare(self, settings: ListenerConfig, *, checked: bool) -> Callable[[], None] | None:
        """See `_TlsListener`."""
        from .outgoing_security import link_context, link_tls_settings

        new = link_tls_settings(settings)
        if new == self._settings:
            return None
        old = self._settings
        if checked and old.store is not None and new.store is not None:
            _check_replacement(settings, old.store, new.store)
        return partial(self._install, new, link_context(settings, new))

    def _install(self, settings: LinkTlsSettings, context: ssl.SSLContext) -> None:
        self._dialing.context = context
        self._settings = settings


class _SaslListener:
    """The mechanisms of a listener. Those whose settings are equal stay the same, with the keys of their provider."""

    subject = "settings of SASL"

    def __init__(self, settings: ListenerConfig, security: SaslSecurity, new_mechanism: NewMechanism) -> None:
        self.listener = settings.listener_name
        self._security = security
        self._new_mechanism = new_mechanism
        self._settings = {name: mechanism_settings(settings, name) for name in security.mechanisms}

    def __str__(self) -> str:
        return f"The listener {self.listener}"

    def prepare(self, settings: ListenerConfig, *, checked: bool) -> Callable[[], None] | None:
        """See `_TlsListener`."""
        del checked  # everything may change
        new = {name: mechanism_settings(settings, name) for name in mechanism_names(settings)}
        if list(new.items()) == list(self._settings.items()):
            return None
        old = self._security.mechanisms
        mechanisms = {
            name: old[name] if self._settings.get(name) == values else self._new_mechanism(settings, name)
            for name, values in new.items()
        }
        return partial(self._install, new, mechanisms)

    def _install(self, settings: dict[str, Mapping[str, str]], mechanisms: Mapping[str, Mechanism]) -> None:
        self._security.mechanisms = mechanisms
        self._settings = settings


def _check_connects(settings: ListenerConfig, client: TlsSettings, server: TlsSettings, what: str) -> None:
    """Raise ConfigError if a broker with the stores of ``client`` cannot connect to one with those of ``server``."""
    from ..network.tls import TlsError, client_context, handshake_problem

    try:
        context = client_context(
            client.store, trusted=client.trusted, checks_host=False, versions=client.versions, ciphers=client.ciphers
        )
    except TlsError as error:
        _refuse(settings, str(error))
    problem = handshake_problem(tls_context(settings, server), context)
    if problem is not None:
        _refuse(
            settings,
            f"other brokers could not verify {what} ({problem}). Let all brokers trust both authorities first",
        )


def _check_replacement(settings: ListenerConfig, old: KeyStore, new: KeyStore) -> None:
    """Raise ConfigError if this key store may not replace the old one."""
    if old.entries != new.entries:
        _refuse(settings, f"the key store has {new.entries} entries, the previous one {old.entries}")
    try:
        before, after = leaf_of(old), leaf_of(new)
        if not settings.bool("ssl.allow.dn.changes"):
            old_name, new_name = subject_name(before), subject_name(after)
            if _comparable(old_name) != _comparable(new_name):
                _refuse(
                    settings,
                    f"the certificate is for '{new_name}', the previous one for '{old_name}', "
                    "and ssl.allow.dn.changes is false",
                )
        if not settings.bool("ssl.allow.san.changes") and not alternative_names_of(before) <= alternative_names_of(
            after
        ):
            _refuse(
                settings,
                "the certificate lacks alternative names of the previous one, and ssl.allow.san.changes is false",
            )
    except DerError as error:
        _refuse(settings, f"the certificate cannot be read: {error}")


def _comparable(name: str) -> str:
    """Names that differ in case and in repeated spaces are equal, as for Java."""
    return " ".join(name.lower().split())


def _refuse(settings: ListenerConfig, problem: str) -> None:
    raise ConfigError(f"The listener {settings.listener_name} cannot use the new stores: {problem}")

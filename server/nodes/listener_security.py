"""The security of listeners: TLS and SASL, from their settings and the files that these name.

A setting that would open a listener by mistake prevents startup: an unreadable trust store, client authentication
without trusted certificates. Errors name the setting, not its value if that is a secret.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from ...config.definition import ConfigError
from ...security.cipher_suites import is_of_tls_1_3, openssl_name
from ...security.gssapi import MECHANISM as GSSAPI
from ...security.jaas import MODULES, JaasEntry
from ...security.key_stores import (
    KeyStore,
    KeyStoreError,
    key_store,
    pem_key_store,
    pem_trusted_certificates,
    trusted_certificates,
)
from ...security.oauthbearer import MECHANISM as OAUTHBEARER
from ...security.plain import MECHANISM as PLAIN
from ...security.plain import PlainExchange, users_of
from ...security.principal_mapping import PrincipalMapping, RuleError
from ...security.scram import MECHANISMS, Credential, ScramExchange, ScramMechanism, TokenLogin
from ..network.listeners import PLAINTEXT
from .jaas_entries import find_entry, jaas_setting

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from ...config.broker_config import BrokerConfig, Listener, ListenerConfig
    from ...metadata.image import MetadataImage
    from ...security.delegation_tokens import TokenCredentials
    from ...security.sasl import SaslExchange
    from ..concurrency.background import JobExecutor
    from ..concurrency.clock import Clock
    from ..concurrency.timers import TimerWheel
    from ..network.listeners import Security
    from ..network.tls import TlsSecurity
    from ..requests.sasl import Mechanism, SaslSecurity
    from .listener_reload import ListenerReload

logger = logging.getLogger(__name__)

_ENABLED: Final = "sasl.enabled.mechanisms"
_PRINCIPAL_BUILDER: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
_ENGINE_FACTORY: Final = "ssl.engine.factory.class"
_DEFAULT_ENGINE_FACTORY: Final = "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_OLD_VERSIONS: Final = ("TLSv1", "TLSv1.1")
_NONCE_BYTES: Final = 24
_VERIFICATIONS: Final = 4


def security_of(
    config: BrokerConfig,
    listener: Listener,
    users: Users,
    timers: Callable[[], TimerWheel],
    reload: ListenerReload,
) -> Security:
    """The security of a listener. ``users`` has the SCRAM credentials. Raises ConfigError."""
    settings = config.for_listener(listener.name)
    if settings.str("principal.builder.class") != _PRINCIPAL_BUILDER:
        _fail(settings, "principal.builder.class", "Java classes are not loaded, so principals would be different ones")
    if listener.security_protocol == "SSL":
        return _tls_security(settings, reload, identifies=True)
    if listener.security_protocol == "PLAINTEXT":
        return PLAINTEXT
    encrypted = listener.security_protocol == "SASL_SSL"
    inner: Security = _tls_security(settings, reload, identifies=False) if encrypted else PLAINTEXT
    if not encrypted and PLAIN in mechanism_names(settings) and listener.host not in _LOOPBACK:
        logger.warning(
            "The listener %s accepts passwords (PLAIN) without encryption beyond this machine; use SASL_SSL or SCRAM",
            listener.name,
        )
    return _sasl_security(settings, inner, users, timers, reload)


class Users:
    """The SCRAM credentials and the delegation tokens of the metadata, which is loaded after the listeners are bound.

    It has the threads of authentications: one that computes credentials of delegation tokens, and several that verify
    tokens of OAuth providers and of Kerberos, which may wait for the keys of a provider, or for a disk.
    """

    def __init__(
        self,
        config: BrokerConfig,
        now_ms: Clock,
        random_bytes: Callable[[int], bytes],
        executor: Callable[[int], JobExecutor],
    ) -> None:
        """``executor`` creates an executor with a number of threads."""
        self.now_ms = now_ms
        self.computations = executor(1)
        self.verifications = executor(_VERIFICATIONS)
        self._random_bytes = random_bytes
        self._secret = random_bytes(32)
        self.image: Callable[[], MetadataImage] | None = None
        token_secret = config.token_secret
        self._tokens: TokenCredentials | None = None
        if token_secret is not None:
            from ...security.delegation_tokens import TokenCredentials  # few servers have tokens

            self._tokens = TokenCredentials(token_secret, random_bytes)

    def new_exchange(self, mechanism: ScramMechanism) -> ScramExchange:
        """Begin an authentication."""
        return ScramExchange(
            mechanism,
            partial(self._find, mechanism),
            partial(self._find_token, mechanism),
            server_nonce=b64encode(self._random_bytes(_NONCE_BYTES)).decode(),
            secret=self._secret,
        )

    def _find(self, mechanism: ScramMechanism, user: str) -> Credential | None:
        record = None if self.image is None else self.image().scram_credentials.get((user, mechanism.code))
        if record is None:
            return None
        return Credential(record.salt, record.stored_key, record.server_key, record.iterations)

    def _find_token(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        """A token that has not expired. The type of its owner does not matter, as in Apache Kafka."""
        if self._tokens is None or self.image is None:
            return None
        record = self.image().delegation_tokens.get(token_id)
        if record is None:
            return None
        from ...metadata.delegation_tokens import end_of  # few servers have tokens

        expires_ms = end_of(record)
        if expires_ms <= self.now_ms():
            return None
        owner = record.owner.partition(":")[2]
        return TokenLogin(owner, expires_ms, self._tokens.of(token_id, mechanism))


def _sasl_security(
    settings: ListenerConfig,
    inner: Security,
    users: Users,
    timers: Callable[[], TimerWheel],
    reload: ListenerReload,
) -> SaslSecurity:
    from ..requests.sasl import SaslSecurity

    new_mechanism = partial(_mechanism, users=users, timers=timers)
    security = SaslSecurity(
        inner,
        {name: new_mechanism(settings, name) for name in mechanism_names(settings)},
        timers,
        now_ms=users.now_ms,
        failure_delay_ms=settings.int("connection.failed.authentication.delay.ms"),
        max_receive_bytes=settings.int("sasl.server.max.receive.size"),
    )
    reload.add_sasl(settings, security, new_mechanism)
    return security


def _mechanism(settings: ListenerConfig, name: str, *, users: Users, timers: Callable[[], TimerWheel]) -> Mechanism:
    """A mechanism of a listener. Raises ConfigError."""
    from ..requests.sasl import Mechanism

    new_exchange: Callable[[], SaslExchange]
    if name == OAUTHBEARER:
        from .oauthbearer_security import exchanges_of  # few servers use it

        new_exchange = exchanges_of(settings, _jaas(settings, name), users.now_ms, lambda: timers().now_ms())
    elif name == GSSAPI:
        from . import gssapi_security  # few servers use it

        _check_handler(settings, name)
        new_exchange = gssapi_security.exchanges_of(settings, _jaas(settings, name))
    elif name in MECHANISMS:
        _jaas(settings, name)  # it must be there, although it has no options
        _check_handler(settings, name)
        new_exchange = partial(users.new_exchange, MECHANISMS[name])
    else:
        new_exchange = partial(PlainExchange, users_of(_jaas(settings, name).options))
        _check_handler(settings, name)
    executor = users.verifications if name in (OAUTHBEARER, GSSAPI) else users.computations
    return Mechanism(new_exchange, _max_session_ms(settings, name), executor.run)


def mechanism_settings(settings: ListenerConfig, name: str) -> Mapping[str, str]:
    """All values that a mechanism of a listener is made from, and more: if they are equal, so is the mechanism."""
    of_listener = (f"{name.lower()}.", "sasl.", "connections.max.reauth.ms", "moldau.allow.unsecured.tokens")
    general = ("sasl.", "connections.max.reauth.ms", "moldau.allow.unsecured.tokens", "org.apache.kafka.sasl.")
    texts = settings.texts((*map(settings.own_name, of_listener), *general))
    return {each: text for each, text in texts.items() if not each.endswith(_ENABLED)}


def mechanism_names(settings: ListenerConfig) -> tuple[str, ...]:
    """The enabled mechanisms of a listener. Raises ConfigError."""
    setting = _ENABLED
    names = settings.list(setting)
    unsupported = [name for name in names if name not in MODULES]
    if unsupported or not names:
        problem = f"{unsupported[0]} is not supported, only {', '.join(MODULES)}" if unsupported else "it is empty"
        _fail(settings, setting, problem)
    return names


def _jaas(settings: ListenerConfig, mechanism: str) -> JaasEntry:
    where = f"The listener {settings.listener_name} cannot use"
    try:
        entry = find_entry(settings, mechanism)
    except ConfigError as error:
        raise ConfigError(f"{where} {error.message}", error.name) from None
    if entry is None:
        name = jaas_setting(settings, mechanism)
        problem = f"it is missing. Set it, for example to '{MODULES[mechanism]} required;'"
        raise ConfigError(f"{where} {name}: {problem}", name)
    return entry


def _check_handler(settings: ListenerConfig, mechanism: str) -> None:
    setting = "sasl.server.callback.handler.class"
    for name in (settings.own_name(f"{mechanism.lower()}.{setting}"), settings.own_name(setting), setting):
        if settings.text(name) is not None:
            problem = "Java classes are not loaded, so another check of passwords would be in effect"
            raise ConfigError(f"The listener {settings.listener_name} cannot use {name}: {problem}", name)


def _max_session_ms(settings: ListenerConfig, mechanism: str) -> int:
    _, value = settings.of_mechanism(mechanism, "connections.max.reauth.ms")
    assert isinstance(value, int)
    return value


class TlsSettings(NamedTuple):
    """What a context of TLS is made from, with the contents of the files."""

    store: KeyStore
    trusted: str | None
    """Certificates in PEM."""
    client_auth: str
    versions: tuple[str, ...]
    ciphers: str | None


def _tls_security(settings: ListenerConfig, reload: ListenerReload, *, identifies: bool) -> TlsSecurity:
    """TLS with the settings of a listener. ``identifies``: certificates of clients determine their principals."""
    from ..network.tls import TlsSecurity

    tls = tls_settings(settings, identifies=identifies)
    general = settings.str("ssl.client.auth")
    if general != tls.client_auth:
        logger.warning(
            "The listener %s does not ask clients for certificates: ssl.client.auth=%s applies to listeners without "
            "SASL. Set %s for it",
            settings.listener_name, general, settings.own_name("ssl.client.auth"),
        )  # fmt: skip
    security = TlsSecurity(tls_context(settings, tls), _mapping(settings) if identifies else None)
    reload.add_tls(settings.listener_name, security, tls, identifies=identifies)
    return security


def tls_settings(settings: ListenerConfig, *, identifies: bool) -> TlsSettings:
    """Read the settings of TLS of a listener, and the files that they name. Raises ConfigError."""
    client_auth = settings.str("ssl.client.auth")
    if not identifies and not settings.is_own("ssl.client.auth"):
        client_auth = "none"  # the general setting is for listeners without SASL, as in Apache Kafka
    trusted = trusted_by(settings)
    if client_auth != "none" and trusted is None:
        _fail(
            settings,
            "ssl.client.auth",
            f"with the value {client_auth}, certificates of clients are verified, so ssl.truststore.location or "
            "ssl.truststore.certificates must be set",
        )
    versions, ciphers = versions_and_ciphers(settings)
    return TlsSettings(key_store_of(settings), trusted, client_auth, versions, ciphers)


def tls_context(settings: ListenerConfig, tls: TlsSettings) -> ssl.SSLContext:
    """The context of a listener. Raises ConfigError."""
    from ..network.tls import TlsError, server_context

    try:
        return server_context(
            tls.store, trusted=tls.trusted, client_auth=tls.client_auth, versions=tls.versions, ciphers=tls.ciphers
        )
    except TlsError as error:
        raise ConfigError(f"TLS of the listener {settings.listener_name}: {error}") from None


def _mapping(settings: ListenerConfig) -> PrincipalMapping:
    name = "ssl.principal.mapping.rules"
    try:
        return PrincipalMapping(settings.str(name))
    except RuleError as error:
        _fail(settings, name, str(error))


def versions_and_ciphers(settings: ListenerConfig) -> tuple[tuple[str, ...], str | None]:
    """The versions of TLS in the settings of a listener, and OpenSSL's names of its suites of TLS 1.2. Raises
    ConfigError."""
    from ..network.tls import VERSIONS

    if settings.optional_str(_ENGINE_FACTORY) not in (None, _DEFAULT_ENGINE_FACTORY):
        _fail(settings, _ENGINE_FACTORY, "Java classes are not loaded, so other rules for certificates would apply")
    enabled = settings.list("ssl.enabled.protocols")
    # Files for Apache Kafka may have these, which Java does not use any longer.
    versions = tuple(version for version in enabled if version not in _OLD_VERSIONS)
    unsupported = [version for version in versions if version not in VERSIONS]
    if unsupported or not versions:
        _fail(
            settings,
            "ssl.enabled.protocols",
            f"{', '.join(unsupported or enabled) or 'nothing'} is not supported, only {' and '.join(VERSIONS)}",
        )
    if len(versions) < len(enabled):
        logger.warning(
            "The listener %s does not use %s of ssl.enabled.protocols, which are not secure",
            settings.listener_name, " and ".join(version for version in enabled if version in _OLD_VERSIONS),
        )  # fmt: skip
    suites = settings.list("ssl.cipher.suites")
    if not suites:
        return versions, None
    of_1_3 = [suite for suite in suites if is_of_tls_1_3(suite)]
    names = []
    for suite in suites:
        if suite not in of_1_3:
            name = openssl_name(suite)
            if name is None:
                _fail(settings, "ssl.cipher.suites", f"{suite} is not IANA's name of a cipher suite")
            names.append(name)
    allowed = [version for version in versions if (of_1_3 if version == "TLSv1.3" else names)]
    if not allowed:
        _fail(settings, "ssl.cipher.suites", f"none of the suites belongs to {' or '.join(versions)}")
    if "TLSv1.3" in allowed:
        logger.warning(
            "The listener %s allows all cipher suites of TLS 1.3: Python cannot choose among them "
            "(ssl.cipher.suites has %s)",
            settings.listener_name,
            ", ".join(of_1_3),
        )
    return tuple(allowed), ":".join(names) or None


def key_store_of(settings: ListenerConfig) -> KeyStore:
    """The private key and the certificate in the settings of a listener. Raises ConfigError."""
    location = settings.optional_str("ssl.keystore.location")
    key = settings.optional_str("ssl.keystore.key")
    chain = settings.optional_str("ssl.keystore.certificate.chain")
    password = settings.optional_str("ssl.keystore.password")
    key_password = settings.optional_str("ssl.key.password")
    if location is not None:
        if key is not None or chain is not None:
            rule = "a key store in a file and a key in ssl.keystore.key exclude each other"
            _fail(settings, "ssl.keystore.location", rule)
        data = _read(settings, "ssl.keystore.location", location)
        try:
            return key_store(data, password, key_password)
        except KeyStoreError as error:
            _fail(settings, "ssl.keystore.location", f"{location} cannot be used: {error}")
    if key is None or chain is None:
        if key is not None or chain is not None:
            missing = "ssl.keystore.key" if key is None else "ssl.keystore.certificate.chain"
            _fail(settings, missing, "it is missing: a key in PEM needs a certificate chain, and the reverse")
        _fail(
            settings,
            "ssl.keystore.location",
            "it is missing: a listener with TLS needs a private key and a certificate. Set it, or ssl.keystore.key "
            "and ssl.keystore.certificate.chain",
        )
    if settings.str("ssl.keystore.type").upper() != "PEM":
        _fail(settings, "ssl.keystore.type", "it must be PEM if ssl.keystore.key is set")
    if password is not None:
        _fail(settings, "ssl.keystore.password", "a key in PEM has ssl.key.password, and no password of a store")
    try:
        return pem_key_store(key, chain, key_password)
    except KeyStoreError as error:
        _fail(settings, "ssl.keystore.key", f"the key or its certificate chain cannot be used: {error}")


def trusted_by(settings: ListenerConfig) -> str | None:
    """The trusted certificates in the settings of a listener, in PEM. Raises ConfigError."""
    location = settings.optional_str("ssl.truststore.location")
    certificates = settings.optional_str("ssl.truststore.certificates")
    password = settings.optional_str("ssl.truststore.password")
    if location is not None:
        if certificates is not None:
            rule = "a trust store in a file and ssl.truststore.certificates exclude each other"
            _fail(settings, "ssl.truststore.location", rule)
        data = _read(settings, "ssl.truststore.location", location)
        try:
            return trusted_certificates(data, password)
        except KeyStoreError as error:
            _fail(settings, "ssl.truststore.location", f"{location} cannot be used: {error}")
    if certificates is None:
        return None
    if settings.str("ssl.truststore.type").upper() != "PEM":
        _fail(settings, "ssl.truststore.type", "it must be PEM if ssl.truststore.certificates is set")
    if password is not None:
        _fail(settings, "ssl.truststore.password", "certificates in PEM have no password")
    try:
        return pem_trusted_certificates(certificates)
    except KeyStoreError as error:
        _fail(settings, "ssl.truststore.certificates", f"it cannot be used: {error}")


def _read(settings: ListenerConfig, name: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        _fail(settings, name, f"{path} cannot be read: {error.strerror or error}")


def _fail(settings: ListenerConfig, name: str, problem: str) -> NoReturn:
    in_effect = settings.name_in_effect(name)
    raise ConfigError(f"The listener {settings.listener_name} cannot use {in_effect}: {problem}", in_effect)

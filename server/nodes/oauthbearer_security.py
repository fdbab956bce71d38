"""OAUTHBEARER of a listener, from its settings: which tokens are valid.

The class of ``sasl.server.callback.handler.class`` chooses between Apache Kafka's two validators:

- `OAuthBearerValidatorCallbackHandler`: signed tokens, with the keys of ``sasl.oauthbearer.jwks.endpoint.url``.
- None, Apache Kafka's default: tokens without a signature, which everyone can make. They must be allowed explicitly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.parse import unquote, urlsplit

from ...config.definition import ConfigError, ConfigValue
from ...security.jwt_claims import SignedRules, UnsignedRules, validate_signed, validate_unsigned
from ...security.oauthbearer import MECHANISM, OAuthBearerExchange, OAuthToken

if TYPE_CHECKING:
    import ssl

    from ...config.broker_config import ListenerConfig
    from ...security.jaas import JaasEntry
    from ...security.jwt_signatures import Find
    from ..concurrency.clock import Clock

logger = logging.getLogger(__name__)

HANDLER: Final = "sasl.server.callback.handler.class"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_SIGNED: Final = frozenset(
    {
        f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
        f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
    }
)
_UNSIGNED: Final = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_VALIDATOR: Final = "sasl.oauthbearer.jwt.validator.class"
_VALIDATORS: Final = (None, f"{_PACKAGE}.DefaultJwtValidator", f"{_PACKAGE}.BrokerJwtValidator")
"""For a server, both are the same."""
_ALLOW_UNSIGNED: Final = "moldau.allow.unsecured.tokens"
ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
ALLOWED_FILES: Final = "org.apache.kafka.sasl.oauthbearer.allowed.files"

Validate = Callable[[str], OAuthToken]


def exchanges_of(
    settings: ListenerConfig, entry: JaasEntry, now_ms: Clock, monotonic_ms: Callable[[], int]
) -> Callable[[], OAuthBearerExchange]:
    """Creates an exchange for each authentication. Raises ConfigError."""
    name, handler = _value(settings, HANDLER)
    if handler is None or handler == _UNSIGNED:
        validate = _unsigned(settings, entry, now_ms)
        return lambda: OAuthBearerExchange(validate, in_thread=False)
    if handler not in _SIGNED:
        _fail(settings, name, f"Java classes are not loaded, only {min(_SIGNED)} is known")
    validate = _signed(settings, entry, now_ms, monotonic_ms)
    return lambda: OAuthBearerExchange(validate)


def _unsigned(settings: ListenerConfig, entry: JaasEntry, now_ms: Clock) -> Validate:
    if not settings.get(_ALLOW_UNSIGNED):
        _fail(
            settings,
            settings.own_name(f"{MECHANISM.lower()}.{HANDLER}"),
            f"without it, tokens are not signed, so every client can be any user. Set it to {min(_SIGNED)}, or allow "
            f"this for tests with {_ALLOW_UNSIGNED}=true",
        )
    logger.warning(
        "The listener %s accepts tokens without a signature: every client can be any user", settings.listener_name
    )
    options = entry.options
    skew = options.get("unsecuredValidatorAllowableClockSkewMs", "0")
    if not (skew.isascii() and skew.isdecimal()):
        name = settings.own_name(f"{MECHANISM.lower()}.sasl.jaas.config")
        _fail(settings, name, "the option unsecuredValidatorAllowableClockSkewMs is no number of milliseconds")
    rules = UnsignedRules(
        options.get("unsecuredValidatorPrincipalClaimName", "sub"),
        options.get("unsecuredValidatorScopeClaimName", "scope"),
        tuple(options.get("unsecuredValidatorRequiredScope", "").split()),
        int(skew),
    )
    return lambda token: validate_unsigned(token, rules, now_ms())


def _signed(settings: ListenerConfig, entry: JaasEntry, now_ms: Clock, monotonic_ms: Callable[[], int]) -> Validate:
    try:
        from ...security.jwt_signatures import verified
    except ImportError:
        problem = 'it requires the packages PyJWT and cryptography: pip install "moldau[oauth]"'
        _fail(settings, HANDLER, problem)
    name, validator = _value(settings, _VALIDATOR)
    if validator not in _VALIDATORS:
        _fail(settings, name, "Java classes are not loaded, so other rules for tokens would apply. Remove it")
    name, audiences = _value(settings, "sasl.oauthbearer.expected.audience")
    if settings.text(name) is not None and not audiences:
        _fail(settings, name, "it is empty, so tokens for other services would be valid. Set it, or remove it")
    skew_s = _value(settings, "sasl.oauthbearer.clock.skew.seconds")[1]
    assert isinstance(audiences, tuple)
    assert isinstance(skew_s, int)
    rules = SignedRules(
        str(_value(settings, "sasl.oauthbearer.sub.claim.name")[1]),
        str(_value(settings, "sasl.oauthbearer.scope.claim.name")[1]),
        audiences,
        _text(settings, "sasl.oauthbearer.expected.issuer"),
        1000 * skew_s,
    )
    find = _keys(settings, entry, monotonic_ms)
    return lambda token: validate_signed(token, rules, now_ms(), lambda signed: verified(signed, find))


def _keys(settings: ListenerConfig, entry: JaasEntry, monotonic_ms: Callable[[], int]) -> Find:
    """Finds the keys of the provider. Raises ConfigError."""
    from ...security.jwt_signatures import JwksError
    from .provider_keys import FileKeys, RemoteKeys

    name, url = _value(settings, "sasl.oauthbearer.jwks.endpoint.url")
    if not isinstance(url, str):
        _fail(settings, name, "it is missing: tokens are verified with the keys of the provider (https or file)")
    parts = urlsplit(url)
    if parts.scheme == "file":
        check_allowed(settings, name, url, ALLOWED_FILES, unquote(parts.path))
        try:
            return FileKeys(unquote(parts.path)).find
        except JwksError as error:
            _fail(settings, name, str(error))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        _fail(settings, name, f"{url} is no address of a file or a server: file:///..., https://...")
    check_allowed(settings, name, url, ALLOWED_URLS, url)
    if parts.scheme == "http":
        logger.warning("The keys of the OAuth provider come over an unencrypted connection: %s", url)
    keys = RemoteKeys(
        url,
        monotonic_ms,
        refresh_ms=_int(settings, "sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        backoff_ms=_int(settings, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        max_backoff_ms=_int(settings, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        context=tls_to_provider(settings, entry.options) if parts.scheme == "https" else None,
    )
    keys.refresh()  # nothing is served yet; if it fails, tokens are refused until the address responds
    return keys.find


def check_allowed(settings: ListenerConfig, name: str, url: str, setting: str, *forms: str) -> None:
    """The addresses must be listed, as in Apache Kafka, where a system property has the list."""
    allowed = [each.strip() for each in (settings.text(setting) or "").split(",")]
    if not any(form in allowed for form in (url, *forms)):
        _fail(settings, name, f"{url} is not allowed. Add it to {setting} (comma-separated)")


def tls_to_provider(settings: ListenerConfig, options: Mapping[str, str]) -> ssl.SSLContext:
    """TLS to the provider. The login module may have options for a trust store."""
    from ...security.key_stores import KeyStoreError, pem_trusted_certificates, trusted_certificates
    from ..network.tls import TlsError, client_context

    location, certificates = options.get("ssl.truststore.location"), options.get("ssl.truststore.certificates")
    try:
        trusted = None
        if location is not None:
            with open(location, "rb") as file:
                trusted = trusted_certificates(file.read(), options.get("ssl.truststore.password"))
        elif certificates is not None:
            trusted = pem_trusted_certificates(certificates)
        return client_context(None, trusted=trusted, checks_host=True)
    except (OSError, KeyStoreError, TlsError) as error:
        name = settings.own_name(f"{MECHANISM.lower()}.sasl.jaas.config")
        _fail(settings, name, f"the option ssl.truststore.* cannot be used: {error}")


def _value(settings: ListenerConfig, name: str) -> tuple[str, ConfigValue]:
    """The value for the mechanism, the listener or in general, with the name under which it was set."""
    return settings.of_mechanism(MECHANISM, name)


def _text(settings: ListenerConfig, name: str) -> str | None:
    value = _value(settings, name)[1]
    return value if isinstance(value, str) else None


def _int(settings: ListenerConfig, name: str) -> int:
    value = _value(settings, name)[1]
    assert isinstance(value, int)
    return value


def _fail(settings: ListenerConfig, name: str, problem: str) -> NoReturn:
    raise ConfigError(f"The listener {settings.listener_name} cannot use {name}: {problem}", name)

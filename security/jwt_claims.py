"""JSON Web Tokens (RFC 7519): their parts, and the claims that Kafka's validators check.

Two validators, as in Apache Kafka: one for tokens without a signature, for tests (KIP-255), and one for signed tokens
(KIP-768), whose signatures `jwt_signatures` verifies.
"""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from .oauthbearer import InvalidTokenError, OAuthToken

MAX_TOKEN_BYTES: Final = 64 * 1024
"""Tokens of providers have a few kilobytes."""

Claims = Mapping[str, Any]


class UnsignedRules(NamedTuple):
    """The options of the login module for tokens without a signature."""

    subject_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0


class SignedRules(NamedTuple):
    """The settings ``sasl.oauthbearer.*`` for signed tokens."""

    subject_claim: str = "sub"
    scope_claim: str = "scope"
    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_ms: int = 30_000


def validate_unsigned(token: str, rules: UnsignedRules, now_ms: int) -> OAuthToken:
    """A token with the algorithm ``none``. Raises `InvalidTokenError`."""
    parts = _parts(token)
    if parts[2]:
        raise InvalidTokenError("a token without a signature is expected, but it has one")
    header, claims = _object(_decoded(parts[0])), _object(_decoded(parts[1]))
    if header.get("alg") != "none":
        raise InvalidTokenError("the algorithm of a token without a signature must be 'none'")
    subject = _text(claims, rules.subject_claim)
    expires_ms = _time_ms(claims, "exp")
    issued_ms = _time_ms(claims, "iat") if "iat" in claims else None
    if expires_ms + rules.clock_skew_ms <= now_ms:
        raise InvalidTokenError("the token has expired")
    if issued_ms is not None and issued_ms - rules.clock_skew_ms > now_ms:
        raise InvalidTokenError("the token was issued in the future")
    if issued_ms is not None and issued_ms >= expires_ms:
        raise InvalidTokenError("the token expires before it was issued")
    scope = _scope(claims, rules.scope_claim)
    missing = [each for each in rules.required_scope if each not in scope]
    if missing:
        raise InvalidTokenError(f"the scope does not contain {missing[0]}", " ".join(rules.required_scope))
    return OAuthToken(subject, expires_ms)


def validate_signed(token: str, rules: SignedRules, now_ms: int, verify: Callable[[str], bytes]) -> OAuthToken:
    """A token whose payload ``verify`` returns if its signature is valid. Raises `InvalidTokenError`."""
    _parts(token)
    claims = _object(verify(token))
    expires_ms, issued_ms = _time_ms(claims, "exp"), _time_ms(claims, "iat")
    if expires_ms + rules.clock_skew_ms <= now_ms:
        raise InvalidTokenError("the token has expired")
    if issued_ms > expires_ms:
        raise InvalidTokenError("the token expires before it was issued")
    if "nbf" in claims and _time_ms(claims, "nbf") - rules.clock_skew_ms > now_ms:
        raise InvalidTokenError("the token is not valid yet (nbf)")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidTokenError(f"the issuer is {claims.get('iss')!r}, and not sasl.oauthbearer.expected.issuer")
    if rules.audiences:
        audience = claims.get("aud")
        named = [audience] if isinstance(audience, str) else audience
        if not isinstance(named, list) or not any(each in rules.audiences for each in named):
            raise InvalidTokenError(f"the audience is {audience!r}, and not in sasl.oauthbearer.expected.audience")
    scope = _scope(claims, rules.scope_claim)
    if any(not each.strip() for each in scope):
        raise InvalidTokenError("an element of the scope is blank")
    if len({each.strip() for each in scope}) != len(scope):
        raise InvalidTokenError("the scope has an element twice")
    return OAuthToken(_text(claims, rules.subject_claim), expires_ms)


def header_of(token: str) -> Claims:
    """The header of a token. Raises `InvalidTokenError`."""
    return _object(_decoded(_parts(token)[0]))


def claims_of(token: str) -> Claims:
    """The claims of a token whose signature is not verified. Raises `InvalidTokenError`."""
    return _object(_decoded(_parts(token)[1]))


def _parts(token: str) -> Sequence[str]:
    if len(token) > MAX_TOKEN_BYTES:
        raise InvalidTokenError(f"the token has {len(token)} bytes, more than {MAX_TOKEN_BYTES}")
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidTokenError(f"a token has 3 parts, but this one has {len(parts)}")
    return parts


def _decoded(part: str) -> bytes:
    try:
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise InvalidTokenError("a part of the token is not Base64") from None


def _object(data: bytes) -> Claims:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidTokenError("a part of the token is no JSON object")
    return found


def _text(claims: Claims, name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidTokenError(f"the claim {name} must be a text that is not blank")
    return value


def _time_ms(claims: Claims, name: str) -> int:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LATEST_S:
        raise InvalidTokenError(f"the claim {name} must be a time in seconds")
    return int(value * 1000)


_LATEST_S: Final = 1 << 50


def _scope(claims: Claims, name: str) -> Sequence[str]:
    value = claims.get(name)
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        if not all(isinstance(each, str) for each in value):
            raise InvalidTokenError(f"the claim {name} must contain texts")
        return value
    return []

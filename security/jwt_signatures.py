"""Signatures of JSON Web Tokens (RFC 7515), verified with the keys of a provider (JWKS, RFC 7517).

The only module that imports PyJWT, which is an optional dependency, as is cryptography.

- The algorithms are those with public keys: RS, PS and ES with 256, 384 and 512 bits. Never ``none`` and HS.
- A token with a key id is verified with the keys of this id, a token without one with every key that fits.
- RSA keys have at least 2048 bits. Keys for encryption, and keys of unknown kinds, are ignored.
- Critical headers (``crit``) are not supported, so a token that has them is invalid.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from .jwt_claims import header_of
from .oauthbearer import InvalidTokenError

_CURVES: Final = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
ALGORITHMS: Final = _RSA | _CURVES.keys()
_MIN_RSA_BITS: Final = 2048


class JwksError(Exception):
    """The keys of a provider cannot be read."""


class ProviderKey(NamedTuple):
    """A public key of a provider."""

    key_id: str | None
    key: RSAPublicKey | EllipticCurvePublicKey
    algorithm: str | None
    """The only one that it is for; None: all that fit."""

    def fits(self, algorithm: str) -> bool:
        """Whether tokens with this algorithm may be signed with the key."""
        if self.algorithm not in (None, algorithm):
            return False
        if isinstance(self.key, RSAPublicKey):
            return algorithm in _RSA
        return _CURVES.get(algorithm) == self.key.curve.name


Find = Callable[[str | None], Sequence[ProviderKey]]
"""The keys with an id; None: all keys."""


def keys_of(data: bytes) -> list[ProviderKey]:
    """The keys of a JWKS document that can verify tokens. Raises `JwksError`."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise JwksError("the document is not a JSON object with an array 'keys'")
    return [key for entry in entries if isinstance(entry, dict) and (key := _key(entry)) is not None]


def verified(token: str, find: Find) -> bytes:
    """The payload of a token whose signature is valid. Raises `InvalidTokenError`."""
    header = header_of(token)
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise InvalidTokenError(f"the algorithm {algorithm!r} is not accepted")
    if "crit" in header:
        raise InvalidTokenError("the token has critical headers, which are not supported")
    if key_id is not None and not isinstance(key_id, str):
        raise InvalidTokenError("the key id is no text")
    fitting = [each.key for each in find(key_id) if each.fits(algorithm)]
    for key in fitting:
        try:
            payload: bytes = jwt.PyJWS().decode_complete(token, key, algorithms=[algorithm])["payload"]
        except jwt.InvalidSignatureError:
            continue
        except jwt.PyJWTError as error:
            raise InvalidTokenError(f"the token is malformed: {error}") from None
        return payload
    if not fitting:
        raise InvalidTokenError(f"the provider has no key for {algorithm} with the id {key_id!r}")
    raise InvalidTokenError("the signature is not valid")


def _key(entry: dict[str, Any]) -> ProviderKey | None:
    if entry.get("kty") not in ("RSA", "EC") or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops")
    if isinstance(operations, list) and "verify" not in operations:
        return None
    try:
        key = jwt.PyJWK({name: value for name, value in entry.items() if name != "alg"}).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if not isinstance(key, RSAPublicKey | EllipticCurvePublicKey):
        return None  # a private key
    if isinstance(key, RSAPublicKey) and key.key_size < _MIN_RSA_BITS:
        return None
    key_id, algorithm = entry.get("kid"), entry.get("alg")
    return ProviderKey(
        key_id if isinstance(key_id, str) else None, key, algorithm if isinstance(algorithm, str) else None
    )

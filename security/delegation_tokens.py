"""Delegation tokens (KIP-48): their HMACs, and the credentials with which they authenticate.

A token is a random id and the HMAC of this id with the secret of the cluster. The HMAC is not stored: every node that
has the secret can compute it. A client authenticates with SCRAM: its user is the id, its password the HMAC in Base64.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Final

from .scram import MIN_ITERATIONS, Credential, ScramMechanism, credential, salted_password

_MAX_CREDENTIALS: Final = 10_000
_SALT_BYTES: Final = 16


def hmac_of(secret: str, token_id: str) -> bytes:
    """The HMAC of a token."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def password_of(token_hmac: bytes) -> str:
    """The password with which a token authenticates."""
    return b64encode(token_hmac).decode()


class TokenCredentials:
    """The SCRAM credentials of tokens, which are computed once.

    A credential takes two milliseconds. `compute` runs in a thread; one thread at a time.
    """

    def __init__(self, secret: str, random_bytes: Callable[[int], bytes]) -> None:
        self._secret = secret
        self._random_bytes = random_bytes
        self._known: dict[tuple[str, str], Credential] = {}

    def of(self, token_id: str, mechanism: ScramMechanism) -> Credential | Callable[[], Credential]:
        """The credential if it is known, otherwise a function that computes it."""
        known = self._known.get((token_id, mechanism.name))
        if known is not None:
            return known
        return partial(self._compute, token_id, mechanism, self._random_bytes(_SALT_BYTES))

    def _compute(self, token_id: str, mechanism: ScramMechanism, salt: bytes) -> Credential:
        password = password_of(hmac_of(self._secret, token_id))
        found = credential(mechanism, salted_password(mechanism, password, salt, MIN_ITERATIONS), salt, MIN_ITERATIONS)
        if len(self._known) >= _MAX_CREDENTIALS:
            del self._known[next(iter(self._known))]
        self._known[token_id, mechanism.name] = found
        return found

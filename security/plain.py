"""SASL PLAIN (RFC 4616): one message, ``authorization id NUL user NUL password``.

The users and their passwords are the options ``user_NAME=password`` of the listener's JAAS entry.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from .sasl import Identity, SaslFailure

MECHANISM: Final = "PLAIN"
_USER_PREFIX: Final = "user_"
_INVALID: Final = "Authentication failed: Invalid username or password"


def users_of(options: Mapping[str, str]) -> dict[str, str]:
    """The passwords by user, from the options of a JAAS entry."""
    return {
        name.removeprefix(_USER_PREFIX): password
        for name, password in options.items()
        if name.startswith(_USER_PREFIX) and name != _USER_PREFIX
    }


class PlainExchange:
    """See the module docstring."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.identity: Identity | None = None

    def evaluate(self, token: bytes) -> bytes:
        """See `sasl.SaslExchange`. The response is empty."""
        parts = token.decode(errors="replace").split("\0")
        if len(parts) != 3:
            raise SaslFailure(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise SaslFailure("Authentication failed: username not specified")
        if not password:
            raise SaslFailure("Authentication failed: password not specified")
        # An unknown user takes as long as a wrong password.
        expected = self._users.get(user)
        is_equal = hmac.compare_digest(password.encode(), ("" if expected is None else expected).encode())
        if expected is None or not is_equal:
            raise SaslFailure(_INVALID)
        if authorization_id and authorization_id != user:
            raise SaslFailure("Authentication failed: Client requested an authorization id that is different from user")
        self.identity = Identity(user)
        return b""

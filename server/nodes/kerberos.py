"""Kerberos on this machine, with its GSSAPI library: the credentials of a service, and security contexts.

A service is also a client of others, with the same key: the library requests tickets for it, and renews them.

It needs the package gssapi, which only servers with the mechanism GSSAPI import.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import gssapi
from gssapi import raw
from gssapi.exceptions import DuplicateTokenError, GSSError

from ...security.gssapi import SecurityContextError
from ...security.sasl import SaslInterruption

_PROTOCOL_ERRORS: Final = -1765328384 % 2**32
"""The number of Kerberos's error 0 in its libraries (``ERROR_TABLE_BASE_krb5``)."""
_NOT_YET_VALID: Final = _PROTOCOL_ERRORS + 33
_REPLAY: Final = _PROTOCOL_ERRORS + 34


class KerberosError(Exception):
    """The library cannot use the keytab or the principal; the message is that of the library."""


class ServiceKey:
    """The key of a service, from a keytab."""

    def __init__(self, principal: str, keytab: str | None) -> None:
        """``keytab`` None: the default one of the system. Raises `KerberosError`."""
        store = None if keytab is None else {"keytab": keytab}
        try:
            self._credentials = gssapi.Credentials(
                name=gssapi.Name(principal, gssapi.NameType.kerberos_principal),
                usage="accept",
                store=store,
                mechs=[gssapi.MechType.kerberos],
            )
        except GSSError as error:
            raise KerberosError(_text(error)) from None

    def new_context(self) -> Acceptor:
        """A security context of a client."""
        return Acceptor(self._credentials)


class _Messages:
    """The messages of both sides."""

    _context: raw.SecurityContext | None

    def wrap(self, message: bytes) -> bytes:
        """See the protocol."""
        assert self._context is not None
        try:
            return bytes(raw.wrap(self._context, message, False).message)
        except GSSError as error:
            raise SecurityContextError(_text(error)) from None

    def unwrap(self, message: bytes) -> bytes:
        """See the protocol."""
        assert self._context is not None
        try:
            return bytes(raw.unwrap(self._context, message).message)
        except GSSError as error:
            raise SecurityContextError(_text(error)) from None


class Acceptor(_Messages):
    """See `security.gssapi.SecurityContext`."""

    def __init__(self, credentials: gssapi.Credentials) -> None:
        self._credentials = credentials
        self._context: raw.SecurityContext | None = None
        self.established = False
        self.client = ""

    def step(self, token: bytes) -> bytes:
        """See the protocol."""
        try:
            result = raw.accept_sec_context(token, self._credentials, self._context)
            self._context = result.context
            if not result.more_steps:
                self.client = raw.display_name(result.initiator_name, False).name.decode(errors="replace")
                self.established = True
        except GSSError as error:
            if isinstance(error, DuplicateTokenError) or error.min_code in (_NOT_YET_VALID, _REPLAY):
                raise SaslInterruption(_text(error)) from None
            raise SecurityContextError(_text(error)) from None
        return result.token or b""


class _Client(_Messages):
    """The client's side; see `security.gssapi.SecurityContext`."""

    _context: gssapi.SecurityContext

    def __init__(self, principal: str | None, store: Mapping[str, str] | None, service: str) -> None:
        try:
            credentials = gssapi.Credentials(
                name=None if principal is None else gssapi.Name(principal, gssapi.NameType.kerberos_principal),
                usage="initiate",
                store=store,
                mechs=[gssapi.MechType.kerberos],
            )
            self.client = str(credentials.name) if principal is None else principal
            self._context = gssapi.SecurityContext(
                name=gssapi.Name(service, gssapi.NameType.hostbased_service),
                creds=credentials,
                usage="initiate",
                mech=gssapi.MechType.kerberos,
                flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
            )
        except GSSError as error:
            raise SecurityContextError(_text(error)) from None

    @property
    def established(self) -> bool:
        """See the protocol."""
        return bool(self._context.complete)

    def step(self, token: bytes) -> bytes:
        """See the protocol."""
        try:
            return self._context.step(token or None) or b""
        except GSSError as error:
            raise SecurityContextError(_text(error)) from None


class Initiator(_Client):
    """The client with a key."""

    def __init__(self, principal: str, keytab: str | None, service: str) -> None:
        """``keytab``: see `ServiceKey`. ``service``: ``name@host``. Raises `SecurityContextError`."""
        # Tickets stay in memory, for all contexts of the principal.
        keytab = keytab or os.environ.get("KRB5_KTNAME", "/etc/krb5.keytab")
        super().__init__(principal, {"client_keytab": keytab, "ccache": f"MEMORY:moldau-{principal}"}, service)


class TicketHolder(_Client):
    """The client with the tickets of the user of this process (``kinit``)."""

    def __init__(self, principal: str | None, service: str) -> None:
        """``principal`` None: that of the tickets. Raises `SecurityContextError`."""
        super().__init__(principal, None, service)


def default_realm() -> str:
    """The default realm of this machine; empty if it has none."""
    try:
        name = gssapi.Name("name", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
    except GSSError:
        return ""
    return str(name).rpartition("@")[2]


def _text(error: GSSError) -> str:
    """The messages of the library in one line."""
    return " ".join(error.gen_message().split())

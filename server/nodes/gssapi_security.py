"""GSSAPI (Kerberos), from the settings of a listener: the service's key, and names of principals.

A node authenticates at other nodes with the same key and the same name of the service, as with Apache Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from ...config.definition import ConfigError
from ...security.gssapi import MECHANISM, GssapiExchange
from ...security.kerberos_names import KerberosNames
from ...security.principal_mapping import RuleError
from ...security.sasl_client import Credentials

if TYPE_CHECKING:
    from ...config.broker_config import ListenerConfig
    from ...security.jaas import JaasEntry
    from .kerberos import ServiceKey

logger = logging.getLogger(__name__)

_SERVICE_NAME: Final = "sasl.kerberos.service.name"
_JAAS: Final = f"{MECHANISM.lower()}.sasl.jaas.config"
_RULES: Final = "sasl.kerberos.principal.to.local.rules"


def exchanges_of(settings: ListenerConfig, entry: JaasEntry) -> Callable[[], GssapiExchange]:
    """Creates an exchange for each authentication. Raises ConfigError."""
    key, _, _, _ = _service(settings, entry)
    from .kerberos import default_realm

    try:
        names = KerberosNames(settings.list(_RULES), default_realm())
    except RuleError as error:
        _fail(settings, _RULES, str(error))
    return lambda: GssapiExchange(key.new_context(), names)


def kerberos_credentials(settings: ListenerConfig, entry: JaasEntry) -> Credentials:
    """What a node authenticates with at the nodes with this listener. ``entry``: its JAAS configuration. Raises
    ConfigError."""
    _, name, principal, keytab = _service(settings, entry)
    from ...security.gssapi_client import GssapiClient
    from .kerberos import Initiator

    def new_client(host: str) -> GssapiClient:
        return GssapiClient(partial(Initiator, principal, keytab, f"{name}@{host}"))

    return Credentials(MECHANISM, principal, "", new_client=new_client)


def _service(settings: ListenerConfig, entry: JaasEntry) -> tuple[ServiceKey, str, str, str | None]:
    """The key of the service, its name, its principal, and its keytab. Raises ConfigError."""
    try:
        from .kerberos import KerberosError, ServiceKey
    except ImportError as error:
        problem = (
            f'GSSAPI requires the package gssapi ({error}): pip install "moldau[gssapi]". On Linux, pip compiles it, '
            "which needs a C compiler and the headers of Kerberos (Debian: libkrb5-dev, Fedora: krb5-devel)"
        )
        _fail(settings, "sasl.enabled.mechanisms", problem)
    name = _service_name(settings, entry)
    principal, keytab = _keytab(settings, entry)
    try:
        key = ServiceKey(principal, keytab)
    except KerberosError as error:
        where = keytab or "the default keytab of this machine"
        _fail(settings, _JAAS, f"{where} cannot be used for the principal {principal}: {error}", own=True)
    return key, name, principal, keytab


def _service_name(settings: ListenerConfig, entry: JaasEntry) -> str:
    """It must be known, and the same in both places, as in Apache Kafka."""
    name, of_entry = settings.optional_str(_SERVICE_NAME), entry.options.get("serviceName")
    if name is None and of_entry is None:
        _fail(settings, _SERVICE_NAME, "it is missing: set it to the first part of the principal, for example kafka")
    if name is not None and of_entry is not None and name != of_entry:
        _fail(settings, _SERVICE_NAME, f"it is {name}, but the option serviceName of the JAAS entry is {of_entry}")
    primary = entry.options.get("principal", "").partition("/")[0]
    if primary and primary != (name or of_entry):
        logger.warning(
            "The listener %s has the Kerberos principal %s, so clients need the service name %s, not %s",
            settings.listener_name, entry.options["principal"], primary, name or of_entry,
        )  # fmt: skip
    return str(name or of_entry)


def _keytab(settings: ListenerConfig, entry: JaasEntry) -> tuple[str, str | None]:
    """The principal of the service, and the path of its keytab; None: the default one of the machine."""
    if entry.options.get("useKeyTab", "false").lower() != "true":
        _fail(settings, _JAAS, "a service has its key in a keytab: set the options useKeyTab=true and keyTab", own=True)
    principal = entry.options.get("principal")
    if not principal:
        _fail(settings, _JAAS, 'the option principal is missing, for example "kafka/HOST@REALM"', own=True)
    keytab = entry.options.get("keyTab")
    if keytab is not None:
        try:
            with open(keytab.removeprefix("FILE:"), "rb"):
                pass
        except OSError as error:
            _fail(settings, _JAAS, f"the keytab {keytab} cannot be read: {error.strerror or error}", own=True)
    return principal, keytab


def _fail(settings: ListenerConfig, name: str, problem: str, *, own: bool = False) -> NoReturn:
    name = settings.own_name(name) if own else settings.name_in_effect(name)
    raise ConfigError(f"The listener {settings.listener_name} cannot use {name}: {problem}", name)

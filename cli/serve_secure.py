"""``moldau serve --secure``: TLS, SCRAM and ACLs that deny by default, without a configuration.

The first start creates a directory beside the data directory: certificates for development, and the properties with
which the user ``admin`` connects. The data directory is formatted with this user, whose password is random. Later
starts use what exists.

With ``--brokers``, all connections between the brokers use TLS, too. The brokers authenticate with PLAIN as the user
`BROKERS`, whose password is in the directory: a controller knows it before it has any metadata. Each of them reads the
directory of the first one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..config.definition import ConfigError
from ..config.sources import StaticValue
from ..log.checkpoints import META_PROPERTIES
from ..server.storage.ownership import BROKERS_FOLDER

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig

ADMIN: Final = "admin"
BROKERS: Final = "moldau-brokers"
_MECHANISM: Final = "SCRAM-SHA-512"
PROPERTIES: Final = "admin.properties"
_BROKERS_PROPERTIES: Final = "brokers.properties"
_ORIGIN: Final = "--secure"
_EXCLUDED: Final = (
    "authorizer.class.name",
    "super.users",
    "allow.everyone.if.no.acl.found",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
)
_EXCLUDED_PREFIXES: Final = ("ssl.", "sasl.", "listener.name.")
_WILDCARDS: Final = ("", "0.0.0.0", "::")


def folder_of(config: BrokerConfig) -> Path:
    """The directory that `secured` creates."""
    first = Path(config.log_dirs[0]).absolute()
    if config.has_remote_controllers and first.parent.name == BROKERS_FOLDER:  # not the first one of several brokers
        first = first.parents[1]
    return first.with_name(f"{first.name}-security")


def check_not_opened(config: BrokerConfig) -> None:
    """A directory that was created with ``--secure`` is not served without security. Raises ConfigError."""
    folder = folder_of(config)
    if not config.str("authorizer.class.name") and (folder / PROPERTIES).exists():
        raise ConfigError(
            f"{config.log_dirs[0]} was created with --secure ({folder}), and would be open to everyone without it. "
            "Add --secure, or set authorizer.class.name"
        )


def secured(
    config: BrokerConfig,
    say: Callable[[str], object],
    *,
    allow_non_empty: bool,
    has_several_brokers: bool,
    is_member: bool = False,
) -> BrokerConfig:
    """The settings with security. Creates what is missing; ``say`` receives how to connect. Raises ConfigError.

    ``is_member``: these are the settings of one of several brokers, and everything exists.
    """
    excluded = _EXCLUDED if is_member else (*_EXCLUDED, "process.roles")
    for name in config.static:
        if name in excluded or name.startswith(_EXCLUDED_PREFIXES):
            raise ConfigError(f"--secure chooses {name}, which is set by {config.origin(name)}; remove one of them")
    others = [each.name for each in config.listeners if each.security_protocol != "SASL_SSL"]
    if others:
        raise ConfigError(f"--secure has no listener with another protocol than SASL_SSL, such as {others[0]}")
    folder = folder_of(config)
    if not is_member:
        _create(config, folder, say, allow_non_empty=allow_non_empty)
    from .certificates import AUTHORITY, SERVER

    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / SERVER),
        "sasl.enabled.mechanisms": _MECHANISM,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
    }
    from ..security.jaas import SCRAM_MODULE

    for listener in config.listeners:
        prefix = f"listener.name.{listener.name.lower()}.{_MECHANISM.lower()}"
        settings[f"{prefix}.sasl.jaas.config"] = f"{SCRAM_MODULE} required;"
    if has_several_brokers:
        settings |= _between_brokers(config, _password_of_brokers(folder))
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(folder / AUTHORITY)}
        settings["super.users"] += f";User:{BROKERS}"
    return config.with_static({name: StaticValue(value, _ORIGIN) for name, value in settings.items()})


def _between_brokers(config: BrokerConfig, password: str) -> dict[str, str]:
    """The settings of connections between brokers: to the first listener, and to that of the controller."""
    from ..security.jaas import PLAIN_MODULE

    first, controller = config.listeners[0].name, config.controller_listener_name
    login = f'{PLAIN_MODULE} required username="{BROKERS}" password="{password}" "user_{BROKERS}"="{password}";'
    protocols = {**config.security_protocols, controller: "SASL_SSL"}
    settings = {
        "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in protocols.items()),
        "inter.broker.listener.name": first,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
    }
    for name, mechanisms in ((first, f"{_MECHANISM},PLAIN"), (controller, "PLAIN")):
        settings[f"listener.name.{name.lower()}.sasl.enabled.mechanisms"] = mechanisms
        settings[f"listener.name.{name.lower()}.plain.sasl.jaas.config"] = login
    return settings


def _create(config: BrokerConfig, folder: Path, say: Callable[[str], object], *, allow_non_empty: bool) -> None:
    properties = folder / PROPERTIES
    is_formatted = (Path(config.log_dirs[0]) / META_PROPERTIES).exists()
    if is_formatted and not properties.exists():
        raise ConfigError(
            f"{config.log_dirs[0]} is in use without --secure, which sets up a new data directory. To secure this one, "
            "create users (moldau users) and see docs/security.md"
        )
    from .certificates import CertificateError, make_certificates, write_private

    hosts = [each.host for each in config.listeners if each.host not in _WILDCARDS]
    try:
        make_certificates(folder, hosts, lambda line: None)
        if not properties.exists():
            write_private(properties, _properties(folder, secrets.token_urlsafe(18)))
        if not is_formatted:
            _format(config, _password(properties), allow_non_empty=allow_non_empty)
    except CertificateError as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: {error.strerror or error}") from None
    if not is_formatted:
        options = f"--command-config {properties}{bootstrap_option(config)}"
        say(f"created certificates and the user {ADMIN} in {folder}; connect with:")
        say(f"  moldau topics list {options}")
        say("other users need a password, ACLs and the certificate ca.pem:")
        say(f"  moldau users set alice {options}")
        say(f"  moldau acls add alice all topic events {options}")


def bootstrap_option(config: BrokerConfig) -> str:
    """With which commands reach the first listener; empty if they do without it, or if its port is not known yet."""
    from .client import DEFAULT_BOOTSTRAP_SERVER

    listener = config.listeners[0]
    host = "127.0.0.1" if listener.host in _WILDCARDS else listener.host
    address = f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"
    return "" if listener.port == 0 or address == DEFAULT_BOOTSTRAP_SERVER else f" -b {address}"


def _properties(folder: Path, password: str) -> str:
    from ..security.jaas import SCRAM_MODULE
    from .certificates import AUTHORITY

    ca = str(folder / AUTHORITY).replace("\\", "\\\\")
    return (
        "security.protocol=SASL_SSL\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={ca}\n"
        f"sasl.mechanism={_MECHANISM}\n"
        f'sasl.jaas.config={SCRAM_MODULE} required username="{ADMIN}" password="{password}";\n'
    )


def _password_of_brokers(folder: Path) -> str:
    """The password of `BROKERS`, which is created if there is none. Raises ConfigError."""
    from ..security.jaas import PLAIN_MODULE
    from .certificates import write_private

    path = folder / _BROKERS_PROPERTIES
    if not path.exists():
        password = secrets.token_urlsafe(18)
        login = f'{PLAIN_MODULE} required username="{BROKERS}" password="{password}";'
        try:
            write_private(path, f"sasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from None
    return _password(path, "PLAIN")


def _password(properties: Path, mechanism: str = _MECHANISM) -> str:
    """The password in the properties. Raises ConfigError."""
    from ..config.sources import read_file
    from ..security.sasl_client import SaslClientError, credentials_of

    login = read_file(properties).get("sasl.jaas.config")
    try:
        return credentials_of(mechanism, "" if login is None else login.text).password
    except SaslClientError as error:
        raise ConfigError(f"{properties}: {error}") from None


def _format(config: BrokerConfig, password: str, *, allow_non_empty: bool) -> None:
    """Format the data directories with the user. Raises ConfigError."""
    from ..log.files import RealFileSystem
    from ..protocol.uuid import random_uuid, uuid_to_str
    from ..security.scram import MECHANISMS, MIN_ITERATIONS, credential, salted_password
    from ..security.scram_arguments import SALT_BYTES, ScramUser
    from ..server.storage.formatting import format_directories
    from ..server.storage.opening import StorageError

    mechanism = MECHANISMS[_MECHANISM]
    salt = secrets.token_bytes(SALT_BYTES)
    salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
    user = ScramUser(ADMIN, mechanism, credential(mechanism, salted, salt, MIN_ITERATIONS))
    paths = [str(Path(path).absolute()) for path in config.log_dirs]
    try:
        format_directories(
            config,
            paths,
            uuid_to_str(random_uuid()),
            RealFileSystem(),
            allow_non_empty=allow_non_empty,
            users=[user],
        )
    except StorageError as error:
        raise ConfigError(str(error)) from None

"""The JAAS entry of a mechanism on a listener: from the settings, or from Java's file.

``moldau.jaas.file``, or ``-Djava.security.auth.login.config`` in ``KAFKA_OPTS``, names the file. It is read if the
listener has no JAAS configuration for the mechanism in the settings. As in Apache Kafka, its section is
``<listener>.KafkaServer`` with the name of the listener in lower case, or otherwise ``KafkaServer``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...config.definition import ConfigError
from ...security.jaas import JaasEntry, JaasError, entry_in_file, entry_of

if TYPE_CHECKING:
    from ...config.broker_config import ListenerConfig

_FILE: Final = "moldau.jaas.file"
_SECTION: Final = "KafkaServer"


def jaas_setting(settings: ListenerConfig, mechanism: str) -> str:
    """The name of the setting with the JAAS configuration of a mechanism."""
    return settings.own_name(f"{mechanism.lower()}.sasl.jaas.config")


def find_entry(settings: ListenerConfig, mechanism: str) -> JaasEntry | None:
    """The entry of a mechanism; None: there is none. Raises ConfigError, whose message begins with the setting."""
    name = jaas_setting(settings, mechanism)
    text = settings.text(name)
    if text is not None:
        try:
            return entry_of(mechanism, text)
        except JaasError as error:
            raise ConfigError(f"{name}: {error}", name) from None
    path = settings.optional_str(_FILE)
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        return entry_in_file(mechanism, text, (f"{settings.listener_name.lower()}.{_SECTION}", _SECTION))
    except OSError as error:
        raise ConfigError(f"{_FILE}: {path} cannot be read: {error.strerror or error}", _FILE) from None
    except (JaasError, UnicodeDecodeError) as error:
        problem = error if isinstance(error, JaasError) else "it is not UTF-8"
        raise ConfigError(f"{_FILE}: {path}: {problem}", _FILE) from None

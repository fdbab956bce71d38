"""The sources of settings: a ``server.properties`` file, ``KAFKA_...`` variables, the command line; later ones win.

Variables are mapped as in Apache Kafka's own Docker image, so that compose files can be reused: the part after
``KAFKA_`` in lower case, ``_`` for ``.``, ``__`` for ``_``, ``___`` for ``-``. A value has the same syntax as in a
file. The image appends the variables to the file, so they take precedence. Variables for the image itself or for its
scripts are not settings, except for the file with JAAS configurations in ``KAFKA_OPTS``.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from . import broker, topic
from .broker_config import BrokerConfig, Listener, StaticValue
from .definition import ConfigError
from .properties import parse_properties
from .providers import replacement, resolved

__all__ = ["BrokerConfig", "Listener", "StaticValue", "load", "read_environment", "read_file", "read_overrides"]

PREFIX: Final = "KAFKA_"
# Read by Kafka's start scripts, by the image or by Moldau's client commands, but not by the server.
NO_SETTINGS: Final = frozenset(
    {
        "KAFKA_BOOTSTRAP_SERVERS",
        "KAFKA_DEBUG",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_CMD_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)


_JVM_OPTIONS: Final = "KAFKA_OPTS"
_JAAS_FILE: Final = r"""(?x)(?:^|\s)(?:-Djava\.security\.auth\.login\.config==?(?:"([^"]+)"|'([^']+)'|([^\s"']+))
    |"-Djava\.security\.auth\.login\.config==?([^"]+)")"""


def load(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
    command_line: Mapping[str, StaticValue] | None = None,
) -> BrokerConfig:
    """Merge the options of the JVM < file < environment < ``key=value`` overrides < the options of the command line.

    Only the syntax is checked; ``checks.check_broker_config`` checks the values. Raises ConfigError for a file that
    cannot be read and for text that is not a setting. References to providers are replaced (`providers`).
    """
    static = _read_jvm_options(environment or {})
    if file is not None:
        static.update(read_file(file))
    static.update(read_environment(environment or {}))
    static.update(read_overrides(overrides))
    static.update(command_line or {})
    variables = dict(environment or {})
    return BrokerConfig(resolved(static, variables), new_replacement=lambda: replacement(static, variables))


def read_file(path: Path) -> dict[str, StaticValue]:
    """The settings of a properties file, in UTF-8, or in Latin-1 (Java's encoding) if it is not valid UTF-8."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    try:
        pairs = parse_properties(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    origin = f"file {path}"
    return {name: StaticValue(value, origin) for name, value in pairs.items()}


def read_environment(environment: Mapping[str, str]) -> dict[str, StaticValue]:
    """The settings in ``KAFKA_...`` variables."""
    static: dict[str, StaticValue] = {}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable in NO_SETTINGS:
            continue
        name = setting_of_variable(variable)
        try:
            pairs = parse_properties(f"{name}={environment[variable]}")
        except ConfigError as error:
            raise ConfigError(f"environment variable {variable}: {error}") from error
        for key, value in pairs.items():
            static[key] = StaticValue(value, f"environment variable {variable}")
    return static


def _read_jvm_options(environment: Mapping[str, str]) -> dict[str, StaticValue]:
    """The only option of the JVM that is a setting here: the file with JAAS configurations."""
    options = environment.get(_JVM_OPTIONS, "")
    found = re.search(_JAAS_FILE, options) if options else None  # usually, no pattern is compiled at startup
    if found is None:
        return {}
    path = next(filter(None, found.groups()))
    return {"moldau.jaas.file": StaticValue(path, f"environment variable {_JVM_OPTIONS}")}


def setting_of_variable(variable: str) -> str:
    """``KAFKA_LOG_RETENTION_MS`` is ``log.retention.ms``."""
    # In this order, and for every KAFKA_ in the name: the image uses plain replacements.
    name = variable.replace(PREFIX, "").lower()
    return name.replace("_", ".").replace("...", "-").replace("..", "_")


def read_overrides(overrides: Iterable[str], origin: str = "--set") -> dict[str, StaticValue]:
    """Settings written ``key=value``; ConfigError for any other text, and for unknown names.

    A file or a container's variables may be shared with other programs and other versions of Kafka, so an unknown name
    there is only a warning. A name on the command line was written for this server, so an unknown one is an error.
    """
    static: dict[str, StaticValue] = {}
    problems = []
    for override in overrides:
        name, equals, value = override.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"{origin} requires key=value, not {override!r}")
        if not broker.is_known(name):
            problems.append(f"{origin} {name}: {_unknown(name)}")
        static[name] = StaticValue(value, origin)
    if problems:
        raise ConfigError("\n".join(problems))
    return static


def _unknown(name: str) -> str:
    """What to do about a name that is not a static broker setting."""
    if name in broker.DYNAMIC_ONLY:
        return f"only a running server has this setting; use `moldau configs set broker default {name}=VALUE`"
    if name in topic.SETTINGS:
        synonyms = topic.SETTINGS[name].synonyms
        default = f"; its default for all topics is {synonyms[0][0]}" if synonyms else ""
        return f"this is a setting of a topic, not of the server{default}"
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), broker.SETTINGS, n=3)
    suggestion = f"did you mean {' or '.join(close)}?" if close else "`moldau serve --print-config` lists all settings"
    return f"unknown setting; {suggestion}"

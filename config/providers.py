"""Values of settings from files and variables (KIP-297, KIP-421): ``${provider:path:key}`` or ``${provider:key}``.

``config.providers`` names the providers, ``config.providers.NAME.class`` their classes, and
``config.providers.NAME.param.PARAMETER`` their parameters. Apache Kafka's three classes are known:

- FileConfigProvider: a key of a properties file. Parameter: ``allowed.paths``.
- DirectoryConfigProvider: a file in a folder. Parameter: ``allowed.paths``.
- EnvVarConfigProvider: an environment variable. Parameter: ``allowlist.pattern``, which must match the whole name.

A value may have several references, and other text. A reference is as short as possible, and is not nested. Text in
this form without a provider of this name is not changed. A reference whose provider has no such value is an error: in
Apache Kafka it stays as text, so that it would become, for example, a password.

The dynamic settings of brokers may have references to the same providers. The metadata log has the reference, and each
broker its own value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from .broker_config import Replace, StaticValue
from .definition import ConfigError
from .properties import parse_properties

NAMES: Final = "config.providers"
_PACKAGE: Final = "org.apache.kafka.common.config.provider"
_REFERENCE: Final = r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}"

_Find = Callable[[str, str], str]
"""The value of a path and a key. Raises ConfigError."""


def resolved(static: Mapping[str, StaticValue], environment: Mapping[str, str]) -> dict[str, StaticValue]:
    """The same settings with their references replaced. Raises ConfigError."""
    replace = replacement(static, environment)
    if replace is None:
        return dict(static)

    def replaced(setting: str, value: StaticValue) -> StaticValue:
        text = replace(setting, value.text)
        return value if text == value.text else StaticValue(text, value.origin, value.text)

    return {name: value if name.startswith(NAMES) else replaced(name, value) for name, value in static.items()}


def replacement(static: Mapping[str, StaticValue], environment: Mapping[str, str]) -> Replace | None:
    """Replaces the references in the text of a setting; None if there are no providers. A file is read once. Raises
    ConfigError, as the returned function does."""
    names = [name.strip() for name in static[NAMES].text.split(",")] if NAMES in static else []
    providers = {name: _provider(name, static, environment) for name in names if name}
    if not providers:
        return None

    def replace(setting: str, text: str) -> str:
        def find(match: re.Match[str]) -> str:
            provider = providers.get(match[1])
            if provider is None:
                return match[0]
            try:
                return provider(match[2] or "", match[3])
            except ConfigError as error:
                raise ConfigError(f"Invalid value {match[0]} for configuration {setting}: {error}", setting) from None

        return re.sub(_REFERENCE, find, text)

    return replace


def has_reference(text: str) -> bool:
    """Whether a part of a value has the form of a reference."""
    return re.search(_REFERENCE, text) is not None


def _provider(name: str, static: Mapping[str, StaticValue], environment: Mapping[str, str]) -> _Find:
    prefix = f"{NAMES}.{name}"
    setting = f"{prefix}.class"
    if setting not in static:
        raise ConfigError(f"{setting} is missing: {NAMES} has the name {name}", setting)
    class_name = static[setting].text.strip()

    def parameter(key: str) -> str | None:
        value = static.get(f"{prefix}.param.{key}")
        return None if value is None else value.text.strip()

    if class_name == f"{_PACKAGE}.EnvVarConfigProvider":
        return _of_environment(environment, parameter("allowlist.pattern"))
    allowed = parameter("allowed.paths")
    paths = None if not allowed else [Path(path.strip()) for path in allowed.split(",") if path.strip()]
    if class_name == f"{_PACKAGE}.FileConfigProvider":
        return _of_files(paths)
    if class_name == f"{_PACKAGE}.DirectoryConfigProvider":
        return _of_directories(paths)
    known = ", ".join(f"{_PACKAGE}.{each}ConfigProvider" for each in ("File", "Directory", "EnvVar"))
    raise ConfigError(f"{setting} is {class_name}, but Java classes are not loaded; known are {known}", setting)


def _of_environment(environment: Mapping[str, str], pattern: str | None) -> _Find:
    try:
        allowed = None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"allowlist.pattern is no regular expression: {error}") from None

    def find(path: str, key: str) -> str:
        if path:
            raise ConfigError("a reference to a variable has no path")
        if allowed is not None and not allowed.fullmatch(key):
            raise ConfigError("allowlist.pattern does not permit this variable")
        if key not in environment:
            raise ConfigError("there is no such variable")
        return environment[key]

    return find


def _of_files(allowed: list[Path] | None) -> _Find:
    files: dict[str, dict[str, str]] = {}  # a file may have many values

    def find(path: str, key: str) -> str:
        if path not in files:
            try:
                files[path] = parse_properties(_read(path, allowed))
            except ConfigError as error:
                raise ConfigError(f"{path}: {error}") from None
        if key not in files[path]:
            raise ConfigError(f"{path} has no key {key}")
        return files[path][key]

    return find


def _of_directories(allowed: list[Path] | None) -> _Find:
    def find(path: str, key: str) -> str:
        if key != Path(key).name:
            raise ConfigError("the key must be the name of a file")
        return _read(str(Path(path) / key), allowed)

    return find


def _read(path: str, allowed: list[Path] | None) -> str:
    """The text of a file. ``allowed``: it must be one of these, or below one of them."""
    try:
        file = Path(path).resolve()
        if allowed is not None and not any(file.is_relative_to(each.resolve()) for each in allowed):
            raise ConfigError("allowed.paths does not permit this file")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError("it is not in UTF-8") from None

"""The settings of a subscription of client metrics (KIP-714): the table, and the checks of a client's request.

A subscription is a resource of type CLIENT_METRICS. It names the metrics that clients push, by prefixes, how often, and
which clients: each selector of `match` has a regular expression that the whole text of the client must match.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .definition import INT, LIST, MEDIUM, ConfigError, Setting, abridged, list_of
from .regular_expressions import compiled

MIN_INTERVAL_MS: Final = 100
MAX_INTERVAL_MS: Final = 3_600_000
DEFAULT_INTERVAL_MS: Final = 300_000

CLIENT_INSTANCE_ID: Final = "client_instance_id"
CLIENT_ID: Final = "client_id"
CLIENT_SOFTWARE_NAME: Final = "client_software_name"
CLIENT_SOFTWARE_VERSION: Final = "client_software_version"
CLIENT_SOURCE_ADDRESS: Final = "client_source_address"
CLIENT_SOURCE_PORT: Final = "client_source_port"
SELECTORS: Final = frozenset(
    {
        CLIENT_INSTANCE_ID,
        CLIENT_ID,
        CLIENT_SOFTWARE_NAME,
        CLIENT_SOFTWARE_VERSION,
        CLIENT_SOURCE_ADDRESS,
        CLIENT_SOURCE_PORT,
    }
)

# fmt: off
_TABLE: Final = (
    Setting(
        "interval.ms", INT, DEFAULT_INTERVAL_MS, None, MEDIUM,
        "Time between two pushes of a client, 100 ms to one hour.",
        acted_on=True,
    ),
    Setting(
        "match", LIST, (), list_of(), MEDIUM,
        "The clients: selector=regular expression, separated by commas. Without a selector, all clients.",
        acted_on=True,
    ),
    Setting(
        "metrics", LIST, (), list_of(), MEDIUM,
        "Prefixes of the names of metrics that clients push; * means all metrics.",
        acted_on=True,
    ),
)
# fmt: on

SETTINGS: Final[dict[str, Setting]] = {entry.name: entry for entry in _TABLE}


class ClientMetricsRequestError(ConfigError):
    """A setting for which Apache Kafka responds INVALID_REQUEST, not INVALID_CONFIG."""


def validate_client_metrics_configs(overrides: Mapping[str, str]) -> None:
    """Raise ConfigError unless a subscription may have these settings."""
    for name, text in overrides.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise ClientMetricsRequestError(f"Unknown client metrics config name: {abridged(name)}", name)
        value = setting.parse(text)
        if name == "interval.ms":
            assert isinstance(value, int)
            if not MIN_INTERVAL_MS <= value <= MAX_INTERVAL_MS:
                rule = f"Value must be between {MIN_INTERVAL_MS} and {MAX_INTERVAL_MS} (one hour)"
                raise ClientMetricsRequestError(f"Invalid value {value} for configuration {name}: {rule}", name)
        elif name == "match":
            assert isinstance(value, tuple)
            selectors(value)


def selectors(entries: tuple[str, ...]) -> dict[str, Any]:
    """The expressions of `match` by selector, as patterns of RE2, which take linear time. Of a selector that occurs
    twice, the last one applies, as in Kafka.

    Raises ConfigError for an unknown selector, and for an invalid expression.
    """
    found = {}
    for entry in entries:
        selector, equals, expression = (part.strip() for part in entry.partition("="))
        if selector not in SELECTORS or not equals or not expression or "=" in expression:
            rule = f"Entries must be selector=expression, with a selector of {', '.join(sorted(SELECTORS))}"
            raise ConfigError(f"Invalid value {abridged(entry)} for configuration match: {rule}", "match")
        try:
            found[selector] = compiled(expression)
        except ValueError as error:
            problem = f"Not a regular expression: {error}"
            raise ConfigError(f"Invalid value {abridged(entry)} for configuration match: {problem}", "match") from None
    return found

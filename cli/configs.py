"""``moldau configs``: the settings of topics, brokers, groups and client metrics on a running server."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from ..config.definition import ConfigSource
from ..config.integers import bounded_integer
from ..protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ..protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ..protocol.schema import Request
from .client import bootstrap_option
from .cluster import Cluster, cluster, explain
from .failure import Failure
from .output import print_json, print_table
from .suggestions import CommandGroup

# Resource types and operations as numbered by the protocol.
_ENTITIES: Final = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}
_SET: Final = 0
_DELETE: Final = 1
_SOURCES: Final = {int(source): source.name for source in ConfigSource}
_ALL_BROKERS: Final = "default"

_entity = click.argument("entity", type=click.Choice(tuple(_ENTITIES)), metavar="topic|broker|client-metrics|group")
_name = click.argument("name", metavar="NAME")


@click.group("configs", cls=CommandGroup, short_help="Show and change settings of topics, brokers and groups.")
def command() -> None:
    """Show and change the settings of topics, brokers, groups and client metrics on a running server.

    Identify a broker by its id, or use `default` for all brokers. A group does not have to exist, and a subscription of
    client metrics exists while it has settings.

    \b
    Examples:
      moldau configs describe topic events
      moldau configs describe broker 1 --all
      moldau configs set topic events retention.ms=3600000
      moldau configs set broker default message.max.bytes=2000000
      moldau configs set group billing consumer.session.timeout.ms=60000
      moldau configs set client-metrics latency metrics=org.apache.kafka.producer. interval.ms=10000
      moldau configs delete topic events retention.ms
    """


@command.command("describe", short_help="Show settings and where their values come from.")
@_entity
@_name
@click.option("--all", "everything", is_flag=True, help="Also show settings that have their default value.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@bootstrap_option
def describe(entity: str, name: str, everything: bool, as_json: bool, bootstrap_server: str) -> None:
    """Show the settings of a topic, broker or group that differ from their defaults.

    \b
    Examples:
      moldau configs describe topic events --all
      moldau configs describe broker 1 --json
    """
    with cluster(bootstrap_server) as servers:
        described = describe_settings(servers, entity, name)
    shown = {
        setting: entry
        for setting, entry in sorted(described.items())
        if everything or entry["source"] != "DEFAULT_CONFIG"
    }
    if as_json:
        print_json(shown)
        return
    rows = [
        (setting, "[hidden]" if entry["sensitive"] else entry["value"], entry["source"].lower().replace("_", " "))
        for setting, entry in shown.items()
    ]
    if rows:
        print_table(("setting", "value", "source"), rows)
    else:
        print(f"All settings of {entity} {name} have their default values; use --all to show them.")


@command.command("set", short_help="Change settings.")
@_entity
@_name
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@bootstrap_option
def set_settings(entity: str, name: str, settings: tuple[str, ...], bootstrap_server: str) -> None:
    """Change settings of a topic, broker or group. Other settings keep their values.

    \b
    Examples:
      moldau configs set topic events retention.ms=3600000 cleanup.policy=compact,delete
      moldau configs set broker 1 log.cleaner.threads=2
    """
    from .topics import parse_settings

    changes = parse_settings(settings)
    with cluster(bootstrap_server) as servers:
        alter_settings(servers, entity, name, changes, ())
    print(f"Set {', '.join(changes)} on {entity} {name}.")


@command.command("delete", short_help="Reset settings to their defaults.")
@_entity
@_name
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@bootstrap_option
def delete(entity: str, name: str, keys: tuple[str, ...], bootstrap_server: str) -> None:
    """Remove settings of a topic, broker or group, which resets them to their defaults.

    \b
    Examples:
      moldau configs delete topic events retention.ms
    """
    with cluster(bootstrap_server) as servers:
        alter_settings(servers, entity, name, {}, keys)
    print(f"Removed {', '.join(keys)} from {entity} {name}.")


def describe_settings(servers: Cluster, entity: str, name: str) -> dict[str, dict[str, Any]]:
    """Every setting of a topic, broker, group or subscription by name.

    Each has ``value``, ``source``, ``read_only`` and ``sensitive``.
    """
    resource = DescribeConfigsResource(
        resource_type=_ENTITIES[entity], resource_name=_resource_name(entity, name), configuration_keys=None
    )
    (result,) = _ask(servers, entity, name, DescribeConfigsRequest(resources=[resource])).results
    if result.error_code:
        raise Failure(f"cannot describe {entity} {name}: {explain(result.error_code, result.error_message)}")
    return {
        entry.name: {
            "value": entry.value,
            "source": _SOURCES.get(entry.config_source, str(entry.config_source)),
            "read_only": entry.read_only,
            "sensitive": entry.is_sensitive,
        }
        for entry in result.configs
    }


def alter_settings(
    servers: Cluster, entity: str, name: str, changes: Mapping[str, str], deleted: Iterable[str]
) -> None:
    """Set and remove settings in one request. Raises Failure with the server's message if it is rejected."""
    alterations = [AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in changes.items()]
    alterations += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in deleted]
    resource = AlterConfigsResource(
        resource_type=_ENTITIES[entity], resource_name=_resource_name(entity, name), configs=alterations
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = _ask(servers, entity, name, request).responses
    if result.error_code:
        raise Failure(f"cannot change {entity} {name}: {explain(result.error_code, result.error_message)}")


def _ask(servers: Cluster, entity: str, name: str, request: Request) -> Any:
    """The broker to ask: only the broker itself knows its settings; any broker serves other resources."""
    if entity != "broker" or name == _ALL_BROKERS:
        return servers.ask(request)
    broker_id = bounded_integer(name, 2**31 - 1)
    if broker_id is None:
        raise click.UsageError(f"{name!r} is not a broker id; use a number, or {_ALL_BROKERS!r} for all brokers")
    return servers.ask_broker(broker_id, request)


def _resource_name(entity: str, name: str) -> str:
    return "" if entity == "broker" and name == _ALL_BROKERS else name

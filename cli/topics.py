"""``moldau topics``: list, create, describe, delete, alter."""

import sys
from collections.abc import Iterable
from typing import Any, Final

import click

from ..protocol.errors import ErrorCode
from ..protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ..protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ..protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ..protocol.messages.metadata import MetadataResponseTopic
from ..protocol.uuid import ZERO_UUID, uuid_to_str
from .client import bootstrap_option
from .cluster import EARLIEST_OFFSET, LATEST_OFFSET, Cluster, Position, cluster, explain
from .failure import Failure
from .output import print_json, print_table
from .suggestions import CommandGroup

# How long the server may take to create or delete topics.
_TIMEOUT_MS: Final = 15_000
_SERVERS_CHOICE: Final = -1

_HINTS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic does not exist; `moldau topics list` lists topics",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic already exists; use --if-not-exists to ignore this",
}

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


@click.group("topics", cls=CommandGroup, short_help="List, create, describe, alter and delete topics.")
def command() -> None:
    """List, create, describe, alter and delete topics.

    \b
    Examples:
      moldau topics list
      moldau topics create events --partitions 6 --config retention.ms=-1
      moldau topics describe events
      moldau topics alter events --partitions 12
      moldau topics delete events
    """


@command.command("list", short_help="List all topics with partitions and replicas.")
@click.option("--internal", is_flag=True, help="Include Kafka's internal topics.")
@_json_option
@bootstrap_option
def list_topics(internal: bool, as_json: bool, bootstrap_server: str) -> None:
    """List the topics of a server.

    \b
    Examples:
      moldau topics list
      moldau topics list --json --bootstrap-server kafka.example:9092
    """
    with cluster(bootstrap_server) as servers:
        found = servers.topics(None)
    topics = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(partition.replica_nodes) for partition in topic.partitions), default=0),
            "internal": topic.is_internal,
        }
        for topic in sorted(found, key=_name)
        if internal or not topic.is_internal
    ]
    if as_json:
        print_json(topics)
    elif topics:
        rows = [(topic["name"], topic["partitions"], topic["replication_factor"]) for topic in topics]
        print_table(("topic", "partitions", "replicas"), rows)
    else:
        print("No topics. Create one with `moldau topics create NAME`.", file=sys.stderr)


@command.command("create", short_help="Create topics.")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--partitions", "-p", type=click.IntRange(1), help="Number of partitions; default: the server's default.")
@click.option(
    "--replication-factor", "-r", type=click.IntRange(1), help="Replication factor; default: the server's default."
)
@click.option("--config", "-c", "configs", multiple=True, metavar="KEY=VALUE", help="Topic setting; repeatable.")
@click.option("--if-not-exists", is_flag=True, help="Do not fail if the topic already exists.")
@bootstrap_option
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap_server: str,
) -> None:
    """Create topics.

    \b
    Examples:
      moldau topics create events
      moldau topics create events --partitions 6 --config cleanup.policy=compact
    """
    settings = [CreatableTopicConfig(name=key, value=value) for key, value in parse_settings(configs).items()]
    wanted = [
        CreatableTopic(
            name=name,
            num_partitions=partitions or _SERVERS_CHOICE,
            replication_factor=replication_factor or _SERVERS_CHOICE,
            configs=settings,
        )
        for name in names
    ]
    problems = []
    with cluster(bootstrap_server) as servers:
        for result in servers.ask(CreateTopicsRequest(topics=wanted, timeout_ms=_TIMEOUT_MS)).topics:
            if result.error_code == 0:
                made = "" if result.num_partitions < 0 else f" with {_count(result.num_partitions, 'partition')}"
                print(f"Created {result.name}{made}.")
            elif if_not_exists and result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                print(f"{result.name} already exists.")
            else:
                reason = explain(result.error_code, result.error_message, _HINTS)
                problems.append(f"cannot create {result.name}: {reason}")
    _fail(problems)


@command.command("describe", short_help="Show partitions, leaders, replicas, offsets and settings.")
@click.argument("names", nargs=-1, metavar="[TOPIC]...")
@_json_option
@bootstrap_option
def describe(names: tuple[str, ...], as_json: bool, bootstrap_server: str) -> None:
    """Show partitions with leaders, replicas and offsets, and changed settings, of topics (default: all).

    \b
    Examples:
      moldau topics describe events
      moldau topics describe --json
    """
    with cluster(bootstrap_server) as servers:
        topics = servers.topics(names or None)
        failed = [topic for topic in topics if topic.error_code]
        there = sorted((topic for topic in topics if not topic.error_code), key=_name)
        first = servers.positions(there, EARLIEST_OFFSET)
        after_last = servers.positions(there, LATEST_OFFSET)
        described = [_as_described(topic, first, after_last, _overrides(servers, _name(topic))) for topic in there]
    if as_json:
        print_json(described)
    else:
        for number, topic in enumerate(described):
            print("\n" if number else "", end="")
            _print_described(topic)
    _fail(f"{_name(topic)}: {explain(topic.error_code, None, _HINTS)}" for topic in failed)


@command.command("delete", short_help="Delete topics and all their records.")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@bootstrap_option
def delete(names: tuple[str, ...], yes: bool, bootstrap_server: str) -> None:
    """Delete topics and all their records. Asks for confirmation on a terminal.

    \b
    Examples:
      moldau topics delete events
      moldau topics delete --yes events clicks
    """
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(names)} and all records?", abort=True, err=True)
    with cluster(bootstrap_server) as servers:
        requested = [DeleteTopicState(name=name) for name in names]
        request = DeleteTopicsRequest(topics=requested, topic_names=list(names), timeout_ms=_TIMEOUT_MS)
        results = servers.ask(request).responses
    problems = []
    for result in results:
        if result.error_code == 0:
            print(f"Deleted {result.name}.")
        else:
            reason = explain(result.error_code, result.error_message, _HINTS)
            problems.append(f"cannot delete {result.name}: {reason}")
    _fail(problems)


@command.command("alter", short_help="Add partitions or change settings.")
@click.argument("name", metavar="TOPIC")
@click.option(
    "--partitions", "-p", type=click.IntRange(1), help="New number of partitions; must be larger than the current one."
)
@click.option("--config", "-c", "configs", multiple=True, metavar="KEY=VALUE", help="Topic setting to set; repeatable.")
@click.option(
    "--delete-config",
    "deleted",
    multiple=True,
    metavar="KEY",
    help="Topic setting to reset to its default; repeatable.",
)
@bootstrap_option
def alter(
    name: str, partitions: int | None, configs: tuple[str, ...], deleted: tuple[str, ...], bootstrap_server: str
) -> None:
    """Add partitions to a topic, or change its settings.

    \b
    Examples:
      moldau topics alter events --partitions 12
      moldau topics alter events --config retention.ms=3600000 --delete-config segment.bytes
    """
    if partitions is None and not configs and not deleted:
        raise click.UsageError("nothing to change: give --partitions, --config or --delete-config")
    from .configs import alter_settings

    settings = parse_settings(configs)
    with cluster(bootstrap_server) as servers:
        if partitions is not None:
            wanted = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
            (result,) = servers.ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS)).results
            if result.error_code:
                raise Failure(f"cannot alter {name}: {explain(result.error_code, result.error_message, _HINTS)}")
            print(f"{name} now has {_count(partitions, 'partition')}.")
        if settings or deleted:
            alter_settings(servers, "topic", name, settings, deleted)
            print(f"Changed the settings of {name}.")


def parse_settings(settings: tuple[str, ...]) -> dict[str, str]:
    """Parse ``KEY=VALUE`` options."""
    parsed = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--config")
        parsed[key] = value
    return parsed


def _name(topic: MetadataResponseTopic) -> str:
    return topic.name or ""


def _overrides(servers: Cluster, topic: str) -> dict[str, str | None]:
    """The settings that a topic overrides."""
    from .configs import describe_settings

    settings = describe_settings(servers, "topic", topic)
    return {name: entry["value"] for name, entry in settings.items() if entry["source"] == "DYNAMIC_TOPIC_CONFIG"}


def _as_described(
    topic: MetadataResponseTopic,
    first: dict[tuple[str, int], Position],
    after_last: dict[tuple[str, int], Position],
    settings: dict[str, str | None],
) -> dict[str, Any]:
    def offset(positions: dict[tuple[str, int], Position], partition: int) -> int | None:
        position = positions.get((_name(topic), partition))
        return None if position is None else position.offset

    return {
        "name": topic.name,
        "topic_id": None if topic.topic_id == ZERO_UUID else uuid_to_str(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": partition.partition_index,
                "leader": partition.leader_id if partition.leader_id >= 0 else None,
                "replicas": partition.replica_nodes,
                "in_sync": partition.isr_nodes,
                "first_offset": offset(first, partition.partition_index),
                "next_offset": offset(after_last, partition.partition_index),
            }
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        ],
        "settings": settings,
    }


def _print_described(topic: dict[str, Any]) -> None:
    identity = f"  id {topic['topic_id']}" if topic["topic_id"] else ""
    print(f"{topic['name']}{identity}")
    for name, value in sorted(topic["settings"].items()):
        print(f"  {name}={value}")
    rows = [
        (
            partition["partition"],
            "none" if partition["leader"] is None else partition["leader"],
            ",".join(map(str, partition["replicas"])),
            ",".join(map(str, partition["in_sync"])),
            partition["first_offset"],
            partition["next_offset"],
        )
        for partition in topic["partitions"]
    ]
    print_table(("partition", "leader", "replicas", "in sync", "first offset", "next offset"), rows)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _fail(problems: Iterable[str]) -> None:
    message = "\n".join(problems)
    if message:
        raise Failure(message)

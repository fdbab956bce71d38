"""``moldau groups``: list, describe, offsets, reset, delete, delete-offsets."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import click

from ..config.durations import parse_duration_ms
from .client import bootstrap_option
from .cluster import cluster, error_name, explain
from .failure import Failure
from .group_client import HINTS, Group, GroupClient, TopicPartition, by_topic
from .group_offsets import (
    LogOffsets,
    WantedTopic,
    parse_topic,
)
from .group_report import (
    group_as_json,
    offset_rows,
    position,
    print_heading,
    print_members,
    print_offsets,
    print_states,
)
from .group_reset import Plan, execute_plans, new_offsets, offsets_of, print_plan, rows_of
from .output import print_json, print_table
from .parsed_options import datetime_ms, parsed
from .suggestions import CommandGroup

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
_all_groups = click.option("--all-groups", is_flag=True, help="Select all groups.")
_groups = click.argument("groups", nargs=-1, metavar="[GROUP]...")


_topics = click.option(
    "--topic",
    "-t",
    "topics",
    callback=parsed(parse_topic),
    multiple=True,
    metavar="TOPIC[:0,1,2]",
    help="Select this topic, or only these partitions of it; repeatable.",
)


@click.group(
    "groups", cls=CommandGroup, short_help="List and describe consumer groups, reset and delete their offsets."
)
def command() -> None:
    """List, describe and delete consumer groups; reset and delete their offsets.

    \b
    Examples:
      moldau groups list
      moldau groups describe billing
      moldau groups offsets billing --topic events
      moldau groups reset billing --topic events --to-earliest --execute
      moldau groups delete-offsets billing --topic old-events
      moldau groups delete billing
    """


@command.command("list", short_help="List the names, types and states of all groups.")
@click.option("--state", "states", metavar="STATE,...", help="Only groups in these states: empty, stable, ...")
@click.option("--type", "types", metavar="TYPE,...", help="Only groups of these types: classic, consumer, ...")
@_json_option
@bootstrap_option
def list_groups(states: str | None, types: str | None, as_json: bool, bootstrap_server: str) -> None:
    """List the groups of all brokers.

    \b
    Examples:
      moldau groups list
      moldau groups list --state stable,empty --type consumer
    """
    wanted_states, wanted_types = _split(states), _split(types)
    with cluster(bootstrap_server) as servers:
        found = [
            {
                "group": group.group_id,
                "type": group.group_type.lower(),
                "state": group.group_state,
                "protocol_type": group.protocol_type,
            }
            for group in GroupClient(servers).list()
            if (not wanted_states or group.group_state.lower() in wanted_states)
            and (not wanted_types or group.group_type.lower() in wanted_types)
        ]
    if as_json:
        print_json(found)
    elif found:
        rows = [(each["group"], each["type"], each["state"], each["protocol_type"] or "-") for each in found]
        print_table(("group", "type", "state", "protocol"), rows)
    else:
        print("No matching groups." if states or types else "No groups.", file=sys.stderr)


@command.command("describe", short_help="Show state, members, assignments, offsets and lag.")
@_groups
@_all_groups
@click.option("--state", "only_state", is_flag=True, help="Show only state, assignor and coordinator.")
@click.option("--members", "only_members", is_flag=True, help="Show only members and their assignments.")
@click.option(
    "--offsets", "only_offsets", is_flag=True, help="Show only committed offsets, lag and the assigned members."
)
@click.option("--verbose", "-v", is_flag=True, help="Also show epochs and target assignments.")
@_json_option
@bootstrap_option
def describe(
    groups: tuple[str, ...],
    all_groups: bool,
    only_state: bool,
    only_members: bool,
    only_offsets: bool,
    verbose: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Show the state, members, assignments, committed offsets and lag of groups.

    \b
    Examples:
      moldau groups describe billing
      moldau groups describe billing --members --verbose
      moldau groups describe --all-groups --json
    """
    everything = not (only_state or only_members or only_offsets)
    problems = []
    described = []
    with cluster(bootstrap_server) as servers:
        client = GroupClient(servers)
        log = LogOffsets(servers, _warn)
        for group_id in _chosen(client, groups, all_groups, "describe"):
            group = client.describe(group_id)
            if group is None:
                problems.append(_not_found(group_id))
            else:
                rows = offset_rows(client, log, group) if everything or only_offsets or as_json else []
                described.append((group, rows))
    if as_json:
        print_json([group_as_json(group, rows) for group, rows in described])
    else:
        if only_state and described:
            print_states([group for group, _ in described], verbose)
        for group, rows in described:
            if everything or only_members or only_offsets:
                print_heading(group)
            if everything or only_members:
                print_members(group, verbose)
            if everything or only_offsets:
                print_offsets(rows, verbose)
    _fail(problems)


@command.command("offsets", short_help="Show committed offsets and lag.")
@_groups
@_all_groups
@_topics
@_json_option
@bootstrap_option
def offsets(
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[WantedTopic, ...],
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Show the committed offsets and the lag of groups, with or without members.

    \b
    Examples:
      moldau groups offsets billing
      moldau groups offsets --all-groups --topic events:0,1 --json
    """
    problems = []
    found: list[dict[str, Any]] = []
    with cluster(bootstrap_server) as servers:
        client = GroupClient(servers)
        for group_id in _chosen(client, groups, all_groups, "show"):
            committed = {
                partition: commit
                for partition, commit in client.committed(group_id).items()
                if not topics or _is_wanted(partition, topics)
            }
            if not committed and client.describe(group_id) is None:
                problems.append(_not_found(group_id))
            ends = LogOffsets(servers, _warn).ends(committed)
            found += [
                {
                    "group": group_id,
                    "topic": partition.topic,
                    "partition": partition.partition,
                    **position(commit, ends[partition]),
                }
                for partition, commit in committed.items()
            ]
    if as_json:
        print_json(found)
    elif found:
        columns = ("group", "topic", "partition", "committed", "end", "lag")
        print_table(columns, [[row[column] for column in columns] for row in found])
    elif not problems:
        print("No committed offsets.", file=sys.stderr)
    _fail(problems)


@command.command("reset", short_help="Reset committed offsets. A dry run unless --execute is given.")
@_groups
@_all_groups
@_topics
@click.option("--all-topics", is_flag=True, help="Select all partitions with a committed offset.")
@click.option("--to-earliest", is_flag=True, help="Reset to the first offset.")
@click.option("--to-latest", is_flag=True, help="Reset to the end.")
@click.option("--to-current", is_flag=True, help="Keep the committed offset; reset to the end if there is none.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="Reset to this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Shift by N offsets; a negative N shifts backward.")
@click.option(
    "--to-datetime",
    callback=datetime_ms,
    metavar="TIME",
    help="Reset to the first record at or after TIME: milliseconds since 1970, or ISO 8601 (default UTC).",
)
@click.option(
    "--by-duration",
    callback=parsed(parse_duration_ms),
    metavar="DURATION",
    help="Reset to the first record at most DURATION old: PT30M, P1D, P1DT2H.",
)
@click.option(
    "--from-file",
    type=click.File("r", encoding="utf-8"),
    metavar="FILE",
    help="Reset to the offsets in FILE, with lines [GROUP,]TOPIC,PARTITION,OFFSET; - is standard input.",
)
@click.option("--execute", is_flag=True, help="Commit the new offsets.")
@click.option("--dry-run", is_flag=True, help="Show the new offsets without committing them; the default.")
@click.option("--export", is_flag=True, help="Print the new offsets in the format of --from-file.")
@_json_option
@bootstrap_option
def reset(
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[WantedTopic, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: int | None,
    by_duration: int | None,
    from_file: TextIO | None,
    execute: bool,
    dry_run: bool,
    export: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Reset the committed offsets of groups without members. A dry run unless --execute is given.

    Select partitions (--topic or --all-topics; a file names them) and one target. Offsets out of range become the first
    or the end offset of the partition. A group that does not exist is created.

    \b
    Examples:
      moldau groups reset billing --topic events --to-earliest
      moldau groups reset billing --topic events:0,2 --shift-by -100 --execute
      moldau groups reset billing --all-topics --to-datetime 2026-01-31T12:00:00Z --execute
      moldau groups reset billing --all-topics --to-current --export > offsets.csv
      moldau groups reset billing --from-file offsets.csv --execute
    """
    ways: dict[str, Any] = {
        "--to-earliest": to_earliest or None,
        "--to-latest": to_latest or None,
        "--to-current": to_current or None,
        "--to-offset": to_offset,
        "--shift-by": shift_by,
        "--to-datetime": to_datetime,
        "--by-duration": by_duration,
        "--from-file": from_file,
    }
    given = [name for name, value in ways.items() if value is not None]
    if len(given) != 1:
        raise click.UsageError(f"give exactly one target: {', '.join(ways)}")
    if from_file is not None and (topics or all_topics):
        raise click.UsageError("--from-file selects the partitions; remove --topic and --all-topics")
    if from_file is None and bool(topics) == all_topics:
        raise click.UsageError("select partitions with either --topic TOPIC, --topic TOPIC:0,1 or --all-topics")
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run are mutually exclusive")
    if export and as_json:
        raise click.UsageError("--export and --json are mutually exclusive")
    rows = rows_of(from_file)
    with cluster(bootstrap_server) as servers:
        client = GroupClient(servers)
        log = LogOffsets(servers, _warn)
        chosen = _chosen(client, groups, all_groups, "reset")
        problems = []
        plan: list[Plan] = []
        for group_id in chosen:
            group = client.describe(group_id)
            if group is not None and group.is_active:
                problems.append(_is_active(group))
                continue
            committed = client.committed(group_id)
            if from_file is not None:
                wanted: Mapping[TopicPartition, int] = offsets_of(rows, group_id, alone=len(chosen) == 1)
                if not wanted:
                    problems.append(f"the file has no offsets of {group_id}")
                    continue
                log.check(wanted)
                new = log.within(wanted)
            else:
                partitions = list(committed) if all_topics else log.partitions(topics)
                if not partitions:
                    problems.append(f"{group_id} has no committed offsets; select partitions with --topic")
                    continue
                log.check(partitions)
                new = new_offsets(given[0], ways[given[0]], partitions, committed, log)
            plan.append(Plan(group_id, committed, new))
        # All groups are validated before the first one is changed.
        if execute:
            plan, failures = execute_plans(plan, client)
            problems += failures
    print_plan(plan, alone=len(chosen) == 1, export=export, as_json=as_json)
    if plan and not execute and not export:
        print("Dry run: no offsets were changed. Run again with --execute to apply.", file=sys.stderr)
    _fail(problems)


@command.command("delete", short_help="Delete groups and their offsets.")
@_groups
@_all_groups
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@_json_option
@bootstrap_option
def delete(groups: tuple[str, ...], all_groups: bool, yes: bool, as_json: bool, bootstrap_server: str) -> None:
    """Delete groups without members and their committed offsets. Asks for confirmation on a terminal.

    \b
    Examples:
      moldau groups delete billing
      moldau groups delete --yes billing audit
      moldau groups delete --yes --all-groups --json
    """
    problems = []
    answers: list[dict[str, Any]] = []
    with cluster(bootstrap_server) as servers:
        client = GroupClient(servers)
        targets = _chosen(client, groups, all_groups, "delete")
        _confirm(yes, f"Delete {', '.join(targets)} and all committed offsets?")
        try:
            for group_id in targets:
                code = client.delete(group_id)
                answers.append({"group": group_id, "error": error_name(code) if code else None})
                if code:
                    problems.append(f"cannot delete {group_id}: {explain(code, None, HINTS)}")
                elif not as_json:
                    print(f"Deleted {group_id}.")
        finally:
            # Print also if the broker fails in between, because earlier groups are already deleted.
            if as_json:
                print_json(answers)
    _fail(problems)


@command.command("delete-offsets", short_help="Delete committed offsets of topics.")
@click.argument("group", metavar="GROUP")
@_topics
@click.option("--all-topics", is_flag=True, help="Select all committed offsets of the group.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@_json_option
@bootstrap_option
def delete_offsets(
    group: str,
    topics: tuple[WantedTopic, ...],
    all_topics: bool,
    yes: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Delete a group's committed offsets of topics that it no longer reads. Asks for confirmation on a terminal.

    \b
    Examples:
      moldau groups delete-offsets billing --topic old-events
      moldau groups delete-offsets billing --topic events:3 --yes
    """
    if bool(topics) == all_topics:
        raise click.UsageError("select offsets with either --topic TOPIC, --topic TOPIC:0,1 or --all-topics")
    with cluster(bootstrap_server) as servers:
        client = GroupClient(servers)
        targets = [partition for partition in client.committed(group) if all_topics or _is_wanted(partition, topics)]
        if not targets:
            if client.describe(group) is None:
                raise Failure(_not_found(group))
            raise Failure(f"{group} has no matching committed offsets; `moldau groups offsets {group}` lists them")
        _confirm(yes, f"Delete the offsets of {group} in {', '.join(map(str, targets))}?")
        errors = client.delete_offsets(group, targets)
    if as_json:
        print_json(
            [
                {
                    "group": group,
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "error": error_name(errors[partition]) if partition in errors else None,
                }
                for partition in targets
            ]
        )
    else:
        for topic, partitions in by_topic(partition for partition in targets if partition not in errors).items():
            numbers = ", ".join(str(partition.partition) for partition in partitions)
            print(f"Deleted the offsets of {group} in {topic}, partition {numbers}.")
    _fail(
        f"cannot delete the offset of {group} in {partition}: {explain(code, None, HINTS)}"
        for partition, code in errors.items()
    )


# -- which groups ------------------------------------------------------------------------------------------------------


def _chosen(client: GroupClient, groups: tuple[str, ...], all_groups: bool, what: str) -> list[str]:
    if bool(groups) == all_groups:
        raise click.UsageError(f"give the groups to {what}, or --all-groups")
    return [group.group_id for group in client.list()] if all_groups else list(dict.fromkeys(groups))


def _split(text: str | None) -> set[str]:
    return {word.strip().lower() for word in (text or "").split(",") if word.strip()}


def _is_wanted(partition: TopicPartition, topics: Iterable[WantedTopic]) -> bool:
    return any(
        topic.name == partition.topic and (topic.partitions is None or partition.partition in topic.partitions)
        for topic in topics
    )


def _not_found(group_id: str) -> str:
    return f"group {group_id} does not exist; `moldau groups list` lists the groups"


def _is_active(group: Group) -> str:
    members = "1 member" if len(group.members) == 1 else f"{len(group.members)} members"
    return (
        f"{group.group_id} is {group.state} with {members}; offsets can only be reset in a group without members. "
        f"Stop the members and retry; `moldau groups describe {group.group_id} --members` lists them"
    )


# -- messages ----------------------------------------------------------------------------------------------------------


def _confirm(yes: bool, question: str) -> None:
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)


def _warn(message: str) -> None:
    print(f"moldau: {message}", file=sys.stderr)


def _fail(problems: Iterable[str]) -> None:
    message = "\n".join(problems)
    if message:
        raise Failure(message)

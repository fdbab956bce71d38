"""``moldau transactions``: list, describe, abort, find-hanging."""

import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import click

from ..protocol.errors import ErrorCode
from ..protocol.messages.metadata import MetadataResponseTopic
from .client import bootstrap_option
from .cluster import Cluster, cluster, explain
from .failure import Failure
from .output import print_json, print_table
from .parsed_options import duration_ms
from .suggestions import CommandGroup
from .transaction_client import HINTS, OpenTransaction, TransactionClient

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")

# The states with an open transaction.
_OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


@click.group("transactions", cls=CommandGroup, short_help="List, describe and abort transactions; find hanging ones.")
def command() -> None:
    """List, describe and abort transactions, and find hanging ones.

    \b
    Examples:
      moldau transactions list
      moldau transactions list --state Ongoing --longer-than 5m
      moldau transactions describe orders-1
      moldau transactions abort orders-1
      moldau transactions find-hanging
    """


@command.command("list", short_help="List transactional ids and their states.")
@click.option(
    "--state",
    "states",
    metavar="STATE,...",
    help="Only in these states: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort.",
)
@click.option(
    "--longer-than",
    "longer_than_ms",
    metavar="DURATION",
    callback=duration_ms,
    help="Only transactions that have been open for longer: 90s, 10m, 1h.",
)
@click.option(
    "--matching", "pattern", metavar="REGEX", help="Only transactional ids that match this regular expression (RE2)."
)
@_json_option
@bootstrap_option
def list_transactions(
    states: str | None, longer_than_ms: int | None, pattern: str | None, as_json: bool, bootstrap_server: str
) -> None:
    """List the transactional ids of all brokers.

    \b
    Examples:
      moldau transactions list
      moldau transactions list --state Ongoing --longer-than 5m
      moldau transactions list --matching 'orders-.*' --json
    """
    wanted = [state.strip() for state in (states or "").split(",") if state.strip()]
    with cluster(bootstrap_server) as servers:
        found = TransactionClient(servers).transactions(
            states=wanted, longer_than_ms=-1 if longer_than_ms is None else longer_than_ms, pattern=pattern
        )
    if as_json:
        print_json([each._asdict() for each in found])
    elif found:
        rows = [(each.transactional_id, each.state, each.producer_id, each.coordinator_id) for each in found]
        print_table(("transactional id", "state", "producer id", "coordinator"), rows)
    else:
        chosen = wanted or longer_than_ms is not None or pattern is not None
        print("No matching transactions." if chosen else "No transactions.", file=sys.stderr)


@command.command("describe", short_help="Show state, producer, timeout and partitions.")
@click.argument("transactional_ids", nargs=-1, required=True, metavar="TRANSACTIONAL-ID...")
@_json_option
@bootstrap_option
def describe(transactional_ids: tuple[str, ...], as_json: bool, bootstrap_server: str) -> None:
    """Show the state, producer, timeout and open transaction of transactional ids.

    \b
    Examples:
      moldau transactions describe orders-1
      moldau transactions describe orders-1 orders-2 --json
    """
    described: list[dict[str, Any]] = []
    missing = []
    with cluster(bootstrap_server) as servers:
        client = TransactionClient(servers)
        for transactional_id in transactional_ids:
            found = _described(servers, client, transactional_id)
            if found is None:
                missing.append(transactional_id)
            else:
                described.append(found)
    if as_json:
        print_json(described)
    else:
        for number, each in enumerate(described):
            if number:
                print()
            _print_described(each)
    if missing:
        hint = HINTS[ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]
        raise Failure("\n".join(f"{name}: {hint}" for name in missing))


def _described(servers: Cluster, client: TransactionClient, transactional_id: str) -> dict[str, Any] | None:
    described = client.describe(transactional_id)
    if described is None:
        return None
    partitions = [(topic.topic, index) for topic in described.topics for index in topic.partitions]
    starts: dict[tuple[str, int], int] = {}
    if partitions:
        topics = [each for each in servers.topics([topic.topic for topic in described.topics]) if not each.error_code]
        starts = {
            (each.topic, each.partition): each.start_offset
            for each in client.open_in(topics)
            if each.producer_id == described.producer_id
        }
    is_open = described.transaction_start_time_ms >= 0 and described.transaction_state in _OPEN_STATES
    return {
        "transactional_id": transactional_id,
        "state": described.transaction_state,
        "coordinator_id": client.coordinator_of(transactional_id),
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "timeout_ms": described.transaction_timeout_ms,
        "started_ms": described.transaction_start_time_ms if is_open else None,
        "partitions": [
            {"topic": topic, "partition": index, "start_offset": starts.get((topic, index))}
            for topic, index in sorted(partitions)
        ],
    }


def _print_described(each: dict[str, Any]) -> None:
    print(f"{each['transactional_id']}: {each['state']}")
    print(f"producer     {each['producer_id']}, epoch {each['producer_epoch']}")
    print(f"coordinator  broker {each['coordinator_id']}")
    print(f"timeout      {_seconds(each['timeout_ms'])}")
    if each["started_ms"] is not None:
        print(f"open since   {_time(each['started_ms'])}, for {_seconds(_now_ms() - each['started_ms'])}")
    if each["partitions"]:
        # A partition that was added and not written to yet has no offset.
        rows = [(one["topic"], one["partition"], _or_dash(one["start_offset"])) for one in each["partitions"]]
        print()
        print_table(("topic", "partition", "from offset"), rows)


@command.command("abort", short_help="Abort an open transaction and fence its producer.")
@click.argument("transactional_id", required=False, metavar="[TRANSACTIONAL-ID]")
@click.option(
    "--topic", "-t", metavar="TOPIC", help="Topic of a hanging transaction; requires --partition and --start-offset."
)
@click.option("--partition", "-p", type=click.IntRange(0), metavar="N", help="Partition of a hanging transaction.")
@click.option("--start-offset", type=click.IntRange(0), metavar="OFFSET", help="First offset of a hanging transaction.")
@bootstrap_option
def abort(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    bootstrap_server: str,
) -> None:
    """Abort the open transaction of a transactional id. Its producer is fenced and can no longer write.

    A hanging transaction no longer has a transactional id. Identify it by topic, partition and start offset, as printed
    by find-hanging; it is aborted in that partition only.

    \b
    Examples:
      moldau transactions abort orders-1
      moldau transactions abort --topic orders --partition 0 --start-offset 1234
    """
    place = (topic, partition, start_offset)
    if (transactional_id is None) == (place == (None, None, None)):
        raise click.UsageError("give either a TRANSACTIONAL-ID, or --topic, --partition and --start-offset")
    with cluster(bootstrap_server) as servers:
        client = TransactionClient(servers)
        if transactional_id is not None:
            _abort_open(client, transactional_id)
            return
        if topic is None or partition is None or start_offset is None:
            raise click.UsageError("--topic, --partition and --start-offset must be given together")
        _abort_hanging(servers, client, topic, partition, start_offset)


def _abort_open(client: TransactionClient, transactional_id: str) -> None:
    described = client.describe(transactional_id)
    if described is None:
        raise Failure(f"{transactional_id}: {HINTS[ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]}")
    if described.transaction_state != "Ongoing":
        raise Failure(f"{transactional_id} has no open transaction: its state is {described.transaction_state}")
    client.terminate(described)
    print(
        f"Aborted the transaction of {transactional_id}; "
        f"producer {described.producer_id} with epoch {described.producer_epoch} is fenced."
    )


def _abort_hanging(servers: Cluster, client: TransactionClient, topic: str, partition: int, start_offset: int) -> None:
    found = _topics(servers, [topic])[0]
    leader = next((each.leader_id for each in found.partitions if each.partition_index == partition), -1)
    if leader < 0:
        raise Failure(
            f"{topic}-{partition} does not exist or has no leader; `moldau topics describe {topic}` shows both"
        )
    for each in client.open_in([found]):
        if (each.partition, each.start_offset) == (partition, start_offset):
            client.abort_in(leader, each)
            print(f"Aborted the transaction of producer {each.producer_id} in {topic}-{partition}.")
            return
    raise Failure(
        f"no open transaction starts at offset {start_offset} of {topic}-{partition}; "
        "`moldau transactions find-hanging` lists hanging transactions"
    )


@command.command("find-hanging", short_help="Find transactions that never end.")
@click.option("--topic", "-t", "topics", multiple=True, metavar="TOPIC", help="Search only this topic; repeatable.")
@click.option(
    "--older-than",
    "older_than_ms",
    metavar="DURATION",
    default="15m",
    show_default=True,
    callback=duration_ms,
    help="Only transactions without writes for this long; the default is the maximum transaction timeout.",
)
@_json_option
@bootstrap_option
def find_hanging(topics: tuple[str, ...], older_than_ms: int, as_json: bool, bootstrap_server: str) -> None:
    """Find hanging transactions: open in a partition, but unknown to their coordinator.

    They block read_committed consumers forever. `moldau transactions abort` ends them.

    \b
    Examples:
      moldau transactions find-hanging
      moldau transactions find-hanging --topic orders --older-than 5m --json
    """
    with cluster(bootstrap_server) as servers:
        chosen = _topics(servers, topics or None)
        found = TransactionClient(servers).hanging(chosen, older_than_ms=older_than_ms)
    if as_json:
        print_json([each._asdict() for each in found])
        return
    if not found:
        print("No hanging transactions.", file=sys.stderr)
        return
    columns = ("topic", "partition", "from offset", "producer id", "epoch", "last written", "ago")
    print_table(columns, [_row_of(each) for each in found])
    print("\nAbort them with these commands; consumers with read_committed never see the aborted records:")
    for each in found:
        place = f"--topic {each.topic} --partition {each.partition} --start-offset {each.start_offset}"
        print(f"  moldau transactions abort {place}")


def _row_of(each: OpenTransaction) -> tuple[object, ...]:
    written = each.last_timestamp_ms
    last = (_time(written), _seconds(_now_ms() - written))
    return (each.topic, each.partition, each.start_offset, each.producer_id, each.producer_epoch, *last)


def _topics(servers: Cluster, names: Iterable[str] | None) -> list[MetadataResponseTopic]:
    found = servers.topics(names)
    for topic in found:
        if topic.error_code:
            raise Failure(f"{topic.name}: {explain(topic.error_code, None, HINTS)}")
    return found


def _or_dash(value: object) -> object:
    return "-" if value is None else value


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _time(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _seconds(ms: int) -> str:
    seconds = max(0, ms) / 1000
    if seconds < 120:
        return f"{seconds:g} s" if ms % 1000 and seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"

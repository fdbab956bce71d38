"""``moldau cluster drain``: move all partitions of one broker to the others.

Each replica on the broker is replaced by one on another active broker that has no replica of the partition: in a rack
without one if there is such a broker, and otherwise on the broker with the fewest replicas. The new replica has the
same position in the list, so the leaderships move too. The controller moves the data (AlterPartitionReassignments);
this command plans, starts the moves, and shows the progress.

A partition with a replica on every active broker has nowhere to go. Its replica stays, unless the user accepts that the
partition has one replica less (``--reduce-replicas``).
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import click

from ..protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ..protocol.messages.describe_cluster import DescribeClusterRequest
from ..protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from .client import bootstrap_option
from .cluster import Cluster, cluster, explain
from .failure import Failure
from .output import print_json, print_table

_TIMEOUT_MS: Final = 30_000
_LOOK_S: Final = 0.5
_PARTITIONS_PER_REQUEST: Final = 500


class Partition(NamedTuple):
    """A partition and the brokers of its replicas, as the cluster has them or will have them after the moves in
    progress."""

    topic: str
    number: int
    replicas: tuple[int, ...]


class Move(NamedTuple):
    """One replica of a partition goes to another broker, or is removed."""

    partition: Partition
    replicas: tuple[int, ...]


class Plan(NamedTuple):
    """What to do with the partitions of a broker."""

    moves: list[Move]
    reductions: list[Move]
    """Every active broker has a replica of these partitions: the broker's own one can only be removed."""
    stuck: list[Partition]
    """No other active broker has a replica of these partitions, or can get one."""


@click.command("drain", short_help="Move all partitions of a broker to the others.")
@click.argument("broker", type=int)
@click.option("--dry-run", is_flag=True, help="Only show the moves.")
@click.option(
    "--reduce-replicas",
    is_flag=True,
    help="Remove the broker's replica of a partition that has replicas on all brokers: it has one less then.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the moves as JSON.")
@bootstrap_option
def command(broker: int, dry_run: bool, reduce_replicas: bool, as_json: bool, bootstrap_server: str) -> None:
    """Move all partitions of a broker to the others, and wait until they are moved.

    Afterwards the broker has no data and can be stopped for good. After Ctrl-C, the moves that have begun continue;
    run the command again to see the rest. A partition with a replica on every active broker is not moved, and the exit
    code is 1, unless --reduce-replicas is given.

    \b
    Examples:
      moldau cluster drain 3 --dry-run
      moldau cluster drain 3 --bootstrap-server kafka.example:9092
      moldau cluster drain 3 --reduce-replicas
    """
    with cluster(bootstrap_server) as servers:
        racks = _active_brokers(servers)
        _check_known(servers, broker)
        partitions, pending = _partitions(servers, broker)
        planned = plan(partitions, broker, racks)
        moves = planned.moves + (planned.reductions if reduce_replicas else [])
        _show(moves, as_json)
        problem = _problem(planned, broker, reduced=reduce_replicas)
        if not dry_run:
            _begin(servers, moves)
            moved = {(move.partition.topic, move.partition.number) for move in moves} | pending
            _await(servers, moved, quiet=as_json)
        if problem is not None:
            raise Failure(problem)
    if not as_json and not dry_run:
        print(f"Broker {broker} has no partitions.")
        if broker in racks:
            print(f"Stop it for good, then remove its registration: kafka-cluster.sh unregister --id {broker}")


def plan(partitions: Iterable[Partition], broker: int, racks: Mapping[int, str | None]) -> Plan:
    """How the broker loses all its replicas. ``racks``: the rack of each active broker."""
    known = list(partitions)
    replica_count = Counter(replica for partition in known for replica in partition.replicas)
    planned = Plan([], [], [])
    for partition in known:
        if broker not in partition.replicas:
            continue
        used = {racks.get(replica) for replica in partition.replicas if replica != broker}
        candidates = [other for other in racks if other != broker and other not in partition.replicas]
        if not candidates:
            remaining = tuple(each for each in partition.replicas if each != broker)
            if any(each in racks for each in remaining):
                planned.reductions.append(Move(partition, remaining))
            else:
                planned.stuck.append(partition)
            continue
        target = min(candidates, key=lambda other: (racks[other] in used, replica_count[other], other))
        replica_count[target] += 1
        replicas = tuple(target if each == broker else each for each in partition.replicas)
        planned.moves.append(Move(partition, replicas))
    return planned


def _problem(planned: Plan, broker: int, *, reduced: bool) -> str | None:
    """What keeps the broker from losing all its partitions, and what to do; None if nothing does."""
    lines = []
    if planned.reductions and not reduced:
        lines.append(
            f"broker {broker} keeps {_some([move.partition for move in planned.reductions])}: every active broker has "
            "a replica. Start another broker and repeat the command, or repeat it with --reduce-replicas, which "
            "removes the replica: the partition has one replica less then."
        )
    if planned.stuck:
        lines.append(
            f"broker {broker} keeps {_some(planned.stuck)}: no other active broker has a replica, or can get one. "
            "Start another broker and repeat the command, or delete the topic."
        )
    return "\n".join(lines) or None


def _active_brokers(servers: Cluster) -> dict[int, str | None]:
    response = servers.ask(DescribeClusterRequest())
    if response.error_code:
        raise Failure(f"cannot describe the cluster: {explain(response.error_code, response.error_message)}")
    return {each.broker_id: each.rack for each in response.brokers if not each.is_fenced}


def _check_known(servers: Cluster, broker: int) -> None:
    replicas = {
        each for topic in servers.topics(None) for partition in topic.partitions for each in partition.replica_nodes
    }
    known = {*servers.broker_ids(), *replicas}
    if broker not in known:
        raise Failure(f"unknown broker {broker}; the cluster has: {', '.join(map(str, sorted(known)))}")


def _partitions(servers: Cluster, broker: int) -> tuple[list[Partition], set[tuple[str, int]]]:
    """All partitions, and those that are leaving the broker already."""
    moving = _moving(servers)
    partitions, pending = [], set()
    for topic in servers.topics(None):
        name = topic.name or ""
        for each in topic.partitions:
            removing = moving.get((name, each.partition_index), ())
            target = tuple(replica for replica in each.replica_nodes if replica not in removing)
            partitions.append(Partition(name, each.partition_index, target))
            if broker in removing:
                pending.add((name, each.partition_index))
    return sorted(partitions), pending


def _moving(servers: Cluster) -> dict[tuple[str, int], Sequence[int]]:
    """The partitions that are being moved, with the brokers that they leave."""
    response = servers.ask_controller(ListPartitionReassignmentsRequest(topics=None, timeout_ms=_TIMEOUT_MS))
    if response is None:
        raise Failure("the controller does not respond; until it does, no partition can be moved")
    if response.error_code:
        raise Failure(f"cannot list the moves: {explain(response.error_code, response.error_message)}")
    return {
        (topic.name, each.partition_index): each.removing_replicas
        for topic in response.topics
        for each in topic.partitions
    }


def _begin(servers: Cluster, moves: Sequence[Move]) -> None:
    for first in range(0, len(moves), _PARTITIONS_PER_REQUEST):
        topics: dict[str, ReassignableTopic] = {}
        for move in moves[first : first + _PARTITIONS_PER_REQUEST]:
            name = move.partition.topic
            wanted = ReassignablePartition(partition_index=move.partition.number, replicas=list(move.replicas))
            topics.setdefault(name, ReassignableTopic(name=name)).partitions.append(wanted)
        request = AlterPartitionReassignmentsRequest(topics=list(topics.values()), timeout_ms=_TIMEOUT_MS)
        response = servers.ask(request)
        if response.error_code:
            raise Failure(f"cannot move partitions: {explain(response.error_code, response.error_message)}")
        problems = [
            f"cannot move {topic.name}-{each.partition_index}: {explain(each.error_code, each.error_message)}"
            for topic in response.responses
            for each in topic.partitions
            if each.error_code
        ]
        if problems:
            raise Failure("\n".join(problems))


def _await(servers: Cluster, moved: set[tuple[str, int]], *, quiet: bool) -> None:
    """Return when none of these partitions is being moved any longer."""
    shown = None
    while True:
        left = len(moved & _moving(servers).keys())
        if not quiet and left != shown:
            print(f"{len(moved) - left} of {len(moved)} partitions are moved.", flush=True)
            shown = left
        if not left:
            return
        time.sleep(_LOOK_S)


def _show(moves: Sequence[Move], as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "topic": move.partition.topic,
                    "partition": move.partition.number,
                    "from": list(move.partition.replicas),
                    "to": list(move.replicas),
                }
                for move in moves
            ]
        )
    elif moves:
        rows = [
            (move.partition.topic, move.partition.number, _list(move.partition.replicas), _list(move.replicas))
            for move in moves
        ]
        print_table(("topic", "partition", "from brokers", "to brokers"), rows)


def _list(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _some(partitions: Sequence[Partition]) -> str:
    first = partitions[0]
    name = f"{first.topic}-{first.number} ({_list(first.replicas)})"
    return name if len(partitions) == 1 else f"{name} and {len(partitions) - 1} other partitions"

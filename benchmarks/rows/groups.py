"""Consumer groups, with members without a client library: the time until they are stable, and their cost after that.

Members implement only the protocol (`group_classic`, `group_consumer`). Their frequent requests, heartbeats and
commits, are encoded in advance and sent by `group_load.c`, which checks every response. Rows of members use the classic
protocol or the consumer protocol (KIP-848).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from ...protocol.messages.offset_commit import OffsetCommitRequestPartition
from .. import group_load
from ..coordinator import delete_groups, wait_coordinator
from ..group_classic import ClassicGroups
from ..group_connections import GroupConnections
from ..group_consumer import ConsumerGroups
from ..group_load import Pair
from ..row import Bench, Numbers, Row, Subject

GROUP = "Consumer groups"

_SERVERS = (Subject.APACHE, Subject.MOLDAU)

_SECONDS = 6
_CONNECTIONS = 50
"""Connections that send heartbeats or commits."""
_MEMBERS_THAT_FORM = 2_500
"""Groups that are formed together, if forming is not measured. The first ones send no requests until the last ones
have formed, which must not take longer than a session, 45 s."""
_COMMITTING_GROUPS = 50


class Groups(Protocol):
    """Groups of either protocol."""

    def form(self, group_ids: Sequence[str], size: int) -> None: ...

    def remove_one_member_each(self) -> None: ...

    def heartbeats(self) -> list[Pair]: ...

    def disband(self) -> None: ...


class Kind(Protocol):
    """The members of a protocol."""

    def __call__(self, connections: GroupConnections, topic: str) -> Groups: ...


@dataclass(frozen=True)
class Form:
    """Groups are formed by members that all join at the same time; then a member leaves each of them."""

    kind: Kind
    groups: int
    size: int

    def __call__(self, bench: Bench) -> Numbers:
        # The larger number is scaled.
        groups = bench.count(self.groups) if self.groups > 1 else 1
        size = self.size if self.groups > 1 else max(2, bench.count(self.size))
        topic = bench.topic(partitions=size)
        with _group_ids(bench, groups) as group_ids, GroupConnections(bench.server, groups * size) as connections:
            members = self.kind(connections, topic)
            formed = _Clock(bench)
            members.form(group_ids, size)
            formed.stop()
            resident = bench.server.resident_bytes()
            rebalanced = _Clock(bench)
            members.remove_one_member_each()
            rebalanced.stop()
            members.disband()
        return {
            "seconds": formed.seconds,
            "cpu_us_per_member": formed.cpu_seconds / (groups * size) * 1e6,
            "seconds_when_one_leaves": rebalanced.seconds,
            "cpu_us_per_member_when_one_leaves": rebalanced.cpu_seconds / (groups * (size - 1)) * 1e6,
            "rss_mb": resident / 1e6,
        }


@dataclass(frozen=True)
class Heartbeats:
    """Stable groups, whose members send heartbeats in turn, as fast as the server responds."""

    kind: Kind
    groups: int
    size: int

    def __call__(self, bench: Bench) -> Numbers:
        topic = bench.topic(partitions=self.size)
        groups = bench.count(self.groups)
        groups_per_round = min(groups, _MEMBERS_THAT_FORM // self.size)
        with (
            _group_ids(bench, groups) as group_ids,
            GroupConnections(bench.server, groups_per_round * self.size) as connections,
        ):
            members = self.kind(connections, topic)
            for start in range(0, groups, groups_per_round):
                members.form(group_ids[start : start + groups_per_round], self.size)
            numbers = _send(bench, members.heartbeats())
            members.disband()
        return numbers


@dataclass(frozen=True)
class Commits:
    """The only member of each group commits its offsets repeatedly, one request in flight each."""

    partitions: int

    def __call__(self, bench: Bench) -> Numbers:
        topic = bench.topic(partitions=self.partitions)
        with (
            _group_ids(bench, _COMMITTING_GROUPS) as group_ids,
            GroupConnections(bench.server, _COMMITTING_GROUPS) as connections,
        ):
            members = ClassicGroups(connections, topic)
            members.form(group_ids, 1)
            indexes = range(self.partitions)
            committed = [OffsetCommitRequestPartition(partition_index=index, committed_offset=0) for index in indexes]
            commits = [
                group_load.commit(
                    group.group_id, topic, committed, member_id=member.member_id, generation=member.generation
                )
                for group in members.groups
                for member in group.members
            ]
            numbers = _send(bench, commits)
            members.disband()
        return numbers


@contextmanager
def _group_ids(bench: Bench, count: int) -> Iterator[list[str]]:
    """Unused names of groups, which are deleted afterwards; their members have left by then."""
    wait_coordinator(bench.server)
    group_ids = [f"bench-{uuid.uuid4().hex[:12]}" for _ in range(count)]
    yield group_ids
    delete_groups(bench.server, group_ids)


def _send(bench: Bench, pairs: Sequence[Pair]) -> Numbers:
    before = bench.server.cpu_seconds()
    connections = min(_CONNECTIONS, len(pairs))
    result = group_load.run(bench, bench.server, pairs, connections=connections, seconds=bench.count(_SECONDS))
    cpu = bench.server.cpu_seconds() - before
    return {
        "requests_per_s": result.requests_per_s,
        **result.latencies(),
        "cpu_us_per_request": cpu / result.requests * 1e6,
    }


class _Clock:
    """The elapsed time, and the server's CPU time, from its creation to `stop`."""

    def __init__(self, bench: Bench) -> None:
        self._server = bench.server
        self._cpu = self._server.cpu_seconds()
        self._began = time.perf_counter()
        self.seconds = self.cpu_seconds = 0.0

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu_seconds = self._server.cpu_seconds() - self._cpu


def _rows() -> Iterator[Row]:
    kinds: tuple[tuple[str, str, Kind], ...] = (
        ("classic", "classic protocol", ClassicGroups),
        ("consumer", "consumer protocol", ConsumerGroups),
    )
    for name, words, kind in kinds:
        yield Row(
            name=f"groups-100x10-{name}",
            title=f"100 groups of 10 members become stable; then one member leaves each ({words})",
            group=GROUP,
            measure=Form(kind, groups=100, size=10),
            subjects=_SERVERS,
        )
        yield Row(
            name=f"group-of-1000-{name}",
            title=f"a group of 1,000 members becomes stable; then one leaves ({words})",
            group=GROUP,
            measure=Form(kind, groups=1, size=1_000),
            subjects=_SERVERS,
        )
        yield Row(
            name=f"heartbeats-{name}",
            title=f"heartbeats of 10,000 members in 100 groups, {_CONNECTIONS} connections x 1 in flight ({words})",
            group=GROUP,
            measure=Heartbeats(kind, groups=100, size=100),
            subjects=_SERVERS,
            needs=("cc",),
        )
    for partitions, words in ((1, "1 partition"), (10, "10 partitions")):
        yield Row(
            name=f"commits-{partitions}",
            title=f"{_COMMITTING_GROUPS} groups commit offsets of {words}, one request in flight each",
            group=GROUP,
            measure=Commits(partitions),
            subjects=_SERVERS,
            needs=("cc",),
        )


ROWS = tuple(_rows())

"""Groups of real clients: processes that are members, and checks of the events that they print.

Each member is a program around one client (`clients.group_member` describes its argument and its events); kcat needs no
program, because it prints enough. The driver starts members, lets them leave, kills them, kills the server, writes
records, and waits for lines; it never sleeps. At the end it checks all events:

- every record was consumed at least once, and the committed offsets are the ends of the partitions;
- no partition had two owners in one generation or member epoch, where the client shows it;
- nor at the same time: a member had revoked a partition, or had exited, before another member received it. (All
  programs read the clock of the machine; kcat prints neither the time nor these events.)
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.records import build_batch
from moldau.testing import requirements
from moldau.testing import topic_requests as w
from moldau.testing.clients.commands import member_command
from moldau.testing.clients.group_member import Options
from moldau.testing.group_requests import committed
from moldau.testing.routed_wire import RoutedWire
from moldau.testing.waiting import wait_until

DEADLINE_SECONDS = 45.0

PARTITIONS = 6

_GROUP_RESOURCE = 32


class Event(NamedTuple):
    """A line of a member's output, or its exit."""

    member: str
    kind: str
    at: int
    fields: Mapping[str, Any]


# -- kinds of members --


@dataclass(frozen=True, slots=True)
class Kind:
    """A client with one of its protocols: how a member is started, and how its lines become events."""

    client: str
    protocol: str
    command: Callable[[Options], list[str]]
    read: Callable[["Member"], Iterator[Callable[[], None]]]
    timed: bool = True
    """Whether its events have timestamps."""
    without_static: str | None = None
    """Why its static members cannot return."""
    survives_server: bool = True
    """Whether it survives while no broker responds."""

    def __str__(self) -> str:
        return f"{self.client}-{self.protocol}"

    @property
    def is_lightweight(self) -> bool:
        """Whether many of its processes can be started in a short time."""
        return self.client != "java"


def kinds() -> list[Kind]:
    """Every client that supports groups, with each of its protocols."""

    def of_json(client: str, *protocols: str) -> list[Kind]:
        return [Kind(client, protocol, partial(member_command, client), _json_events) for protocol in protocols]

    return [
        *of_json("kafka-python", "range"),
        *of_json("confluent-kafka", "range", "cooperative", "consumer"),
        *of_json("aiokafka", "range"),
        *of_json("java", "range", "sticky", "cooperative", "consumer"),
        *of_json("franz-go", "range", "cooperative"),
        Kind(
            "franz-go",
            "consumer",
            partial(member_command, "franz-go"),
            _json_events,
            without_static="franz-go 1.22 leaves with epoch -2 but without its instance id, which Kafka refuses",
        ),
        Kind("kcat", "range", _kcat_command, _kcat_events, timed=False, survives_server=False),
    ]


def _json_events(member: "Member") -> Iterator[Callable[[], None]]:
    def read(stdout: IO[bytes]) -> None:
        for line in _whole_lines(stdout):
            fields = json.loads(line)
            member.record_event(fields.pop("event"), fields.pop("at"), fields)

    yield lambda: read(member.stdout)


def _whole_lines(stdout: IO[bytes]) -> Iterator[bytes]:
    """The last line of a killed process may be incomplete."""
    return (line for line in stdout if line.endswith(b"\n"))


def _kcat_command(options: Options) -> list[str]:
    settings = {
        "partition.assignment.strategy": options.protocol,
        "session.timeout.ms": options.session_timeout_ms,
        "heartbeat.interval.ms": options.heartbeat_interval_ms,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 100,
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 500,
        "debug": "cgrp",  # which logs the generation
    }
    if options.instance_id is not None:
        settings["group.instance.id"] = options.instance_id
    command = [requirements.require_program("kcat"), "-b", options.bootstrap_servers, "-u", "-f", r"%p %o\n"]
    for name, value in settings.items():
        command += ["-X", f"{name}={value}"]
    return [*command, "-G", options.group_id, options.topic]


_KCAT_GENERATION = re.compile(r"JoinGroup response: GenerationId (-?\d+)")
_KCAT_REBALANCED = re.compile(r"% Group .* rebalanced \(memberid .*\): (assigned|revoked): ?(.*)$")
_KCAT_PARTITION = re.compile(r"\[(\d+)\]")


def _kcat_events(member: "Member") -> Iterator[Callable[[], None]]:
    """kcat prints records to standard output, and rebalances to standard error among other messages."""

    def read_records(stdout: IO[bytes]) -> None:
        for line in _whole_lines(stdout):
            partition, offset = map(int, line.split())
            fields = {"partition": partition, "first": offset, "last": offset}
            member.record_event("consumed", time.time_ns(), fields)

    def read_rebalances(stderr: IO[bytes]) -> None:
        generation = -1
        for line in stderr:
            text = line.decode(errors="replace").rstrip()
            if found := _KCAT_GENERATION.search(text):
                generation = int(found[1])
            elif found := _KCAT_REBALANCED.match(text):
                fields = {"partitions": [int(each) for each in _KCAT_PARTITION.findall(found[2])]}
                more = {"generation": generation} if found[1] == "assigned" else {}
                member.record_event(found[1], time.time_ns(), fields | more)

    yield lambda: read_records(member.stdout)
    yield lambda: read_rebalances(member.stderr)


# -- members --


class Member:
    """A process that is a member of the group, from its start to its end. A name can be started more than once."""

    def __init__(self, group: "Group", name: str, kind: Kind, options: Options) -> None:
        self.name = name
        self.options = options
        self._ended = False
        self.owned: set[int] = set()
        """According to its events so far."""
        self._group = group
        self._kind = kind
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        self._process = subprocess.Popen(
            kind.command(options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors if kind.timed else subprocess.PIPE,
        )
        self._readers = [threading.Thread(target=read, daemon=True) for read in kind.read(self)]
        for reader in self._readers:
            reader.start()

    @property
    def stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def stderr(self) -> IO[bytes]:
        assert self._process.stderr is not None
        return self._process.stderr

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def record_event(self, kind: str, at: int, fields: Mapping[str, Any]) -> None:
        """Record an event of this member."""
        with self._group.changed:
            if kind == "assigned":
                self.owned.update(fields["partitions"])
            elif kind in ("revoked", "lost"):
                self.owned.difference_update(fields["partitions"])
            self._group.events.append(Event(self.name, kind, at, fields))
            self._group.changed.notify_all()

    def leave(self) -> None:
        """Close its consumer, and wait until the process has exited."""
        # Some clients do not report the revocation of their partitions when they are closed.
        self.record_event("leaving", time.time_ns(), {})
        assert self._process.stdin is not None
        if self._kind.client == "kcat":
            self._process.send_signal(signal.SIGTERM)
        else:
            self._process.stdin.close()
        self._process.wait(DEADLINE_SECONDS)
        self._end()

    def wait_end(self) -> None:
        """Return when it has exited."""
        self._process.wait(DEADLINE_SECONDS)
        self._end()

    def kill(self) -> None:
        """``kill -9``."""
        self._process.kill()
        self._process.wait()
        self._end()

    def close(self) -> None:
        """Kill the process if it is still running."""
        if not self._ended:
            self.kill()

    def _end(self) -> None:
        self._ended = True
        for reader in self._readers:
            reader.join()
        self.record_event("ended", time.time_ns(), {})
        self.owned.clear()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._errors.close()

    def error_output(self) -> str:
        """The end of its standard error output."""
        if self._errors.closed:
            return ""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 2000))
        return self._errors.read().decode(errors="replace")


# -- the group --


@dataclass
class Group:
    """A group of members of one kind, its topic, and all events. Closing it kills its members."""

    kind: Kind
    bootstrap_servers: str
    group_id: str
    topic: str
    session_timeout_ms: int
    members: dict[str, Member] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    ends: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    """The number of records by partition."""

    def __enter__(self) -> Self:
        """Create the topic, and set the session timeout of a group whose members cannot."""
        w.create_topic(self.bootstrap_servers, self.topic, PARTITIONS)
        if self.kind.protocol == "consumer":
            change = AlterableConfig(name="consumer.session.timeout.ms", value=str(self.session_timeout_ms))
            resource = AlterConfigsResource(
                resource_type=_GROUP_RESOURCE, resource_name=self.group_id, configs=[change]
            )
            with RoutedWire(self.bootstrap_servers) as wire:
                (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
            assert answer.error_code == 0, answer
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members.values():
            member.close()

    def start(self, name: str, *, instance_id: str | None = None) -> Member:
        """Start a member; a name that has ended may be used again."""
        options = Options(
            bootstrap_servers=self.bootstrap_servers,
            group_id=self.group_id,
            topic=self.topic,
            protocol=self.kind.protocol,
            instance_id=instance_id,
            session_timeout_ms=self.session_timeout_ms,
        )
        member = self.members[name] = Member(self, name, self.kind, options)
        return member

    def start_all(self, names: Iterable[str], instance_ids: Iterable[str] = ()) -> list[Member]:
        """Start the first members of the group.

        librdkafka may repeat its first heartbeat of a consumer group after the response has assigned partitions. The
        repetition reports that it owns none, so another member receives some before it has revoked them. This is only
        possible while others join: the first member is alone until it owns all partitions.
        """
        started: list[Member] = []
        for name, instance_id in zip_longest(names, instance_ids):
            started.append(self.start(name, instance_id=instance_id))
            if len(started) == 1 and self.kind.protocol == "consumer":
                self.wait_stable(*started)
        return started

    def produce(self, count: int) -> None:
        """Write ``count`` more records to each partition; all are acknowledged."""
        values = [b"%d" % number for number in range(count)]
        with RoutedWire(self.bootstrap_servers) as wire:
            for partition in self.ends:
                answer = w.produce(wire, self.topic, build_batch(w.records(*values)), partition=partition)
                assert answer.error_code == 0, ErrorCode(answer.error_code).name
                assert answer.base_offset == self.ends[partition]
                self.ends[partition] += count

    # Waiting

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Return when the condition holds, which is evaluated at each event of a member."""
        with self.changed:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while not condition():
                left = deadline - time.monotonic()
                ended = [member.name for member in self.members.values() if member.owned and not member.alive]
                assert not ended, f"{what}: {ended} ended\n{self.event_log()}"
                assert left > 0, f"{what}: not within {DEADLINE_SECONDS} s\n{self.event_log()}"
                self.changed.wait(min(left, 1.0))

    def wait_stable(self, *members: Member) -> None:
        """Return when each partition has one owner, and these members have as many as each other, or one less."""
        everything = sorted(self.ends)

        def is_stable() -> bool:
            owned = [partition for member in members for partition in member.owned]
            shares = [len(member.owned) for member in members]
            return sorted(owned) == everything and max(shares) - min(shares) <= 1

        self.wait(is_stable, f"owners of {self.topic} among {[member.name for member in members]}")

    def wait_consumed(self) -> None:
        """Return when every record has been consumed, and every offset committed."""
        self.wait(lambda: not self.missing(), f"the records of {self.topic}")
        with RoutedWire(self.bootstrap_servers) as wire:
            wait_until(
                lambda: committed(wire, self.group_id, self.topic, self.ends) == self.ends, "the committed offsets"
            )

    # Checks

    def missing(self) -> dict[int, int]:
        """By partition, the number of records that no member has consumed."""
        seen: dict[int, set[int]] = defaultdict(set)
        for event in self.events:
            if event.kind == "consumed":
                seen[event.fields["partition"]].update(range(event.fields["first"], event.fields["last"] + 1))
        left = {partition: end - len(seen[partition] & set(range(end))) for partition, end in self.ends.items()}
        return {partition: count for partition, count in left.items() if count}

    def check(self) -> None:
        """Check the invariants of any sequence of events."""
        with self.changed:
            events = list(self.events)
        beyond = [event for event in events if event.kind == "consumed" and self._is_past_the_end(event)]
        assert beyond == [], self.event_log()
        assert owners_of_generations(events) == {}, self.event_log()
        if self.kind.timed:
            assert concurrent_owners(events) == [], self.event_log()

    def _is_past_the_end(self, event: Event) -> bool:
        return bool(event.fields["last"] >= self.ends[event.fields["partition"]])

    def changes_since(self, mark: int, *members: Member) -> list[Event]:
        """The events of these members about assigned and revoked partitions."""
        names = {member.name for member in members}
        with self.changed:
            return [
                event
                for event in self.events[mark:]
                if event.member in names and event.kind in ("assigned", "revoked", "lost")
            ]

    def mark(self) -> int:
        """The current position in the events, for ``changes_since``."""
        with self.changed:
            return len(self.events)

    def event_log(self) -> str:
        """The latest events, for the report of a failed test."""
        lines = [f"{event.at} {event.member} {event.kind} {dict(event.fields)}" for event in self.events]
        errors = [f"{name}: {member.error_output()}" for name, member in self.members.items()]
        return "\n".join([*lines[-120:], f"missing: {self.missing()}", *errors])


def owners_of_generations(events: Iterable[Event]) -> dict[tuple[int, int], set[str]]:
    """The (generation, partition) pairs that more than one member has owned, with the members."""
    owners: dict[tuple[int, int], set[str]] = defaultdict(set)
    for event, owned in _with_owned(events):
        generation = event.fields.get("generation")
        if event.kind == "assigned" and generation is not None:
            for partition in owned:
                owners[generation, partition].add(event.member)
    return {claim: members for claim, members in owners.items() if len(members) > 1}


def concurrent_owners(events: Iterable[Event]) -> list[str]:
    """Partitions that were assigned to a member while another member still owned them."""
    found = []
    owners: dict[int, tuple[str, int]] = {}
    for event in sorted(events, key=lambda event: event.at):
        if event.kind == "assigned":
            for partition in event.fields["partitions"]:
                owner = owners.setdefault(partition, (event.member, event.at))
                if owner[0] != event.member:
                    found.append(
                        f"{partition} was assigned to {event.member} at {event.at}, "
                        f"but {owner[0]} has owned it since {owner[1]}"
                    )
        elif event.kind in ("revoked", "lost", "leaving", "ended"):
            given_up = event.fields.get("partitions", list(owners))
            for partition in given_up:
                if owners.get(partition, ("", 0))[0] == event.member:
                    del owners[partition]
    return found


def _with_owned(events: Iterable[Event]) -> Iterator[tuple[Event, set[int]]]:
    """Each event with the partitions that its member owns after it."""
    owned: dict[str, set[int]] = defaultdict(set)
    for event in events:
        if event.kind == "assigned":
            owned[event.member].update(event.fields["partitions"])
        elif event.kind in ("revoked", "lost"):
            owned[event.member].difference_update(event.fields["partitions"])
        elif event.kind == "ended":
            owned[event.member].clear()
        yield event, owned[event.member]

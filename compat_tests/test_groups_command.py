"""Kafka's own ConsumerGroupCommand has the same output with this server and with Apache Kafka.

Both servers have the same topics, records, groups and members, and receive the same commands: lists, descriptions,
every way to reset offsets, deletions. The outputs are compared line by line. Values that must differ (ports, broker
ids, random ids, widths of columns, the order of lines) are normalized first.
"""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.compat_tests.group_server import CONFIG
from moldau.compat_tests.scenarios import KEEP, T0
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.records import Record, build_batch
from moldau.testing import topic_requests as w
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.clients.java import JavaClient
from moldau.testing.group_requests import (
    ClassicMember,
    ConsumerMember,
    assignment,
    commit,
    commit_request,
    rebalance,
    settle,
    subscription,
    wait_for_coordinator,
)
from moldau.testing.requirements import require_kafka_jars
from moldau.testing.servers import Server
from moldau.testing.wire import WireClient

pytestmark = pytest.mark.slow

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def reset(*how: str, group: str = "simple", what: str = "--all-topics", execute: bool = True) -> list[str]:
    """A command that resets offsets."""
    where = [what] if what.startswith("--") else ["--topic", what]
    return ["--reset-offsets", "--group", group, *where, *how, "--execute" if execute else "--dry-run"]


OFFSETS = ["--describe", "--group", "simple", "--offsets"]

# Their order matters: each begins with the state after the previous one.
COMMANDS: dict[str, list[str]] = {
    "list": ["--list"],
    "list by state": ["--list", "--state"],
    "list of some states": ["--list", "--state", "stable,Empty"],
    "list by type": ["--list", "--type"],
    "list of some types": ["--list", "--type", "consumer"],
    "list by state and type": ["--list", "--state", "--type"],
    "list of an unknown state": ["--list", "--state", "nonsense"],
    "describe all": ["--describe", "--all-groups"],
    "describe an unknown group": ["--describe", "--group", "nobody"],
    "describe the state of an unknown group": ["--describe", "--group", "nobody", "--state"],
    "describe the members of an unknown group": ["--describe", "--group", "nobody", "--members"],
    **{
        f"describe {group} {' '.join(options)}".strip(): ["--describe", "--group", group, *options]
        for group in ("simple", "empty", "classic", "modern")
        for options in (
            [],
            ["--offsets"],
            ["--offsets", "--verbose"],
            ["--members"],
            ["--members", "--verbose"],
            ["--state"],
            ["--state", "--verbose"],
        )
    },
    "reset for a look": reset("--to-earliest", execute=False),
    "nothing has changed": OFFSETS,
    "reset to earliest": reset("--to-earliest"),
    "which is committed": OFFSETS,
    "reset to latest": reset("--to-latest"),
    "reset one topic": reset("--to-offset", "2", what="orders"),
    "reset some partitions": reset("--to-offset", "1", what="orders:0,2"),
    "reset beyond the end": reset("--to-offset", "1000", what="orders:1"),
    "reset before the beginning": reset("--to-offset", "0", what="trimmed"),
    "reset to current": reset("--to-current"),
    "shift forward": reset("--shift-by", "2", what="orders"),
    "shift back": reset("--shift-by", "-1", what="orders:0"),
    "shift far back": reset("--shift-by", "-100", what="orders:0,1"),
    "shift far forward": reset("--shift-by", "100", what="orders:2"),
    "reset to a time": reset("--to-datetime", "2001-09-09T01:46:40.002", what="orders"),
    "reset to a time after all records": reset("--to-datetime", "2020-01-01T00:00:00.000", what="orders"),
    "reset by a duration": reset("--by-duration", "P365D", what="orders"),
    "reset by a long duration": reset("--by-duration", "P10000D", what="orders"),
    "reset from a file": reset("--from-file", "FILE"),
    "which is committed too": OFFSETS,
    "export": [*reset("--to-current", execute=False), "--export"],
    "reset a missing topic": reset("--to-latest", what="missing"),
    "reset a missing partition": reset("--to-latest", what="orders:7"),
    "reset a new group": reset("--to-earliest", group="new", what="orders"),
    "describe the new group": ["--describe", "--group", "new"],
    "reset a classic group with members": reset("--to-earliest", group="classic"),
    "reset a consumer group with members": reset("--to-earliest", group="modern"),
    "delete offsets": ["--delete-offsets", "--group", "simple", "--topic", "payments"],
    "delete offsets of a partition": ["--delete-offsets", "--group", "simple", "--topic", "orders:1"],
    "which are deleted": OFFSETS,
    "delete missing offsets": ["--delete-offsets", "--group", "simple", "--topic", "payments"],
    "delete offsets of subscribed topics": ["--delete-offsets", "--group", "classic", "--topic", "orders"],
    "delete offsets of topics of consumer groups": ["--delete-offsets", "--group", "modern", "--topic", "orders"],
    "delete offsets of an unknown group": ["--delete-offsets", "--group", "nobody", "--topic", "orders"],
    "delete offsets of an unknown topic": ["--delete-offsets", "--group", "simple", "--topic", "missing"],
    "delete": ["--delete", "--group", "empty"],
    "delete several": ["--delete", "--group", "new", "--group", "nobody", "--group", "classic"],
    "delete a group with members": ["--delete", "--group", "modern"],
    "list the remaining groups": ["--list", "--state"],
}


class Printed(NamedTuple):
    """The state after a command, normalized where servers must differ."""

    exit_code: int
    lines: list[str]


class Scene:
    """A server with topics, groups and members."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self._address = bootstrap_servers
        self._file = folder / "offsets.csv"
        self._file.write_text('"orders",0,1\n"orders",1,0\n"payments",0,3\n')
        self._members: list[ClassicMember | ConsumerMember] = []
        self._wire = WireClient(bootstrap_servers)
        wait_for_coordinator(bootstrap_servers)
        self._topics = {name: w.create_topic(bootstrap_servers, name, n, KEEP) for name, n in TOPICS.items()}
        for name, partitions in TOPICS.items():
            for partition in range(partitions):
                times = [Record(timestamp=T0 + n, value=b"-") for n in range(5)]
                assert w.produce(self._wire, name, build_batch(times), partition=partition).error_code == 0
        # A reset to an offset before its beginning is impossible.
        old = DeleteRecordsPartition(partition_index=0, offset=2)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="trimmed", partitions=[old])], timeout_ms=10_000)
        assert self._wire.call(request, 2).topics[0].partitions[0].error_code == 0
        self._make_groups()

    def _make_groups(self) -> None:
        address, orders, payments = self._address, self._topics["orders"], self._topics["payments"]
        self._commit("simple", "orders", {0: 1, 1: 2, 2: 5})
        self._commit("simple", "payments", {0: 0})
        protocols = {"range": subscription("orders", "payments"), "roundrobin": subscription("orders", "payments")}
        alpha = ClassicMember(address, "classic", client_id="alpha", protocols=protocols)
        beta = ClassicMember(address, "classic", client_id="beta", instance_id="b-1", protocols=protocols)
        rebalance(alpha)
        rebalance(alpha, beta)
        # Once more, now that the ids are known.
        given = {alpha.member_id: assignment({"orders": [0, 2]}), beta.member_id: assignment({"payments": [0]})}
        rebalance(alpha, beta, assignments=given)
        mine = commit_request(
            "classic", "orders", {0: 3}, member_id=alpha.member_id, generation=alpha.generation, metadata="mine"
        )
        assert commit(self._wire, mine) == {0: "NONE"}

        modern = [
            ConsumerMember(
                address,
                "modern",
                orders,
                payments,
                client_id=f"client-{number}",
                member_id=f"member-{number}",
                instance_id=instance_id,
                assignor="range",
            )
            for number, instance_id in enumerate((None, "m-1"))
        ]
        self._members += [alpha, beta, *modern]
        for member in modern:
            member.join()
        settle(*modern)
        first = commit_request("modern", "orders", {0: 4}, member_id=modern[0].member_id, generation=modern[0].epoch)
        assert commit(self._wire, first) == {0: "NONE"}

        leaving = ClassicMember(address, "empty", protocols=protocols)
        with leaving:
            rebalance(leaving)
            own = commit_request(
                "empty", "payments", {0: 2}, member_id=leaving.member_id, generation=leaving.generation
            )
            assert commit(self._wire, own) == {0: "NONE"}
            leaving.leave()

    def _commit(self, group_id: str, topic: str, offsets: dict[int, int]) -> None:
        assert set(commit(self._wire, commit_request(group_id, topic, offsets)).values()) == {"NONE"}

    def run(self, arguments: list[str]) -> Printed:
        """One command, while the members stay in their groups."""
        for member in self._members:
            member.heartbeat()
        given = [str(self._file) if each == "FILE" else each for each in arguments]
        done = JavaClient(self._address).tool(TOOL, ["--bootstrap-server", self._address, *given])
        return Printed(done.exit_code, sorted(filter(None, map(self._equal, done.stdout.splitlines()))))

    def _equal(self, line: str) -> str:
        line = line.replace(self._address.rpartition(":")[2], "PORT")
        line = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", line)
        line = re.sub(r"PORT\s+\(\d+\)", "PORT (BROKER)", line)
        return " ".join(line.split())

    def close(self) -> None:
        """Close the connections."""
        for member in self._members:
            member.close()
        self._wire.close()


TOPICS = {"orders": 3, "payments": 1, "trimmed": 1}


@pytest.fixture(scope="module")
def printed(
    request: pytest.FixtureRequest,
    new_server: Callable[..., AbstractContextManager[Server]],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[Printed, Printed]]:
    """By command, the outputs for the server under test and for Apache Kafka."""
    require_kafka_jars()
    transcripts = []
    servers: list[AbstractContextManager[Server]] = [new_server(CONFIG), ApacheKafka(CONFIG)]
    for each in servers:
        with each as server:
            scene = Scene(server.bootstrap_servers, tmp_path_factory.mktemp("scene"))
            transcripts.append({name: scene.run(arguments) for name, arguments in COMMANDS.items()})
            scene.close()
    tested, apache = transcripts
    return {name: (tested[name], apache[name]) for name in COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_its_output_is_the_same_as_with_apache_kafka(printed: dict[str, tuple[Printed, Printed]], command: str) -> None:
    tested, apache = printed[command]
    assert tested == apache


def test_the_commands_have_done_something(printed: dict[str, tuple[Printed, Printed]]) -> None:
    """Two servers that reject every command would have the same output."""

    def lines(command: str) -> list[str]:
        return printed[command][0].lines

    assert {line.split()[0] for line in lines("list")} == {"simple", "empty", "classic", "modern"}
    assert "simple orders 1 0 5 5 - - -" in lines("which is committed")
    assert any(line.startswith("simple payments 0 3 5 2") for line in lines("which is committed too"))
    assert len([line for line in lines("describe classic --members --verbose") if "UUID" in line]) == 2
    assert [line for line in lines("which are deleted") if "payments" in line] == []
    assert {line.split()[0] for line in lines("list the remaining groups")} == {"GROUP", "simple", "classic", "modern"}

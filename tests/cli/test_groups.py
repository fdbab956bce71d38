"""``moldau groups`` against a server. Members act only on request of the test, which thus controls the state of each
group."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from moldau.cli.connection import PeerError
from moldau.cli.failure import Failure
from moldau.cli.group_client import GroupClient, TopicPartition
from moldau.protocol.uuid import uuid_from_str
from moldau.testing.group_requests import (
    ClassicMember,
    ConsumerMember,
    assignment,
    commit_request,
    describe_group,
    rebalance,
    settle,
    subscription,
    wait_for_coordinator,
)
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until

from .conftest import Result, Run

T0 = 1_700_000_000_000
"""The time of the first record; each record is one second later than the previous one."""

_numbers = count(1)
_session = uuid4().hex[:8]


@pytest.fixture(scope="module", autouse=True)
def _coordinator(bootstrap_servers: str) -> None:
    wait_for_coordinator(bootstrap_servers)


@pytest.fixture
def new_group() -> Callable[[], str]:
    """``new_group()``: a name that no other test uses."""
    return lambda: f"cli-group-{next(_numbers)}-{_session}"


@pytest.fixture
def topic(ask: Run, new_topic: Callable[..., str]) -> str:
    """A topic with three partitions: ten records, five, and none."""
    name = new_topic(3, "retention.ms=-1")
    for partition, records in ((0, 10), (1, 5)):
        lines = [
            json.dumps({"value": str(number), "partition": partition, "timestamp": T0 + 1000 * number})
            for number in range(records)
        ]
        produced = ask("produce", name, "--json", input="\n".join(lines).encode())
        assert produced.code == 0, produced.err
    return name


@pytest.fixture
def stable_group(bootstrap_servers: str, topic: str, new_group: Callable[[], str]) -> Iterator[list[ClassicMember]]:
    """A classic group with two members; the first one is static."""
    group_id = new_group()
    protocols = {"range": subscription(topic)}
    with (
        ClassicMember(bootstrap_servers, group_id, protocols=protocols, instance_id="rack-1", client_id="one") as one,
        ClassicMember(bootstrap_servers, group_id, protocols=protocols, client_id="two") as two,
    ):
        rebalance(one)
        two.start_join()
        wait_until(
            lambda: describe_group(one.wire, group_id).group_state == "PreparingRebalance", "the second member's join"
        )
        one.start_join()
        for member in (one, two):
            assert member.joined().error_code == 0
        given = {one.member_id: assignment({topic: [0, 2]}), two.member_id: assignment({topic: [1]})}
        for member in (one, two):
            member.start_sync(given if member.is_leader else None)
        for member in (one, two):
            assert member.synced().error_code == 0
        yield [one, two]


def committed(ask: Run, group_id: str) -> dict[int, int]:
    """Committed offsets of the only topic of a group."""
    return {row["partition"]: row["committed"] for row in ask("groups", "offsets", group_id, "--json").json()}


def reset(ask: Run, group_id: str, *arguments: str) -> dict[int, int]:
    """Reset the group and return its committed offsets."""
    done = ask("groups", "reset", group_id, *arguments, "--execute")
    assert done.code == 0, done.err
    return committed(ask, group_id)


# -- reset -------------------------------------------------------------------------------------------------------------


def test_reset_is_a_dry_run_without_execute(ask: Run, topic: str, new_group: Callable[[], str]) -> None:
    group_id = new_group()
    shown = ask("groups", "reset", group_id, "--topic", topic, "--to-latest", "--json")
    assert [(row["partition"], row["committed"], row["new_offset"]) for row in shown.json()] == [
        (0, None, 10),
        (1, None, 5),
        (2, None, 0),
    ]
    assert "Dry run: no offsets were changed. Run again with --execute to apply." in shown.err
    assert ask("groups", "describe", group_id).code == 1
    assert reset(ask, group_id, "--topic", topic, "--to-latest") == {0: 10, 1: 5, 2: 0}
    table = ask("groups", "reset", group_id, "--all-topics", "--to-earliest", "--dry-run")
    assert table.lines[0].split() == ["group", "topic", "partition", "committed", "new", "offset"]
    assert table.lines[1].split() == [group_id, topic, "0", "10", "0"]
    assert committed(ask, group_id) == {0: 10, 1: 5, 2: 0}


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (["--to-earliest"], {0: 0, 1: 0, 2: 0}),
        (["--to-latest"], {0: 10, 1: 5, 2: 0}),
        (["--to-current"], {0: 4, 1: 5, 2: 0}),
        (["--to-offset", "3"], {0: 3, 1: 3, 2: 0}),
        (["--to-datetime", str(T0 + 3500)], {0: 4, 1: 4, 2: 0}),
        (["--to-datetime", "2023-11-14T22:13:22.000"], {0: 2, 1: 2, 2: 0}),
        (["--to-datetime", "2023-11-14T23:13:27+01:00"], {0: 7, 1: 5, 2: 0}),
        (["--by-duration", "PT0S"], {0: 10, 1: 5, 2: 0}),
        (["--by-duration", "P36500D"], {0: 0, 1: 0, 2: 0}),
    ],
    ids=lambda value: "=".join(value) if isinstance(value, list) else "",
)
def test_reset_targets(
    ask: Run, topic: str, new_group: Callable[[], str], way: list[str], expected: dict[int, int]
) -> None:
    group_id = new_group()
    reset(ask, group_id, "--topic", f"{topic}:0", "--to-offset", "4")
    assert reset(ask, group_id, "--topic", topic, *way) == expected


@pytest.mark.parametrize(("shift", "expected"), [("3", 7), ("-3", 1), ("-9", 0), ("99", 10)])
def test_shift_stays_within_the_partition(
    ask: Run, topic: str, new_group: Callable[[], str], shift: str, expected: int
) -> None:
    group_id = new_group()
    reset(ask, group_id, "--topic", f"{topic}:0", "--to-offset", "4")
    assert reset(ask, group_id, "--all-topics", f"--shift-by={shift}") == {0: expected}


def test_offsets_out_of_range_are_clamped_with_a_warning(ask: Run, topic: str, new_group: Callable[[], str]) -> None:
    result = ask("groups", "reset", new_group(), "--topic", f"{topic}:1", "--to-offset", "77")
    assert f"offset 77 is beyond the end of {topic}-1; using the end offset 5" in result.err
    result = ask("groups", "reset", new_group(), "--topic", f"{topic}:2", "--to-datetime", str(T0))
    assert f"{topic}-2 has no record at or after this time; using its end offset" in result.err


def test_only_selected_partitions_are_reset(ask: Run, topic: str, new_group: Callable[[], str]) -> None:
    group_id = new_group()
    reset(ask, group_id, "--topic", topic, "--to-latest")
    assert reset(ask, group_id, "--topic", f"{topic}:1,0", "--to-offset", "2") == {0: 2, 1: 2, 2: 0}


def test_exported_offsets_can_be_imported(ask: Run, topic: str, new_group: Callable[[], str], tmp_path: Path) -> None:
    first, second = new_group(), new_group()
    reset(ask, first, "--topic", f"{topic}:0,1", "--to-offset", "3")
    reset(ask, second, "--topic", f"{topic}:0", "--to-offset", "8")
    exported = ask("groups", "reset", first, "--all-topics", "--to-current", "--export")
    assert exported.text == f"{topic},0,3\n{topic},1,3\n"
    both = ask("groups", "reset", first, second, "--all-topics", "--to-current", "--export")
    assert both.text == f"{first},{topic},0,3\n{first},{topic},1,3\n{second},{topic},0,8\n"
    for group_id in (first, second):
        reset(ask, group_id, "--all-topics", "--to-earliest")

    file = tmp_path / "offsets.csv"
    file.write_text(exported.text)
    assert reset(ask, first, "--from-file", str(file)) == {0: 3, 1: 3}
    read = ask("groups", "reset", first, second, "--from-file", "-", "--execute", input=both.out)
    assert read.code == 0, read.err
    assert (committed(ask, first), committed(ask, second)) == ({0: 3, 1: 3}, {0: 8})


def test_malformed_offsets_file_is_rejected(ask: Run, topic: str, new_group: Callable[[], str]) -> None:
    for text in (f"{topic},0\n", f"{topic},0,x\n", f"{topic},-1,5\n", "a,b,c,d,e\n"):
        refused = ask("groups", "reset", new_group(), "--from-file", "-", input=text.encode())
        assert refused.code == 1
        assert "line 1 is neither topic,partition,offset nor group,topic,partition,offset" in refused.err
    refused = ask("groups", "reset", new_group(), "--from-file", "-", input=f"other,{topic},0,1\n".encode())
    assert (refused.code, "the file has no offsets of" in refused.err) == (1, True)
    refused = ask("groups", "reset", "a", "b", "--from-file", "-", input=f"{topic},0,1\n".encode())
    assert "the file's lines have no group column, so it applies to one group" in refused.err


def test_active_group_is_not_reset(ask: Run, topic: str, stable_group: list[ClassicMember]) -> None:
    group_id = stable_group[0].group_id
    refused = ask("groups", "reset", group_id, "--topic", topic, "--to-earliest", "--execute")
    assert refused.code == 1
    assert f"{group_id} is Stable with 2 members; offsets can only be reset in a group without members" in refused.err
    assert f"`moldau groups describe {group_id} --members` lists them" in refused.err
    assert ask("groups", "offsets", group_id, "--json").json() == []


def test_all_groups_are_validated_before_a_reset(ask: Run, topic: str, new_group: Callable[[], str]) -> None:
    first, second = new_group(), new_group()
    lines = f"{first},{topic},0,1\n{second},{topic},9,1\n".encode()
    refused = ask("groups", "reset", first, second, "--from-file", "-", "--execute", input=lines)
    assert (refused.code, refused.out) == (1, b"")
    assert f"unknown partition {topic}-9" in refused.err
    assert ask("groups", "describe", first).code == 1


def test_a_group_that_becomes_active_does_not_block_others(
    ask: Run, topic: str, new_group: Callable[[], str], bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [new_group() for _ in range(3)]
    really = GroupClient.commit
    with ClassicMember(bootstrap_servers, groups[1]) as member:

        def commit(client: GroupClient, group_id: str, offsets: Mapping[TopicPartition, int]) -> Any:
            if group_id == member.group_id:
                rebalance(member)
            return really(client, group_id, offsets)

        monkeypatch.setattr(GroupClient, "commit", commit)
        done = ask("groups", "reset", *groups, "--topic", f"{topic}:0", "--to-offset", "4", "--execute", "--json")
    assert done.code == 1
    assert f"cannot reset {groups[1]} in {topic}-0: " in done.err
    assert [(row["group"], row["new_offset"]) for row in done.json()] == [(groups[0], 4), (groups[2], 4)]
    assert [committed(ask, group_id) for group_id in groups] == [{0: 4}, {}, {0: 4}]


@pytest.mark.parametrize(
    ("problem", "words", "moved"),
    [
        (Failure("the coordinator was not available"), "cannot reset {1}: the coordinator was not available", [0, 2]),
        (PeerError("the connection failed"), "unknown whether {1} was reset: the connection failed", [0]),
    ],
    ids=["coordinator", "broker"],
)
def test_completed_resets_are_reported_if_a_group_fails(
    ask: Run,
    topic: str,
    new_group: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    problem: Exception,
    words: str,
    moved: list[int],
) -> None:
    groups = [new_group() for _ in range(3)]
    really = GroupClient.commit

    def commit(client: GroupClient, group_id: str, offsets: Mapping[TopicPartition, int]) -> Any:
        if group_id == groups[1]:
            raise problem
        return really(client, group_id, offsets)

    monkeypatch.setattr(GroupClient, "commit", commit)
    done = ask("groups", "reset", *groups, "--topic", f"{topic}:0", "--to-offset", "4", "--execute")
    assert done.code == 1
    assert words.format(*groups) in done.err
    assert [line.split() for line in done.lines[1:]] == [[groups[each], topic, "0", "4"] for each in moved]
    assert (f"{groups[2]} was not reset" in done.err) == (2 not in moved)
    assert [committed(ask, group_id) for group_id in groups] == [{0: 4} if each in moved else {} for each in range(3)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["g", "--topic", "t"], "give exactly one target"),
        (["g", "--topic", "t", "--to-latest", "--to-offset", "5"], "give exactly one target"),
        (["g", "--to-latest"], "select partitions with either"),
        (["g", "--topic", "t", "--all-topics", "--to-latest"], "select partitions with either"),
        (["g", "--topic", "t:", "--to-latest"], "'t:' is neither TOPIC nor TOPIC:0,1,2"),
        (["g", "--topic", "t:0;1", "--to-latest"], "'t:0;1' is neither TOPIC nor TOPIC:0,1,2"),
        (["g", "--topic", "t", "--by-duration", "1h"], "'1h' is not a duration like PT30M"),
        (["g", "--topic", "t", "--by-duration", "PT"], "'PT' is not a duration like PT30M"),
        (["g", "--topic", "t", "--to-datetime", "noon"], "neither milliseconds since 1970 nor a time"),
        (["g", "--topic", "t", "--to-latest", "--execute", "--dry-run"], "mutually exclusive"),
        (["g", "--topic", "t", "--to-latest", "--export", "--json"], "mutually exclusive"),
        (["g", "--topic", "t", "--from-file", "-"], "--from-file selects the partitions"),
        (["--topic", "t", "--to-latest"], "give the groups to reset, or --all-groups"),
        (["g", "--all-groups", "--topic", "t", "--to-latest"], "give the groups to reset"),
    ],
)
def test_invalid_reset_is_a_usage_error(ask: Run, arguments: list[str], words: str) -> None:
    refused = ask("groups", "reset", *arguments)
    assert (refused.code, refused.out) == (2, b"")
    assert words in " ".join(refused.err.split())


def test_unknown_partitions_are_rejected(ask: Run, topic: str, new_group: Callable[[], str]) -> None:
    refused = ask("groups", "reset", new_group(), "--topic", f"{topic}:0,3,7", "--to-latest")
    assert refused.code == 1
    assert f"unknown partition {topic}-3, {topic}-7" in refused.err
    refused = ask("groups", "reset", new_group(), "--topic", "no-such-topic", "--to-latest")
    assert "no-such-topic: the topic or partition does not exist; `moldau topics list`" in refused.err


def test_shift_requires_committed_offsets(ask: Run, topic: str, new_group: Callable[[], str]) -> None:
    refused = ask("groups", "reset", new_group(), "--topic", f"{topic}:0", "--shift-by", "1")
    assert (refused.code, f"no committed offset to shift for {topic}-0" in refused.err) == (1, True)
    refused = ask("groups", "reset", new_group(), "--all-topics", "--to-latest")
    assert (refused.code, "has no committed offsets; select partitions with --topic" in refused.err) == (1, True)


# -- list, describe, offsets -------------------------------------------------------------------------------------------


def test_groups_are_listed_with_type_and_state(
    ask: Run, topic: str, stable_group: list[ClassicMember], new_group: Callable[[], str]
) -> None:
    active, simple = stable_group[0].group_id, new_group()
    reset(ask, simple, "--topic", topic, "--to-latest")
    listed = {each["group"]: each for each in ask("groups", "list", "--json").json()}
    assert listed[active] == {"group": active, "type": "classic", "state": "Stable", "protocol_type": "consumer"}
    assert listed[simple] == {"group": simple, "type": "classic", "state": "Empty", "protocol_type": ""}
    table = ask("groups", "list", "--state", "stable, preparingrebalance")
    assert table.lines[0].split() == ["group", "type", "state", "protocol"]
    assert [active, "classic", "Stable", "consumer"] in [line.split() for line in table.lines]
    assert simple not in table.text
    assert simple in ask("groups", "list", "--type", "Classic").text
    assert simple not in ask("groups", "list", "--type", "consumer").text


def test_classic_group_is_described(ask: Run, topic: str, stable_group: list[ClassicMember]) -> None:
    one, two = stable_group
    (described,) = ask("groups", "describe", one.group_id, "--json").json()
    members = {member["member_id"]: member for member in described["members"]}
    assert {name: described[name] for name in ("group", "type", "protocol_type", "state", "assignor", "epoch")} == {
        "group": one.group_id,
        "type": "classic",
        "protocol_type": "consumer",
        "state": "Stable",
        "assignor": "range",
        "epoch": None,
    }
    assert members[one.member_id] == {
        "member_id": one.member_id,
        "instance_id": "rack-1",
        "client_id": "one",
        "host": "127.0.0.1",
        "epoch": None,
        "classic_protocol": None,
        "assignment": {topic: [0, 2]},
        "target_assignment": None,
    }
    assert members[two.member_id]["assignment"] == {topic: [1]}
    assert [(row["partition"], row["committed"], row["end"], row["lag"]) for row in described["offsets"]] == [
        (0, None, 10, None),
        (1, None, 5, None),
        (2, None, 0, None),
    ]
    assert described["offsets"][1]["member_id"] == two.member_id


def test_description_has_its_parts(
    ask: Run, topic: str, stable_group: list[ClassicMember], bootstrap_servers: str
) -> None:
    group_id = stable_group[0].group_id
    states = ask("groups", "describe", group_id, "--state").lines
    assert states[0].split() == ["group", "state", "type", "members", "assignor", "coordinator"]
    assert states[1].split()[:6] == [group_id, "Stable", "classic", "2", "range", bootstrap_servers]
    assert len(states) == 2
    members = ask("groups", "describe", group_id, "--members", "--verbose").lines
    assert members[0] == f"{group_id}  Stable, classic, 2 members"
    assert members[1].split()[:5] == ["member", "instance", "client", "host", "partitions"]
    assert f"{topic}:0,2" in members[2] + members[3]
    assert len(members) == 4
    offsets = ask("groups", "describe", group_id, "--offsets").lines
    assert offsets[1].split() == ["topic", "partition", "committed", "end", "lag", "member", "host", "client"]
    assert offsets[3].split()[:5] == [topic, "1", "-", "5", "-"]
    assert offsets[3].split()[7] == "two"
    whole = ask("groups", "describe", group_id).lines
    assert whole == [*ask("groups", "describe", group_id, "--members").lines, *offsets[1:]]


def test_lag_is_the_distance_to_the_end(ask: Run, topic: str, new_group: Callable[[], str]) -> None:
    group_id = new_group()
    reset(ask, group_id, "--topic", f"{topic}:0,1", "--to-offset", "4")
    rows = ask("groups", "offsets", group_id, "--json").json()
    assert rows == [
        {
            "group": group_id,
            "topic": topic,
            "partition": partition,
            "committed": 4,
            "end": end,
            "lag": end - 4,
            "leader_epoch": None,
            "metadata": "",
        }
        for partition, end in ((0, 10), (1, 5))
    ]
    table = ask("groups", "offsets", group_id, "--topic", f"{topic}:1").lines
    assert [line.split() for line in table] == [
        ["group", "topic", "partition", "committed", "end", "lag"],
        [group_id, topic, "1", "4", "5", "1"],
    ]
    assert ask("groups", "describe", group_id).lines[0] == f"{group_id}  Empty, classic, 0 members"


def test_offsets_of_a_deleted_topic_are_deleted_or_have_no_end(
    ask: Run, topic: str, new_group: Callable[[], str]
) -> None:
    group_id = new_group()
    reset(ask, group_id, "--topic", topic, "--to-latest")
    assert ask("topics", "delete", topic, "--yes").code == 0

    def is_gone() -> bool:
        described = ask("groups", "offsets", group_id, "--json")
        return all(row["end"] is None and row["lag"] is None for row in described.json())

    wait_until(is_gone, "the end of the topic")


def test_consumer_group_is_described_with_its_epochs(
    ask: Run, topic: str, new_group: Callable[[], str], bootstrap_servers: str
) -> None:
    group_id = new_group()
    (described_topic,) = ask("topics", "describe", topic, "--json").json()
    known = Topic(topic, uuid_from_str(described_topic["topic_id"]))
    with ConsumerMember(bootstrap_servers, group_id, known, member_id=uuid4().hex, client_id="new") as member:
        assert member.join().error_code == 0
        settle(member)
        (described,) = ask("groups", "describe", group_id, "--json").json()
        (only,) = described["members"]
        assert (described["type"], described["state"], described["assignor"]) == ("consumer", "Stable", "uniform")
        assert described["epoch"] == described["assignment_epoch"] == only["epoch"] == member.epoch
        assert only["assignment"] == only["target_assignment"] == {topic: [0, 1, 2]}
        assert (only["client_id"], only["classic_protocol"]) == ("new", False)
        listed = {each["group"]: each for each in ask("groups", "list", "--type", "consumer", "--json").json()}
        assert listed[group_id]["state"] == "Stable"
        verbose = ask("groups", "describe", group_id, "--members", "--verbose").lines
        assert verbose[2].split()[-3:] == [str(member.epoch), f"{topic}:0,1,2", "consumer"]
        assert ask("groups", "reset", group_id, "--topic", topic, "--to-latest").code == 1
        refused = ask("groups", "delete", group_id)
        assert (refused.code, "the group has members; stop them first" in refused.err) == (1, True)
        member.leave()
    assert ask("groups", "delete", group_id).lines == [f"Deleted {group_id}."]


def test_members_of_other_protocols_are_described_without_assignments(
    ask: Run, new_group: Callable[[], str], bootstrap_servers: str
) -> None:
    group_id = new_group()
    opaque = {"compatible": b"\x00\x01opaque"}
    with ClassicMember(bootstrap_servers, group_id, protocol_type="connect", protocols=opaque) as worker:
        rebalance(worker)
        (described,) = ask("groups", "describe", group_id, "--json").json()
        assert (described["protocol_type"], described["assignor"]) == ("connect", "compatible")
        assert described["members"][0]["assignment"] == {}
        assert described["offsets"] == []


def test_unknown_group_has_a_hint(ask: Run, new_group: Callable[[], str]) -> None:
    group_id = new_group()
    for arguments in (["describe", group_id], ["offsets", group_id], ["delete-offsets", group_id, "--all-topics"]):
        refused = ask("groups", *arguments)
        assert refused.code == 1
        assert f"group {group_id} does not exist; `moldau groups list` lists the groups" in refused.err
    refused = ask("groups", "delete", group_id)
    assert f"cannot delete {group_id}: the group does not exist; `moldau groups list`" in refused.err


def test_existing_groups_are_described_together_with_unknown_ones(
    ask: Run, topic: str, new_group: Callable[[], str]
) -> None:
    known, unknown = new_group(), new_group()
    reset(ask, known, "--topic", topic, "--to-latest")
    described = ask("groups", "describe", unknown, known, "--json")
    assert (described.code, [each["group"] for each in described.json()]) == (1, [known])
    assert f"group {unknown} does not exist" in described.err


def test_all_groups(ask: Run, topic: str, new_group: Callable[[], str]) -> None:
    groups = {new_group(), new_group()}
    for group_id in groups:
        reset(ask, group_id, "--topic", f"{topic}:0", "--to-latest")
    found = ask("groups", "offsets", "--all-groups", "--topic", topic, "--json").json()
    assert {row["group"] for row in found} == groups
    assert groups <= {each["group"] for each in ask("groups", "describe", "--all-groups", "--json").json()}


def test_the_group_without_a_name(ask: Run, topic: str, bootstrap_servers: str) -> None:
    """Old consumers commit under the empty name. Servers list that group and refuse to describe it."""
    assert ask("groups", "reset", "", "--topic", f"{topic}:0", "--to-latest", "--execute").code == 0
    assert {"group": "", "type": "classic", "state": "Empty"}.items() <= next(
        each for each in ask("groups", "list", "--json").json() if not each["group"]
    ).items()
    (described,) = ask("groups", "describe", "", "--json").json()
    assert (described["group"], described["state"], described["members"]) == ("", "Empty", [])
    everything = ask("groups", "describe", "--all-groups", "--json")
    assert "" in {each["group"] for each in everything.json()}
    (row,) = ask("groups", "offsets", "", "--topic", topic, "--json").json()
    assert row["committed"] == 10
    assert ask("groups", "offsets", "--all-groups", "--topic", "elsewhere", "--json").json() == []
    assert ask("groups", "delete", "", "--yes").code == 0
    assert ask("groups", "describe", "").code == 1


# -- delete ------------------------------------------------------------------------------------------------------------


def test_offsets_and_groups_are_deleted(ask: Run, topic: str, new_group: Callable[[], str]) -> None:
    group_id = new_group()
    reset(ask, group_id, "--topic", topic, "--to-latest")
    gone = ask("groups", "delete-offsets", group_id, "--topic", f"{topic}:0,2")
    assert gone.lines == [f"Deleted the offsets of {group_id} in {topic}, partition 0, 2."]
    assert committed(ask, group_id) == {1: 5}
    refused = ask("groups", "delete-offsets", group_id, "--topic", f"{topic}:0")
    assert (refused.code, f"{group_id} has no matching committed offsets" in refused.err) == (1, True)
    assert ask("groups", "delete", group_id).lines == [f"Deleted {group_id}."]
    assert ask("groups", "describe", group_id).code == 1


def test_result_of_delete_as_json(
    ask: Run, topic: str, stable_group: list[ClassicMember], new_topic: Callable[..., str], new_group: Callable[[], str]
) -> None:
    one, _ = stable_group
    other, simple, unknown = new_topic(), new_group(), new_group()
    for name in (topic, other):
        assert commit(one, name) == 0
    reset(ask, simple, "--topic", topic, "--to-latest")
    offsets = ask("groups", "delete-offsets", one.group_id, "--all-topics", "--json")
    assert offsets.code == 1
    assert sorted(offsets.json(), key=lambda row: row["topic"]) == [
        {"group": one.group_id, "topic": name, "partition": 0, "error": error}
        for name, error in sorted([(topic, "GROUP_SUBSCRIBED_TO_TOPIC"), (other, None)])
    ]
    groups = ask("groups", "delete", unknown, simple, one.group_id, "--json")
    assert groups.code == 1
    assert groups.json() == [
        {"group": unknown, "error": "GROUP_ID_NOT_FOUND"},
        {"group": simple, "error": None},
        {"group": one.group_id, "error": "NON_EMPTY_GROUP"},
    ]
    assert ask("groups", "delete", simple, "--json").code == 1


def test_offsets_that_are_read_are_not_deleted(
    ask: Run, topic: str, stable_group: list[ClassicMember], new_topic: Callable[..., str]
) -> None:
    one, _ = stable_group
    other = new_topic()
    for name in (topic, other):
        assert commit(one, name) == 0
    refused = ask("groups", "delete-offsets", one.group_id, "--all-topics")
    assert refused.code == 1
    assert (
        f"cannot delete the offset of {one.group_id} in {topic}-0: members of the group subscribe to this topic"
        in refused.err
    )
    assert refused.lines == [f"Deleted the offsets of {one.group_id} in {other}, partition 0."]
    kept = ask("groups", "offsets", one.group_id, "--json").json()
    assert [row["topic"] for row in kept] == [topic]


def test_active_group_is_not_deleted(ask: Run, stable_group: list[ClassicMember], new_group: Callable[[], str]) -> None:
    refused: Result = ask("groups", "delete", stable_group[0].group_id)
    assert refused.code == 1
    assert "the group has members; stop them first" in refused.err
    assert "(NON_EMPTY_GROUP)" in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["delete"], "give the groups to delete, or --all-groups"),
        (["describe"], "give the groups to describe, or --all-groups"),
        (["offsets"], "give the groups to show, or --all-groups"),
        (["delete-offsets", "g"], "select offsets with either"),
    ],
)
def test_missing_selection_is_a_usage_error(ask: Run, arguments: list[str], message: str) -> None:
    refused = ask("groups", *arguments)
    assert refused.code == 2
    assert message in refused.err


def commit(member: ClassicMember, topic: str) -> Any:
    """Commit offset 0 of the first partition as this member, and return the error code."""
    request = commit_request(
        member.group_id,
        topic,
        {0: 0},
        member_id=member.member_id,
        generation=member.generation,
        instance_id=member.instance_id,
    )
    (answered,) = member.wire.call(request, 9).topics
    return answered.partitions[0].error_code

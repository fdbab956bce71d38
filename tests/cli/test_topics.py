"""``moldau topics`` against a server."""

from collections.abc import Callable

from moldau.protocol.uuid import uuid_from_str
from moldau.testing.waiting import wait_until

from .conftest import Run


def test_topic_is_created_listed_described_and_deleted(ask: Run, new_topic: Callable[..., str]) -> None:
    name = new_topic(3, "retention.ms=-1")
    listed = {topic["name"]: topic for topic in ask("topics", "list", "--json").json()}
    assert listed[name] == {"name": name, "partitions": 3, "replication_factor": 1, "internal": False}
    (described,) = ask("topics", "describe", name, "--json").json()
    assert len(uuid_from_str(described["topic_id"])) == 16
    assert described["settings"] == {"retention.ms": "-1"}
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    for partition in described["partitions"]:
        assert partition["replicas"] == partition["in_sync"] == [partition["leader"]]
        assert (partition["first_offset"], partition["next_offset"]) == (0, 0)
    deleted = ask("topics", "delete", name)
    assert (deleted.code, deleted.lines) == (0, [f"Deleted {name}."])
    # The change reaches Apache Kafka's brokers a moment later.
    wait_until(lambda: name not in {topic["name"] for topic in ask("topics", "list", "--json").json()}, "the end")


def test_table_output(ask: Run, new_topic: Callable[..., str]) -> None:
    name = new_topic(2, "retention.ms=-1")
    listed = ask("topics", "list")
    assert listed.lines[0].split() == ["topic", "partitions", "replicas"]
    assert [name, "2", "1"] in [line.split() for line in listed.lines]
    described = ask("topics", "describe", name)
    assert described.lines[0].startswith(f"{name}  id ")
    assert described.lines[1] == "  retention.ms=-1"
    assert described.lines[2].split()[:2] == ["partition", "leader"]
    assert [line.split()[0] for line in described.lines[3:]] == ["0", "1"]


def test_create_reports_the_number_of_partitions(ask: Run, new_topic: Callable[..., str]) -> None:
    first, second = f"{new_topic()}-a", f"{new_topic()}-b"
    made = ask("topics", "create", first, second, "-p", "2")
    assert sorted(made.lines) == [f"Created {first} with 2 partitions.", f"Created {second} with 2 partitions."]


def test_existing_topic_is_an_error_without_if_not_exists(ask: Run, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    refused = ask("topics", "create", name)
    assert refused.code == 1
    assert refused.err.startswith(f"moldau: cannot create {name}: the topic already exists; use --if-not-exists")
    assert ask("topics", "create", name, "--if-not-exists").code == 0


def test_valid_topics_are_created_despite_invalid_ones(ask: Run, new_topic: Callable[..., str]) -> None:
    good = f"{new_topic()}-good"
    made = ask("topics", "create", good, "bad name")
    assert made.code == 1
    assert made.lines == [f"Created {good} with 1 partition."]
    assert "cannot create bad name: " in made.err
    assert "(INVALID_TOPIC_EXCEPTION)" in made.err


def test_server_error_messages_are_shown(ask: Run, new_topic: Callable[..., str]) -> None:
    refused = ask("topics", "create", f"{new_topic()}-x", "--config", "segment.bytes=1")
    assert refused.code == 1
    words = "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576 (INVALID_CONFIG)"
    assert words in refused.err


def test_unknown_topic_has_a_hint(ask: Run) -> None:
    for command in (["describe"], ["delete", "--yes"]):
        refused = ask("topics", command[0], "no-such-topic", *command[1:])
        assert refused.code == 1
        assert "the topic does not exist; `moldau topics list` lists topics" in refused.err
        assert "Traceback" not in refused.err


def test_partitions_can_be_added_and_settings_changed(ask: Run, new_topic: Callable[..., str]) -> None:
    name = new_topic(1, "retention.ms=-1")
    altered = ask(
        "topics", "alter", name, "--partitions", "4", "--config", "segment.ms=60000", "--delete-config", "retention.ms"
    )
    assert altered.code == 0, altered.err
    assert altered.lines == [f"{name} now has 4 partitions.", f"Changed the settings of {name}."]
    (described,) = ask("topics", "describe", name, "--json").json()
    assert len(described["partitions"]) == 4
    assert described["settings"] == {"segment.ms": "60000"}


def test_partitions_cannot_be_removed(ask: Run, new_topic: Callable[..., str]) -> None:
    name = new_topic(3)
    refused = ask("topics", "alter", name, "--partitions", "2")
    assert refused.code == 1
    assert "(INVALID_PARTITIONS)" in refused.err


def test_alter_without_a_change_is_a_usage_error(ask: Run, new_topic: Callable[..., str]) -> None:
    assert ask("topics", "alter", new_topic()).code == 2


def test_config_without_a_value_is_a_usage_error(ask: Run) -> None:
    refused = ask("topics", "create", "x", "--config", "retention.ms")
    assert refused.code == 2
    assert "'retention.ms' is not KEY=VALUE" in refused.err

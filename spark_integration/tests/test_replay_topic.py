"""Which topics are suitable for a replay."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from moldau.spark_integration.archive_cluster import KafkaCluster
from moldau.spark_integration.archive_layout import ArchiveError
from moldau.spark_integration.replay_topic import (
    Requirements,
    check_topic,
    new_topic_configs,
    unfit_reasons,
)
from moldau.spark_integration.replay_topic import (
    create_topic as create_replay_topic,
)
from moldau.testing.client import Client, Record

from .conftest import MakeTopic

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DEMANDS = Requirements(partition_count=2, oldest_ms=NOW_MS - HOUR_MS, newest_ms=NOW_MS + 10, largest_record_bytes=5_000)
OLD = Requirements(partition_count=2, oldest_ms=1, newest_ms=2, largest_record_bytes=5_000)


def reasons(configs: dict[str, str | None], partition_count: int = 2) -> list[str]:
    return unfit_reasons(partition_count, configs, DEMANDS, NOW_MS)


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
        {"retention.ms": str(HOUR_MS)},
        {"message.timestamp.type": "CreateTime", "max.message.bytes": "5000"},
        {"message.timestamp.before.max.ms": str(HOUR_MS), "message.timestamp.after.max.ms": "10"},
        new_topic_configs(DEMANDS),
    ],
)
def test_a_topic_that_keeps_every_record_is_suitable(configs: dict[str, str | None]) -> None:
    assert reasons(configs) == []


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({"retention.ms": str(HOUR_MS - 1)}, "retention.ms=3599999 would delete the older ones"),
        ({"retention.bytes": "1000000000"}, "retention.bytes=1000000000 may delete the first ones"),
        ({"cleanup.policy": "compact,delete"}, "cleanup.policy=compact,delete keeps the last record of each key only"),
        ({"message.timestamp.type": "LogAppendTime"}, "LogAppendTime would replace the timestamps"),
        ({"message.timestamp.before.max.ms": "3599999"}, "rejects timestamps as old as these"),
        ({"message.timestamp.after.max.ms": "9"}, "rejects timestamps as far in the future as these"),
        ({"max.message.bytes": "4999"}, "max.message.bytes=4999 may reject the largest"),
    ],
)
def test_a_topic_that_would_change_or_drop_records_is_named_with_the_reason(
    configs: dict[str, str | None], reason: str
) -> None:
    (found,) = reasons(configs)
    assert reason in found


def test_a_topic_with_fewer_partitions_is_not_suitable() -> None:
    assert reasons({}, partition_count=1) == ["it has 1 partitions, but the archive has 2"]
    assert reasons({}, partition_count=3) == []


def test_the_created_topic_accepts_the_largest_record() -> None:
    assert "max.message.bytes" not in new_topic_configs(DEMANDS)
    large = Requirements(1, 0, 0, 3_000_000)
    assert new_topic_configs(large)["max.message.bytes"] == "3000000"


def test_the_created_topic_is_suitable(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    cluster = KafkaCluster(bootstrap_servers)
    topic = make_topic() + "-made"
    requirements = Requirements(3, oldest_ms=1, newest_ms=4_000_000_000_000, largest_record_bytes=2_000_000)

    assert check_topic(cluster, topic, requirements) is None
    assert create_replay_topic(cluster, topic, requirements) == {0: 0, 1: 0, 2: 0}
    assert check_topic(cluster, topic, requirements) == {0: 0, 1: 0, 2: 0}


def test_a_partition_whose_leader_does_not_serve_it_yet_is_retried(
    bootstrap_servers: str, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = KafkaCluster(bootstrap_servers)
    topic = make_topic(2)
    list_offsets = cluster._admin.list_offsets
    errors = [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART]

    def fail_at_first(wanted: dict[TopicPartition, Any], **options: Any) -> dict[TopicPartition, Any]:
        if not errors:
            answers: dict[TopicPartition, Any] = list_offsets(wanted, **options)
            return answers
        failed: Future[Any] = Future()
        failed.set_exception(KafkaException(KafkaError(errors.pop())))
        return dict.fromkeys(wanted, failed)

    monkeypatch.setattr(cluster._admin, "list_offsets", fail_at_first)
    assert cluster.ends(topic, [0, 1]) == {0: 0, 1: 0}
    assert not errors


def test_another_error_of_the_offsets_ends_the_query(
    bootstrap_servers: str, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = KafkaCluster(bootstrap_servers)
    failed: Future[Any] = Future()
    failed.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    monkeypatch.setattr(cluster._admin, "list_offsets", lambda wanted, **_options: dict.fromkeys(wanted, failed))
    with pytest.raises(ArchiveError, match="TOPIC_AUTHORIZATION_FAILED"):
        cluster.ends(make_topic(), [0])


def test_a_topic_with_records_is_rejected_without_append(
    bootstrap_servers: str, client: Client, make_topic: MakeTopic
) -> None:
    cluster = KafkaCluster(bootstrap_servers)
    topic = make_topic(2, {"retention.ms": "-1"})
    client.produce(topic, [Record(b"%d" % n, partition=1) for n in range(3)])

    with pytest.raises(ArchiveError, match=r"is not empty \(partition 1 has 3 records\)"):
        check_topic(cluster, topic, OLD)
    assert check_topic(cluster, topic, OLD, append=True) == {0: 0, 1: 3}
    assert check_topic(cluster, topic, OLD, resume=True) == {0: 0, 1: 0}


def test_a_replay_without_a_topic_cannot_be_resumed(bootstrap_servers: str) -> None:
    with pytest.raises(ArchiveError, match="there is no topic nowhere: without --resume it is created"):
        check_topic(KafkaCluster(bootstrap_servers), "nowhere", OLD, resume=True)


def test_a_server_that_does_not_respond_is_named() -> None:
    with pytest.raises(ArchiveError, match=r"no Kafka server responds at 127\.0\.0\.1:1"):
        KafkaCluster("127.0.0.1:1")

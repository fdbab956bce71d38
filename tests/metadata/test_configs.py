"""AlterConfigs and IncrementalAlterConfigs: the exact responses and records of each request."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.metadata.alter_configs import alter_configs, incremental_alter_configs
from moldau.metadata.image import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from moldau.metadata.outcome import Versioned
from moldau.metadata.records import ClearElrRecord, ConfigRecord, FeatureLevelRecord
from moldau.protocol.errors import ErrorCode

from . import config_requests

Cluster = Any
Change = tuple[str, int, str | None]

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
THROTTLED = "leader.replication.throttled.replicas"


def change(cluster: Cluster, *resources: tuple[int, str, list[Change]], validate_only: bool = False) -> Any:
    return incremental_alter_configs(
        cluster.image, config_requests.change(*resources, validate_only=validate_only), cluster.context
    )


def replace(cluster: Cluster, *resources: tuple[int, str, dict[str, str | None]], validate_only: bool = False) -> Any:
    return alter_configs(cluster.image, config_requests.alter(*resources, validate_only=validate_only), cluster.context)


def errors(outcome: Any) -> list[str]:
    return [ErrorCode(response.error_code).name for response in outcome.response.responses]


def written(outcome: Any) -> dict[str, str | None]:
    return {record.name: record.value for record, _ in outcome.records}


@pytest.fixture
def cluster(new_cluster: type[Cluster]) -> Cluster:
    cluster = new_cluster(1)
    cluster.create("a", retention_ms="1000", cleanup_policy="compact")
    return cluster


def test_single_keys_are_set_and_deleted(cluster: Cluster) -> None:
    outcome = change(cluster, (TOPIC_RESOURCE, "a", [("segment.ms", SET, "5000"), ("retention.ms", DELETE, None)]))
    (response,) = outcome.response.responses
    assert (response.error_code, response.error_message) == (0, None)
    assert (response.resource_type, response.resource_name) == (TOPIC_RESOURCE, "a")
    assert outcome.records == [
        Versioned(ConfigRecord(resource_type=2, resource_name="a", name="segment.ms", value="5000")),
        Versioned(ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value=None)),
    ]
    cluster.commit(outcome.records)
    assert cluster.image.topic_configs("a") == {"cleanup.policy": "compact", "segment.ms": "5000"}


@pytest.mark.parametrize(
    ("operation", "value", "expected"),
    [
        (APPEND, "delete", "compact,delete"),
        (APPEND, "compact", None),
        (APPEND, "delete,compact", "compact,delete"),
        (SUBTRACT, "compact", ""),
        (SUBTRACT, "delete", None),
    ],
)
def test_append_and_subtract_change_lists(cluster: Cluster, operation: int, value: str, expected: str | None) -> None:
    outcome = change(cluster, (TOPIC_RESOURCE, "a", [("cleanup.policy", operation, value)]))
    assert errors(outcome) == ["NONE"]
    assert written(outcome) == ({} if expected is None else {"cleanup.policy": expected})


def test_append_to_an_unset_list_starts_with_the_default(cluster: Cluster) -> None:
    cluster.create("b")
    outcome = change(cluster, (TOPIC_RESOURCE, "b", [("cleanup.policy", APPEND, "compact")]))
    assert written(outcome) == {"cleanup.policy": "delete,compact"}


def test_unchanged_configs_are_not_written(cluster: Cluster) -> None:
    unchanged = [("retention.ms", SET, "1000"), ("segment.ms", DELETE, None)]
    assert change(cluster, (TOPIC_RESOURCE, "a", unchanged)).records == []
    assert replace(cluster, (TOPIC_RESOURCE, "a", {"retention.ms": "1000", "cleanup.policy": "compact"})).records == []


def test_alter_configs_replaces_the_complete_configuration(cluster: Cluster) -> None:
    outcome = replace(cluster, (TOPIC_RESOURCE, "a", {"segment.ms": "5000", "retention.ms": "2000"}))
    assert errors(outcome) == ["NONE"]
    cluster.commit(outcome.records)
    assert cluster.image.topic_configs("a") == {"segment.ms": "5000", "retention.ms": "2000"}
    cluster.commit(replace(cluster, (TOPIC_RESOURCE, "a", {})).records)
    assert cluster.image.topic_configs("a") == {}


def test_a_subscription_of_client_metrics_is_created_and_deleted_by_its_configs(cluster: Cluster) -> None:
    wanted = {"interval.ms": "100", "metrics": "*", "match": "client_id=a.*, client_software_version = 1\\.[0-9]+"}
    subscription = (CLIENT_METRICS_RESOURCE, "latency")
    outcome = change(cluster, (*subscription, [(name, SET, value) for name, value in wanted.items()]))
    assert errors(outcome) == ["NONE"]
    cluster.commit(outcome.records)
    assert cluster.image.config(*subscription) == wanted
    cluster.commit(replace(cluster, (*subscription, {})).records)
    assert subscription not in cluster.image.configs


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        ((TOPIC_RESOURCE, "a", [("no.such", SET, "1")]), "INVALID_CONFIG"),
        ((TOPIC_RESOURCE, "a", [("retention.ms", SET, "soon")]), "INVALID_CONFIG"),
        ((TOPIC_RESOURCE, "a", [("retention.ms", APPEND, "1")]), "INVALID_CONFIG"),
        ((TOPIC_RESOURCE, "a", [("no.such", APPEND, "1")]), "INVALID_CONFIG"),
        ((TOPIC_RESOURCE, "a", [("cleanup.policy", APPEND, "nothing")]), "INVALID_CONFIG"),
        ((TOPIC_RESOURCE, "a", [("min.compaction.lag.ms", SET, str(2**62)), ("max.compaction.lag.ms", SET, "1")]),
         "INVALID_CONFIG"),
        ((TOPIC_RESOURCE, "a", [("retention.ms", SET, None)]), "INVALID_REQUEST"),
        ((TOPIC_RESOURCE, "a", [("retention.ms", 7, "1")]), "INVALID_REQUEST"),
        ((TOPIC_RESOURCE, "a", [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)]), "INVALID_REQUEST"),
        ((TOPIC_RESOURCE, "nothing", [("retention.ms", SET, "1")]), "UNKNOWN_TOPIC_OR_PARTITION"),
        ((TOPIC_RESOURCE, "", [("retention.ms", SET, "1")]), "INVALID_REQUEST"),
        ((TOPIC_RESOURCE, "a b", [("retention.ms", SET, "1")]), "INVALID_TOPIC_EXCEPTION"),
        ((BROKER_RESOURCE, "2", [("log.retention.ms", SET, "1")]), "INVALID_REQUEST"),
        ((BROKER_RESOURCE, "me", [("log.retention.ms", SET, "1")]), "INVALID_REQUEST"),
        ((BROKER_RESOURCE, "1", [("log.retention.ms", SET, "soon")]), "INVALID_REQUEST"),
        ((BROKER_RESOURCE, "1", [("log.dirs", SET, "/x")]), "INVALID_REQUEST"),
        ((BROKER_RESOURCE, "", [("log.retention.ms", APPEND, "1")]), "INVALID_CONFIG"),
        ((BROKER_RESOURCE, "", [("no.such", APPEND, "1")]), "INVALID_CONFIG"),
        ((0, "x", []), "INVALID_REQUEST"),
        ((CLIENT_METRICS_RESOURCE, "", [("interval.ms", SET, "1000")]), "INVALID_REQUEST"),
        ((CLIENT_METRICS_RESOURCE, "s", [("no.such", SET, "1")]), "INVALID_REQUEST"),
        ((CLIENT_METRICS_RESOURCE, "s", [("interval.ms", SET, "99")]), "INVALID_REQUEST"),
        ((CLIENT_METRICS_RESOURCE, "s", [("interval.ms", SET, "3600001")]), "INVALID_REQUEST"),
        ((CLIENT_METRICS_RESOURCE, "s", [("interval.ms", SET, "soon")]), "INVALID_CONFIG"),
        ((CLIENT_METRICS_RESOURCE, "s", [("match", SET, "client_id")]), "INVALID_CONFIG"),
        ((CLIENT_METRICS_RESOURCE, "s", [("match", SET, "client_id=a=b")]), "INVALID_CONFIG"),
        ((CLIENT_METRICS_RESOURCE, "s", [("match", SET, "client_id=[")]), "INVALID_CONFIG"),
        ((CLIENT_METRICS_RESOURCE, "s", [("match", SET, "client_name=a")]), "INVALID_CONFIG"),
        ((CLIENT_METRICS_RESOURCE, "s", [("metrics", SET, "a,,b")]), "INVALID_CONFIG"),
        ((CLIENT_METRICS_RESOURCE, "s", [("metrics", APPEND, "a")]), "INVALID_CONFIG"),
        ((8, "1", []), "UNSUPPORTED_VERSION"),
        ((1, "x", []), "INVALID_REQUEST"),
        ((GROUP_RESOURCE, "", [("consumer.session.timeout.ms", SET, "60000")]), "INVALID_REQUEST"),
        ((GROUP_RESOURCE, "g", [("consumer.session.timeout.ms", SET, "60001")]), "INVALID_CONFIG"),
        ((GROUP_RESOURCE, "g", [("consumer.session.timeout.ms", APPEND, "1")]), "INVALID_CONFIG"),
        ((GROUP_RESOURCE, "g", [("retention.ms", SET, "1")]), "INVALID_CONFIG"),
    ],
)  # fmt: skip
def test_invalid_changes_are_rejected(cluster: Cluster, resource: tuple[int, str, list[Change]], error: str) -> None:
    outcome = change(cluster, resource, (TOPIC_RESOURCE, "a", [("segment.ms", SET, "5000")]))
    if resource[:2] == (TOPIC_RESOURCE, "a"):
        outcome = change(cluster, resource)
        assert outcome.records == []
        assert errors(outcome) == [error]
    else:
        assert errors(outcome) == [error, "NONE"]
        assert written(outcome) == {"segment.ms": "5000"}
    assert outcome.response.responses[0].error_message


def cordon(cluster: Cluster, directories: str | None, broker: str = "1") -> str:
    operation = DELETE if directories is None else SET
    outcome = change(cluster, (BROKER_RESOURCE, broker, [("cordoned.log.dirs", operation, directories)]))
    (error,) = errors(outcome)
    return error


def test_only_log_directories_of_the_broker_can_be_cordoned(new_cluster: type[Cluster]) -> None:
    cluster = new_cluster(1, 2, settings={"log.dirs": "/a,/b"})
    for directories in ("/a", "/a,/b", " /b , /a ", "*", "", None):
        assert cordon(cluster, directories) == "NONE"
    for directories in ("/c", "/a,/c", "*,/a"):
        assert cordon(cluster, directories) == "INVALID_REQUEST"
    assert cordon(cluster, "/c", "2") == "NONE"  # broker 2 has checked it
    assert cordon(cluster, "/a", "") == "INVALID_REQUEST"  # not for all brokers


def test_directories_can_be_cordoned_if_all_nodes_know_that(cluster: Cluster) -> None:
    cluster.commit([Versioned(FeatureLevelRecord(name="metadata.version", feature_level=29))])
    for directories in ("*", "", None):
        assert cordon(cluster, directories) == "INVALID_CONFIG"


def test_one_invalid_key_rejects_all_changes_of_its_resource(cluster: Cluster) -> None:
    outcome = change(cluster, (TOPIC_RESOURCE, "a", [("segment.ms", SET, "5000"), ("no.such", SET, "1")]))
    assert errors(outcome) == ["INVALID_CONFIG"]
    assert outcome.records == []


def test_a_resource_that_is_named_twice_is_rejected(cluster: Cluster) -> None:
    for outcome in (
        change(cluster, (TOPIC_RESOURCE, "a", []), (TOPIC_RESOURCE, "a", [("segment.ms", SET, "5000")])),
        replace(cluster, (TOPIC_RESOURCE, "a", {}), (TOPIC_RESOURCE, "a", {"segment.ms": "5000"})),
    ):
        assert errors(outcome) == ["INVALID_REQUEST", "INVALID_REQUEST"]
        assert outcome.records == []


def test_validate_only_writes_no_records(cluster: Cluster) -> None:
    outcome = change(cluster, (TOPIC_RESOURCE, "a", [("segment.ms", SET, "5000")]), validate_only=True)
    assert (errors(outcome), outcome.records) == (["NONE"], [])
    outcome = replace(cluster, (TOPIC_RESOURCE, "a", {"no.such": "1"}), validate_only=True)
    assert (errors(outcome), outcome.records) == (["INVALID_CONFIG"], [])


def test_a_value_that_is_too_long_for_a_record_is_rejected(cluster: Cluster) -> None:
    def replicas(start: int, end: int) -> str:
        return ",".join(f"{number}:1" for number in range(start, end))

    outcome = change(cluster, (TOPIC_RESOURCE, "a", [(THROTTLED, SET, replicas(10_000, 14_000))]))
    cluster.commit(outcome.records)
    outcome = change(cluster, (TOPIC_RESOURCE, "a", [(THROTTLED, APPEND, replicas(20_000, 21_000))]))
    assert errors(outcome) == ["INVALID_CONFIG"]


def test_unchanged_broker_configs_are_written_again(cluster: Cluster) -> None:
    for _ in range(2):
        outcome = change(cluster, (BROKER_RESOURCE, "1", [("log.retention.ms", SET, "5000")]))
        assert written(outcome) == {"log.retention.ms": "5000"}
        cluster.commit(outcome.records)


def test_topics_inherit_configs_of_brokers(cluster: Cluster) -> None:
    cluster.commit(change(cluster, (BROKER_RESOURCE, "", [("log.retention.ms", SET, "90000")])).records)
    configs = {config.name: (config.value, config.config_source) for config in cluster.create("b").configs}
    assert configs["retention.ms"] == ("90000", 3)
    cluster.commit(change(cluster, (BROKER_RESOURCE, "1", [("log.retention.ms", SET, "80000")])).records)
    configs = {config.name: (config.value, config.config_source) for config in cluster.create("c").configs}
    assert configs["retention.ms"] == ("80000", 2)
    cluster.commit(replace(cluster, (BROKER_RESOURCE, "", {}), (BROKER_RESOURCE, "1", {})).records)
    configs = {config.name: (config.value, config.config_source) for config in cluster.create("d").configs}
    assert configs["retention.ms"] == ("604800000", 5)


def test_changing_min_insync_replicas_clears_eligible_leader_replicas(cluster: Cluster) -> None:
    minimum = ("min.insync.replicas", SET, "1")
    assert len(change(cluster, (TOPIC_RESOURCE, "a", [minimum])).records) == 1
    cluster.commit([Versioned(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))])
    outcome = change(cluster, (TOPIC_RESOURCE, "a", [minimum]), (BROKER_RESOURCE, "", [minimum]))
    cleared = [record for record, _ in outcome.records if isinstance(record, ClearElrRecord)]
    assert [record.topic_name for record in cleared] == ["a", ""]


def test_configs_of_groups_can_be_set_before_the_groups_exist(cluster: Cluster) -> None:
    outcome = change(cluster, (GROUP_RESOURCE, "g", [("consumer.session.timeout.ms", SET, "60000")]))
    assert outcome.records == [
        Versioned(ConfigRecord(resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value="60000"))
    ]
    cluster.commit(outcome.records)
    assert cluster.image.config(GROUP_RESOURCE, "g") == {"consumer.session.timeout.ms": "60000"}
    assert change(cluster, (GROUP_RESOURCE, "g", [("consumer.session.timeout.ms", SET, "60000")])).records == []
    outcome = replace(cluster, (GROUP_RESOURCE, "g", {"consumer.heartbeat.interval.ms": "6000"}))
    assert written(outcome) == {"consumer.session.timeout.ms": None, "consumer.heartbeat.interval.ms": "6000"}


def test_the_configs_of_a_group_must_be_consistent(cluster: Cluster) -> None:
    good, bad = ("consumer.heartbeat.interval.ms", SET, "6000"), ("streams.num.standby.replicas", SET, "9")
    outcome = change(cluster, (GROUP_RESOURCE, "g", [good, bad]), (GROUP_RESOURCE, "h", [good]))
    assert errors(outcome) == ["INVALID_CONFIG", "NONE"]
    assert [record.resource_name for record, _ in outcome.records] == ["h"]


def test_with_eligible_leader_replicas_all_brokers_have_one_minimum(cluster: Cluster) -> None:
    name, own = "min.insync.replicas", str(cluster.context.node_id)
    cluster.commit(
        [
            Versioned(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)),
            Versioned(ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=name, value="1")),
        ]
    )
    assert errors(change(cluster, (BROKER_RESOURCE, "", [(name, SET, "2")]))) == ["NONE"]
    assert errors(change(cluster, (BROKER_RESOURCE, "", [(name, DELETE, None)]))) == ["INVALID_CONFIG"]
    assert errors(replace(cluster, (BROKER_RESOURCE, "", {"message.max.bytes": "5"}))) == ["INVALID_CONFIG"]
    assert errors(replace(cluster, (BROKER_RESOURCE, "", {"message.max.bytes": "many"}))) == ["INVALID_REQUEST"]
    assert errors(replace(cluster, (BROKER_RESOURCE, "", {name: "1", "message.max.bytes": "5"}))) == ["NONE"]
    assert errors(change(cluster, (BROKER_RESOURCE, own, [(name, SET, "2")]))) == ["INVALID_CONFIG"]
    assert errors(replace(cluster, (BROKER_RESOURCE, own, {"message.max.bytes": "5"}))) == ["NONE"]


def test_a_controller_changes_configs_of_every_registered_broker(new_cluster: type[Cluster]) -> None:
    """Each broker has checked that the name is its own."""
    cluster = new_cluster(1, 2)
    key: list[Change] = [("log.retention.ms", SET, "7")]
    assert errors(change(cluster, (BROKER_RESOURCE, "2", key))) == ["NONE"]
    assert errors(change(cluster, (BROKER_RESOURCE, "3", key), (BROKER_RESOURCE, "02", key))) == [
        "BROKER_ID_NOT_REGISTERED",
        "BROKER_ID_NOT_REGISTERED",
    ]

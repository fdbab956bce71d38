"""Features (KIP-584): the APIs that group.version enables (KIP-848), and changes of finalized levels.

These are no conformance cases, because they change features of the server, and some of them cannot be changed back.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.testing.config_requests import (
    ALL_BROKERS,
    BROKER,
    DELETE,
    SET,
    alter,
    described,
    node_id,
    replace,
)
from moldau.testing.group_requests import ConsumerMember, code, wait_for_coordinator
from moldau.testing.requirements import require_kafka_jars, require_program
from moldau.testing.servers import Server
from moldau.testing.topic_requests import Topic, create_topic, wait_for_topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

FEATURE = "group.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[WireClient]:
    with WireClient(bootstrap_servers) as client:
        yield client


def finalized(wire: WireClient) -> int:
    """The level of the feature; 0 when it is not finalized."""
    answer = wire.call(ApiVersionsRequest(client_software_name="wire", client_software_version="1"), 4)
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    assert supported[FEATURE] == (0, 1)
    levels = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
    lowest, highest = levels.get(FEATURE, (0, 0))
    assert lowest == highest
    return int(highest)


def update(wire: WireClient, level: int, upgrade_type: int) -> str:
    """The name of the error code; when it is NONE, the broker knows the new level."""
    key = FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=upgrade_type)
    error = code(wire.call(UpdateFeaturesRequest(feature_updates=[key]), 2).error_code)
    if error == "NONE":
        wait_until(lambda: finalized(wire) == level, f"{FEATURE} {level}")
    return error


def test_consumer_protocol_is_served_while_the_feature_is_finalized(bootstrap_servers: str, wire: WireClient) -> None:
    group = "features"
    wait_for_coordinator(bootstrap_servers, group)
    with ConsumerMember(bootstrap_servers, group, Topic("no-such-topic", bytes(16)), member_id="m") as member:
        try:
            assert update(wire, 0, UPGRADE) == "INVALID_UPDATE_VERSION"
            assert update(wire, 0, SAFE_DOWNGRADE) == "NONE"
            assert code(member.join().error_code) == "UNSUPPORTED_VERSION"
        finally:
            assert update(wire, 1, UPGRADE) == "NONE"
        wait_until(lambda: member.join().error_code == 0, "the protocol that is served again")
        assert member.leave().error_code == 0


# UpdateFeatures

RELEASE_4_3 = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "kraft.version": 1,
    "metadata.version": 30,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}


def test_eligible_leader_replicas_make_the_minimum_in_sync_a_config_of_all_brokers(
    new_server: Callable[..., AbstractContextManager[Server]],
) -> None:
    """`min.insync.replicas` is set for all brokers when the feature is finalized; it is kept, and no broker has its own
    value.

    Partitions have their leaders again after a clean stop and after a kill."""
    name = "min.insync.replicas"
    with new_server() as server:
        topic = create_topic(server.bootstrap_servers, "minimum", 2)
        with WireClient(server.bootstrap_servers) as wire:
            own = node_id(wire)
            key = FeatureUpdateKey(
                feature="eligible.leader.replicas.version", max_version_level=1, upgrade_type=UPGRADE
            )
            assert code(wire.call(UpdateFeaturesRequest(feature_updates=[key]), 2).error_code) == "NONE"
            common = ("1", 3, 3, False, False, [(name, "1", 3)])
            wait_until(lambda: described(wire, BROKER, ALL_BROKERS, name) == common, "the common minimum")
            assert alter(wire, BROKER, ALL_BROKERS, (name, DELETE, None)) == "INVALID_CONFIG"
            assert replace(wire, BROKER, ALL_BROKERS, {"message.max.bytes": "1000000"}) == "INVALID_CONFIG"
            assert alter(wire, BROKER, own, (name, SET, "1")) == "INVALID_CONFIG"
            assert alter(wire, BROKER, ALL_BROKERS, (name, SET, "1"), validate_only=True) == "NONE"
        server.restart()
        wait_for_topic(server.bootstrap_servers, topic.name, 2)
        server.kill()
        server.start()
        wait_for_topic(server.bootstrap_servers, topic.name, 2)
        with WireClient(server.bootstrap_servers) as wire:
            assert described(wire, BROKER, ALL_BROKERS, name) == common


def test_kafka_features_upgrades_to_a_release(new_server: Callable[..., AbstractContextManager[Server]]) -> None:
    """As `kafka-features upgrade --release-version 4.3` does it; the levels of supported features are described."""
    with new_server() as server:
        upgrade = kafka_features(server, "upgrade", "--release-version", "4.3")
        for feature, level in RELEASE_4_3.items():
            assert f"{feature} was upgraded to {level}." in upgrade
        assert "can be disabled" in kafka_features(server, "disable", "--feature", FEATURE, "--dry-run")
        assert "Could not disable no.such" in kafka_features(server, "disable", "--feature", "no.such")
        described = kafka_features(server, "describe")
        supported = [line for line in described.splitlines() if line.startswith("Feature: ")]
        assert {line.split()[1] for line in supported} >= {"eligible.leader.replicas.version", "group.version"}
        assert all("FinalizedVersionLevel: 0" not in line for line in supported)
        server.restart()
        assert kafka_features(server, "describe").count("FinalizedVersionLevel: ") == len(supported)


def kafka_features(server: Server, *arguments: str) -> str:
    """The output of the tool."""
    libs = require_kafka_jars()
    done = subprocess.run(
        [
            *(require_program("java"), "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
            *("-cp", f"{libs}/*", "org.apache.kafka.tools.FeatureCommand"),
            *("--bootstrap-server", server.bootstrap_servers, *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr

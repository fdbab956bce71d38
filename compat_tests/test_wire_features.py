"""Feature group.version (KIP-584, KIP-848): what ApiVersions says of it, and what it opens and closes."""

from collections.abc import Iterator

import pytest

from moldau.compat_tests.group_wire import ConsumerMember, code, wait_for_coordinator
from moldau.compat_tests.wire import Topic, wait_until
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
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


def test_versions_of_api_versions_that_know_features_from_0(wire: WireClient) -> None:
    request = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
    assert FEATURE not in {each.name for each in wire.call(request, 3).supported_features}  # KAFKA-17011
    assert FEATURE in {each.name for each in wire.call(request, 3).finalized_features}
    assert finalized(wire) == 1


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

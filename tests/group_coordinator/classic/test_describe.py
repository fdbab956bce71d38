"""DescribeGroups."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember

from ..harness import Coordinator
from .actors import join_all, join_request, leave_request, stable_group


@pytest.mark.parametrize("version", range(7))
def test_a_missing_group_is_dead_and_since_version_6_an_error(version: int) -> None:
    expected = DescribedGroup(group_id="group", group_state="Dead")
    if version >= 6:
        expected.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        expected.error_message = "Group group not found."
    assert Coordinator().describe("group", version) == expected


def test_a_stable_group_is_shown_with_metadata_and_assignments() -> None:
    coordinator = Coordinator()
    plain, static = stable_group(
        coordinator,
        {"protocols": {"range": b"1", "sticky": b"3"}},
        {"instance_id": "static", "protocols": {"range": b"2"}},
    )
    assert coordinator.describe("group") == DescribedGroup(
        group_id="group",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[
            DescribedGroupMember(
                member_id=member_id,
                group_instance_id=instance_id,
                client_id="client",
                client_host="/127.0.0.1",
                member_metadata=metadata,
                member_assignment=f"assignment of {member_id}".encode(),
            )
            for member_id, instance_id, metadata in [(plain, None, b"1"), (static, "static", b"2")]
        ],
    )


def test_during_a_rebalance_the_members_are_shown_without_metadata() -> None:
    coordinator = Coordinator()
    leader, follower = stable_group(coordinator)
    coordinator.send(join_request(leader))
    described = coordinator.describe("group")
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "PreparingRebalance",
        "consumer",
        "",
    )
    assert [(member.member_id, member.member_metadata, member.member_assignment) for member in described.members] == [
        (leader, b"", f"assignment of {leader}".encode()),
        (follower, b"", f"assignment of {follower}".encode()),
    ]


def test_a_generation_without_assignments_is_completing() -> None:
    coordinator = Coordinator()
    (member,) = join_all(coordinator, {})
    described = coordinator.describe("group")
    assert (described.group_state, described.protocol_data) == ("CompletingRebalance", "")
    assert [one.member_id for one in described.members] == [member]


def test_an_empty_group_keeps_its_type() -> None:
    coordinator = Coordinator()
    (member,) = stable_group(coordinator, {"protocol_type": "connect"})
    coordinator.send(leave_request(member))
    assert coordinator.describe("group") == DescribedGroup(
        group_id="group", group_state="Empty", protocol_type="connect", protocol_data=""
    )

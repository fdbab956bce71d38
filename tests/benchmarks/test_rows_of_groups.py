"""Every row of the consumer groups can be measured: members form a group, lose one of them, and get correct responses.

Only against Moldau, with default settings. The rows are small: their values do not matter, but must exist.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest

from moldau.benchmarks import measurement
from moldau.benchmarks.group_classic import ClassicGroups
from moldau.benchmarks.group_connections import GroupConnections
from moldau.benchmarks.group_consumer import ConsumerGroups
from moldau.benchmarks.registry import all_rows
from moldau.benchmarks.row import Row, Server
from moldau.benchmarks.rows.groups import GROUP
from moldau.benchmarks.servers import MoldauServer
from moldau.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.testing.full_run import first_of
from moldau.testing.wire import WireClient

from .small import measured

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks use epoll and /proc")

ROWS = [row for row in all_rows() if row.group == GROUP]

# Values that may be zero in such a short time.
MAY_BE_NONE = ("refused_meanwhile", "seconds_to_join")


def new_topic(server: Server, partitions: int) -> str:
    name = f"topic-{uuid.uuid4().hex}"
    measurement.create_topic(server, name, partitions=partitions, config={})
    return name


@pytest.mark.slow
@pytest.mark.parametrize("row", first_of(ROWS), ids=lambda row: row.name)
def test_row(row: Row, server: MoldauServer, tmp_path: Path) -> None:
    numbers = measured(row, server, tmp_path, scale=0.01)
    assert [name for name, number in numbers.items() if number < 0 or (number == 0 and name not in MAY_BE_NONE)] == []


def test_classic_members_share_a_generation(server: MoldauServer) -> None:
    with GroupConnections(server, 12) as connections, WireClient(server.bootstrap_servers) as wire:
        groups = ClassicGroups(connections, new_topic(server, 1))
        names = [uuid.uuid4().hex for _ in range(3)]
        groups.form(names, 4)
        for left in (4, 3):
            described = wire.call(DescribeGroupsRequest(groups=names)).groups
            assert [(group.group_state, len(group.members)) for group in described] == [("Stable", left)] * 3
            assert {len({member.generation for member in group.members}) for group in groups.groups} == {1}
            if left == 4:
                groups.remove_one_member_each()
        assert len(groups.heartbeats()) == 9
        groups.disband()
        described = wire.call(DescribeGroupsRequest(groups=names)).groups
        assert [(group.group_state, len(group.members)) for group in described] == [("Empty", 0)] * 3


def test_consumer_members_share_the_partitions(server: MoldauServer) -> None:
    with GroupConnections(server, 12) as connections, WireClient(server.bootstrap_servers) as wire:
        groups = ConsumerGroups(connections, new_topic(server, 6))
        names = [uuid.uuid4().hex for _ in range(3)]
        groups.form(names, 4)
        for left in (4, 3):
            for group in wire.call(ConsumerGroupDescribeRequest(group_ids=names)).groups:
                assert (group.group_state, len(group.members)) == ("Stable", left)
                owned = [each.assignment.topic_partitions for each in group.members]
                assert sorted(index for (each,) in owned for index in each.partitions) == [0, 1, 2, 3, 4, 5]
            if left == 4:
                groups.remove_one_member_each()
        assert len(groups.heartbeats()) == 9
        groups.disband()
        described = wire.call(ConsumerGroupDescribeRequest(group_ids=names)).groups
        assert [(group.group_state, len(group.members)) for group in described] == [("Empty", 0)] * 3

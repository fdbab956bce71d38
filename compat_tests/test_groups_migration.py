"""`group.consumer.migration.policy`: whether groups are upgraded and downgraded while they are in use (KIP-848).

The migration of groups is tested by the conformance cases `consumer-groups.migration`, with the default policy.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

import pytest

from moldau.compat_tests.group_server import CONFIG
from moldau.testing.group_requests import (
    ClassicMember,
    ConsumerMember,
    assignment,
    code,
    list_groups,
    rebalance,
    subscription,
    wait_for_coordinator,
)
from moldau.testing.servers import Server
from moldau.testing.topic_requests import Topic, create_topic
from moldau.testing.wire import WireClient

PARTITIONS = 4


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade"])
def test_policies(
    new_server: Callable[..., AbstractContextManager[Server]], topic_name: Callable[[], str], policy: str
) -> None:
    with new_server(CONFIG | {"group.consumer.migration.policy": policy}) as server, ExitStack() as connections:
        address = server.bootstrap_servers
        wait_for_coordinator(address)
        upgraded, downgraded = (create_topic(address, topic_name(), PARTITIONS) for _ in range(2))

        def classic_member(topic: Topic) -> ClassicMember:
            """A member of the group that is named like the topic."""
            protocols = {"range": subscription(topic.name)}
            return connections.enter_context(ClassicMember(address, topic.name, protocols=protocols))

        def consumer_member(topic: Topic) -> ConsumerMember:
            return connections.enter_context(ConsumerMember(address, topic.name, topic))

        classic = classic_member(upgraded)
        rebalance(classic)
        classic.join()
        classic.sync({classic.member_id: assignment({upgraded.name: range(PARTITIONS)})})
        joined = consumer_member(upgraded).join()
        assert code(joined.error_code) == ("NONE" if policy == "upgrade" else "GROUP_ID_NOT_FOUND")

        consumer = consumer_member(downgraded)
        consumer.join()
        classic = classic_member(downgraded)
        classic.member_id = "chosen by the client"
        expected = "INCONSISTENT_GROUP_PROTOCOL" if policy == "disabled" else "NONE"
        assert code(classic.ask_join().error_code) == expected
        assert consumer.leave().error_code == 0
        wire = connections.enter_context(WireClient(address))
        group_type = list_groups(wire)[downgraded.name].group_type
        assert group_type == ("classic" if policy == "downgrade" else "consumer")

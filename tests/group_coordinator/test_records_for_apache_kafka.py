"""Apache Kafka starts on a data directory of Moldau: its coordinator loads the same groups."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from moldau.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from moldau.testing import Broker
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.requirements import require_kafka_jars
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

pytestmark = pytest.mark.slow

SIMPLE, CLASSIC, CONSUMER, LEFT, DELETED = GROUPS = ["simple", "classic", "consumer", "left", "deleted"]


def find_coordinators(wire: WireClient) -> None:
    def found() -> bool:
        coordinators = wire.call(FindCoordinatorRequest(coordinator_keys=GROUPS), 4).coordinators
        return not any(one.error_code for one in coordinators) and not any(one.error_code for one in offsets(wire))

    wait_until(found, "the coordinators")


def offsets(wire: WireClient) -> list[Any]:
    requested = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in GROUPS])
    fetched: list[Any] = wire.call(requested, 9).groups
    return fetched


def everything(address: str) -> dict[str, Any]:
    """The groups as a server describes them, in an order that does not depend on the server."""
    with closing(WireClient(address)) as wire:
        find_coordinators(wire)
        listed = wire.call(ListGroupsRequest(), 5).groups
        fetched = offsets(wire)
        described = wire.call(DescribeGroupsRequest(groups=GROUPS), 5).groups
        consumers = wire.call(ConsumerGroupDescribeRequest(group_ids=[CONSUMER]), 1).groups
    for group in fetched:
        group.topics.sort(key=lambda topic: topic.name)
        for topic in group.topics:
            topic.partitions.sort(key=lambda partition: partition.partition_index)
    for group in (*described, *consumers):
        group.members.sort(key=lambda member: member.member_id)
    for member in consumers[0].members:
        member.subscribed_topic_names.sort()
        for assignment in (member.assignment, member.target_assignment):
            assignment.topic_partitions.sort(key=lambda topic: topic.topic_name)
            for topic in assignment.topic_partitions:
                topic.partitions.sort()
    return {
        "groups": sorted(listed, key=lambda group: str(group.group_id)),
        "offsets": fetched,
        "classic members": described,
        "consumers": consumers,
    }


def commit_outside_of_groups(wire: WireClient, group_id: str) -> None:
    """With and without a retention time, which makes different records."""
    for version, topic, retention_ms in ((9, "t", -1), (4, "u", 3_600_000)):
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=5 + index, committed_metadata="é")
            for index in range(3)
        ]
        topics = [OffsetCommitRequestTopic(name=topic, partitions=partitions)]
        wire.call(OffsetCommitRequest(group_id=group_id, retention_time_ms=retention_ms, topics=topics), version)


def run_members(address: str, open_consumers: ExitStack) -> None:
    """Members that stay until the server has stopped, and one that leaves."""
    confluent = pytest.importorskip("confluent_kafka")

    def consumer(group_id: str, topics: list[str], **config: str) -> Any:
        settings = {"bootstrap.servers": address, "group.id": group_id, "enable.auto.commit": "false", **config}
        made = confluent.Consumer({name.replace("_", "."): value for name, value in settings.items()})
        open_consumers.callback(made.close)
        made.subscribe(topics)
        return made

    def assigned() -> bool:
        for one in consumers:
            one.poll(0.05)
        return all(one.assignment() for one in consumers)

    consumers = [
        consumer(LEFT, ["u"]),
        consumer(CLASSIC, ["t", "u"]),
        consumer(CLASSIC, ["t"], group_instance_id="static"),
        consumer(CONSUMER, ["t", "u"], group_protocol="consumer"),
        consumer(CONSUMER, ["^[tu]$"], group_protocol="consumer", group_instance_id="static"),
    ]
    wait_until(assigned, "the assignments")
    with closing(WireClient(address)) as wire:

        def settled() -> bool:
            assigned()
            states = {group.group_id: group.group_state for group in wire.call(ListGroupsRequest(), 5).groups}
            members = wire.call(ConsumerGroupDescribeRequest(group_ids=[CONSUMER]), 1).groups[0].members
            members += wire.call(DescribeGroupsRequest(groups=[CLASSIC]), 5).groups[0].members
            return len(members) == 4 and states[CLASSIC] == states[CONSUMER] == "Stable"

        wait_until(settled, "the groups as they were")
    for number, one in enumerate(consumers):
        where = one.assignment()[0]
        one.commit(offsets=[confluent.TopicPartition(where.topic, where.partition, number, "note")], asynchronous=False)
    consumers.pop(0).close()


def test_apache_kafka_has_the_same_groups(tmp_path: Path) -> None:
    require_kafka_jars()
    directory = tmp_path / "data"
    with ExitStack() as open_consumers:
        with Broker(data_dir=directory) as broker:
            with closing(WireClient(broker.bootstrap_servers)) as wire:
                topics = [CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in "tu"]
                wire.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
                find_coordinators(wire)
                for group_id in (SIMPLE, DELETED):
                    commit_outside_of_groups(wire, group_id)
                wire.call(DeleteGroupsRequest(groups_names=[DELETED]), 2)
            run_members(broker.bootstrap_servers, open_consumers)
            ours = everything(broker.bootstrap_servers)
        with ApacheKafka(data_dir=directory) as kafka:
            theirs = everything(kafka.bootstrap_servers)

    assert {group.group_id: group.group_state for group in ours["groups"]} == {
        SIMPLE: "Empty",
        CLASSIC: "Stable",
        CONSUMER: "Stable",
        LEFT: "Empty",
    }
    assert {group.group_id for group in ours["offsets"] if group.topics} == {SIMPLE, CLASSIC, CONSUMER, LEFT}
    for what, known in ours.items():
        assert theirs[what] == known, what

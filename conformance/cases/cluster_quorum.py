"""DescribeQuorum and UnregisterBroker: the controllers, and the brokers that they know (KIP-595, KIP-631)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ...protocol.messages.unregister_broker import UnregisterBrokerRequest
from ...protocol.uuid import ZERO_UUID
from .. import topic_admin as t
from ..case import Layer, case, versions_of
from ..check import Check

METADATA_LOG = "__cluster_metadata"


def describe(c: Check, topics: Mapping[str, Sequence[int]], version: int | None = None) -> Any:
    request = DescribeQuorumRequest(
        topics=[
            TopicData(topic_name=name, partitions=[PartitionData(partition_index=each) for each in indexes])
            for name, indexes in topics.items()
        ]
    )
    return c.call(request, version)


@case(
    "cluster.quorum.exchange",
    "the quorum has a leader, voters, and a high watermark that grows",
    source="KIP-595, KIP-836 and KIP-853",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_QUORUM),
)
def exchange(c: Check, version: int) -> None:
    """Sends: DescribeQuorum of `__cluster_metadata-0`; CreateTopics; DescribeQuorum again.

    Expects: no errors; a leader that is one of the voters, an epoch of 1 or more, log end offsets that for the leader
    are not below the high watermark, and a higher high watermark the second time. Since version 1, the times at which
    the leader fetched and was caught up are the present; since version 2, the nodes of all voters with their listeners.

    Why: operators observe by this request whether the metadata of a cluster is replicated.
    """

    def partition() -> Any:
        response = describe(c, {METADATA_LOG: [0]}, version)
        c.error(response.error_code, ErrorCode.NONE)
        c.equal([each.topic_name for each in response.topics], [METADATA_LOG], "topics (names)")
        (found,) = response.topics[0].partitions
        c.equal(found.partition_index, 0, "partition_index")
        c.error(found.error_code, ErrorCode.NONE, "error_code of partition 0")
        voters = {each.replica_id: each for each in found.current_voters}
        c.equal(len(found.current_voters), len(voters), "current_voters (number of different replica_id)")
        c.true(found.leader_id in voters, "leader_id", expected=f"one of {sorted(voters)}", actual=found.leader_id)
        c.true(found.leader_epoch >= 1, "leader_epoch", expected="1 or more", actual=found.leader_epoch)
        c.true(found.high_watermark > 0, "high_watermark", expected="more than 0", actual=found.high_watermark)
        leader = voters[found.leader_id]
        c.true(
            leader.log_end_offset >= found.high_watermark,
            "log_end_offset of the leader",
            expected=f"at least {found.high_watermark}",
            actual=leader.log_end_offset,
        )
        if version >= 1:
            for name in ("last_fetch_timestamp", "last_caught_up_timestamp"):
                when = getattr(leader, name)
                c.true(
                    when > 1_500_000_000_000, f"{name} of the leader", expected="a time of today, in ms", actual=when
                )
        if version >= 2:
            c.true(not found.error_message, "error_message of partition 0", expected="none", actual=found.error_message)
            c.true(not response.error_message, "error_message", expected="none", actual=response.error_message)
            nodes = {each.node_id: each.listeners for each in response.nodes}
            c.equal(len(response.nodes), len(nodes), "nodes (number of different node_id)")
            c.equal([node for node in voters if not nodes.get(node)], [], "voters without listeners in nodes")
            for listener in (each for node in voters for each in nodes[node]):
                c.true(
                    listener.name and listener.host and listener.port > 0,
                    "a listener of a voter",
                    expected="a name, a host and a port",
                    actual=listener,
                )
            if c.target.features.get("kraft.version", 0) >= 1:
                c.equal(
                    [each.replica_id for each in found.current_voters if each.replica_directory_id == ZERO_UUID],
                    [],
                    "voters without replica_directory_id, with kraft.version 1",
                )
        return found

    before = partition()
    c.topic()
    c.until(lambda: partition().high_watermark > before.high_watermark, f"a high watermark > {before.high_watermark}")
    c.equal(partition().leader_epoch >= before.leader_epoch, True, "whether leader_epoch does not decrease")


@case(
    "cluster.quorum.unknown",
    "only the metadata log has a quorum",
    source="KIP-595",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_QUORUM),
    variants={
        "partition": ({METADATA_LOG: [1]},),
        "topic": ({"no-such-topic": [0]},),
        "beside-known": ({METADATA_LOG: [0, 1]},),
        "topic-beside-known": ({METADATA_LOG: [0], "no-such-topic": [0]},),
    },
)
def unknown(c: Check, version: int, topics: dict[str, list[int]]) -> None:
    """Sends: DescribeQuorum of a partition other than `__cluster_metadata-0`, alone or together with it.

    Expects: no error of the response; UNKNOWN_TOPIC_OR_PARTITION for each partition of the request.

    Why: a client that requests another partition must not take the state of the metadata log for it.
    """
    response = describe(c, topics, version)
    c.error(response.error_code, ErrorCode.NONE)
    found = {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in response.topics
        for each in topic.partitions
    }
    expected = {(name, index): int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in topics for index in topics[name]}
    c.equal(found, expected, "topics (partition and error_code)")


@case(
    "cluster.unregister.unknown",
    "a broker that is not registered cannot be unregistered",
    source="KIP-631",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.UNREGISTER_BROKER),
    variants={"large": (t.NO_BROKER,), "negative": (-1,)},
)
def unregister_unknown(c: Check, version: int, broker_id: int) -> None:
    """Sends: UnregisterBroker with a node ID that no broker has.

    Expects: BROKER_ID_NOT_REGISTERED.

    Why: a tool that removes a broker must not report success for a misspelled ID.
    """
    response = c.call(UnregisterBrokerRequest(broker_id=broker_id), version)
    c.error(response.error_code, ErrorCode.BROKER_ID_NOT_REGISTERED)


@case(
    "cluster.quorum.none",
    "a request without topics has an empty response",
    source="KIP-595",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_QUORUM),
)
def none(c: Check, version: int) -> None:
    """Sends: DescribeQuorum without topics.

    Expects: no error, and no topics.

    Why: a client relies on one entry for each partition of its request.
    """
    response = describe(c, {}, version)
    c.error(response.error_code, ErrorCode.NONE)
    c.equal(response.topics, [], "topics")

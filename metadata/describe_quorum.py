"""DescribeQuorum (55): the metadata log's leader, epoch and high watermark, and its voters and observers.

In a quorum of one, the leader is the only voter, and it is always caught up. Since version 1 the response has
timestamps (KIP-836), since 2 directory ids and the endpoints of the voters (KIP-853). Any partition except
`__cluster_metadata`-0 is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..protocol.errors import ErrorCode
from ..protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from .topic_names import CLUSTER_METADATA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .observer_reads import ObserverState
    from .registrations import Endpoint


class QuorumStatus(NamedTuple):
    """The current state of a quorum of one."""

    leader_id: int
    leader_epoch: int
    directory_id: bytes
    controller_endpoint: Endpoint
    log_end_offset: int
    high_watermark: int
    observers: Sequence[ObserverState] = ()


def describe_quorum(
    request: DescribeQuorumRequest, version: int, status: QuorumStatus, now_ms: int
) -> DescribeQuorumResponse:
    """The response to a DescribeQuorumRequest. Its form depends on the version."""
    requested = [
        (topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    if requested != [(CLUSTER_METADATA, 0)]:
        return _unknown(request)
    voter = ReplicaState(
        replica_id=status.leader_id,
        log_end_offset=status.log_end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    partition = ResponsePartitionData(
        partition_index=0,
        error_message=None,
        leader_id=status.leader_id,
        leader_epoch=status.leader_epoch,
        high_watermark=status.high_watermark,
        current_voters=[voter],
        observers=[
            ReplicaState(
                replica_id=each.replica_id,
                log_end_offset=each.end_offset,
                last_fetch_timestamp=each.last_fetch_ms,
                last_caught_up_timestamp=each.last_caught_up_ms,
            )
            for each in status.observers
        ],
    )
    response = DescribeQuorumResponse(
        error_message=None, topics=[ResponseTopicData(topic_name=CLUSTER_METADATA, partitions=[partition])]
    )
    if version >= 2:
        voter.replica_directory_id = status.directory_id
        for observer, state in zip(partition.observers, status.observers, strict=True):
            observer.replica_directory_id = state.directory_id
        endpoint = status.controller_endpoint
        listener = Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
        response.nodes = [Node(node_id=status.leader_id, listeners=[listener])]
    return response


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    topics = [
        ResponseTopicData(
            topic_name=topic.topic_name,
            partitions=[
                ResponsePartitionData(
                    partition_index=partition.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=f"Only {CLUSTER_METADATA}-0 has a quorum.",
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DescribeQuorumResponse(error_message=None, topics=topics)

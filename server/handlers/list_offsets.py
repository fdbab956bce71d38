"""ListOffsets (API key 2): the offset of a point in time, or of one of the special timestamps.

- Versions 1 to 11. Special: -1 latest, -2 earliest, -3 the record with the largest timestamp (7 and newer), -4 the
  earliest that is on local disk (8), -5 the latest that is tiered (9), -6 the earliest that waits to be tiered (11).
  There is no tiered storage, so -4 is the earliest, and for -5 and -6 nothing is found.
- The latest offset is the high watermark, or the last stable offset for ``read_committed``; a record beyond it is not
  found.
- By time: the first record whose timestamp is at least the one asked for, exact within its batch.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ...replication.partition import ISOLATION_LEVELS

if TYPE_CHECKING:
    from ...replication.partition import Partition
    from ..broker import Broker
    from ..request import RequestContext
    from ..slices import Sliced

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
# The first version in which a client can mean it; other negative timestamps mean nothing in any.
_SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NEVER = 0x7FFF

_UNKNOWN = -1


def handle(broker: Broker, context: RequestContext, request: ListOffsetsRequest) -> Sliced[ListOffsetsResponse]:
    """Look up every partition."""
    if request.isolation_level not in ISOLATION_LEVELS:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    asked: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        yield 0
        for wanted in topic.partitions:
            asked[topic.name, wanted.partition_index] += 1
            yield 0
    response = ListOffsetsResponse()
    for topic in request.topics:
        yield 0
        topic_response = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(topic_response)
        for wanted in topic.partitions:
            yield 0
            result = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            topic_response.partitions.append(result)
            try:
                if asked[(topic.name, wanted.partition_index)] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                partition = broker.replicas.partition_by_key(topic.name, wanted.partition_index)
                if partition is None:
                    raise KafkaError(broker.replicas.why_absent(topic.name, wanted.partition_index))
                partition.check_leader(wanted.current_leader_epoch)
                result.timestamp, result.offset, leader_epoch = _look_up(
                    partition, wanted, request.isolation_level, context.api_version
                )
                if context.api_version >= 4:
                    result.leader_epoch = leader_epoch
            except KafkaError as error:
                result.error_code = error.code
    return response


def failed(request: ListOffsetsRequest, error: KafkaError) -> ListOffsetsResponse:
    """The same error for every partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=error.code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _look_up(
    partition: Partition, wanted: ListOffsetsPartition, isolation_level: int, version: int
) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch); -1 for what is not known."""
    timestamp = wanted.timestamp
    if timestamp < 0 and version < _SINCE_VERSION.get(timestamp, _NEVER):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    log = partition.log
    end_offset = partition.visible_end_offset(isolation_level)
    if timestamp == LATEST:
        return _UNKNOWN, end_offset, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _UNKNOWN, log.log_start_offset, log.epoch_of(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _UNKNOWN, _UNKNOWN, _UNKNOWN
    found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= end_offset:
        return _UNKNOWN, _UNKNOWN, _UNKNOWN
    return found.timestamp, found.offset, found.leader_epoch

"""DeleteRecords for one partition."""

from __future__ import annotations

from typing import cast

from ..protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from .check import Check, Topic


def delete_before(
    c: Check, topic: Topic, offset: int, *, partition: int = 0, version: int | None = None
) -> DeleteRecordsPartitionResult:
    """Delete the records before an offset, and return the partition's part of the response."""
    requested = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic.name, partitions=[requested])], timeout_ms=30_000
    )
    response = c.call(request, version)
    c.equal([each.name for each in response.topics], [topic.name], "the topics of DeleteRecords")
    (answer,) = response.topics[0].partitions
    c.equal(answer.partition_index, partition, "partition_index of DeleteRecords")
    return cast(DeleteRecordsPartitionResult, answer)

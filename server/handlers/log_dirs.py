"""DescribeLogDirs (API key 35): sizes of partitions and disks, by log directory.

- Versions 1 to 5. Null topics mean all. Sizes of the file system since version 4 (KIP-827).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from ..broker import Broker
    from ..request import RequestContext


def handle(broker: Broker, context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe every log directory."""
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results: dict[str, DescribeLogDirsResult] = {}
    topics: dict[tuple[str, str], DescribeLogDirsTopic] = {}
    for directory in broker.log_manager.directories:
        result = DescribeLogDirsResult(log_dir=directory.path)
        if directory.online:
            result.total_bytes, result.usable_bytes = broker.log_manager.file_system.space(directory.path)
        else:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        results[directory.path] = result
    for partition in broker.replicas:
        if wanted is not None and (partition.topic, partition.index) not in wanted:
            continue
        directory_of = broker.log_manager.directory_of(partition.topic, partition.index)
        if directory_of is None or not directory_of.online:
            continue
        log_dir = directory_of.path
        topic = topics.get((log_dir, partition.topic))
        if topic is None:
            topic = topics[(log_dir, partition.topic)] = DescribeLogDirsTopic(name=partition.topic)
            results[log_dir].topics.append(topic)
        topic.partitions.append(
            DescribeLogDirsPartition(partition_index=partition.index, partition_size=partition.log.size, offset_lag=0)
        )
    return DescribeLogDirsResponse(results=list(results.values()))


def failed(request: DescribeLogDirsRequest, error: KafkaError) -> DescribeLogDirsResponse:
    """The error for the whole request."""
    return DescribeLogDirsResponse(error_code=error.code)

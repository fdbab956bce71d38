"""DescribeLogDirs (API key 35): sizes of partitions and disks, by log directory.

- Versions 1 to 5. Null topics mean all topics. The sizes of the file system are returned since version 4 (KIP-827),
  and whether the directory is cordoned since version 5 (KIP-1066).
- A replica that is being moved is in both directories. In its target directory it has ``is_future_key``, and
  ``offset_lag`` is the number of offsets that its copy is behind.
- A directory that is offline, or whose file system does not respond, has the error KAFKA_STORAGE_ERROR and no topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...metadata.features import CORDONED_DIRECTORIES_SINCE
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from ...log.directory import LogDirectory
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext


def handle(broker: Broker, context: RequestContext, request: DescribeLogDirsRequest) -> Sliced[DescribeLogDirsResponse]:
    """Describe every log directory."""
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = set()
        for topic in request.topics:
            for index in topic.partitions:
                wanted.add((topic.topic, index))
                yield 0
    results: dict[str, DescribeLogDirsResult] = {}
    topics: dict[tuple[str, str], DescribeLogDirsTopic] = {}

    def add(directory: LogDirectory | None, name: str, partition: DescribeLogDirsPartition) -> None:
        if directory is None or results[directory.path].error_code:
            return
        described = topics.get((directory.path, name))
        if described is None:
            described = topics[directory.path, name] = DescribeLogDirsTopic(name=name)
            results[directory.path].topics.append(described)
        described.partitions.append(partition)

    knows_cordoned = broker.metadata.image.metadata_version >= CORDONED_DIRECTORIES_SINCE
    for directory in broker.log_manager.directories:
        result = DescribeLogDirsResult(
            log_dir=directory.path, is_cordoned=directory.online and directory.is_cordoned and knows_cordoned
        )
        if directory.online:
            try:
                result.total_bytes, result.usable_bytes = broker.log_manager.file_system.space(directory.path)
            except OSError:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        results[directory.path] = result
    for partition in list(broker.replicas):
        yield 0
        if wanted is not None and (partition.topic, partition.index) not in wanted:
            continue
        yield 1
        key = (partition.topic, partition.index)
        add(
            broker.log_manager.directory_of(*key),
            partition.topic,
            DescribeLogDirsPartition(partition_index=partition.index, partition_size=partition.log.size, offset_lag=0),
        )
        future = broker.log_manager.futures.get(key)
        if future is not None:
            add(
                future.directory,
                partition.topic,
                DescribeLogDirsPartition(
                    partition_index=partition.index,
                    partition_size=future.size,
                    offset_lag=future.lag,
                    is_future_key=True,
                ),
            )
    return DescribeLogDirsResponse(results=list(results.values()))


def failed(request: DescribeLogDirsRequest, error: KafkaError) -> DescribeLogDirsResponse:
    """The error for the whole request."""
    return DescribeLogDirsResponse(error_code=error.code)

"""AlterReplicaLogDirs (API key 34): move replicas between this broker's log directories (KIP-113).

- Versions 1 and 2. A directory has its absolute path as its name, as in DescribeLogDirs.
- The response means that a move has begun, not that it is complete: DescribeLogDirs shows its progress.
- A second request for a partition replaces the first. A request for the current directory of the replica cancels the
  move.
- LOG_DIR_NOT_FOUND for a path that is not a log directory of this broker. KAFKA_STORAGE_ERROR for a directory or a
  replica that is offline. INVALID_REPLICA_ASSIGNMENT for a cordoned directory (KIP-1066).
- A partition that is named under several directories is moved to the last.
- The response for a replica that this broker does not have is REPLICA_NOT_AVAILABLE or UNKNOWN_TOPIC_OR_PARTITION. The
  directory is remembered, and used if the broker gets the replica before it is restarted, for example by the
  reassignment that is requested next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...log.names import FUTURE_DIRECTORY, retired_directory_name
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from ...log.directory import LogDirectory
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

_UNIQUE = "0" * 32


def handle(
    broker: Broker, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> Sliced[AlterReplicaLogDirsResponse]:
    """Begin the moves."""
    wanted = _wanted(request)
    codes: dict[tuple[str, int], int] = {}
    for (topic, index), path in wanted.items():
        try:
            yield from _move(broker, topic, index, path)
        except KafkaError as error:
            codes[topic, index] = error.code
        yield 0
    return (yield from _response(wanted, codes))


def _move(broker: Broker, topic: str, index: int, path: str) -> Sliced[None]:
    if not retired_directory_name(topic, index, _UNIQUE, FUTURE_DIRECTORY).startswith(f"{topic}-"):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
    directory = _directory(broker, path)
    partition = broker.replicas.partition_by_key(topic, index)
    if partition is None:
        broker.log_manager.prefer(topic, index, directory)
        code = broker.replicas.missing_partition_error(topic, index)
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            code = ErrorCode.REPLICA_NOT_AVAILABLE
        raise KafkaError(code)
    yield from broker.replica_mover.move(partition, directory)


def _directory(broker: Broker, path: str) -> LogDirectory:
    for directory in broker.log_manager.directories:
        if directory.path == path:
            if not directory.online:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
            if directory.is_cordoned:
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned")
            return directory
    raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir '{path}' is not found in the config.")


def _wanted(request: AlterReplicaLogDirsRequest) -> dict[tuple[str, int], str]:
    return {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }


def _response(
    wanted: dict[tuple[str, int], str], codes: dict[tuple[str, int], int], default: int = ErrorCode.NONE
) -> Sliced[AlterReplicaLogDirsResponse]:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for topic, index in wanted:
        result = topics.setdefault(topic, AlterReplicaLogDirTopicResult(topic_name=topic))
        code = codes.get((topic, index), default)
        result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
        yield 1
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def failed(request: AlterReplicaLogDirsRequest, error: KafkaError) -> Sliced[AlterReplicaLogDirsResponse]:
    """The same error for every partition."""
    return _response(_wanted(request), {}, error.code)

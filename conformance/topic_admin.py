"""CreateTopics, DeleteTopics, CreatePartitions and Metadata of single topics, in any version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ..protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ..protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ..protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from .check import Check

TIMEOUT_MS = 30_000
DELETE_BY_ID = 6
NO_BROKER = 2_000_000_000
"""A node ID that no broker has."""


def creatable(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    *,
    configs: Mapping[str, str | None] | None = None,
    assignments: Mapping[int, Sequence[int]] | None = None,
) -> CreatableTopic:
    """`assignments`: the brokers of each partition, for which `partitions` and `factor` have to be -1."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in (assignments or {}).items()
        ],
    )


def create(
    c: Check,
    *topics: CreatableTopic,
    version: int | None = None,
    validate_only: bool = False,
    timeout_ms: int = TIMEOUT_MS,
) -> dict[str, Any]:
    """CreateTopics, and the results by name. Each name that was requested has exactly one result."""
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only, timeout_ms=timeout_ms)
    return _by_name(c, c.call(request, version).topics, {topic.name for topic in topics}, "topics")


def delete(
    c: Check, *names: str, version: int | None = None, timeout_ms: int = TIMEOUT_MS, ids: Iterable[bytes] = ()
) -> list[Any]:
    """DeleteTopics by name and by ID, and the results sorted by name and ID, as the server may return any order."""
    version = c.version(ApiKey.DELETE_TOPICS) if version is None else version
    request = DeleteTopicsRequest(timeout_ms=timeout_ms)
    if version >= DELETE_BY_ID:
        request.topics = [
            *(DeleteTopicState(name=name) for name in names),
            *(DeleteTopicState(topic_id=topic_id) for topic_id in ids),
        ]
    else:
        request.topic_names = list(names)
    return sorted(c.call(request, version).responses, key=lambda each: (each.name or "", each.topic_id))


def add_partitions(
    c: Check,
    name: str,
    count: int,
    *,
    assignments: Sequence[Sequence[int]] | None = None,
    version: int | None = None,
    validate_only: bool = False,
    timeout_ms: int = TIMEOUT_MS,
) -> Any:
    """CreatePartitions of one topic, and its result."""
    wanted = partitions_topic(name, count, assignments)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=timeout_ms, validate_only=validate_only)
    return _by_name(c, c.call(request, version).results, {name}, "results")[name]


def partitions_topic(
    name: str, count: int, assignments: Sequence[Sequence[int]] | None = None
) -> CreatePartitionsTopic:
    """`assignments`: the brokers of each new partition."""
    given = None
    if assignments is not None:
        given = [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


def _by_name(c: Check, results: Sequence[Any], names: set[str], what: str) -> dict[str, Any]:
    c.equal(sorted(each.name for each in results), sorted(names), f"{what} (names)")
    return {each.name: each for each in results}


def metadata_request(c: Check, name: str) -> MetadataRequest:
    """Metadata of one topic, by name, in the highest version."""
    creates = c.version(ApiKey.METADATA) < 4
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=creates)


def metadata_of(c: Check, name: str) -> Any:
    """Metadata of one topic, by name."""
    (found,) = c.call(metadata_request(c, name)).topics
    return found


def missing(c: Check, name: str) -> None:
    """The topic does not exist."""
    c.error(metadata_of(c, name).error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Metadata error_code of {name}")


def until_missing(c: Check, name: str) -> None:
    """Wait until a deleted topic has left the broker's metadata."""
    c.until(
        lambda: metadata_of(c, name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"Metadata without the deleted topic {name}",
    )


def shape(c: Check, name: str) -> list[tuple[int, int, list[int], list[int]]]:
    """Index, leader, replicas and in-sync replicas of the partitions of a topic."""
    found = metadata_of(c, name)
    c.error(found.error_code, ErrorCode.NONE, f"Metadata error_code of {name}")
    return sorted(
        (each.partition_index, each.leader_id, each.replica_nodes, each.isr_nodes) for each in found.partitions
    )

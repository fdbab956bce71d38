"""CreatePartitions (37): increases the number of partitions of topics. The number never decreases.

* `count` is the new total. It must be larger than the current number.
* `assignments`, if given, assigns the replicas of each new partition, as many as the existing partitions have.
* `validate_only` returns the same response and writes nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ..protocol.steps import Steps, completed
from .assignment import new_partition_record, validate_manual_assignment
from .outcome import MAX_RECORDS_PER_REQUEST, Outcome, Versioned, check_record_count, too_many_records
from .placement import place

if TYPE_CHECKING:
    from .context import ControllerContext
    from .image import MetadataImage


_PARTITIONS_PER_STEP: Final = 50
"""The number of partitions that are created in one step."""


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, context: ControllerContext
) -> Outcome[CreatePartitionsResponse]:
    """Decide on a CreatePartitionsRequest. Raises POLICY_VIOLATION if the whole request is too large."""
    return completed(create_partitions_in_steps(image, request, context))


def create_partitions_in_steps(
    image: MetadataImage, request: CreatePartitionsRequest, context: ControllerContext
) -> Steps[Outcome[CreatePartitionsResponse]]:
    """The same in steps."""
    counts = Counter(topic.name for topic in request.topics)
    results = [
        CreatePartitionsTopicResult(
            name=name,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="The request contains this topic more than once.",
        )
        for name, count in counts.items()
        if count > 1
    ]
    records: list[Versioned] = []
    for topic in request.topics:
        if counts[topic.name] > 1:
            continue
        try:
            yield from _new_partitions(image, topic, context, records)
        except KafkaError as error:
            result = CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
        else:
            result = CreatePartitionsTopicResult(name=topic.name)
        results.append(result)
        check_record_count(records)
        yield 1
    return Outcome(CreatePartitionsResponse(results=results), [] if request.validate_only else records)


def _new_partitions(
    image: MetadataImage, wanted: CreatePartitionsTopic, context: ControllerContext, records: list[Versioned]
) -> Steps[None]:
    """Add the records of the topic's new partitions, unless they are rejected."""
    topic = image.topics_by_name.get(wanted.name)
    if topic is None:
        message = f"There is no topic '{wanted.name}'"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    present = len(topic.partitions)
    if wanted.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic '{wanted.name}' already has {present} partition(s).")
    if wanted.count < present:
        message = f"Topic '{wanted.name}' has {present} partition(s); the number cannot be reduced to {wanted.count}."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    additional = wanted.count - present
    if wanted.assignments is not None and len(wanted.assignments) != additional:
        message = f"The request adds {additional} partition(s), but has assignments for {len(wanted.assignments)}."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if additional > MAX_RECORDS_PER_REQUEST:
        raise too_many_records()
    replication_factor = len(next(iter(topic.partitions.values())).replicas)
    if wanted.assignments is None:
        start = present + context.random_below(max(len(image.brokers), 1))
        assignments = place(image.brokers.values(), additional, replication_factor, start)
    else:
        assignments = [tuple(assignment.broker_ids) for assignment in wanted.assignments]
        for offset, replicas in enumerate(assignments):
            validate_manual_assignment(image, replicas, replication_factor, present + offset)
            yield 0
    for first in range(0, additional, _PARTITIONS_PER_STEP):
        if first:
            yield _PARTITIONS_PER_STEP
        records += [
            new_partition_record(image, topic.topic_id, present + offset, replicas)
            for offset, replicas in enumerate(assignments[first : first + _PARTITIONS_PER_STEP], first)
        ]

"""AlterPartitionReassignments (45) and ListPartitionReassignments (46): moves partitions (KIP-455).

* New replicas are added immediately, as `adding`. When all of them are in sync, the old ones are removed. A change that
  moves no data, such as another order of the same replicas, is complete immediately.
* Null replicas cancel a reassignment in progress.
* `allow_replication_factor_change=false` rejects a different number of replicas (KIP-860).
* Each partition succeeds or fails separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ..protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ..protocol.steps import Steps, completed
from .assignment import check_replica_count, default_directory, validate_replicas
from .brokers import elr_minimum, may_lead, unclean_election_enabled
from .outcome import Outcome, Versioned, check_record_count
from .partition_changes import Election, change_partition
from .registrations import PartitionRegistration, TopicImage

if TYPE_CHECKING:
    from .context import ControllerContext
    from .image import MetadataImage


def alter_partition_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, context: ControllerContext
) -> Outcome[AlterPartitionReassignmentsResponse]:
    """Decide on an AlterPartitionReassignmentsRequest."""
    return completed(alter_partition_reassignments_in_steps(image, request, context))


def alter_partition_reassignments_in_steps(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, context: ControllerContext
) -> Steps[Outcome[AlterPartitionReassignmentsResponse]]:
    """The same in steps."""
    allow_change = request.allow_replication_factor_change
    records: list[Versioned] = []
    responses: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        answer = ReassignableTopicResponse(name=topic.name)
        for wanted in topic.partitions:
            result = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
            try:
                record = _reassign(image, topic.name, wanted, allow_change, context)
            except KafkaError as error:
                result.error_code = error.code
                result.error_message = error.message
            else:
                records += [record] if record is not None else []
            answer.partitions.append(result)
            yield 1
        responses.append(answer)
        yield 1
    check_record_count(records)
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allow_change, error_message=None, responses=responses
    )
    return Outcome(response, records)


def list_partition_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The response to a ListPartitionReassignmentsRequest: its partitions in reassignment; null topics mean all."""
    return completed(list_partition_reassignments_in_steps(image, request))


def list_partition_reassignments_in_steps(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Steps[ListPartitionReassignmentsResponse]:
    """The same in steps."""
    topics: list[OngoingTopicReassignment] = []
    if request.topics is None:
        wanted: Iterator[tuple[TopicImage | None, Iterable[int]]] = (
            (topic, topic.partitions) for topic in image.topics_by_name.values()
        )
    else:
        wanted = ((image.topics_by_name.get(topic.name), topic.partition_indexes) for topic in request.topics)
    for topic, indexes in wanted:
        yield 0
        if topic is None:
            continue
        partitions = []
        for index in indexes:
            partition = topic.partitions.get(index)
            if partition is not None and partition.is_reassigning:
                partitions.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding_replicas),
                        removing_replicas=list(partition.removing_replicas),
                    )
                )
                yield 1
            else:
                yield 0
        if partitions:
            topics.append(OngoingTopicReassignment(name=topic.name, partitions=partitions))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _reassign(
    image: MetadataImage, name: str, wanted: ReassignablePartition, allow_change: bool, context: ControllerContext
) -> Versioned | None:
    topic = image.topics_by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        message = f"There is no partition {name}-{wanted.partition_index}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if wanted.replicas is None:
        return _cancel(image, topic, wanted.partition_index, partition, context)
    validate_replicas(image, wanted.replicas)
    if not allow_change:
        _check_replication_factor(name, wanted.partition_index, partition, wanted.replicas)
    target = tuple(wanted.replicas)
    removing = tuple(sorted(set(partition.replicas) - set(target)))
    adding = tuple(sorted(set(target) - set(partition.replicas)))
    if adding:
        # During the move, the partition has the old replicas, too.
        check_replica_count(len(target) + len(removing), context.max_replicas)
    return change_partition(
        partition,
        topic.topic_id,
        wanted.partition_index,
        may_lead=may_lead(image, partition),
        metadata_version=image.metadata_version,
        elr_minimum=elr_minimum(image, name, context),
        replicas=target + removing,
        # As in Kafka, an empty list does not clear the remaining work of an earlier reassignment.
        removing=removing or None,
        adding=adding or None,
        default_directory=lambda broker_id: default_directory(image, broker_id),
    )


def _check_replication_factor(name: str, index: int, partition: PartitionRegistration, replicas: Sequence[int]) -> None:
    present = len({*partition.replicas, *partition.adding_replicas} - {*partition.removing_replicas})
    if len(replicas) != present:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The request does not allow a change of the number of replicas from {present} to {len(replicas)}.",
        )


def _cancel(
    image: MetadataImage,
    topic: TopicImage,
    index: int,
    partition: PartitionRegistration,
    context: ControllerContext,
) -> Versioned | None:
    if not partition.is_reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding_replicas)
    unclean_allowed = unclean_election_enabled(image, topic.name, context)
    if not replicas:
        message = "Every replica of the partition was added by the move."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if not isr:
        if not unclean_allowed:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{topic.name}-{index} would have no in-sync replica, and its topic does not allow unclean elections.",
            )
        isr = replicas[:1]
    return change_partition(
        partition,
        topic.topic_id,
        index,
        may_lead=may_lead(image, partition),
        metadata_version=image.metadata_version,
        elr_minimum=elr_minimum(image, topic.name, context),
        election=Election.UNCLEAN if unclean_allowed else Election.ONLINE,
        isr=isr,
        replicas=replicas,
        removing=(),
        adding=(),
        default_directory=lambda broker_id: default_directory(image, broker_id),
    )

"""ElectLeaders (43): elects leaders on request.

* PREFERRED: the first replica becomes leader, if it is in sync (KIP-183).
* UNCLEAN: a partition without a leader gets an active replica as leader, in sync or not (KIP-460).
* Null partitions mean all partitions. The response then contains only changed partitions and failed elections.
* A partition that already has the requested leader: ELECTION_NOT_NEEDED.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ..protocol.steps import Steps, completed
from .brokers import elr_minimum, may_lead
from .outcome import NO_ERROR, ApiError, Outcome, Versioned, check_record_count
from .partition_changes import Election, change_partition
from .registrations import NO_LEADER, TopicImage

if TYPE_CHECKING:
    from .context import ControllerContext
    from .image import MetadataImage

PREFERRED: Final = 0
UNCLEAN: Final = 1

_NOT_NEEDED: Final = ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for the partition.")


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, context: ControllerContext
) -> Outcome[ElectLeadersResponse]:
    """Decide on an ElectLeadersRequest. Raises INVALID_REQUEST for an unknown type of election."""
    return completed(elect_leaders_in_steps(image, request, context))


def elect_leaders_in_steps(
    image: MetadataImage, request: ElectLeadersRequest, context: ControllerContext
) -> Steps[Outcome[ElectLeadersResponse]]:
    """The same in steps."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    unclean = request.election_type == UNCLEAN
    records: list[Versioned] = []
    results: list[ReplicaElectionResult] = []
    if request.topic_partitions is None:
        for topic in image.topics_by_name.values():
            elections = yield from _elect_all(topic, topic.name, list(topic.partitions), image, context, unclean)
            elections = [election for election in elections if election.error is not _NOT_NEEDED]
            results.append((yield from _result(topic.name, elections)))
            records += [election.record for election in elections if election.record is not None]
    else:
        for wanted in request.topic_partitions:
            found = image.topics_by_name.get(wanted.topic)
            elections = yield from _elect_all(found, wanted.topic, wanted.partitions, image, context, unclean)
            results.append((yield from _result(wanted.topic, elections)))
            records += [election.record for election in elections if election.record is not None]
    check_record_count(records)
    return Outcome(ElectLeadersResponse(replica_election_results=results), records)


class _Election(NamedTuple):
    """The result of one partition's election."""

    partition: int
    error: ApiError
    record: Versioned | None


def _elect_all(
    topic: TopicImage | None,
    name: str,
    partitions: Sequence[int],
    image: MetadataImage,
    context: ControllerContext,
    unclean: bool,
) -> Steps[list[_Election]]:
    missing = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist")
    elections = []
    for partition in partitions:
        error, record = (missing, None) if topic is None else _elect(topic, partition, image, context, unclean)
        elections.append(_Election(partition, error, record))
        yield 0
    return elections


def _elect(
    topic: TopicImage, partition: int, image: MetadataImage, context: ControllerContext, unclean: bool
) -> tuple[ApiError, Versioned | None]:
    registration = topic.partitions.get(partition)
    if registration is None:
        return ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {topic.name}-{partition} does not exist"
        ), None
    leader = registration.leader
    if leader != NO_LEADER if unclean else leader == registration.preferred_replica:
        return _NOT_NEEDED, None
    record = change_partition(
        registration,
        topic.topic_id,
        partition,
        may_lead=may_lead(image, registration),
        metadata_version=image.metadata_version,
        elr_minimum=elr_minimum(image, topic.name, context),
        election=Election.UNCLEAN if unclean else Election.PREFERRED,
    )
    if record is not None:
        return NO_ERROR, record
    if unclean:
        return ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition is alive."), None
    return ApiError(
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred replica is not in sync or not alive."
    ), None


def _result(topic: str, elections: Sequence[_Election]) -> Steps[ReplicaElectionResult]:
    result = ReplicaElectionResult(topic=topic)
    for partition, error, _ in elections:
        result.partition_result.append(
            PartitionResult(partition_id=partition, error_code=error.code, error_message=error.message)
        )
        yield 1
    yield 1
    return result

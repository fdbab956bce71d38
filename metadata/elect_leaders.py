"""ElectLeaders (43): leaders are elected by request.

* PREFERRED: the first replica is to lead, if it is in sync (KIP-183).
* UNCLEAN: a partition without a leader gets one that is alive, in sync or not (KIP-460).
* Null partitions mean all of them; of these, only what did change, or should have and could not, is in the answer.
* A partition that is as wanted already: ELECTION_NOT_NEEDED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from .brokers import may_lead
from .outcome import NO_ERROR, ApiError, Outcome, Versioned, check_record_count
from .partition_changes import Election, change_partition
from .registrations import NO_LEADER, TopicImage

if TYPE_CHECKING:
    from .image import MetadataImage

PREFERRED: Final = 0
UNCLEAN: Final = 1

_NOT_NEEDED: Final = ApiError(ErrorCode.ELECTION_NOT_NEEDED, "The partition is led as it should be.")


def elect_leaders(image: MetadataImage, request: ElectLeadersRequest) -> Outcome[ElectLeadersResponse]:
    """Decide on an ElectLeadersRequest. Raises INVALID_REQUEST for a type of election that does not exist."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no election of type {request.election_type}")
    unclean = request.election_type == UNCLEAN
    records: list[Versioned] = []
    results: list[ReplicaElectionResult] = []
    if request.topic_partitions is None:
        for topic in image.topics_by_name.values():
            elected = [(partition, *_elect(topic, partition, image, unclean)) for partition in topic.partitions]
            changed = [(partition, error, record) for partition, error, record in elected if error is not _NOT_NEEDED]
            results.append(_result(topic.name, changed))
            records += [record for _, _, record in changed if record is not None]
    else:
        for wanted in request.topic_partitions:
            found = image.topics_by_name.get(wanted.topic)
            if found is None:
                error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{wanted.topic}'")
                elected = [(partition, error, None) for partition in wanted.partitions]
            else:
                elected = [(partition, *_elect(found, partition, image, unclean)) for partition in wanted.partitions]
            results.append(_result(wanted.topic, elected))
            records += [record for _, _, record in elected if record is not None]
    check_record_count(records)
    return Outcome(ElectLeadersResponse(replica_election_results=results), records)


def _elect(topic: TopicImage, partition: int, image: MetadataImage, unclean: bool) -> tuple[ApiError, Versioned | None]:
    registration = topic.partitions.get(partition)
    if registration is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic.name}-{partition}"), None
    leader = registration.leader
    if leader != NO_LEADER if unclean else leader == registration.preferred_replica:
        return _NOT_NEEDED, None
    record = change_partition(
        registration,
        topic.topic_id,
        partition,
        may_lead=may_lead(image, registration),
        metadata_version=image.metadata_version,
        election=Election.UNCLEAN if unclean else Election.PREFERRED,
    )
    if record is not None:
        return NO_ERROR, record
    if unclean:
        return ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition is alive."), None
    return ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The first replica is not in sync, or not alive."), None


def _result(topic: str, elected: list[tuple[int, ApiError, Versioned | None]]) -> ReplicaElectionResult:
    return ReplicaElectionResult(
        topic=topic,
        partition_result=[
            PartitionResult(partition_id=partition, error_code=error.code, error_message=error.message)
            for partition, error, _ in elected
        ],
    )

"""AlterPartition: the order of the checks, and what an accepted proposal changes."""

import itertools
from dataclasses import dataclass, field

import pytest

from moldau.metadata.alter_partition import alter_partition
from moldau.metadata.brokers import fence_broker, shut_down_broker
from moldau.metadata.image import ConfigResource
from moldau.metadata.outcome import Versioned
from moldau.metadata.records import FeatureLevelRecord, PartitionChangeRecord
from moldau.metadata.registrations import RECOVERED, RECOVERING, PartitionRegistration
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    ResponsePartitionData,
    TopicData,
)

from .conftest import Cluster

LEADER_EPOCH, PARTITION_EPOCH = 5, 7


@dataclass
class Fixture:
    """Topic a has one partition on the brokers 1 (leader), 2, 3; broker 4 has no replica. In sync: 1 and 2."""

    cluster: Cluster
    topic_id: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.cluster.create("a", 1, 3)
        self.topic_id = self.cluster.image.topics_by_name["a"].topic_id
        self.set(leader=1, isr=(1, 2), leader_epoch=LEADER_EPOCH, partition_epoch=PARTITION_EPOCH)

    def set(self, **fields: object) -> None:
        topic = self.cluster.image.topics_by_name["a"]
        changed = topic._replace(partitions={0: topic.partitions[0]._replace(**fields)})  # type: ignore[arg-type]
        self.cluster.image = self.cluster.image._replace(
            topics_by_id={changed.topic_id: changed}, topics_by_name={"a": changed}
        )

    @property
    def partition(self) -> PartitionRegistration:
        partition = self.cluster.image.partition("a", 0)
        assert partition is not None
        return partition

    def epoch(self, broker_id: int) -> int:
        broker = self.cluster.image.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def propose(
        self,
        *isr: int,
        broker_id: int = 1,
        leader_epoch: int = LEADER_EPOCH,
        partition_epoch: int = PARTITION_EPOCH,
        recovery: int = RECOVERED,
        topic_id: bytes | None = None,
        index: int = 0,
        epochs: dict[int, int] | None = None,
        version: int = 3,
    ) -> tuple[ResponsePartitionData, list[Versioned]]:
        proposal = PartitionData(
            partition_index=index,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            leader_recovery_state=recovery,
        )
        if version >= 3:
            proposal.new_isr_with_epochs = [
                BrokerState(broker_id=each, broker_epoch=(epochs or {}).get(each, self.epoch(each))) for each in isr
            ]
        else:
            proposal.new_isr = list(isr)
        request = AlterPartitionRequest(
            broker_id=broker_id,
            broker_epoch=self.epoch(broker_id),
            topics=[TopicData(topic_id=topic_id or self.topic_id, partitions=[proposal])],
        )
        outcome = alter_partition(self.cluster.image, request, version, self.cluster.context)
        response = self.cluster.do(outcome)
        assert [topic.topic_id for topic in response.topics] == [topic_id or self.topic_id]
        (answer,) = response.topics[0].partitions
        assert answer.partition_index == index
        return answer, outcome.records


@pytest.fixture
def topic(new_cluster: type[Cluster]) -> Fixture:
    cluster = new_cluster(1, 2, 3)
    fixture = Fixture(cluster)
    cluster.join(cluster.node(4))
    return fixture


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("isr", [(1,), (1, 2, 3), (1, 3), (3, 1)])
def test_a_valid_proposal_becomes_the_isr(topic: Fixture, isr: tuple[int, ...], version: int) -> None:
    answer, records = topic.propose(*isr, version=version)
    assert answer.error_code == ErrorCode.NONE
    assert (answer.leader_id, answer.leader_epoch, tuple(answer.isr)) == (1, LEADER_EPOCH, isr)
    assert answer.partition_epoch == PARTITION_EPOCH + 1
    assert answer.leader_recovery_state == RECOVERED
    assert topic.partition.isr == isr
    assert topic.partition.leader_epoch == LEADER_EPOCH  # since metadata.version 3.6 a smaller ISR does not raise it
    assert [type(each.record) for each in records] == [PartitionChangeRecord]


def test_a_proposal_of_the_current_isr_changes_nothing(topic: Fixture) -> None:
    answer, records = topic.propose(1, 2)
    assert answer.error_code == ErrorCode.NONE
    assert answer.partition_epoch == PARTITION_EPOCH
    assert records == []


def test_an_earlier_incarnation_of_the_leader_is_rejected_as_a_whole(topic: Fixture) -> None:
    request = AlterPartitionRequest(broker_id=1, broker_epoch=topic.epoch(1) - 1)
    with pytest.raises(KafkaError) as raised:
        alter_partition(topic.cluster.image, request, 3, topic.cluster.context)
    assert raised.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_unknown_topics_and_partitions(topic: Fixture) -> None:
    assert topic.propose(1, topic_id=b"\x02" * 16)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert topic.propose(1, index=1)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("leader_epoch", "partition_epoch", "broker_id", "isr", "epoch_of_2"),
    list(itertools.product([-1, 0, 1], [-1, 0, 1], [1, 2], ["valid", "foreign", "without leader"], [-1, 0, 1])),
)
def test_the_order_of_the_checks(
    topic: Fixture, leader_epoch: int, partition_epoch: int, broker_id: int, isr: str, epoch_of_2: int
) -> None:
    """Each field below (-1), at (0) or above (1) the state of the controller. The first check that fails counts."""
    answer, records = topic.propose(
        *{"valid": (1, 2, 3), "foreign": (1, 2, 4), "without leader": (2, 3)}[isr],
        leader_epoch=LEADER_EPOCH + leader_epoch,
        partition_epoch=PARTITION_EPOCH + partition_epoch,
        broker_id=broker_id,
        epochs={2: topic.epoch(2) + epoch_of_2},
    )
    checks = [
        (leader_epoch > 0 or partition_epoch > 0, ErrorCode.NOT_CONTROLLER),
        (leader_epoch < 0, ErrorCode.FENCED_LEADER_EPOCH),
        (broker_id != 1, ErrorCode.INVALID_REQUEST),
        (partition_epoch < 0, ErrorCode.INVALID_UPDATE_VERSION),
        (isr != "valid", ErrorCode.INVALID_REQUEST),
        (epoch_of_2 != 0, ErrorCode.INELIGIBLE_REPLICA),
        (True, ErrorCode.NONE),
    ]
    assert answer.error_code == next(error for fails, error in checks if fails)
    assert bool(records) is (answer.error_code == ErrorCode.NONE)


def test_a_replica_is_named_once(topic: Fixture) -> None:
    assert topic.propose(1, 2, 2)[0].error_code == ErrorCode.INVALID_REQUEST


def test_a_member_without_an_epoch_is_not_compared(topic: Fixture) -> None:
    assert topic.propose(1, 2, 3, epochs={2: -1, 3: -1})[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("state", ["fenced", "shutting down", "not registered"])
def test_a_member_must_be_active(topic: Fixture, state: str, version: int) -> None:
    cluster = topic.cluster
    if state == "fenced":
        cluster.commit(fence_broker(cluster.image, 3, cluster.context))
    elif state == "shutting down":
        cluster.commit(shut_down_broker(cluster.image, 3, cluster.context))
    else:
        brokers = {key: broker for key, broker in cluster.image.brokers.items() if key != 3}
        cluster.image = cluster.image._replace(brokers=brokers)
    answer, _ = topic.propose(1, 2, 3, version=version)
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize(
    ("before", "isr", "proposed", "expected"),
    [
        (RECOVERING, (1,), RECOVERED, ErrorCode.NONE),
        (RECOVERING, (1,), RECOVERING, ErrorCode.NONE),
        (RECOVERING, (1, 2), RECOVERING, ErrorCode.INVALID_REQUEST),
        (RECOVERING, (1, 2), RECOVERED, ErrorCode.NONE),
        (RECOVERED, (1,), RECOVERING, ErrorCode.INVALID_REQUEST),
    ],
)
def test_the_recovery_state(
    topic: Fixture, before: int, isr: tuple[int, ...], proposed: int, expected: ErrorCode
) -> None:
    topic.set(leader_recovery_state=before, isr=(1,))
    answer, _ = topic.propose(*isr, recovery=proposed)
    assert answer.error_code == expected
    if expected == ErrorCode.NONE:
        assert answer.leader_recovery_state == topic.partition.leader_recovery_state == proposed


def test_a_proposal_that_completes_a_reassignment_may_move_the_leadership(topic: Fixture) -> None:
    """KIP-455: from [1] to [3]. The old leader learns of its successor from the metadata."""
    directories = (topic.partition.directory(3), topic.partition.directory(1))
    topic.set(replicas=(3, 1), isr=(1,), adding_replicas=(3,), removing_replicas=(1,), directories=directories)
    answer, _ = topic.propose(1, 3)
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert (topic.partition.replicas, topic.partition.isr, topic.partition.leader) == ((3,), (3,), 3)
    assert topic.partition.leader_epoch == LEADER_EPOCH + 1


@pytest.mark.parametrize("elr_enabled", [False, True])
def test_a_replica_below_the_minimum_remains_eligible(topic: Fixture, elr_enabled: bool) -> None:
    """KIP-966: with min.insync.replicas=2 a replica that leaves the ISR has every acknowledged record."""
    cluster = topic.cluster
    if elr_enabled:
        feature = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)
        cluster.commit([Versioned(feature)])
    cluster.image = cluster.image._replace(configs={ConfigResource(2, "a"): {"min.insync.replicas": "2"}})
    topic.propose(1)
    assert topic.partition.elr == ((2,) if elr_enabled else ())
    answer, _ = topic.propose(1, 3, partition_epoch=PARTITION_EPOCH + 1)
    assert answer.error_code == ErrorCode.NONE
    assert topic.partition.elr == ()


def test_partitions_of_one_request_are_decided_separately(topic: Fixture) -> None:
    good = PartitionData(
        partition_index=0,
        leader_epoch=LEADER_EPOCH,
        partition_epoch=PARTITION_EPOCH,
        new_isr_with_epochs=[BrokerState(broker_id=1)],
    )
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=topic.epoch(1),
        topics=[TopicData(topic_id=topic.topic_id, partitions=[PartitionData(partition_index=9), good])],
    )
    response = topic.cluster.do(alter_partition(topic.cluster.image, request, 3, topic.cluster.context))
    errors = [answer.error_code for answer in response.topics[0].partitions]
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert topic.partition.isr == (1,)

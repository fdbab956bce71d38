"""A cluster without a log: an image, and the records of the controller's decisions, which are replayed onto it."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import pytest

from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.metadata.brokers import NodeDescription, register_broker, register_controller, unfence_broker
from moldau.metadata.context import ControllerContext
from moldau.metadata.create_topics import create_topics
from moldau.metadata.image import MetadataDelta, MetadataImage
from moldau.metadata.outcome import Outcome, Versioned
from moldau.metadata.records import FeatureLevelRecord, decode_record, encode_record
from moldau.metadata.registrations import Endpoint
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)


def uuid_of(number: int) -> bytes:
    return b"\x01" + number.to_bytes(15, "big")


def node(node_id: int = 1, *, life: int = 0, rack: str | None = None) -> NodeDescription:
    return NodeDescription(
        node_id=node_id,
        incarnation_id=uuid_of(1000 * node_id + life),
        broker_endpoints=(Endpoint("PLAINTEXT", "localhost", 9092 + node_id),),
        controller_endpoint=Endpoint("CONTROLLER", "localhost", 9093),
        directories=(uuid_of(100 * node_id),),
        rack=rack,
    )


T = TypeVar("T")


class Cluster:
    """Active brokers with the given ids. Topic ids count upwards, so that there is no randomness."""

    def __init__(self, *broker_ids: int, settings: Mapping[str, str] | None = None) -> None:
        static = {name: StaticValue(value, "test") for name, value in (settings or {}).items()}
        self._next_uuid = 0
        self.context = ControllerContext(1, BrokerConfig(static), random_uuid=self._random_uuid, draw=lambda bound: 0)
        self.image = MetadataImage(cluster_id="test", features={"kraft.version": 1})
        self.delta = MetadataDelta(self.image, self.image)
        self.commit([Versioned(FeatureLevelRecord(name="metadata.version", feature_level=30))])
        self.commit(register_controller(node()))
        for broker_id in broker_ids or (1,):
            self.join(node(broker_id))

    def _random_uuid(self) -> bytes:
        self._next_uuid += 1
        return uuid_of(50_000 + self._next_uuid)

    node = staticmethod(node)

    def join(self, description: NodeDescription) -> None:
        """Register a broker, new or known, and unfence it."""
        self.commit(register_broker(self.image, description, self.image.offset + 1, self.context))
        self.commit(unfence_broker(self.image, description.node_id, self.context))

    def commit(self, records: Iterable[Versioned]) -> MetadataDelta:
        """Encode, decode and replay the records, as a log does."""
        replayed = [decode_record(encode_record(record, version))[0] for record, version in records]
        end_offset = self.image.offset + 1 + len(replayed)
        self.image, self.delta = self.image.apply(replayed, end_offset=end_offset, epoch=1, timestamp_ms=1)
        return self.delta

    def create(
        self, name: str, partitions: int = 1, replication_factor: int = 1, **configs: str
    ) -> CreatableTopicResult:
        """Create one topic. In names of configs, `_` stands for `.`."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        outcome = create_topics(self.image, CreateTopicsRequest(topics=[topic]), self.context)
        self.commit(outcome.records)
        return outcome.response.topics[0]

    def do(self, outcome: Outcome[T]) -> T:
        """Commit the records of an outcome. Returns the response."""
        if outcome.records:
            self.commit(outcome.records)
        return outcome.response


@pytest.fixture
def new_cluster() -> type[Cluster]:
    """Creates clusters: ``new_cluster(1, 2, 3)`` has three brokers."""
    return Cluster


@pytest.fixture
def cluster() -> Cluster:
    """A cluster with one broker, whose id is 1."""
    return Cluster(1)

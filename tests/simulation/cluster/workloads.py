"""What clients do, and what they may rely on afterwards: topics, configs, records, offsets of groups, producer ids.

Each workload repeats a request until it has a definite outcome, through whatever happens to the cluster, and records
the outcomes. `check` compares them with the healed cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records import Record, build_batch
from moldau.protocol.schema import Versions

from .clients import GROUP, READ_COMMITTED, Client

if TYPE_CHECKING:
    from moldau.metadata.image import MetadataImage

    from .clients import ClientProcess

DATA_TOPIC = "data"
CONFIG = "max.message.bytes"
TOPIC_RESOURCE = 2


class Workload(Protocol):
    """One client with its task."""

    async def run(self) -> None:
        """Work until the process ends."""

    async def check(self, image: MetadataImage) -> None:
        """Compare the healed cluster with the outcomes. ``image`` is what all brokers have."""


async def create_topic(client: Client, name: str, assignments: Mapping[int, int]) -> None:
    """Create a topic whose partitions are on these brokers."""
    assigned = [
        CreatableReplicaAssignment(partition_index=partition, broker_ids=[broker])
        for partition, broker in assignments.items()
    ]
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assigned)
    response = None
    while response is None or response.topics[0].error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
        response = await client.call(client.any_broker(), CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        await client.pause()


class Topics(Client):
    """Creates and deletes topics, each with a new name."""

    def __init__(self, process: ClientProcess, name: str) -> None:
        super().__init__(process, name)
        self.expected: dict[str, int] = {}
        """The number of partitions of each topic that must exist; 0 if it must not."""

    async def run(self) -> None:
        created = 0
        while not self.process.is_ending:
            await self.pause(2)
            created += 1
            name, partitions = f"{self.name}-{created}", self.dice.randint(1, 4)
            if await self._create(name, partitions):
                self.expected[name] = partitions
                if self.dice.random() < 0.5:
                    await self.pause(2)
                    await self._delete(name)

    async def _create(self, name: str, partitions: int) -> bool:
        """Returns whether the topic exists now, and no earlier attempt can still create it."""
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        is_only_attempt = True
        while True:
            request = CreateTopicsRequest(topics=[topic], timeout_ms=self.dice.choice((100, 5000, 30000)))
            response = await self.call(self.any_broker(), request)
            code = ErrorCode.REQUEST_TIMED_OUT if response is None else response.topics[0].error_code
            # A broker repeats a request whose response from the controller is lost. So the topic of a single attempt
            # may exist already.
            if code in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
                return is_only_attempt
            if code == ErrorCode.INVALID_REPLICATION_FACTOR:  # all brokers are fenced
                is_only_attempt = is_only_attempt and response is not None
            else:
                self.expect_retriable(code, request)
                is_only_attempt = False
            await self.pause(1)

    async def _delete(self, name: str) -> None:
        del self.expected[name]
        while True:
            request = DeleteTopicsRequest(topic_names=[name], timeout_ms=self.dice.choice((100, 5000, 30000)))
            response = await self.call(self.any_broker(), request, Versions(1, 5))
            code = ErrorCode.REQUEST_TIMED_OUT if response is None else response.responses[0].error_code
            if code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                self.expected[name] = 0
                return
            self.expect_retriable(code, request)
            await self.pause(1)

    async def check(self, image: MetadataImage) -> None:
        for name, partitions in self.expected.items():
            found = image.topics_by_name.get(name)
            assert partitions == (0 if found is None else len(found.partitions)), f"{name}: {partitions}, not {found}"


class Configs(Client):
    """Sets a config of a topic to higher and higher values."""

    def __init__(self, process: ClientProcess, name: str) -> None:
        super().__init__(process, name)
        self.possible: set[str] = set()
        """The values that the config may have now."""

    async def run(self) -> None:
        value = 1_000_000
        uncertain: set[str] = set()
        while not self.process.is_ending:
            value += 1
            config = AlterableConfig(name=CONFIG, config_operation=0, value=str(value))
            resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=DATA_TOPIC, configs=[config])
            request = IncrementalAlterConfigsRequest(resources=[resource])
            response = await self.call(self.any_broker(), request)
            code = ErrorCode.REQUEST_TIMED_OUT if response is None else response.responses[0].error_code
            if not code:
                # An earlier attempt without a response may still be repeated by the broker that forwards it.
                self.possible = {*uncertain, str(value)}
            else:
                self.expect_retriable(code, request)
                uncertain.add(str(value))
                self.possible.add(str(value))
            await self.pause(3)

    async def check(self, image: MetadataImage) -> None:
        found = image.config(TOPIC_RESOURCE, DATA_TOPIC).get(CONFIG, "")
        assert not self.possible or found in self.possible, f"{CONFIG} is {found!r}, not one of {self.possible}"


class ProducerIds:
    """All producer ids that clients have got."""

    def __init__(self) -> None:
        self.given: dict[int, str] = {}

    def add(self, producer_id: int, name: str) -> None:
        assert producer_id not in self.given, f"producer id {producer_id} of {self.given[producer_id]} and of {name}"
        self.given[producer_id] = name


class Producer(Client):
    """An idempotent producer: each batch is sent until it is acknowledged."""

    def __init__(self, process: ClientProcess, name: str, ids: ProducerIds, partitions: int) -> None:
        super().__init__(process, name)
        self._ids = ids
        self._partitions = partitions
        self.sent: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        """Acknowledged values, by partition, in the order of sending."""

    async def run(self) -> None:
        number = 0
        while not self.process.is_ending:
            producer_id = await self._new_producer_id()
            sequences = dict.fromkeys(self.sent, 0)
            for _ in range(self.dice.randint(1, 60)):
                if self.process.is_ending:
                    break
                partition = self.dice.randrange(self._partitions)
                values = [b"%s %d" % (self.name.encode(), number + each) for each in range(self.dice.randint(1, 3))]
                number += len(values)
                await self._send(partition, values, producer_id, sequences[partition])
                sequences[partition] += len(values)
                self.sent[partition] += values
                await self.pause()

    async def _new_producer_id(self) -> int:
        while True:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            response = await self.call(self.any_broker(), request)
            if response is not None and not response.error_code:
                self._ids.add(response.producer_id, self.name)
                return int(response.producer_id)
            if response is not None:
                self.expect_retriable(response.error_code, request)
            await self.pause(1)

    async def _send(self, partition: int, values: list[bytes], producer_id: int, sequence: int) -> None:
        now_ms = self.process.world.wall_ms()
        records = [Record(number, now_ms, None, value) for number, value in enumerate(values)]
        batch = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        data = TopicProduceData(name=DATA_TOPIC, partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
        leader = await self.leader_of(DATA_TOPIC, partition)
        while True:
            response = await self.call(leader, request, Versions(3, 12))
            code = ErrorCode.NETWORK_EXCEPTION
            if response is not None:
                code = response.responses[0].partition_responses[0].error_code
            if not code:
                return
            self.expect_retriable(code, request)
            await self.pause()
            leader = await self.leader_of(DATA_TOPIC, partition)

    async def check(self, image: MetadataImage) -> None:
        prefix = self.name.encode() + b" "
        for partition, sent in self.sent.items():
            for isolation_level in (0, READ_COMMITTED):
                found = await self.read(DATA_TOPIC, partition, isolation_level)
                own = [value for value in found if value.startswith(prefix)]
                assert own == sent, _difference(f"partition {partition}", own, sent)


class GroupOffsets(Client):
    """Commits higher and higher offsets of a group without members."""

    def __init__(self, process: ClientProcess, name: str, partitions: int) -> None:
        super().__init__(process, name)
        self.committed = dict.fromkeys(range(partitions), -1)

    async def run(self) -> None:
        offset = 0
        while not self.process.is_ending:
            offset += 1
            partition = self.dice.choice(list(self.committed))
            await self._commit(partition, offset)
            self.committed[partition] = offset
            await self.pause(0.5)
            if self.dice.random() < 0.2:
                await self._compare()

    async def _commit(self, partition: int, offset: int) -> None:
        committed = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        topic = OffsetCommitRequestTopic(name=DATA_TOPIC, partitions=[committed])
        request = OffsetCommitRequest(group_id=self.name, topics=[topic])
        while True:
            response = await self.coordinate(GROUP, self.name, request, Versions(2, 9))
            if response is not None:
                code = response.topics[0].partitions[0].error_code
                if not code:
                    return
                self.expect_retriable(code, request)
                self.forget_coordinator(GROUP, self.name)
            await self.pause()

    async def _compare(self) -> None:
        offsets = await fetch_offsets(self, self.name, list(self.committed))
        assert offsets == self.committed, f"group {self.name} has {offsets}, and {self.committed} was committed"

    async def check(self, image: MetadataImage) -> None:
        await self._compare()


async def fetch_offsets(client: Client, group: str, partitions: list[int]) -> dict[int, int]:
    """The committed offsets of a group."""
    asked = OffsetFetchRequestTopics(name=DATA_TOPIC, partition_indexes=partitions)
    wanted = OffsetFetchRequestGroup(group_id=group, topics=[asked])
    request = OffsetFetchRequest(groups=[wanted], require_stable=True)
    while True:
        response = await client.coordinate(GROUP, group, request, Versions(8, 9))
        if response is not None:
            (found,) = response.groups
            code = found.error_code or next((each.error_code for each in found.topics[0].partitions), 0)
            if not code:
                return {each.partition_index: each.committed_offset for each in found.topics[0].partitions}
            if code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                client.expect_retriable(code, request)
            client.forget_coordinator(GROUP, group)
        await client.pause()


def _difference(where: str, found: list[bytes], sent: list[bytes]) -> str:
    lost = [value for value in sent if value not in found]
    extra = [value for value in found if found.count(value) > 1 or value not in sent]
    return f"{where}: lost {lost}, unexpected {extra}, found {len(found)} of {len(sent)}"

"""Transactional producers that send single requests, and helpers that inspect transactions.

A `Producer` knows its transactional id, its producer id and epoch, and which sequence number comes next in each
partition; it sends only what a test requests. Each of its requests returns the names of the error codes. The markers of
a transaction are written after the response to EndTxn. Until then, the coordinator responds CONCURRENT_TRANSACTIONS to
its producer: ``commit`` and ``abort`` wait until the transaction is complete, ``end`` does not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from moldau.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.protocol.messages.fetch import PartitionData
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.protocol.records import build_batch, iter_records
from moldau.testing import topic_requests as w
from moldau.testing.group_requests import code, wait_for_coordinator
from moldau.testing.routed_wire import RoutedWire
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

READ_COMMITTED = 1

Partitions = Mapping[str, Sequence[int]]


class Producer:
    """A producer with a transactional id, on a connection that may be shared."""

    def __init__(self, wire: WireClient, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self.wire = wire
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        """The next one, by partition."""

    def duplicate(self) -> "Producer":
        """A copy with the same id, epoch and sequences: a zombie, or a client that has lost a response."""
        duplicate = Producer(self.wire, self.transactional_id, timeout_ms=self.timeout_ms)
        duplicate.producer_id, duplicate.epoch, duplicate.sequences = self.producer_id, self.epoch, dict(self.sequences)
        return duplicate

    # -- its id --

    def init_request(self, *, resume: bool = False) -> InitProducerIdRequest:
        """InitProducerId; with ``resume`` it contains the current producer id and epoch (KIP-360)."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms)
        if resume:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        return request

    def init(self, version: int = 5, *, resume: bool = False) -> str:
        """InitProducerId once; a response without error sets id and epoch."""
        answer: InitProducerIdResponse = self.wire.call(self.init_request(resume=resume), version)
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        else:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1), answer
        return code(answer.error_code)

    def begin(self) -> "Producer":
        """Send InitProducerId until the previous transaction is complete."""
        wait_until(self._is_begun, f"a producer id for {self.transactional_id}")
        return self

    def _is_begun(self) -> bool:
        error = self.init()
        assert error in ("NONE", "CONCURRENT_TRANSACTIONS"), error
        return error == "NONE"

    # -- its transaction --

    def add(self, topic: str | Topic, *partitions: int, version: int = 3) -> dict[int, str]:
        """AddPartitionsToTxn for partitions of one topic, as clients send it."""
        name = topic.name if isinstance(topic, Topic) else topic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=list(partitions or (0,)))],
        )
        ((_, found),) = results(self.wire.call(request, version).results_by_topic_v3_and_below).items()
        return found

    def as_transaction(self, partitions: Partitions, *, verify_only: bool = False) -> AddPartitionsToTxnTransaction:
        """For AddPartitionsToTxn as brokers send it."""
        return AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=list(each)) for name, each in partitions.items()],
        )

    def batch(
        self,
        *values: bytes,
        sequence: int = 0,
        transactional: bool = True,
        codec: int = 0,
        timestamp: int | None = None,
    ) -> bytes:
        """A batch of this producer."""
        return build_batch(
            w.records(*values, timestamp=timestamp),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=transactional,
            codec=codec,
        )

    def produce_request(self, topic: Topic, *data: tuple[int, bytes]) -> ProduceRequest:
        """Produce batches to partitions of a topic, by name and by id."""
        to = [PartitionProduceData(index=partition, records=batch) for partition, batch in data]
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=to)],
        )

    def produce(self, topic: Topic, *values: bytes, partition: int = 0, version: int = 12, codec: int = 0) -> str:
        """Produce one batch. From version 12 on that makes its partition part of the transaction.

        Between two transactions of an id, the partition may have to wait for the coordinator (CONCURRENT_TRANSACTIONS
        after some time). Use this method only if ``commit`` or ``abort`` has waited for the previous transaction.
        """
        at = (topic.name, partition)
        sequence = self.sequences.get(at, 0)
        batch = self.batch(*values, sequence=sequence, codec=codec)
        error = self.send(topic, batch, partition=partition, version=version)
        if error == "NONE":
            self.sequences[at] = sequence + len(values)
        return error

    def send(self, topic: Topic, batch: bytes, *, partition: int = 0, version: int = 12) -> str:
        """Produce a batch that was made before; sequence numbers are the caller's."""
        response = self.wire.call(self.produce_request(topic, (partition, batch)), version)
        ((answer,),) = [each.partition_responses for each in response.responses]
        return code(answer.error_code)

    def write(self, topic: Topic, *values: bytes, partition: int = 0) -> None:
        """Produce one batch, which must succeed."""
        assert (error := self.produce(topic, *values, partition=partition)) == "NONE", error

    def add_offsets(self, group_id: str, version: int = 4) -> str:
        """AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        return code(self.wire.call(request, version).error_code)

    def commit_offsets(
        self,
        group_id: str,
        topic: str | Topic,
        offsets: Mapping[int, int],
        version: int = 5,
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        metadata: str | None = "",
    ) -> dict[int, str]:
        """TxnOffsetCommit for partitions of one topic. From version 5 on it needs no AddOffsetsToTxn before it."""
        partitions = [
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
            for index, offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic.name if isinstance(topic, Topic) else topic, partitions=partitions
                )
            ],
        )
        if version >= 3:
            request.generation_id, request.member_id, request.group_instance_id = generation, member_id, instance_id
        ((*answered,),) = [each.partitions for each in self.wire.call(request, version).topics]
        return {each.partition_index: code(each.error_code) for each in answered}

    # -- its end --

    def end(self, version: int = 5, *, committed: bool = True) -> str:
        """EndTxn once. The next producer id and epoch are those of the response, if it has them."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        answer: EndTxnResponse = self.wire.call(request, version)
        if answer.error_code == 0 and version >= 5:
            if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
                self.sequences.clear()
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        else:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1), answer
        return code(answer.error_code)

    def commit(self, version: int = 5) -> None:
        """EndTxn, and wait for the markers."""
        self._end_and_wait(version, committed=True)

    def abort(self, version: int = 5) -> None:
        """EndTxn, and wait for the markers."""
        self._end_and_wait(version, committed=False)

    def _end_and_wait(self, version: int, *, committed: bool) -> None:
        assert (error := self.end(version, committed=committed)) == "NONE", error
        self.wait_for_state("CompleteCommit" if committed else "CompleteAbort")

    def wait_for_state(self, state: str) -> TransactionState:
        """Return when the coordinator has the transaction in this state."""

        def in_it() -> TransactionState | None:
            found = describe(self.wire, self.transactional_id)
            return found if found.transaction_state == state else None

        return wait_until(in_it, f"{self.transactional_id} in {state}")

    @property
    def state(self) -> str:
        """The state according to DescribeTransactions."""
        return describe(self.wire, self.transactional_id).transaction_state


def results(found: Iterable[AddPartitionsToTxnTopicResult]) -> dict[str, dict[int, str]]:
    """The results of AddPartitionsToTxn, by topic and partition."""
    return {
        topic.name: {each.partition_index: code(each.partition_error_code) for each in topic.results_by_partition}
        for topic in found
    }


# -- questions to the coordinator --


def wait_for_coordinators(bootstrap_servers: str) -> None:
    """Return when the coordinators of groups and of transactions respond.

    The first requests make Kafka create their topics, and the coordinators then load them.
    """
    wait_for_coordinator(bootstrap_servers)
    with RoutedWire(bootstrap_servers) as wire:

        def gives_ids() -> bool:
            requested = FindCoordinatorRequest(key_type=1, coordinator_keys=["anybody"])
            (found,) = wire.call(requested, 4).coordinators
            new_id = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
            return (
                found.error_code == 0
                and Producer(wire, "anybody").init() == "NONE"
                and wire.call(new_id, 5).error_code == 0
            )

        wait_until(gives_ids, "the coordinator of transactions", retry=KafkaError)


def describe(wire: WireClient, transactional_id: str) -> TransactionState:
    """DescribeTransactions for one id."""
    (found,) = wire.call(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states
    assert isinstance(found, TransactionState)
    assert found.transactional_id == transactional_id
    return found


def partitions_of(state: TransactionState) -> dict[str, list[int]]:
    """The partitions of a described transaction."""
    return {each.topic: sorted(each.partitions) for each in state.topics}


# -- feature transaction.version --

_FEATURE = "transaction.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2


def finalized_version(wire: WireClient) -> int:
    """The level of transaction.version; 0 when it is not finalized."""
    answer = wire.call(ApiVersionsRequest(client_software_name="wire", client_software_version="1"), 4)
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    assert supported[_FEATURE] == (0, 2)
    levels = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
    lowest, highest = levels.get(_FEATURE, (0, 0))
    assert lowest == highest
    return int(highest)


def update_version(wire: WireClient, level: int, upgrade_type: int) -> str:
    """The name of the error code; when it is NONE, the broker knows the new level."""
    key = FeatureUpdateKey(feature=_FEATURE, max_version_level=level, upgrade_type=upgrade_type)
    error = code(wire.call(UpdateFeaturesRequest(feature_updates=[key]), 2).error_code)
    if error == "NONE":
        wait_until(lambda: finalized_version(wire) == level, f"{_FEATURE} {level}")
    return error


# -- the view of a reader --


class Stored(NamedTuple):
    """A partition as a reader sees it: the fields of the fetch response, and the records."""

    high_watermark: int
    last_stable_offset: int
    aborted: list[tuple[int, int]] | None
    """Producer id and first offset, in the order of the answer."""
    values: list[bytes | None]
    """Of all records that are no markers, those of aborted transactions too."""


def read(
    wire: WireClient,
    topic: Topic,
    offset: int = 0,
    *,
    partition: int = 0,
    committed: bool = True,
    version: int = 12,
    max_bytes: int = 50_000_000,
) -> Stored:
    """One fetch, which waits for nothing, from a version up to 12."""
    data = fetch(wire, topic, offset, partition=partition, committed=committed, version=version, max_bytes=max_bytes)
    aborted = data.aborted_transactions
    return Stored(
        data.high_watermark,
        data.last_stable_offset,
        None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted],
        [
            record.value
            for batch in w.batches_of(data)
            if not batch.is_control
            for record in iter_records(batch)
            if record.offset >= offset
        ],
    )


def fetch(
    wire: WireClient,
    topic: Topic,
    offset: int = 0,
    *,
    partition: int = 0,
    committed: bool = True,
    version: int = 12,
    max_bytes: int = 50_000_000,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
) -> PartitionData:
    """One fetch of one partition, by name or by id."""
    request = w.fetch_request(
        topic.name,
        {partition: offset},
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        partition_max_bytes=max_bytes,
    )
    request.isolation_level = READ_COMMITTED if committed else 0
    request.topics[0].topic_id = topic.topic_id
    if version < 7:
        request.session_id, request.session_epoch = 0, -1
    response = wire.call(request, version)
    assert response.error_code == 0, code(response.error_code)
    ((data,),) = [each.partitions for each in response.responses]
    assert isinstance(data, PartitionData)
    assert data.error_code == 0, code(data.error_code)
    return data


def consume(wire: WireClient, topic: Topic, *, partition: int = 0, start: int = 0) -> list[bytes | None]:
    """The records that a client with ``isolation.level=read_committed`` returns: by the protocol, batches of an aborted
    producer are dropped from the first offset of the transaction to its marker."""
    found: list[bytes | None] = []
    offset = start
    while True:
        data = fetch(wire, topic, offset, partition=partition, max_bytes=2_000)
        batches = w.batches_of(data)
        if not batches:
            return found
        aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or [])
        dropped: set[int] = set()
        for batch in batches:
            while aborted and aborted[0][0] <= batch.last_offset:
                dropped.add(aborted.pop(0)[1])
            if batch.is_control:
                dropped.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in dropped):
                found += [record.value for record in iter_records(batch) if record.offset >= offset]
        offset = batches[-1].next_offset


def end_offset(
    wire: WireClient, topic: Topic, *, committed: bool = True, timestamp: int = -1, partition: int = 0, version: int = 7
) -> ListOffsetsPartitionResponse:
    """ListOffsets of one partition."""
    requested = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=[requested])])
    if version >= 2:
        request.isolation_level = READ_COMMITTED if committed else 0
    ((found,),) = [each.partitions for each in wire.call(request, version).topics]
    assert isinstance(found, ListOffsetsPartitionResponse)
    assert found.error_code == 0, code(found.error_code)
    return found


def producers(wire: WireClient, topic: Topic, partition: int = 0) -> dict[int, ProducerState]:
    """DescribeProducers of one partition, by producer id."""
    requested = TopicRequest(name=topic.name, partition_indexes=[partition])
    ((found,),) = [each.partitions for each in wire.call(DescribeProducersRequest(topics=[requested]), 0).topics]
    assert found.error_code == 0, code(found.error_code)
    return {each.producer_id: each for each in found.active_producers}


# -- markers, as a coordinator sends them --


def marker(
    producer_id: int,
    epoch: int,
    partitions: Partitions,
    *,
    committed: bool = True,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> WritableTxnMarker:
    """One marker of WriteTxnMarkers."""
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=committed,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=list(each)) for name, each in partitions.items()],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )


def write_markers(
    wire: WireClient, *markers: WritableTxnMarker, version: int = 2
) -> dict[int, dict[tuple[str, int], str]]:
    """WriteTxnMarkers: the names of the error codes by producer id and partition."""
    answer = wire.call(WriteTxnMarkersRequest(markers=list(markers)), version)
    return {
        result.producer_id: {
            (topic.name, each.partition_index): code(each.error_code)
            for topic in result.topics
            for each in topic.partitions
        }
        for result in answer.markers
    }

"""The same requests to Apache Kafka and to Moldau have the same responses and records.

Producers send valid and invalid requests, with their current ids and epochs, with earlier ones, and with ones that they
never had. Each request goes to a real Apache Kafka and to Moldau's coordinator. When a transaction ends, the test waits
for Kafka's markers and writes those of Moldau. Afterwards, both transaction logs must be equal byte for byte, except
for producer ids, times, and the order of partitions. Kafka's records, loaded by Moldau, must have the state that Kafka
describes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from moldau.coordinator.outcome import Record
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.records import RecordBatch, iter_batches, iter_records
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.full_run import in_full_run
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient
from moldau.transaction_coordinator.records import (
    TransactionLogKey,
    TransactionLogValue,
    decode_record,
    encode_record,
)
from moldau.transaction_coordinator.transaction import LAST_EPOCH

from ..coordinator.harness import FakeCaller, decoded
from .harness import NO_PRODUCER, Coordinator, Producer

pytestmark = pytest.mark.slow

TIMEOUT_MS = 900_000
WALKS = int(os.environ.get("MOLDAU_WALKS", "60"))
STEPS = 25
PARTITIONS = [("t", 0), ("t", 1), ("u", 0)]


@dataclass
class Both:
    """Apache Kafka and our coordinator, with the same transactional ids."""

    wire: WireClient
    ours: Coordinator
    ids: dict[int, int] = field(default_factory=dict)
    """Kafka's producer ids by ours."""

    def init(self, name: str, api_version: int, expected: Producer = NO_PRODUCER) -> Producer | None:
        theirs = self.wire.call(
            InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=TIMEOUT_MS,
                producer_id=self._theirs(expected).id,
                producer_epoch=expected.epoch,
            ),
            api_version,
        )
        ours = self.ours.init(name, api_version, expected=expected, timeout_ms=TIMEOUT_MS)
        return self._same_producer(name, theirs, ours)

    def add(self, name: str, producer: Producer, partition: tuple[str, int], *, by_leader: bool) -> None:
        topics = [AddPartitionsToTxnTopic(name=partition[0], partitions=[partition[1]])]
        theirs = self._theirs(producer)
        if by_leader:
            result = self._batched(name, theirs, topics, verify_only=False)
        else:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=theirs.id,
                v3_and_below_producer_epoch=theirs.epoch,
                v3_and_below_topics=topics,
            )
            result = self.wire.call(request, 3).results_by_topic_v3_and_below
        version, client_version = (5, 2) if by_leader else (3, 1)
        sent = self.ours.add(
            producer, partition, transactional_id=name, api_version=version, client_version=client_version
        )
        assert result[0].results_by_partition[0].partition_error_code == error_of(sent), sent

    def verify(self, name: str, producer: Producer, partition: tuple[str, int]) -> None:
        topics = [AddPartitionsToTxnTopic(name=partition[0], partitions=[partition[1]])]
        result = self._batched(name, self._theirs(producer), topics, verify_only=True)
        ours = self.ours.verify(producer, partition, transactional_id=name)
        assert {partition: result[0].results_by_partition[0].partition_error_code} == ours

    def end(self, name: str, producer: Producer, api_version: int, *, committed: bool) -> Producer | None:
        theirs = self._theirs(producer)
        response = self.wire.call(
            EndTxnRequest(
                transactional_id=name, producer_id=theirs.id, producer_epoch=theirs.epoch, committed=committed
            ),
            api_version,
        )
        ours = self.ours.end(producer, committed=committed, transactional_id=name, api_version=api_version)
        return self._same_producer(name, response, ours)

    def describe(self, name: str) -> Any:
        """Kafka's description of the stable transaction, with Moldau's producer id; Moldau's must be the same."""
        ours = self.ours.shard.describe(name)
        requested = DescribeTransactionsRequest(transactional_ids=[name])
        (theirs,) = self.wire.call(requested).transaction_states
        assert (theirs.error_code, theirs.transaction_state) == (ours.error_code, ours.transaction_state)
        if not theirs.error_code:
            assert theirs.producer_id == self._theirs(Producer(ours.producer_id, 0)).id
            assert theirs.producer_epoch == ours.producer_epoch
            assert theirs.transaction_timeout_ms == ours.transaction_timeout_ms
            assert partitions_of(theirs) == partitions_of(ours)
            assert (theirs.transaction_start_time_ms == -1) == (ours.transaction_start_time_ms == -1)
        return theirs

    def _batched(self, name: str, producer: Producer, topics: Any, *, verify_only: bool) -> Any:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=topics,
        )
        response = self.wire.call(AddPartitionsToTxnRequest(transactions=[transaction]), 5)
        assert response.error_code == 0
        return response.results_by_transaction[0].topic_results

    def _same_producer(self, name: str, theirs: Any, ours: FakeCaller) -> Producer | None:
        assert ErrorCode(theirs.error_code) is error_of(ours)
        self._end(name)
        if theirs.error_code:
            assert theirs.producer_id == -1
            return None
        response = ours.response
        assert theirs.producer_epoch == response.producer_epoch
        if theirs.producer_id != -1 or response.producer_id != -1:
            assert self.ids.setdefault(response.producer_id, theirs.producer_id) == theirs.producer_id
        return Producer(response.producer_id, response.producer_epoch)

    def _end(self, name: str) -> None:
        """The markers of both are written."""
        if not self.ours.write_markers():
            return

        def ended() -> bool:
            requested = DescribeTransactionsRequest(transactional_ids=[name])
            (described,) = self.wire.call(requested).transaction_states
            return not described.transaction_state.startswith("Prepare")

        wait_until(ended, "the end of the transaction", pause=0.002)

    def _theirs(self, producer: Producer) -> Producer:
        return Producer(self.ids.get(producer.id, producer.id), producer.epoch)


def error_of(sent: FakeCaller) -> ErrorCode:
    return ErrorCode.NONE if not sent.failed and sent.response is None else sent.error


def partitions_of(described: Any) -> set[tuple[str, int]]:
    return {(topic.topic, index) for topic in described.topics for index in topic.partitions}


@dataclass
class Known:
    """The results of all requests."""

    both: Both
    described: dict[str, Any]
    listed: dict[str, Any]
    batches: list[RecordBatch]


@pytest.fixture(scope="module", params=[2, *in_full_run(1, 0)], ids="transaction.version {}".format)
def known(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Known]:
    version: int = request.param
    with ApacheKafka({}, parent=tmp_path_factory.mktemp("apache")) as kafka:
        with closing(WireClient(kafka.bootstrap_servers)) as wire:
            topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in ("t", "u")]
            wire.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
            if version < 2:
                update = FeatureUpdateKey(feature="transaction.version", max_version_level=version, upgrade_type=2)
                done = wire.call(UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update]), 2)
                assert not done.error_code, done
            wait_until(lambda: is_coordinator(wire), "the coordinator")
            both = Both(wire, Coordinator(transaction_version=version))
            both.ids = {-1: -1}
            for seed in range(WALKS):
                walk(both, f"walk-{seed}", random.Random(f"{version} {seed}"))
            names = [*both.ours.transactions(), "nobody"]
            described = {name: both.describe(name) for name in names}
            listed = {one.transactional_id: one for one in wire.call(ListTransactionsRequest()).transaction_states}
        kafka.stop()
        directory = Path(kafka.data_dir) / "__transaction_state-0"
        batches = [batch for log in sorted(directory.glob("*.log")) for batch in iter_batches(log.read_bytes())]
        yield Known(both, described, listed, batches)


def is_coordinator(wire: WireClient) -> bool:
    coordinator = wire.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["first"]), 4).coordinators[0]
    if coordinator.error_code:
        return False
    requested = DescribeTransactionsRequest(transactional_ids=["first"])
    return bool(
        wire.call(requested).transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        and {"t", "u"} <= topics_of(wire)
        and not wire.call(InitProducerIdRequest(transactional_id=None), 5).error_code  # it has producer ids
    )


def topics_of(wire: WireClient) -> set[str]:
    return {topic.name for topic in wire.call(MetadataRequest(topics=None)).topics if not topic.error_code}


def walk(both: Both, name: str, source: random.Random) -> None:
    """Requests of one transactional id, one after the other."""
    had: list[Producer] = [Producer(-7, 0)]
    # Below transaction.version 1, Apache Kafka fails to write the records of a client with bumps.
    may_bump = both.ours.transaction_version > 0
    bumps = may_bump and source.random() < 0.6

    def any_producer() -> Producer:
        producer = had[-1] if source.random() < 0.7 else source.choice(had)
        return producer._replace(epoch=max(producer.epoch + source.choice((0,) * 8 + (-1, 1)), 0))

    for _ in range(STEPS):
        gets: Producer | None = None
        match source.choice(("init", "go on", "add", "add", "add", "commit", "commit", "abort", "verify", "change")):
            case "init":
                gets = both.init(name, source.choice((1, 3, 4, 5)))
            case "go on":
                gets = both.init(name, source.choice((3, 4, 5)), any_producer())
            case "add":
                both.add(name, any_producer(), source.choice(PARTITIONS), by_leader=bumps)
            case "commit" | "abort" as what:
                version = source.choice((5,) if bumps else (1, 2, 4))
                gets = both.end(name, any_producer(), version, committed=what == "commit")
            case "verify":
                both.verify(name, any_producer(), source.choice(PARTITIONS))
            case "change":
                bumps = may_bump and not bumps
        if gets is not None and gets.id != -1:
            had.append(gets)


def records_by_id(batches: list[RecordBatch]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for batch in batches:
        for logged in iter_records(batch):
            record = decoded(logged, decode_record)
            # The exact bytes, in the same order.
            assert encode_record(record) == (logged.key, logged.value)
            assert isinstance(record.key, TransactionLogKey)
            found.setdefault(record.key.transactional_id, []).append(record)
    return found


def comparable(record: Record, ids: dict[int, int]) -> tuple[bytes, bytes | None]:
    """Its bytes, without fields that must differ: times, and the order of a hash set."""
    key, value, version = record
    assert isinstance(value, TransactionLogValue)
    has_started = value.transaction_start_timestamp_ms != -1
    value.transaction_start_timestamp_ms = 1 if has_started else -1
    value.transaction_last_update_timestamp_ms = 1
    value.producer_id = ids[value.producer_id]
    value.previous_producer_id = ids[value.previous_producer_id]
    value.next_producer_id = ids[value.next_producer_id]
    for topic in value.transaction_partitions or ():
        topic.partition_ids.sort()
    if value.transaction_partitions is not None:
        value.transaction_partitions.sort(key=lambda topic: topic.topic)
    return encode_record(Record(key, value, version))


def test_every_record_is_the_same(known: Known) -> None:
    theirs = records_by_id(known.batches)
    ours = records_by_id(known.both.ours.log.batches())
    same = {one: one for one in known.both.ids.values()}

    assert len(ours) > WALKS // 2
    assert theirs.keys() == ours.keys()
    statuses = set()
    for name, records in ours.items():
        assert [comparable(one, known.both.ids) for one in records] == [comparable(one, same) for one in theirs[name]]
        statuses |= {one.value.transaction_status for one in records}  # type: ignore[union-attr]
    assert statuses == set(range(6))


def test_the_records_match_the_descriptions(known: Known) -> None:
    loaded = Coordinator()
    loaded.next_producer_id = -1
    for records in records_by_id(known.batches).values():
        for record in records:
            loaded.shard.replay(record, producer_id=-1)

    assert set(known.listed) == set(loaded.transactions())
    for name, theirs in known.described.items():
        ours = loaded.shard.describe(name)
        ours.topics.sort(key=lambda topic: topic.topic)
        theirs.topics.sort(key=lambda topic: topic.topic)
        for topic in theirs.topics:
            topic.partitions.sort()
        assert ours == theirs
        if name in known.listed:
            listed = loaded.shard.list_transactions(ListTransactionsRequest(), loaded.now())
            assert known.listed[name] in chain.from_iterable(listed)
    assert known.described["nobody"].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.full
@pytest.mark.timeout(900)  # 130,000 requests to Apache Kafka, beside seven other tests
def test_epochs_are_used_up_alike(tmp_path: Path) -> None:
    with ApacheKafka({}, parent=tmp_path) as kafka, closing(WireClient(kafka.bootstrap_servers)) as wire:
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in ("t", "u")]
        wire.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        wait_until(lambda: is_coordinator(wire), "the coordinator")
        both = Both(wire, Coordinator())
        both.ids = {-1: -1}
        names = [f"id-{number}" for number in range(4)]
        at_last = {name: wear_out(both, name, LAST_EPOCH) for name in names}
        ends = dict(zip(names, ("commit", "go on", "begin", "abort nothing"), strict=True))
        for name, end in ends.items():
            producer = at_last[name]
            after = None
            if end != "abort nothing":
                both.add(name, producer, ("t", 0), by_leader=True)
            for _ in range(3):  # and two retries
                if end in ("commit", "abort nothing"):
                    after = both.end(name, producer, 5, committed=end == "commit")
                else:
                    after = both.init(name, 5, producer if end == "go on" else NO_PRODUCER)
            both.end(name, producer, 5, committed=end != "commit")
            both.init(name, 5, producer)
            both.describe(name)
            if after is not None:
                assert after.id != producer.id
                both.add(name, after, ("u", 1), by_leader=True)
                both.end(name, producer, 5, committed=True)
                both.end(name, after, 5, committed=True)
            both.describe(name)


def wear_out(both: Both, name: str, epoch: int) -> Producer:
    """A producer that has this epoch after it has begun so many times."""
    begin = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
    in_flight = 50
    for _ in range(in_flight):
        both.wire.send(begin, 5)
    for _ in range(epoch + 1 - in_flight):
        assert not both.wire.receive().error_code
        both.wire.send(begin, 5)
    theirs = [both.wire.receive() for _ in range(in_flight)][-1]
    assert theirs.producer_epoch == epoch
    producer = both.ours.begin_with_epoch(epoch, name)
    both.ids[producer.id] = theirs.producer_id
    return producer

"""The topic ``_schemas``: reading it all, and appending to it as the only writer.

A thread follows the topic and applies its records to the state. A write is acknowledged after this thread has read it
back.

Several registries may use one topic. Each write is a transaction with a transactional id that they share, so Kafka
ensures that there is one writer at a time (KIP-98): a registry takes over with InitProducerId, which aborts an open
transaction of the previous writer and fences it. Then it reads the topic to its end, decides, and appends. A registry
that was fenced in between has appended nothing; it takes over, reads, and decides again. So two registries never
use one id for two schemas, and no version is overwritten.

A topic that was deleted and created again has another id. Its records replace the state, and nothing is decided on the
old one. Until the topic exists again, the known schemas are served, and writes are refused.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from ..cli.cluster import LATEST_OFFSET, Cluster, explain
from ..cli.connection import PeerError
from ..cli.coordinators import TRANSACTION, Coordinators
from ..cli.failure import Failure
from ..console.brokers import Brokers
from ..console.fetching import Topic, batches, fetch, load_topic
from ..protocol.errors import ErrorCode
from ..protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ..protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ..protocol.messages.end_txn import EndTxnRequest
from ..protocol.messages.init_producer_id import InitProducerIdRequest
from ..protocol.messages.metadata import MetadataResponseTopic
from ..protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ..protocol.records import Record, build_batch, iter_records
from .errors import RegistryError, invalid_schema
from .records import Entry
from .state import State

logger = logging.getLogger(__name__)
T = TypeVar("T")

_TRANSACTION_TIMEOUT_MS: Final = 10_000
_TIMEOUT_MS: Final = 4000
_READ_TIMEOUT_S: Final = 15.0
_POLL_MS: Final = 500
_RETRY_S: Final = 0.5
_ATTEMPTS: Final = 30
# Transactions as they were before KIP-890: the epoch changes with InitProducerId only.
_CLIENT_ADD_PARTITIONS_VERSION: Final = 3
_CLASSIC_PRODUCE_VERSION: Final = 11
_CLASSIC_END_VERSION: Final = 4
_FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


class _FencedError(Exception):
    """Another registry has taken over."""


class _Place(NamedTuple):
    """An offset of the topic with this id."""

    topic_id: bytes
    offset: int


class SchemasTopic:
    """The topic of a registry. Each committed record is applied to the state."""

    def __init__(self, brokers: Brokers, name: str, state: State) -> None:
        self.name = name
        self.changed = threading.Condition(threading.RLock())
        """Guards the state."""
        self._brokers = brokers
        self._state = state
        self._transactional_id = f"moldau-registry-{name}"
        self._position: _Place | None = None
        """The next record to read."""
        self._problem: str | None = None
        """Why the topic cannot be read at present."""
        self._is_closed = False
        self._writing = threading.Lock()
        self._producer: tuple[int, int] | None = None
        self._producer_topic_id: bytes | None = None
        self._sequence = 0
        self._thread = threading.Thread(target=self._follow, name="schemas-topic", daemon=True)

    def start(self) -> None:
        """Create the topic if it does not exist, and read it to its end. Raises Failure."""
        with self._brokers.cluster() as cluster:
            self._create(cluster)
            self._check_partitions(self._metadata(cluster))
        self._thread.start()
        try:
            self.catch_up()
        except RegistryError as problem:
            raise Failure(problem.message) from None

    def close(self) -> None:
        """Stop following. The connections belong to the caller."""
        self._is_closed = True
        if self._thread.is_alive():
            self._thread.join(timeout=_POLL_MS / 1000 + 5)

    def catch_up(self) -> None:
        """Wait until the state has everything that is in the topic now. Raises Failure, RegistryError."""
        with self._brokers.cluster() as cluster:
            end = self._end(cluster)
        self._wait_for(end)

    def write(self, decide: Callable[[], tuple[Sequence[Entry], T]]) -> T:
        """Append what ``decide`` returns for the current state, and return its second value when it was read back.

        ``decide`` is called again after another registry has written. Raises Failure, RegistryError.
        """
        with self._writing:
            for _ in range(_ATTEMPTS):
                try:
                    return self._write(decide)
                except _FencedError:
                    self._producer = None
                    time.sleep(random.uniform(0.005, 0.1))  # two registries that take over in turns would not progress
                except Failure:
                    self._producer = None
                    raise
        raise RegistryError(50001, "other registries write all the time; try again")

    def _write(self, decide: Callable[[], tuple[Sequence[Entry], T]]) -> T:
        with self._brokers.cluster() as cluster:
            coordinators = Coordinators(cluster, TRANSACTION)
            end = self._end(cluster)
            if self._producer is None or self._producer_topic_id != end.topic_id:
                self._take_over(coordinators)
                self._producer_topic_id = end.topic_id
                end = self._end(cluster)
            self._wait_for(end)
            with self.changed:
                entries, result = decide()
            if entries:
                self._wait_for(_Place(end.topic_id, self._append(cluster, coordinators, entries) + 1))
        return result

    def _take_over(self, coordinators: Coordinators) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
        )
        answer = self._ask_coordinator(coordinators, request, _code)
        if answer.error_code:
            raise Failure(f"cannot become the writer of {self.name}: {explain(answer.error_code)}")
        self._producer, self._sequence = (answer.producer_id, answer.producer_epoch), 0

    def _append(self, cluster: Cluster, coordinators: Coordinators, entries: Sequence[Entry]) -> int:
        """Append in one transaction; returns the offset of the last record."""
        assert self._producer is not None
        producer_id, epoch = self._producer
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.name, partitions=[0])],
        )
        added = self._ask_coordinator(coordinators, add, _code_of_partition, at_most=_CLIENT_ADD_PARTITIONS_VERSION)
        self._check(_code_of_partition(added), "add the topic to a transaction")
        now_ms = time.time_ns() // 1_000_000
        batch = build_batch(
            [Record(index, now_ms, key, value, ()) for index, (key, value) in enumerate(entries)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequence,
            transactional=True,
        )
        produce = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(name=self.name, partition_data=[PartitionProduceData(index=0, records=batch)])
            ],
        )
        leader = load_topic(cluster, self.name).leaders[0]
        answer = cluster.broker(leader).ask(produce, at_most=_CLASSIC_PRODUCE_VERSION)
        stored = answer.responses[0].partition_responses[0]
        if stored.error_code and stored.error_code not in _FENCED:
            self._producer = None
            self._end_transaction(coordinators, producer_id, epoch, committed=False)
        if stored.error_code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            raise invalid_schema(f"it is larger than max.message.bytes of the topic {self.name}")
        self._check(stored.error_code, "append to the topic")
        self._sequence += len(entries)
        code = self._end_transaction(coordinators, producer_id, epoch, committed=True)
        self._check(code, "commit the record")
        return int(stored.base_offset) + len(entries) - 1

    def _end_transaction(self, coordinators: Coordinators, producer_id: int, epoch: int, *, committed: bool) -> int:
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
        )
        return _code(self._ask_coordinator(coordinators, request, _code, at_most=_CLASSIC_END_VERSION))

    def _ask_coordinator(
        self, coordinators: Coordinators, request: Any, code: Callable[[Any], int], *, at_most: int | None = None
    ) -> Any:
        """The coordinator's response after the end of a transaction that it is still completing."""
        deadline = time.monotonic() + _READ_TIMEOUT_S
        while True:
            answer = coordinators.ask(self._transactional_id, lambda _: request, code, at_most=at_most)
            if code(answer) != ErrorCode.CONCURRENT_TRANSACTIONS or time.monotonic() > deadline:
                return answer
            time.sleep(0.01)

    def _check(self, code: int, action: str) -> None:
        if code in _FENCED:
            raise _FencedError
        if code:
            raise Failure(f"cannot {action} ({self.name}): {explain(code)}")

    def _metadata(self, cluster: Cluster) -> MetadataResponseTopic:
        """Raises Failure if the topic does not exist."""
        (metadata,) = cluster.topics([self.name])
        if metadata.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Failure(
                f"the topic {self.name} does not exist; restart the registry to create an empty one, "
                "or restore it from a backup"
            )
        if metadata.error_code:
            raise Failure(f"the topic {self.name} is not available: {explain(metadata.error_code)}")
        return metadata

    def _check_partitions(self, metadata: MetadataResponseTopic) -> None:
        partitions = [each.partition_index for each in metadata.partitions]
        if partitions != [0]:
            raise Failure(f"{self.name} has {len(partitions)} partitions, but the registry needs exactly one")

    def _end(self, cluster: Cluster) -> _Place:
        metadata = self._metadata(cluster)
        found = cluster.positions([metadata], LATEST_OFFSET)
        if (self.name, 0) not in found:
            raise Failure(f"the topic {self.name} is not available: its partition has no leader")
        return _Place(metadata.topic_id, found[self.name, 0].offset)

    def _wait_for(self, place: _Place) -> None:
        def is_read() -> bool:
            at = self._position
            return at is not None and at.topic_id == place.topic_id and at.offset >= place.offset

        with self.changed:
            if not self.changed.wait_for(is_read, _READ_TIMEOUT_S):
                reason = "" if self._problem is None else f": {self._problem}"
                raise RegistryError(50002, f"the topic {self.name} was not read in time; try again{reason}")

    def _create(self, cluster: Cluster) -> None:
        (metadata,) = cluster.topics([self.name])
        if metadata.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            replicas = min(3, len(cluster.broker_ids()))
            wanted = CreatableTopic(
                name=self.name,
                num_partitions=1,
                replication_factor=replicas,
                configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
            )
            (result,) = cluster.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS)).topics
            if result.error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise Failure(
                    f"cannot create the topic {self.name}: {explain(result.error_code, result.error_message)}"
                )
        deadline = time.monotonic() + _READ_TIMEOUT_S
        while True:
            (metadata,) = cluster.topics([self.name])
            if metadata.error_code == 0 and all(each.leader_id >= 0 for each in metadata.partitions):
                return
            if time.monotonic() > deadline:
                raise Failure(f"the topic {self.name} is not available: {explain(metadata.error_code)}")
            time.sleep(0.05)

    def _follow(self) -> None:
        """Apply records until the registry is closed. While the topic cannot be read, the state stays as it is.

        Nothing ends this thread early, because nobody else reads the topic: after an unexpected error, which is
        logged with its traceback, it continues at the same offset.
        """
        while not self._is_closed:
            try:
                with self._brokers.cluster() as cluster:
                    while not self._is_closed:
                        self._read(cluster, self._current(cluster))
                        self._is_readable()
            except (Failure, PeerError) as problem:
                self._is_unreadable(problem.message if isinstance(problem, Failure) else str(problem))
            except Exception as problem:  # noqa: BLE001 - see above
                self._is_unreadable(f"{type(problem).__name__}: {problem}", problem)
            if not self._is_closed:
                time.sleep(_RETRY_S)

    def _is_readable(self) -> None:
        if self._problem is not None:
            logger.warning("the topic %s is readable again", self.name)
            self._problem = None

    def _is_unreadable(self, reason: str, unexpected: Exception | None = None) -> None:
        """Log a problem once, until it changes."""
        if reason != self._problem:
            logger.warning("the topic %s cannot be read: %s", self.name, reason, exc_info=unexpected)
            self._problem = reason

    def _current(self, cluster: Cluster) -> Topic:
        """The topic as it is now. If it was created again, everything that the earlier one has said is forgotten."""
        metadata = self._metadata(cluster)
        self._check_partitions(metadata)
        topic = Topic(metadata)
        if self._position is not None and self._position.topic_id == metadata.topic_id:
            return topic
        first = load_topic(cluster, self.name)
        if first.metadata.topic_id != metadata.topic_id or 0 not in first.bounds:
            raise Failure("its partition has no leader")
        with self.changed:
            if self._position is not None:
                logger.warning("the topic %s was deleted and created again; its schemas are read again", self.name)
                self._state.clear()
            self._position = _Place(metadata.topic_id, first.bounds[0].first)
            self.changed.notify_all()
        return topic

    def _read(self, cluster: Cluster, topic: Topic) -> None:
        assert self._position is not None
        topic_id, position = self._position
        fetched = fetch(cluster, topic, {0: position}, committed=True, max_wait_ms=_POLL_MS)[0]
        with self.changed:
            for batch, is_visible in batches(fetched):
                if is_visible:
                    for record in iter_records(batch):
                        if record.offset >= position:
                            self._state.apply(record.key, record.value, record.offset)
                self._position = _Place(topic_id, max(self._position.offset, batch.last_offset + 1))
            self.changed.notify_all()


def _code_of_partition(answer: Any) -> int:
    """The error code of the only partition in a response to AddPartitionsToTxn."""
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def _code(answer: Any) -> int:
    return int(answer.error_code)

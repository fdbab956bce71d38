"""Fetch (API key 1): file ranges of partitions, immediately or when enough records have arrived.

- Versions 4 to 18; by topic name up to 12, by topic id since 13; sessions (KIP-227) since 7.
- At least one batch is returned even if it is larger than ``max_bytes`` or ``partition_max_bytes``: for the first
  partition that has records. All other partitions stay within the limits.
- The response is sent immediately if ``min_bytes`` are available, an existing partition has an error, or there is
  nothing to wait for. Otherwise the request is pending until its partitions, which notify it of appends, have enough,
  or until its deadline.
- Records are sent unchanged from the file. No record is parsed.
- ``read_committed`` (KIP-98): records up to the last stable offset, and the aborted transactions among them, which the
  consumer skips. A waiting fetch is not woken by records of an open transaction, but by its end.
- If finding the records (index, headers of batches) would wait for the disk, the request is pending until a thread has
  read that data ahead.
- Since version 11, consumers also read from followers, up to the high watermark that the follower knows (KIP-392). A
  consumer in another rack gets the id of a follower in its rack instead of records, with the `replica.selector.class`
  for racks.
- Followers (with a replica id) read up to the log end. Their request acknowledges the records before its offsets, which
  may move high watermarks, before anything is read (`note_positions`). They are woken by appends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from ...log.descriptors import ColdRead, FileRange
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ...protocol.steps import completed
from ...replication.partition import ISOLATION_LEVELS, ISOLATION_READ_COMMITTED, Partition
from ...replication.read_replica import THIS_BROKER
from ..concurrency.slices import release
from ..context import DEFERRED, Deferred
from ..records.fetch_session import FetchContext, PartitionKey, SessionPartition, TopicKey, requested_in_steps
from .brokers import node_endpoints
from .fetch_authorization import authorize, authorize_in_steps
from .topic_state import LEADER_ERRORS, current_leader

if TYPE_CHECKING:
    from ...log.transaction_index import AbortedTransaction as KnownAborted
    from ...replication.waiters import Waiters
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..concurrency.timers import Timer
    from ..context import RequestContext
    from ..records.follower_changes import FollowerChanges

# How often a fetch is retried before it may wait for the disk on the event loop. The first round loads the indexes, the
# second the headers. More are necessary only if a segment lacks the records that the index promised, or if memory is
# very short.
_COLD_ROUNDS = 4

MANY_PARTITIONS = 100
"""A fetch of more partitions takes more than 2 ms, and is served in slices."""
READS_PER_STEP = 10

FOLLOWERS_SINCE_VERSION = 11
"""The first version with which consumers may read from followers (KIP-392)."""

_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_FAILURES = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Errors that are failures of this server: it could not read its records."""


def handle(
    broker: Broker, context: RequestContext, request: FetchRequest
) -> FetchResponse | Deferred | Sliced[FetchResponse | Deferred]:
    """Respond to a fetch, or leave it pending."""
    if request.isolation_level not in ISOLATION_LEVELS:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    named = 0
    for topic in request.topics:
        named += 1 + len(topic.partitions)
    if named > MANY_PARTITIONS:
        return _open_long(broker, context, request)
    fetch = broker.fetch_sessions.open(request, context.api_version, broker.now_ms())
    _look_at_changes(broker, fetch)
    if len(fetch.partitions) > MANY_PARTITIONS:
        return _handle_long(broker, context, fetch)
    if broker.authorizer is not None:
        authorize(broker, broker.authorizer, context, fetch)
    if fetch.limits.is_follower:
        _count_follower(broker, context)
        completed(note_positions(broker, fetch))
    read = _Read(broker, context, fetch)
    read.run(wait=False)
    if read.cold:
        FetchRetry(broker, context, fetch).read_ahead(read)
        return DEFERRED
    if read.is_ready():
        return read.respond()
    read.release()
    _wait_for_records(broker, context, fetch, read)
    return DEFERRED


def _open_long(broker: Broker, context: RequestContext, request: FetchRequest) -> Sliced[FetchResponse | Deferred]:
    requested = yield from requested_in_steps(request, context.api_version)
    fetch = broker.fetch_sessions.open(request, context.api_version, broker.now_ms(), requested)
    _look_at_changes(broker, fetch)
    yield 0
    context.request = fetch
    yield from release(request)
    return (yield from _handle_long(broker, context, fetch))


def _handle_long(broker: Broker, context: RequestContext, fetch: FetchContext) -> Sliced[FetchResponse | Deferred]:
    """Like `handle`, for many partitions in slices."""
    if broker.authorizer is not None:
        yield from authorize_in_steps(broker, broker.authorizer, context, fetch)
    if fetch.limits.is_follower:
        _count_follower(broker, context)
        yield from note_positions(broker, fetch)
    read = _Read(broker, context, fetch)
    yield from read.run_in_steps(wait=False)
    if read.cold:
        FetchRetry(broker, context, fetch).read_ahead(read)
        return DEFERRED
    if read.is_ready():
        return (yield from read.respond_in_steps())
    yield from read.release_in_steps()
    _wait_for_records(broker, context, fetch, read)
    return DEFERRED


def _look_at_changes(broker: Broker, fetch: FetchContext) -> None:
    if fetch.incremental and fetch.limits.is_follower:
        broker.replication.look_at_changes(fetch, broker.replicas)


def _count_follower(broker: Broker, context: RequestContext) -> None:
    counts, version = broker.follower_fetches, context.api_version
    counts[version] = counts.get(version, 0) + 1


def note_positions(broker: Broker, fetch: FetchContext) -> Sliced[None]:
    """A follower has all records before the offsets of its request. First all positions are updated, then the high
    watermarks move, and replicas that may join the in-sync sets are proposed.

    What is wrong with a partition is ignored here: the read finds the same error.
    """
    replica_id, broker_epoch = fetch.limits.replica_id, fetch.limits.replica_epoch
    replication = broker.replication
    if fetch.readable is not None or replication.is_stale(replica_id, broker_epoch):
        # The client is not authorized as a broker, or an earlier life of the broker has sent this.
        if fetch.changes is not None:
            fetch.changes.look_at_all()
        return
    eligible = replication.may_join(replica_id, broker_epoch)
    now_ms = broker.timers.now_ms()
    if fetch.changes is not None:
        fetch.changes.noted(now_ms, broker_epoch)
    fetched: list[Partition] = []
    for count, wanted in enumerate(list(fetch.partitions), 1):
        partition = broker.replicas.partition_by_key(wanted.topic, wanted.index)
        if partition is None:
            continue
        try:
            partition.check_follower(replica_id, wanted.current_leader_epoch)
            if partition.diverging_epoch(wanted.fetch_offset, wanted.last_fetched_epoch) is not None:
                continue  # its records are not those of this log
            if not partition.log.log_start_offset <= wanted.fetch_offset <= partition.log.log_end_offset:
                continue
            partition.follower_fetched(
                replica_id,
                wanted.fetch_offset,
                now_ms=now_ms,
                eligible=eligible,
                broker_epoch=broker_epoch,
                log_start_offset=wanted.log_start_offset,
            )
        except KafkaError:
            continue
        fetched.append(partition)
        if not count % READS_PER_STEP:
            yield 0
    for partition in fetched:
        partition.advance_high_watermark()
        partition.review_deletions(replication.is_live)
        if partition.in_sync is not None and partition.in_sync.may_expand:
            replication.in_sync_changes.expand(partition)
        yield 0


def failed(request: FetchRequest | FetchContext, error: KafkaError) -> FetchResponse | Sliced[FetchResponse]:
    """An error of the session, or of the whole request, which every partition has below version 13 (without topic
    ids)."""
    if error.code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.ILLEGAL_SASL_STATE):
        return _failed_partitions(request, error)
    return FetchResponse(error_code=error.code, session_id=0)


def _failed_partitions(request: FetchRequest | FetchContext, error: KafkaError) -> Sliced[FetchResponse]:
    response = FetchResponse(error_code=error.code, session_id=0)
    responses = response.responses
    for topic, index in _named(request):
        yield 1
        if not topic or not isinstance(topic, str):
            continue
        if not responses or responses[-1].topic != topic:
            responses.append(FetchableTopicResponse(topic=topic))
        responses[-1].partitions.append(
            PartitionData(partition_index=index, error_code=error.code, high_watermark=-1, records=b"")
        )
    return response


def _named(request: FetchRequest | FetchContext) -> Iterator[tuple[TopicKey, int]]:
    """The topics and partitions of a request, or of the context that is kept of it."""
    if isinstance(request, FetchContext):
        # A session may change while this continues in slices.
        return iter([(wanted.topic, wanted.index) for wanted in request.partitions])
    return ((topic.topic, wanted.partition) for topic in request.topics for wanted in topic.partitions)


class _Read:
    """One read of all partitions of a fetch."""

    __slots__ = (
        "_broker",
        "_context",
        "_fetch",
        "_leaders",
        "_throttled_bytes",
        "cold",
        "complete",
        "max_bytes",
        "min_bytes",
        "replica_waiters",
        "results",
        "size",
        "waits_for",
    )

    def __init__(self, broker: Broker, context: RequestContext, fetch: FetchContext) -> None:
        self._broker = broker
        self._context = context
        self._fetch = fetch
        self.max_bytes = min(fetch.limits.max_bytes, broker.fetch_max_bytes)
        # The fetch does not wait for more than fits into one response.
        self.min_bytes = min(fetch.limits.min_bytes, self.max_bytes)
        self.results: list[tuple[SessionPartition, PartitionData]] = []
        self.size = 0
        self.complete = False
        self.cold: list[FileRange] = []
        """The ranges to read ahead before the response. The code that uses them must release them."""
        self.waits_for: list[Partition] = []
        self.replica_waiters: list[Waiters] = []
        """For a follower: those of `waits_for`."""
        self._leaders: set[int] = set()
        self._throttled_bytes = 0  # of replicas with a throttle

    def run(self, *, wait: bool) -> None:
        """Read every partition within the limits of the request. Without ``wait``, check `cold` afterwards."""
        self._begin()
        try:
            self._read(list(self._fetch.partitions), wait)
        except BaseException:
            self.release()
            raise
        self._update_complete()

    def run_in_steps(self, *, wait: bool) -> Sliced[None]:
        """Like `run`, in steps."""
        partitions = list(self._fetch.partitions)  # a session may change in between
        self._begin()
        try:
            for first in range(0, len(partitions), READS_PER_STEP):
                self._read(partitions[first : first + READS_PER_STEP], wait)
                yield READS_PER_STEP
        except BaseException:
            self.release()
            raise
        self._update_complete()

    def _begin(self) -> None:
        if self._fetch.changes is not None:
            self._fetch.changes.begin_read()

    @property
    def waiters(self) -> tuple[Waiters, ...]:
        """What notifies a waiting fetch."""
        return tuple(self.replica_waiters or [partition.waiters for partition in self.waits_for])

    def _update_complete(self) -> None:
        # A follower also waits for partitions that are settled.
        can_wait = bool(self.waits_for) or (self._fetch.changes is not None and not self.results)
        if self.size >= self.min_bytes or not can_wait:
            self.complete = True

    def is_ready(self) -> bool:
        """Whether there is enough data, or nothing to wait for."""
        if self.complete or self._fetch.limits.max_wait_ms <= 0:
            return True
        return self._fetch.changes is None and not self._fetch.partitions

    def _read(self, partitions: Iterable[SessionPartition], wait: bool) -> None:
        _, _, _, isolation_level, replica_id, replica_epoch, rack = self._fetch.limits
        is_follower = replica_id >= 0
        reads_followers = self._context.api_version >= FOLLOWERS_SINCE_VERSION
        is_stale = is_follower and self._broker.replication.is_stale(replica_id, replica_epoch)
        committed = isolation_level == ISOLATION_READ_COMMITTED
        readable = self._fetch.readable
        size = self.size
        remaining = self.max_bytes - size
        partition_of = self._broker.replicas.partition_by_key
        changes = self._fetch.changes
        for wanted in partitions:
            diverging: tuple[int, int] | None = None
            aborted: Sequence[KnownAborted] = ()
            if readable is not None and wanted.topic not in readable:
                self.results.append((wanted, self._refused(wanted)))
                continue
            partition = partition_of(wanted.topic, wanted.index)
            try:
                if partition is None:
                    raise KafkaError(self._broker.replicas.missing_partition_error(wanted.topic, wanted.index))
                partition.traffic.fetches += 1
                if is_follower:
                    if is_stale:
                        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    partition.check_follower(replica_id, max(-1, wanted.current_leader_epoch))
                elif wanted.current_leader_epoch >= 0:
                    partition.check_leader(wanted.current_leader_epoch, or_follower=reads_followers)
                else:
                    partition.check_leader(or_follower=reads_followers)
                if rack and partition.in_sync is not None and not is_follower:
                    preferred = self._broker.replication.preferred_read_replica(partition, wanted.fetch_offset, rack)
                    if preferred != THIS_BROKER:
                        self._redirect(wanted, partition, preferred)
                        continue
                if wanted.last_fetched_epoch >= 0:
                    diverging = partition.diverging_epoch(wanted.fetch_offset, wanted.last_fetched_epoch)
                if is_follower and self._broker.replication.throttling.withholds(partition, replica_id):
                    records: FileRange | bytes = b""
                elif diverging is None:
                    max_bytes = max(0, min(wanted.max_bytes, remaining))
                    if is_follower:
                        fetched = partition.read_as_leader(
                            wanted.fetch_offset, max_bytes, min_one_batch=size == 0, wait=wait
                        )
                    else:
                        fetched = partition.read(
                            wanted.fetch_offset,
                            max_bytes,
                            isolation_level=isolation_level,
                            min_one_batch=size == 0,
                            wait=wait,
                        )
                    records = fetched.records if fetched.records is not None else b""
                    aborted = fetched.aborted_transactions
                else:
                    records = b""
            except ColdRead as found:
                self.cold.append(found.range)
                continue
            except KafkaError as error:
                # A client that repeatedly requests a missing partition should not do so without a pause.
                if partition is not None or error.code not in _UNKNOWN:
                    self.complete = True
                if partition is not None and error.code in _FAILURES:
                    partition.traffic.failed_fetches += 1
                self.results.append((wanted, self._error(wanted, partition, error.code)))
                continue
            data = PartitionData(
                partition_index=wanted.index,
                high_watermark=partition.high_watermark,
                last_stable_offset=partition.last_stable_offset,
                log_start_offset=partition.log.log_start_offset,
                aborted_transactions=(
                    [AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset) for a in aborted]
                    if committed
                    else None
                ),
                records=records,
            )
            if diverging is not None:
                epoch, end_offset = diverging
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                self.complete = True
            length = len(records)
            size += length
            remaining -= length
            self.results.append((wanted, data))
            self.waits_for.append(partition)
            if changes is not None and not length:
                changes.settle(wanted)
            if is_follower:
                assert partition.replica_waiters is not None
                self.replica_waiters.append(partition.replica_waiters)
                if length and self._broker.replication.throttling.counts(partition):
                    self._throttled_bytes += length
        self.size = size

    def _redirect(self, wanted: SessionPartition, partition: Partition, preferred: int) -> None:
        """The consumer should read from this follower: the response has no records, and does not wait for any."""
        self.complete = True
        data = PartitionData(
            partition_index=wanted.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=preferred,
            records=b"",
        )
        self.results.append((wanted, data))

    def _error(self, wanted: SessionPartition, partition: Partition | None, code: ErrorCode) -> PartitionData:
        data = PartitionData(
            partition_index=wanted.index,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=None if partition is not None else [],
            records=b"",
        )
        if code in LEADER_ERRORS and self._context.api_version >= 16:
            leader = current_leader(self._broker, partition, wanted.topic, wanted.index)
            if leader is not None:
                data.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
        return data

    def _refused(self, wanted: SessionPartition) -> PartitionData:
        """The client may not read the topic. An id that no topic has is unknown, except for replicas."""
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = wanted.topic
        is_id = isinstance(topic, bytes) and not self._fetch.limits.is_follower
        if is_id and topic not in self._broker.metadata.image.topics_by_id:
            code = self._broker.replicas.missing_partition_error(topic, wanted.index)
        return PartitionData(partition_index=wanted.index, error_code=code, high_watermark=-1, records=b"")

    def release(self) -> None:
        """Release the file ranges: they will not be sent."""
        for _, data in self.results:
            if isinstance(data.records, FileRange):
                data.records.release()
        self.results.clear()

    def release_in_steps(self) -> Sliced[None]:
        """Like `release`, in steps: closing files takes time."""
        while self.results:
            for _, data in self.results[-READS_PER_STEP:]:
                if isinstance(data.records, FileRange):
                    data.records.release()
            del self.results[-READS_PER_STEP:]
            yield 0

    def respond(self) -> FetchResponse:
        """Build the response. In an incremental session, it has only the changed partitions."""
        response = FetchResponse(session_id=self._fetch.session_id)
        with_records: list[PartitionKey] = []
        self._add(response, self.results, with_records)
        self._complete_response(response, with_records)
        return response

    def respond_in_steps(self) -> Sliced[FetchResponse]:
        """Like `respond`, in steps."""
        response = FetchResponse(session_id=self._fetch.session_id)
        with_records: list[PartitionKey] = []
        for first in range(0, len(self.results), READS_PER_STEP):
            self._add(response, self.results[first : first + READS_PER_STEP], with_records)
            yield 0
        self._complete_response(response, with_records)
        return response

    def _add(
        self,
        response: FetchResponse,
        results: list[tuple[SessionPartition, PartitionData]],
        with_records: list[PartitionKey],
    ) -> None:
        fetch = self._fetch
        responses = response.responses
        uses_topic_ids = self._context.api_version >= 13
        topic: FetchableTopicResponse | None = None
        last_key: object = None
        if responses:
            topic = responses[-1]
            last_key = topic.topic_id if uses_topic_ids else topic.topic
        for wanted, data in results:
            if fetch.session is not None:
                changed = self._changed(wanted, data, incremental=fetch.incremental)
                if fetch.changes is not None and not data.error_code:
                    fetch.changes.settle(wanted)
                if not changed:
                    continue
            length = len(data.records or b"")
            if length:
                with_records.append((wanted.topic, wanted.index))
                if not fetch.limits.is_follower:
                    partition = self._broker.replicas.partition_by_key(wanted.topic, wanted.index)
                    if partition is not None:
                        partition.traffic.bytes_out += length
            if data.current_leader.leader_id >= 0:
                self._leaders.add(data.current_leader.leader_id)
            if topic is None or wanted.topic != last_key:
                last_key = wanted.topic
                if uses_topic_ids:
                    assert isinstance(wanted.topic, bytes)
                    topic = FetchableTopicResponse(topic_id=wanted.topic)
                else:
                    assert isinstance(wanted.topic, str)
                    topic = FetchableTopicResponse(topic=wanted.topic)
                responses.append(topic)
            topic.partitions.append(data)

    def _complete_response(self, response: FetchResponse, with_records: list[PartitionKey]) -> None:
        fetch = self._fetch
        if fetch.limits.is_follower:
            self._broker.replication.throttling.responded(self._throttled_bytes)
        if fetch.session is not None and with_records and len(fetch.partitions) > 1:
            fetch.session.move_to_end(with_records)
        for leader_id in self._leaders:
            for node_id, host, port, rack in node_endpoints(self._broker, self._context):
                if node_id == leader_id:
                    response.node_endpoints.append(NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack))

    @staticmethod
    def _changed(wanted: SessionPartition, data: PartitionData, *, incremental: bool) -> bool:
        changed = (
            not incremental
            or data.error_code != 0
            or len(data.records or b"") > 0
            or data.high_watermark != wanted.known_high_watermark
            or data.log_start_offset != wanted.known_log_start_offset
            or data.diverging_epoch.end_offset >= 0
            or data.preferred_read_replica >= 0
        )
        # After an error, the next result is always sent to the client.
        wanted.known_high_watermark = data.high_watermark if data.error_code == 0 else -1
        wanted.known_log_start_offset = data.log_start_offset
        return changed


def _wait_for_records(
    broker: Broker,
    context: RequestContext,
    fetch: FetchContext,
    read: _Read,
    deadline: float | None = None,
) -> None:
    """Leave the request pending. ``deadline``, of the loop's clock, is the earlier one if it has waited before."""
    if deadline is None:
        deadline = broker.loop.time() + fetch.limits.max_wait_ms / 1000
    context.request = fetch
    if fetch.changes is not None:
        WaitingFollower(broker, context, fetch, fetch.changes, read, deadline)
        return
    committed = fetch.limits.isolation_level == ISOLATION_READ_COMMITTED and not fetch.limits.is_follower
    (WaitingCommittedFetch if committed else WaitingFetch)(broker, context, fetch, read, deadline)


class WaitingFetch:
    """A fetch that waits for records. Its partitions notify it of appends.

    There may be very many: each takes about a kilobyte.
    """

    __slots__ = (
        "_broker",
        "_context",
        "_fetch",
        "_finished",
        "_partitions",
        "_timer",
        "_until",
        "_woken",
    )

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        fetch: FetchContext,
        read: _Read,
        deadline: float,
    ) -> None:
        self._broker = broker
        self._context = context
        self._fetch = fetch
        self._partitions = read.waiters
        self._until = self._appended_bytes() + read.min_bytes - read.size
        self._finished = False
        self._woken = False
        self._note_stable(read, deadline)
        self._wait()
        finish = self.finish  # one bound method for both
        self._timer: Timer = broker.timers.call_after(max(0, (deadline - broker.loop.time()) * 1000), finish)
        context.on_cancel = self._forget
        context.on_complete_early = finish

    def _note_stable(self, read: _Read, deadline: float) -> None:
        """For ``read_committed``: note the last stable offsets, and the deadline."""

    def _appended_bytes(self) -> int:
        return sum([waiters.appended_bytes for waiters in self._partitions])

    def _wait(self) -> None:
        """Wait until one partition has its share of the missing bytes: if all together have enough, at least one has.

        If the other partitions have less than their shares by then, the missing bytes are shared again.
        """
        missing = self._until - self._appended_bytes()
        if missing <= 0:
            self._wake()
            return
        share = -(-missing // len(self._partitions)) if self._partitions else 0
        for waiters in self._partitions:
            waiters.wait_for_bytes(self, share)

    def enough(self) -> None:
        """A partition has its share.

        If that is enough, respond at the end of this iteration of the event loop, or in a later one if many have
        enough.
        """
        if not self._woken:
            self._wait()

    def partition_changed(self) -> None:
        """A partition has changed: read again."""
        self._wake()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._broker.turns.later(self._context.connection_id, self._woken_up)

    def _woken_up(self) -> None:
        self.finish()

    def finish(self) -> None:
        """Read again and respond with the available records: the deadline has passed, or there are enough records."""
        if self._finished:
            return
        self._forget()
        FetchRetry(self._broker, self._context, self._fetch, last=True).look()

    def _forget(self) -> None:
        self._finished = self._woken = True
        self._timer.cancel()
        for waiters in self._partitions:
            waiters.remove(self)


class WaitingFollower:
    """An incremental fetch of a follower that waits for a change. Its session observes the partitions."""

    __slots__ = ("_broker", "_changes", "_context", "_fetch", "_finished", "_min_bytes", "_timer", "_woken")

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        fetch: FetchContext,
        changes: FollowerChanges,
        read: _Read,
        deadline: float,
    ) -> None:
        self._broker = broker
        self._context = context
        self._fetch = fetch
        self._changes = changes
        self._min_bytes = read.min_bytes - read.size
        self._finished = self._woken = False
        finish = self.finish
        self._timer: Timer = broker.timers.call_after(max(0, (deadline - broker.loop.time()) * 1000), finish)
        context.on_cancel = self._forget
        context.on_complete_early = finish
        changes.waiting = self
        self.look()  # at what has changed since the read

    def look(self) -> None:
        """If there are enough bytes, or a partition may have an error, respond at the end of this iteration of the
        event loop or later."""
        changes = self._changes
        if not self._woken and (changes.has_lost or changes.appended_bytes >= self._min_bytes):
            self._woken = True
            self._broker.turns.later(self._context.connection_id, self.finish)

    def finish(self) -> None:
        """Read again and respond."""
        if self._finished:
            return
        self._forget()
        FetchRetry(self._broker, self._context, self._fetch, last=True).look()

    def _forget(self) -> None:
        self._finished = self._woken = True
        self._timer.cancel()
        if self._changes.waiting is self:
            self._changes.waiting = None


class WaitingCommittedFetch(WaitingFetch):
    """A fetch that waits for committed records.

    While a transaction is open in a partition, its bytes do not count: the last stable offset of the partition must
    advance. When one has advanced, the whole fetch is read again, which may find too little.
    """

    __slots__ = ("_deadline", "_stable")

    def _note_stable(self, read: _Read, deadline: float) -> None:
        self._deadline = deadline
        self._stable = [(partition, partition.last_stable_offset) for partition in read.waits_for]

    def _wait(self) -> None:
        share = max(1, -(-(self._until - self._appended_bytes()) // max(1, len(self._stable))))
        for partition, last_stable_offset in self._stable:
            if partition.last_stable_offset != last_stable_offset:
                self._wake()
                return
            if partition.has_unstable_records:
                partition.waiters.wait_for_stable(self)
            else:
                partition.waiters.wait_for_bytes(self, share)

    def _woken_up(self) -> None:
        if self._finished:
            return
        if len(self._fetch.partitions) > MANY_PARTITIONS:
            self._forget()
            FetchRetry(self._broker, self._context, self._fetch, deadline=self._deadline).look()
            return
        for waiters in self._partitions:
            waiters.remove(self)
        read = _Read(self._broker, self._context, self._fetch)
        try:
            read.run(wait=False)
        except Exception as error:  # noqa: BLE001 - an internal error fails only its request
            self._forget()
            self._context.reply_with(partial(_fail, error))
            return
        if read.cold:
            self._forget()
            FetchRetry(self._broker, self._context, self._fetch, last=True).read_ahead(read)
            return
        if read.is_ready():
            self._forget()
            self._context.reply_with(read.respond)
            return
        read.release()
        self._partitions = read.waiters
        self._until = self._appended_bytes() + read.min_bytes - read.size
        self._note_stable(read, self._deadline)
        self._woken = False
        self._wait()


class FetchRetry:
    """A fetch that must be read again. It may wait for a thread that reads the data needed to find its records."""

    __slots__ = ("_broker", "_context", "_deadline", "_fetch", "_last", "_rounds")

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        fetch: FetchContext,
        *,
        last: bool = False,
        deadline: float | None = None,
    ) -> None:
        """``last``: the fetch has waited, and responds with its data. ``deadline``: see `_wait_for_records`."""
        self._broker = broker
        self._context = context
        self._fetch = fetch
        self._last = last
        self._deadline = deadline
        self._rounds = 0

    def read_ahead(self, read: _Read) -> None:
        """Read again when the thread has read the ranges."""
        read.release()
        self._rounds += 1
        self._context.on_complete_early = self._complete_early
        self._broker.read_ahead.read_all(read.cold, self._was_read_ahead)

    def look(self, *, wait: bool = False) -> None:
        """Respond, or wait for the disk, or for records."""
        if len(self._fetch.partitions) > MANY_PARTITIONS:
            self._context.on_complete_early = self._complete_early
            self._context.reply_in_slices(self._look_in_steps(wait))
            return
        read = _Read(self._broker, self._context, self._fetch)
        try:
            read.run(wait=wait)
        except Exception as error:  # noqa: BLE001 - an internal error fails only its request
            self._context.reply_with(partial(_fail, error))
            return
        if read.cold:
            self.read_ahead(read)
        elif self._last or read.is_ready():
            self._context.reply_with(read.respond)
        else:
            read.release()
            _wait_for_records(self._broker, self._context, self._fetch, read, self._deadline)

    def _look_in_steps(self, wait: bool) -> Sliced[FetchResponse | Deferred]:
        read = _Read(self._broker, self._context, self._fetch)
        yield from read.run_in_steps(wait=wait)
        if read.cold:
            self.read_ahead(read)
            return DEFERRED
        if self._last or read.is_ready():
            return (yield from read.respond_in_steps())
        yield from read.release_in_steps()
        _wait_for_records(self._broker, self._context, self._fetch, read, self._deadline)
        return DEFERRED

    def _was_read_ahead(self, error: OSError | None) -> None:
        if not self._context.cancelled:
            # If read-ahead failed, the read below fails where disk errors are handled.
            self.look(wait=error is not None or self._rounds >= _COLD_ROUNDS)

    def _complete_early(self) -> None:
        self._last = True


def _fail(error: Exception) -> NoReturn:
    raise error

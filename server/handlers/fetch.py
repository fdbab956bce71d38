"""Fetch (API key 1): file ranges of partitions, now or when enough has come.

- Versions 4 to 18; by topic name up to 12, by topic id from 13 on; sessions of KIP-227 from 7 on.
- At least one batch is returned even when it is larger than ``max_bytes`` or ``partition_max_bytes``: for the first
  partition that has anything. All others keep to the limits.
- Answered at once when ``min_bytes`` are there, a partition that exists has an error, or there is nothing to wait for;
  otherwise the request is parked with its partitions, which tell it of appends, and with its deadline.
- Records go out as they lie in the file. No record is looked at.
- ``read_committed`` (KIP-98): records up to the last stable offset, and the aborted transactions among them, which the
  consumer leaves out. One that waits is not woken by what belongs to an open transaction, but by its end.
- Where finding them (index, headers of batches) would wait for the disk, the request is parked until a thread has read
  that ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from ...replication.partition import ISOLATION_LEVELS, ISOLATION_READ_COMMITTED, Partition
from ..fetch_session import FetchContext, PartitionKey, SessionPartition
from ..request import PARKED, Parked
from .topic_state import LEADER_ERRORS

if TYPE_CHECKING:
    from ...log.transaction_index import AbortedTransaction as KnownAborted
    from ..broker import Broker
    from ..request import RequestContext
    from ..timers import Timer

# How often a fetch is tried again before it may wait for the disk on the loop. The first brings the indexes, the second
# the headers; more only if a segment has nothing of what the index promised, or memory is very short.
_COLD_ROUNDS = 4

_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


def handle(broker: Broker, context: RequestContext, request: FetchRequest) -> FetchResponse | Parked:
    """Answer a fetch, or park it."""
    if request.isolation_level not in ISOLATION_LEVELS:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    fetch = broker.fetch_sessions.open(request, context.api_version, broker.now_ms())
    read = _Read(broker, context, request, fetch)
    read.run(wait=False)
    if read.cold:
        ColdFetch(broker, context, request, fetch).read_ahead(read)
        return PARKED
    if read.may_be_answered():
        return read.answer()
    read.release()
    _park(broker, context, request, fetch, read)
    return PARKED


def failed(request: FetchRequest, error: KafkaError) -> FetchResponse:
    """An error of the session; or of the server, which below version 13 (no topic ids yet) every partition has."""
    response = FetchResponse(error_code=error.code, session_id=0)
    if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
        response.responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=wanted.partition, error_code=error.code, high_watermark=-1, records=b""
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.topic
        ]
    return response


class _Read:
    """One look at all partitions of a fetch."""

    __slots__ = (
        "_broker",
        "_context",
        "_fetch",
        "_request",
        "cold",
        "complete",
        "max_bytes",
        "min_bytes",
        "results",
        "size",
        "waits_for",
    )

    def __init__(self, broker: Broker, context: RequestContext, request: FetchRequest, fetch: FetchContext) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._fetch = fetch
        self.max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        # More than fits into one answer is not waited for.
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.results: list[tuple[SessionPartition, PartitionData]] = []
        self.size = 0
        self.complete = False
        self.cold: list[FileRange] = []
        """What has to be read ahead before this can be answered; whoever takes it releases it."""
        self.waits_for: list[Partition] = []

    def run(self, *, wait: bool) -> None:
        """Read every partition within the limits of the request. Without ``wait``, see `cold` afterwards."""
        try:
            self._run(wait)
        except BaseException:
            self.release()
            raise

    def may_be_answered(self) -> bool:
        """There is enough, or nothing to wait for."""
        return self.complete or self._request.max_wait_ms <= 0 or not self._fetch.partitions

    def _run(self, wait: bool) -> None:
        isolation_level = self._request.isolation_level
        committed = isolation_level == ISOLATION_READ_COMMITTED
        is_follower = max(self._request.replica_id, self._request.replica_state.replica_id) >= 0
        remaining = self.max_bytes
        size = 0
        partition_of = self._broker.replicas.partition_by_key
        for wanted in self._fetch.partitions.values():
            diverging: EpochEndOffset | None = None
            aborted: Sequence[KnownAborted] = ()
            partition = partition_of(wanted.topic, wanted.index)
            try:
                if partition is None:
                    raise KafkaError(self._broker.replicas.why_absent(wanted.topic, wanted.index))
                if wanted.current_leader_epoch >= 0:
                    partition.check_leader(wanted.current_leader_epoch)
                else:
                    partition.check_leader()
                if is_follower:  # there is no replica but this broker's
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                if wanted.last_fetched_epoch >= 0:
                    diverging = partition.diverging_epoch(wanted.fetch_offset, wanted.last_fetched_epoch)
                if diverging is None:
                    fetched = partition.read(
                        wanted.fetch_offset,
                        max(0, min(wanted.max_bytes, remaining)),
                        isolation_level=isolation_level,
                        min_one_batch=size == 0,
                        wait=wait,
                    )
                    records: FileRange | bytes = fetched.records if fetched.records is not None else b""
                    aborted = fetched.aborted_transactions
                else:
                    records = b""
            except ColdRead as found:
                self.cold.append(found.range)
                continue
            except KafkaError as error:
                # A reader that goes on asking for what is not there any more should not do so without a pause.
                if partition is not None or error.code not in _UNKNOWN:
                    self.complete = True
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
                data.diverging_epoch = diverging
                self.complete = True
            length = len(records)
            size += length
            remaining -= length
            self.results.append((wanted, data))
            self.waits_for.append(partition)
        self.size = size
        if size >= self.min_bytes or not self.waits_for:
            self.complete = True

    def _error(self, wanted: SessionPartition, partition: Partition | None, code: ErrorCode) -> PartitionData:
        data = PartitionData(
            partition_index=wanted.index,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=None if partition is not None else [],
            records=b"",
        )
        if code in LEADER_ERRORS and partition is not None and self._context.api_version >= 16:
            data.current_leader = LeaderIdAndEpoch(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)
        return data

    def release(self) -> None:
        """Let go of the file ranges: they will not be sent."""
        for _, data in self.results:
            if isinstance(data.records, FileRange):
                data.records.release()
        self.results.clear()

    def answer(self) -> FetchResponse:
        """Build the response; in an incremental session only with what has changed."""
        fetch = self._fetch
        response = FetchResponse(session_id=fetch.session_id)
        responses = response.responses
        topic: FetchableTopicResponse | None = None
        last_key: object = None
        uses_topic_ids = self._context.api_version >= 13
        with_records: list[PartitionKey] = []
        leaders: set[int] = set()
        for wanted, data in self.results:
            if fetch.session is not None and not self._changed(wanted, data, incremental=fetch.incremental):
                continue
            if len(data.records or b""):
                with_records.append((wanted.topic, wanted.index))
            if data.current_leader.leader_id >= 0:
                leaders.add(data.current_leader.leader_id)
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
        if fetch.session is not None and with_records and len(fetch.partitions) > 1:
            fetch.session.move_to_end(with_records)
        for leader_id in leaders:
            for node_id, host, port, rack in self._broker.node_endpoints(self._context):
                if node_id == leader_id:
                    response.node_endpoints.append(NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack))
        return response

    @staticmethod
    def _changed(wanted: SessionPartition, data: PartitionData, *, incremental: bool) -> bool:
        changed = (
            not incremental
            or data.error_code != 0
            or len(data.records or b"") > 0
            or data.high_watermark != wanted.known_high_watermark
            or data.log_start_offset != wanted.known_log_start_offset
            or data.diverging_epoch.end_offset >= 0
        )
        # After an error the client has to be told again, whatever comes next.
        wanted.known_high_watermark = data.high_watermark if data.error_code == 0 else -1
        wanted.known_log_start_offset = data.log_start_offset
        return changed


def _park(broker: Broker, context: RequestContext, request: FetchRequest, fetch: FetchContext, read: _Read) -> None:
    committed = request.isolation_level == ISOLATION_READ_COMMITTED
    (ParkedCommittedFetch if committed else ParkedFetch)(broker, context, request, fetch, read)


class ParkedFetch:
    """A fetch that waits for records; its partitions tell it of appends."""

    __slots__ = ("_broker", "_context", "_fetch", "_finished", "_partitions", "_request", "_timer", "_until", "_woken")

    def __init__(
        self, broker: Broker, context: RequestContext, request: FetchRequest, fetch: FetchContext, read: _Read
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._fetch = fetch
        self._partitions = [partition.waiters for partition in read.waits_for]
        self._until = self._appended_bytes() + read.min_bytes - read.size
        self._finished = False
        self._woken = False
        self._wait()
        self._timer: Timer = broker.timers.call_after(request.max_wait_ms, self.finish)
        context.on_abandon = self._forget
        context.on_hurry = self.finish

    def _appended_bytes(self) -> int:
        return sum([waiters.appended_bytes for waiters in self._partitions])

    def _wait(self) -> None:
        """When all partitions together have enough, at least one of them has its share of it: that is waited for.

        If the others have less than theirs by then, what is still missing is shared out anew.
        """
        missing = self._until - self._appended_bytes()
        if missing <= 0:
            self._wake()
            return
        share = -(-missing // len(self._partitions)) if self._partitions else 0
        for waiters in self._partitions:
            waiters.tell(self, share)

    def enough(self) -> None:
        """A partition has its share: if it is enough, answer at the end of this turn of the loop."""
        if not self._woken:
            self._wait()

    def partition_changed(self) -> None:
        """A partition has something to tell."""
        self._wake()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._broker.run_soon(self._woken_up)

    def _woken_up(self) -> None:
        self.finish()

    def finish(self) -> None:
        """Read again and answer with what is there: the deadline has come, or enough records have."""
        if self._finished:
            return
        self._forget()
        ColdFetch(self._broker, self._context, self._request, self._fetch, last=True).look()

    def _forget(self) -> None:
        self._finished = self._woken = True
        self._timer.cancel()
        for waiters in self._partitions:
            waiters.remove(self)


class ParkedCommittedFetch(ParkedFetch):
    """A fetch that waits for committed records. While a transaction is open in a partition, no bytes of it count: its
    last stable offset has to move. When one has, the whole fetch is looked at again, which may find too little."""

    __slots__ = ("_stable",)

    def __init__(
        self, broker: Broker, context: RequestContext, request: FetchRequest, fetch: FetchContext, read: _Read
    ) -> None:
        self._note_stable(read)
        super().__init__(broker, context, request, fetch, read)

    def _note_stable(self, read: _Read) -> None:
        self._stable = [(partition, partition.last_stable_offset) for partition in read.waits_for]

    def _wait(self) -> None:
        share = max(1, -(-(self._until - self._appended_bytes()) // max(1, len(self._stable))))
        for partition, last_stable_offset in self._stable:
            if partition.last_stable_offset != last_stable_offset:
                self._wake()
                return
            if partition.has_unstable_records:
                partition.waiters.tell_when_stable(self)
            else:
                partition.waiters.tell(self, share)

    def _woken_up(self) -> None:
        if self._finished:
            return
        for waiters in self._partitions:
            waiters.remove(self)
        read = _Read(self._broker, self._context, self._request, self._fetch)
        try:
            read.run(wait=False)
        except Exception as error:  # noqa: BLE001 - our own mistakes fail one request alone
            self._forget()
            self._context.reply_with(partial(_fail, error))
            return
        if read.cold:
            self._forget()
            ColdFetch(self._broker, self._context, self._request, self._fetch, last=True).read_ahead(read)
            return
        if read.may_be_answered():
            self._forget()
            self._context.reply_with(read.answer)
            return
        read.release()
        self._partitions = [partition.waiters for partition in read.waits_for]
        self._until = self._appended_bytes() + read.min_bytes - read.size
        self._note_stable(read)
        self._woken = False
        self._wait()


class ColdFetch:
    """A fetch that has to be looked at again, and may have to wait for a thread which reads what finds its records."""

    __slots__ = ("_broker", "_context", "_fetch", "_last", "_request", "_rounds")

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        request: FetchRequest,
        fetch: FetchContext,
        *,
        last: bool = False,
    ) -> None:
        """``last``: it has waited for records, and is answered with what there is."""
        self._broker = broker
        self._context = context
        self._request = request
        self._fetch = fetch
        self._last = last
        self._rounds = 0

    def read_ahead(self, read: _Read) -> None:
        """Look again when the disk has been read."""
        read.release()
        self._rounds += 1
        self._context.on_hurry = self._hurry
        self._broker.read_ahead.read_all(read.cold, self._was_read_ahead)

    def look(self, *, wait: bool = False) -> None:
        """Answer, or wait for the disk, or for records."""
        read = _Read(self._broker, self._context, self._request, self._fetch)
        try:
            read.run(wait=wait)
        except Exception as error:  # noqa: BLE001 - our own mistakes fail one request alone
            self._context.reply_with(partial(_fail, error))
            return
        if read.cold:
            self.read_ahead(read)
        elif self._last or read.may_be_answered():
            self._context.reply_with(read.answer)
        else:
            read.release()
            _park(self._broker, self._context, self._request, self._fetch, read)

    def _was_read_ahead(self, error: OSError | None) -> None:
        if not self._context.abandoned:
            # What could not be read ahead fails where errors of the disk are dealt with.
            self.look(wait=error is not None or self._rounds >= _COLD_ROUNDS)

    def _hurry(self) -> None:
        self._last = True


def _fail(error: Exception) -> NoReturn:
    raise error

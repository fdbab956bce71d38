"""ListOffsets (API key 2): the offset of a timestamp, or of one of the special timestamps.

- Versions 1 to 11. Special timestamps: -1 latest, -2 earliest, -3 the record with the largest timestamp (since version
  7), -4 the earliest on local disk (8), -5 the latest that is tiered (9), -6 the earliest that waits to be tiered (11).
  There is no tiered storage, so -4 is the earliest, and -5 and -6 find nothing.
- The latest offset is the high watermark, or the last stable offset for ``read_committed``. A record beyond it is not
  found. For followers (with the id of a replica), it is the log end offset.
- After an election, until the new leader knows what was committed in earlier leader epochs, the latest offset and
  records beyond the high watermark are OFFSET_NOT_AVAILABLE, before version 5 LEADER_NOT_AVAILABLE (KIP-207).
- By timestamp: the first record whose timestamp is at least the requested one, exact within its batch. A large batch is
  searched elsewhere (`server.records.decoder`), and the response waits for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ...replication.partition import ISOLATION_LEVELS
from ..context import DEFERRED, Deferred
from ..records.decode_jobs import Search, copy_of
from ..records.search_queue import Permit

if TYPE_CHECKING:
    from ...replication.partition import Partition
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext
    from ..records.decode_jobs import Outcome

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
# The first version with each special timestamp. Other negative timestamps are invalid in all versions.
_SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NEVER = 0x7FFF

_UNKNOWN = -1


def handle(
    broker: Broker, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Deferred | Sliced[ListOffsetsResponse | Deferred]:
    """Look up every partition."""
    if request.isolation_level not in ISOLATION_LEVELS:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
        return _Lookup(broker, context, request, {}).begin()
    return _look_up_in_slices(broker, context, request)


def _look_up_in_slices(
    broker: Broker, context: RequestContext, request: ListOffsetsRequest
) -> Sliced[ListOffsetsResponse | Deferred]:
    requested: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        yield 0
        for wanted in topic.partitions:
            requested[topic.name, wanted.partition_index] += 1
            yield 0
    return (yield from _Lookup(broker, context, request, requested).run())


def failed(request: ListOffsetsRequest, error: KafkaError) -> Sliced[ListOffsetsResponse]:
    """The same error for every partition."""
    response = ListOffsetsResponse()
    for topic in request.topics:
        answer = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(answer)
        yield 1
        for partition in topic.partitions:
            answer.partitions.append(
                ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=error.code)
            )
            yield 1
    return response


_NOTHING = (_UNKNOWN, _UNKNOWN, _UNKNOWN)


class _Lookup:
    """One request, which looks up its partitions one after the other, and waits if a large batch must be searched."""

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        request: ListOffsetsRequest,
        requested: Mapping[tuple[str, int], int],
    ) -> None:
        """``requested``: how often each partition is named, if that can be more than once."""
        self._broker = broker
        self._context = context
        self._isolation_level = request.isolation_level
        self._replica_id = request.replica_id
        self._requested = requested
        self._steps = self._look_up_all(request)
        self._cancel: Callable[[], None] | None = None
        self._search: Search | None = None
        self._outcome: Outcome | None = None
        self._is_long = False  # one step was not enough
        self._permit: Permit | None = None
        self.response = ListOffsetsResponse()

    def begin(self) -> ListOffsetsResponse | Deferred | Sliced[ListOffsetsResponse | Deferred]:
        """Look up one partition. One step is usually enough: slices would cost more than that."""
        for _ in self._steps:
            if self._search is not None:
                self._wait()
                return DEFERRED
            if self._is_long:
                return self.run()
        return self.response

    def run(self) -> Sliced[ListOffsetsResponse | Deferred]:
        """Continue to the end, or until a batch must be searched elsewhere. It is resumed after that."""
        try:
            for _ in self._steps:
                if self._search is not None:
                    self._wait()
                    return DEFERRED
                yield 0
        finally:
            self._release_permit()
        return self.response

    def _wait(self) -> None:
        # No reference to the batch is kept here: if the same search is already running, the batch is not needed.
        search, self._search = self._search, None
        assert search is not None
        self._cancel = self._broker.searches.submit(search, self._decoded, self._permit)
        self._permit = None
        self._context.on_cancel = self._cancelled

    def _decoded(self, outcome: Outcome | Permit) -> None:
        self._cancel = None
        if isinstance(outcome, Permit):
            self._permit = outcome
        else:
            self._outcome = outcome
        self._context.reply_in_slices(self.run())

    def _cancelled(self) -> None:
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        self._release_permit()

    def _release_permit(self) -> None:
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.release()

    def _look_up_all(self, request: ListOffsetsRequest) -> Iterator[None]:
        """Look up all partitions. Yields now and then, and when `_search` must be done elsewhere.

        After a search, its outcome is in `_outcome`.
        """
        for topic in request.topics:
            topic_response = ListOffsetsTopicResponse(name=topic.name)
            self.response.topics.append(topic_response)
            yield
            for wanted in topic.partitions:
                result = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
                topic_response.partitions.append(result)
                try:
                    if self._requested and self._requested[(topic.name, wanted.partition_index)] > 1:
                        raise KafkaError(ErrorCode.INVALID_REQUEST)
                    result.timestamp, result.offset, leader_epoch = yield from self._look_up(topic.name, wanted)
                    if self._context.api_version >= 4:
                        result.leader_epoch = leader_epoch
                except KafkaError as error:
                    result.error_code = error.code
                yield None

    def _not_available(self) -> KafkaError:
        since_5 = self._context.api_version >= 5
        return KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if since_5 else ErrorCode.LEADER_NOT_AVAILABLE)

    def _partition(self, topic: str, wanted: ListOffsetsPartition) -> Partition:
        partition = self._broker.replicas.partition_by_key(topic, wanted.partition_index)
        if partition is None:
            raise KafkaError(self._broker.replicas.missing_partition_error(topic, wanted.partition_index))
        partition.check_leader(wanted.current_leader_epoch)
        return partition

    def _look_up(self, topic: str, wanted: ListOffsetsPartition) -> Generator[None, None, tuple[int, int, int]]:
        """Returns timestamp, offset and leader epoch; -1 for unknown values."""
        partition = self._partition(topic, wanted)
        timestamp = wanted.timestamp
        if timestamp < 0 and self._context.api_version < _SINCE_VERSION.get(timestamp, _NEVER):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        log = partition.log
        in_sync = partition.in_sync
        is_follower = in_sync is not None and in_sync.follower(self._replica_id) is not None
        end_offset = log.log_end_offset if is_follower else partition.visible_end_offset(self._isolation_level)
        if timestamp == LATEST:
            if not is_follower and partition.may_miss_committed_records:
                raise self._not_available()
            return _UNKNOWN, end_offset, partition.leader_epoch
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return _UNKNOWN, log.log_start_offset, log.epoch_of(log.log_start_offset)
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return _NOTHING
        offset = 0
        while True:
            next_search = log.next_search(None if timestamp == MAX_TIMESTAMP else timestamp, offset)
            if next_search is None:
                return _NOTHING
            if isinstance(next_search, int):
                offset = next_search
                self._is_long = True
                yield None
                continue
            header = next_search.header
            search = Search(next_search)
            del next_search
            outcome = self._broker.decoder.attempt_now(search)
            if outcome is None:
                self._search = search
                del search  # no reference to the batch is kept meanwhile
                yield
                outcome, self._outcome = self._outcome, None
                # The partition may have changed meanwhile.
                if self._partition(topic, wanted) is not partition:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                if outcome is None:
                    continue  # it has a permit: its batch is read again
            else:
                yield None
            if outcome.error is not None:
                raise copy_of(outcome.error)
            if outcome.value is not None:
                assert isinstance(outcome.value, tuple)
                found_timestamp, found_offset = outcome.value
                if found_offset >= end_offset:
                    if partition.may_miss_committed_records:
                        raise self._not_available()
                    return _NOTHING
                return found_timestamp, found_offset, header.partition_leader_epoch
            offset = header.next_offset
            self._is_long = True
            yield None

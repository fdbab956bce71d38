"""A fetcher: requests the records of all partitions that this broker follows on one leader, over one link.

One request is in flight. Its response is applied in slices, and then the next request is sent. So memory is bounded by
one response (`replica.fetch.response.max.bytes`), and the leader sees each position once: the request for the next
records acknowledges the earlier ones. With `flush.messages`, it waits until these are durable.

Partitions that a response lets diverge are truncated before the next request (`truncation`).

A partition that is followed while a request waits at the leader does not wait for the end of that request: another
one follows, so that the leader completes it early.

If there is no response, the next request follows immediately. The link pauses between its attempts to connect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError, error_name, known_error
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from ...protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ...replication.fetch_requests import Key, RequestSession, SessionRequest
from ...replication.following import Following, Next, Position
from ...replication.partition import ACKS_ONE
from ..network.links import LinkError

if TYPE_CHECKING:
    from ...config.sources import BrokerConfig
    from ...protocol.messages.fetch import FetchResponse, PartitionData
    from ...replication.partition import Partition
    from ..concurrency.clock import Clock
    from ..concurrency.slices import Sliced, Slices
    from ..concurrency.timers import Timer, TimerWheel
    from ..network.links import Link, Outgoing
    from .throttling import Throttling
    from .truncation import Truncations

logger = logging.getLogger(__name__)

_THROTTLED_MS: Final = 50
"""How long a partition that is not fetched because of a throttle waits before the throttle is looked at again."""

_LOGGED_FAILURES: Final = 5
"""This many failures of a partition in a row are logged once. A change of the leader causes some."""

_HURRY_VERSION: Final = 0
"""Of ApiVersions: all brokers have it."""

_LATEST: Final = -1
_EARLIEST: Final = -2

_LIST_OFFSETS_VERSION: Final = 9
"""With the leader epoch, and without timestamps that are not needed. All brokers with replica epochs have it."""

# The lowest metadata.version of each version of a follower's Fetch.
_FETCH_VERSIONS: Final = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14))
_LOWEST_FETCH_VERSION: Final = 13
_REPLICA_STATE_SINCE: Final = 15


def _ignore(_response: object, _error: Exception | None) -> None:
    """If the connection is lost, the fetch before this request fails as well."""


def fetch_version(metadata_version: int) -> int:
    """The version of Fetch that all brokers of a cluster with this metadata.version support."""
    for level, version in _FETCH_VERSIONS:
        if metadata_version >= level:
            return version
    return _LOWEST_FETCH_VERSION


class FetcherSettings(NamedTuple):
    """The settings of all fetchers of a broker."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    max_pause_ms: int
    timeout_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> FetcherSettings:
        """Read them from the settings of the broker."""
        return cls(
            max_wait_ms=config.int("replica.fetch.wait.max.ms"),
            min_bytes=config.int("replica.fetch.min.bytes"),
            max_bytes=config.int("replica.fetch.response.max.bytes"),
            partition_max_bytes=config.int("replica.fetch.max.bytes"),
            max_pause_ms=config.int("replica.fetch.backoff.ms"),
            timeout_ms=config.int("replica.socket.timeout.ms"),
        )


class Local(NamedTuple):
    """What the fetchers need of their broker."""

    node_id: int
    broker_epoch: Callable[[], int]
    metadata_version: Callable[[], int]
    slices: Slices
    timers: TimerWheel
    now_ms: Clock
    run_soon: Callable[[Callable[[], None]], None]
    throttling: Throttling
    truncations: Truncations


class _Observer:
    """Notes changes of a followed partition that no response has caused, like the deletion of old records here."""

    __slots__ = ("_changed", "_key")

    def __init__(self, changed: dict[Key, None], key: Key) -> None:
        self._changed = changed
        self._key = key

    def appended(self, size: int) -> None:
        """Only a leader appends."""

    def moved(self) -> None:
        self._changed[self._key] = None

    def lost(self) -> None:
        self._changed[self._key] = None


class Fetcher:
    """See the module docstring."""

    def __init__(
        self, leader_id: int, link: Callable[[], Link | None], local: Local, settings: FetcherSettings
    ) -> None:
        """``link`` returns the link to the leader; None while it is not registered."""
        self.leader_id = leader_id
        self._link = link
        self._local = local
        self._settings = settings
        self._following: dict[Key, Following] = {}
        self._reported: set[Key] = set()  # partitions without progress that were logged as warnings
        # Partitions whose position may differ from that in the session, and all that are not requested: the next
        # request looks at these only.
        self._changed: dict[Key, None] = {}
        self._observers: dict[Key, _Observer] = {}
        self._session = RequestSession()
        self._in_flight: Outgoing | None = None
        self._is_busy = False  # a request is in flight or its response is being applied
        self._is_hurried = False  # another request follows the one in flight
        self._timer: Timer | None = None
        self._problem: str | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._following)

    def follow(self, following: Following) -> None:
        """Fetch this partition from the next request on."""
        partition = following.partition
        key = (partition.topic_id, partition.index)
        self.forget(key)
        self._following[key] = following
        observer = self._observers[key] = _Observer(self._changed, key)
        partition.observers.append(observer)
        if following.truncation is not None:
            self._local.slices.begin_shielded(self._truncate_first(following))
        else:
            self.wake()

    def follows(self, partition: Partition) -> bool:
        """Whether this partition is fetched in its current leader epoch."""
        following = self._following.get((partition.topic_id, partition.index))
        return following is not None and following.partition is partition and following.is_current

    def forget(self, key: Key) -> None:
        """Do not fetch this partition any longer. A response for it is ignored."""
        following = self._following.pop(key, None)
        self._reported.discard(key)
        if following is not None:
            following.partition.observers.remove(self._observers.pop(key))
        self._changed[key] = None

    def wake(self) -> None:
        """Something has changed: send a request if none is in flight."""
        if self._closed:
            return
        if not self._is_busy:
            self._is_busy = True
            self._local.run_soon(self._send)
        elif self._in_flight is not None and not self._is_hurried:
            self._hurry()

    def close(self) -> None:
        """Send nothing more, and ignore the response to the request in flight."""
        self._closed = True
        for key in list(self._following):
            self.forget(key)
        self._cancel_timer()
        if self._in_flight is not None:
            self._in_flight.cancel()
            self._in_flight = None

    # -- requests ------------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        self._is_busy = False
        self._cancel_timer()
        if self._closed:
            return
        now_ms = self._local.timers.now_ms()
        session = self._session
        paused_ms: int | None = None
        throttled_ms: int | None = None
        if self._local.throttling.limits_fetches:  # every partition may have to wait now
            self._changed.update(dict.fromkeys(self._following))
        for key in list(self._changed):
            following = self._following.get(key)
            if following is None:
                session.drop(key)
                del self._changed[key]
            elif following.is_due(now_ms):
                partition = following.partition
                if partition.awaits_flush:
                    self._send_when_durable(partition)
                    return
                if self._local.throttling.delays(partition, is_caught_up=following.is_caught_up):
                    throttled_ms = now_ms + _THROTTLED_MS
                    session.drop(key)
                    continue
                session.want(key, following.position)
                del self._changed[key]
            else:
                session.drop(key)
                if following.resume_ms is not None:
                    paused_ms = following.resume_ms if paused_ms is None else min(paused_ms, following.resume_ms)
        link = self._link() if session.wanted else None
        if link is None:
            resume = [each for each in (paused_ms, throttled_ms) if each is not None]
            if session.wanted:
                resume = [now_ms + self._settings.max_pause_ms]
            if resume:
                self._timer = self._local.timers.call_after(max(1, min(resume) - now_ms), self._timer_fired)
            return
        self._is_busy = True
        request, version = self._request(session.request())
        self._in_flight = link.send(request, version, self._answered, timeout_ms=self._settings.timeout_ms)
        if paused_ms is not None:  # that may be before the response
            self._timer = self._local.timers.call_after(max(1, paused_ms - now_ms), self._timer_fired)

    def _hurry(self) -> None:
        """The request in flight lacks a partition, and may wait for records for `replica.fetch.wait.max.ms`. A leader
        that is Moldau completes it when another request arrives on the connection. Apache Kafka's completes both
        later."""
        link = self._link()
        if link is not None:
            self._is_hurried = True
            link.send(ApiVersionsRequest(), _HURRY_VERSION, _ignore, timeout_ms=self._settings.timeout_ms)

    def _send_when_durable(self, partition: Partition) -> None:
        self._is_busy = True
        partition.when_acknowledged(
            partition.log.log_end_offset, ACKS_ONE, lambda error: self._local.run_soon(self._send)
        )

    def _timer_fired(self) -> None:
        self._timer = None
        self.wake()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _request(self, session: SessionRequest) -> tuple[FetchRequest, int]:
        version = fetch_version(self._local.metadata_version())
        settings = self._settings
        request = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=session.session_id,
            session_epoch=session.session_epoch,
        )
        if version >= _REPLICA_STATE_SINCE:
            request.replica_state = ReplicaState(
                replica_id=self._local.node_id, replica_epoch=self._local.broker_epoch()
            )
        else:
            request.replica_id = self._local.node_id
        topics: dict[bytes, FetchTopic] = {}
        for (topic_id, index), position in session.named.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=settings.partition_max_bytes,
                )
            )
        request.topics = list(topics.values())
        forgotten: dict[bytes, ForgottenTopic] = {}
        for topic_id, index in session.forgotten:
            forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        request.forgotten_topics_data = list(forgotten.values())
        return request, version

    # -- responses -----------------------------------------------------------------------------------------------------

    def _answered(self, response: FetchResponse | None, error: Exception | None) -> None:
        self._in_flight = None
        self._is_hurried = False
        if self._closed:
            return
        if response is None:
            assert error is not None
            self._session.failed()
            self._report(str(error))
            if not isinstance(error, LinkError):  # the peer does not support the version
                self._pause()
                return
            self._send()
        elif response.error_code:
            code = known_error(response.error_code)
            self._session.failed(code)
            if code not in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
                self._report(error_name(response.error_code))
                self._pause()
                return
            self._send()
        else:
            self._report(None)
            self._session.succeeded(response.session_id)
            self._local.slices.begin_shielded(self._apply(response), immediately=True)

    def _pause(self) -> None:
        self._is_busy = False
        self._timer = self._local.timers.call_after(max(1, self._settings.max_pause_ms), self._timer_fired)

    def _report(self, problem: str | None) -> None:
        """Log a lasting problem once, and its end."""
        if problem is not None and self._problem is None:
            logger.warning("Cannot fetch from broker %d, retrying: %s", self.leader_id, problem)
        elif problem is None and self._problem is not None:
            logger.info("Fetching from broker %d again", self.leader_id)
        self._problem = problem

    def _truncate_first(self, following: Following) -> Sliced[None]:
        yield from self._truncate([following])
        self.wake()

    def _truncate(self, followed: Iterable[Following]) -> Sliced[None]:
        return self._local.truncations.run(followed, self._settings.max_pause_ms, self._truncated)

    def _truncated(self, following: Following, step: Next) -> None:
        partition = following.partition
        self._take((partition.topic_id, partition.index), following, step)

    def _apply(self, response: FetchResponse) -> Sliced[None]:
        requested = self._session.wanted  # it changes with the next request
        diverged: list[Following] = []
        lost: list[tuple[Key, Following, Position]] = []
        try:
            for topic in response.responses:
                for data in topic.partitions:
                    key = (topic.topic_id, data.partition_index)
                    following, position = self._following.get(key), requested.get(key)
                    if following is None or position is None:
                        continue  # forgotten meanwhile
                    self._changed[key] = None
                    step = self._handle(following, position, data)
                    if data.records:
                        self._local.throttling.received(following.partition, len(data.records))
                    data.records = None
                    self._take(key, following, step)
                    if step is Next.FIND_OFFSET:
                        lost.append((key, following, position))
                    elif step is Next.TRUNCATE:
                        diverged.append(following)
                    yield 0
            for key, following, position in lost:
                if (yield from self._find_offset(key, following, position)) is Next.TRUNCATE:
                    diverged.append(following)
            if diverged:
                yield from self._truncate(diverged)
        finally:
            self._send()

    def _handle(self, following: Following, position: Position, data: PartitionData) -> Next:
        now_ms, max_pause_ms = self._local.timers.now_ms(), self._settings.max_pause_ms
        try:
            return following.handle(
                position, data, now_ms=now_ms, wall_ms=self._local.now_ms(), max_pause_ms=max_pause_ms
            )
        except Exception:  # the other partitions must continue
            partition = following.partition
            logger.exception("Replicating %s-%d failed with an unexpected error", partition.topic, partition.index)
            return following.failed("an unexpected error", now_ms=now_ms, max_pause_ms=max_pause_ms)

    def _take(self, key: Key, following: Following, step: Next) -> None:
        partition = following.partition
        self._changed[key] = None
        if step is Next.STOP:
            if self._following.get(key) is following:
                self.forget(key)
            if following.problem is not None:
                logger.error("%s-%d is not replicated: %s", partition.topic, partition.index, following.problem)
        elif step is Next.PAUSE and following.failures == _LOGGED_FAILURES:
            level = logging.WARNING if following.is_obstructed else logging.INFO
            logger.log(
                level, "%s-%d makes no progress, retrying: %s", partition.topic, partition.index, following.problem
            )
            if following.is_obstructed:
                self._reported.add(key)
        elif not following.failures and key in self._reported:
            self._reported.remove(key)
            logger.info("%s-%d makes progress again", partition.topic, partition.index)

    def _find_offset(self, key: Key, following: Following, position: Position) -> Sliced[Next]:
        """Continue where the leader's log and this one can be joined."""
        partition = following.partition
        logger.info(
            "%s-%d: offset %d is not in the log of broker %d",
            partition.topic,
            partition.index,
            position.fetch_offset,
            self.leader_id,
        )
        try:
            log_end_offset = yield from self._list_offset(following, _LATEST)
            log_start_offset = yield from self._list_offset(following, _EARLIEST)
        except (LinkError, KafkaError) as error:
            now_ms, max_pause_ms = self._local.timers.now_ms(), self._settings.max_pause_ms
            return following.failed(f"ListOffsets failed: {error}", now_ms=now_ms, max_pause_ms=max_pause_ms)
        if self._following.get(key) is not following:
            return Next.STOP
        step = following.found_offsets(position, log_end_offset, log_start_offset)
        self._take(key, following, step)
        return step

    def _list_offset(self, following: Following, timestamp: int) -> Sliced[int]:
        link = self._link()
        if link is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the leader is not registered")
        partition = following.partition
        wanted = ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=following.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._local.node_id, topics=[ListOffsetsTopic(name=partition.topic, partitions=[wanted])]
        )
        response = yield from link.call(
            self._local.slices, request, _LIST_OFFSETS_VERSION, timeout_ms=self._settings.timeout_ms
        )
        found = response.topics[0].partitions[0]
        if found.error_code:
            raise KafkaError(known_error(found.error_code))
        return int(found.offset)

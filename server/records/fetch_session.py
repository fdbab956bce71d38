"""Incremental fetch sessions (KIP-227): a consumer lists its partitions once, and later only the changes.

A session holds the partitions in the order in which they will be served. Partitions that returned records move to the
end, so that the others are served even if the first ones use up ``max_bytes``. The session stores what the client last
received for each partition (high watermark, log start offset). An incremental response omits unchanged partitions.

Consumers cannot evict the sessions of followers, and followers evict those of consumers: a broker with thousands of
partitions would otherwise list all of them in each of its requests.

The epoch is -1 for a request without a session (which also closes the named session), 0 for a new session, and n for
the n-th incremental request of a session. A request with an unexpected epoch was lost or sent twice, and is rejected.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.named_tuples import NamedTuple

if TYPE_CHECKING:
    from ...protocol.messages.fetch import FetchPartition, FetchRequest
    from .follower_changes import FollowerChanges

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 0x7FFFFFFF
_MAX_SESSION_ID = 0x7FFFFFFF

TopicKey = bytes | str  # the topic id since version 13, the name before
PartitionKey = tuple[TopicKey, int]


class SessionPartition:
    """A client's fetch request for one partition, and what the client last received for it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "known_high_watermark",
        "known_log_start_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "topic",
    )

    def __init__(self, topic: TopicKey, request: FetchPartition) -> None:
        self.topic = topic
        self.index = request.partition
        self.known_high_watermark = -1
        self.known_log_start_offset = -1
        self.update(request)

    def update(self, request: FetchPartition) -> None:
        """Apply the position of a newer request."""
        self.fetch_offset = request.fetch_offset
        self.max_bytes = request.partition_max_bytes
        self.current_leader_epoch = request.current_leader_epoch
        self.last_fetched_epoch = request.last_fetched_epoch
        self.log_start_offset = request.log_start_offset  # of a follower

    def take_over(self, new: SessionPartition) -> None:
        """The same as `update`, with the session partition of a newer request."""
        self.fetch_offset = new.fetch_offset
        self.max_bytes = new.max_bytes
        self.current_leader_epoch = new.current_leader_epoch
        self.last_fetched_epoch = new.last_fetched_epoch
        self.log_start_offset = new.log_start_offset


Requested = dict[PartitionKey, SessionPartition]
"""The requested partitions."""


class Readable(NamedTuple):
    """The topics of a session that a client may read, as long as the ACLs are unchanged."""

    client: tuple[int, str, str]
    """The epoch of the ACLs, the principal and the host."""
    topics: set[TopicKey]


class FetchSession:
    """The partitions of one consumer, or of a follower."""

    __slots__ = (
        "changes",
        "created_ms",
        "epoch",
        "is_privileged",
        "last_used_ms",
        "partitions",
        "readable",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[PartitionKey, SessionPartition],
        *,
        uses_topic_ids: bool,
        is_privileged: bool,
        now_ms: int,
    ) -> None:
        """``is_privileged``: it is a follower's."""
        self.session_id = session_id
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.is_privileged = is_privileged
        self.epoch = 1  # the expected epoch of the next request
        self.readable: Readable | None = None  # with an authorizer, since the first request was authorized
        self.changes: FollowerChanges | None = None
        """Of a follower, since its first incremental request: the partitions to look at."""
        self.created_ms = now_ms
        self.last_used_ms = now_ms

    @property
    def rank(self) -> tuple[bool, int]:
        """A session can be evicted for another one with a higher rank."""
        return self.is_privileged, len(self.partitions)

    def move_to_end(self, keys: Iterable[PartitionKey]) -> None:
        """Serve these partitions last in the next response."""
        for key in keys:
            partition = self.partitions.pop(key, None)
            if partition is not None:
                self.partitions[key] = partition
            if self.changes is not None:
                self.changes.move_to_end(key)

    def close(self) -> None:
        """The session has ended."""
        if self.changes is not None:
            self.changes.close()


class Limits(NamedTuple):
    """The parameters of a fetch besides its partitions. Equal limits share an object: many fetches may wait."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    replica_id: int
    """The broker id of a follower; -1 for consumers."""
    replica_epoch: int
    """The broker epoch of a follower (KIP-903); -1 if it is unknown."""
    rack: str
    """The rack of a consumer (KIP-392); empty if it is unknown."""

    @property
    def is_follower(self) -> bool:
        """Whether another broker fetches, and not a consumer."""
        return self.replica_id >= 0


_limits = lru_cache(maxsize=64)(Limits)


class FetchContext:
    """One fetch request, resolved by its session: what to read, and how to respond. A waiting fetch keeps this object
    and not the request."""

    __slots__ = ("changes", "incremental", "limits", "partitions", "readable", "session")

    def __init__(
        self,
        request: FetchRequest,
        partitions: Collection[SessionPartition],
        session: FetchSession | None,
        *,
        incremental: bool,
    ) -> None:
        self.limits = _limits(
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.isolation_level,
            _replica_id(request),
            request.replica_state.replica_epoch,
            request.rack_id,
        )
        self.partitions = partitions
        """For a session: read lazily, so that later updates count."""
        self.session = session
        self.incremental = incremental
        self.changes: FollowerChanges | None = None
        """If not None, `partitions` has only those of the session that are not settled."""
        self.readable: Collection[TopicKey] | None = None
        """The topics that the client may read; None: all of them. Partitions that a later request adds to the session
        are in ``partitions``, so this has what is allowed, not what is refused."""

    def look_at(self, changes: FollowerChanges) -> None:
        """Serve only what has changed for the follower."""
        self.changes = changes
        self.partitions = changes.unsettled.values()

    @property
    def session_id(self) -> int:
        """The session id in the response; 0 means that the client has no session."""
        return self.session.session_id if self.session is not None else INVALID_SESSION_ID


class FetchSessionCache:
    """The sessions of a broker, at most ``max.incremental.fetch.session.cache.slots`` of them."""

    # A session can be evicted if it has been unused for this long, or if it is older than this and of a lower rank than
    # the new session. For a follower, the sessions of consumers can also be evicted if they are younger.
    EVICTION_MS = 120_000

    def __init__(self, slots: int, rng: Random) -> None:
        self._slots = slots
        self._rng = rng  # for session ids
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        """The session of this id."""
        return self._sessions.get(session_id)

    def expects(self, session: FetchSession, epoch: int) -> bool:
        """Whether the session still exists and this is the epoch of its next request."""
        return session.epoch == epoch and self._sessions.get(session.session_id) is session

    def advance(self, session: FetchSession, now_ms: int) -> None:
        """The expected request has arrived."""
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)

    def open(
        self, request: FetchRequest, version: int, now_ms: int, requested: Requested | None = None
    ) -> FetchContext:
        """Find, create or close the session for ``request``. ``requested``: its partitions, if they are already known.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        uses_topic_ids = version >= 13
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(request.session_id)
            if request.session_epoch == FINAL_EPOCH and requested is None:
                return FetchContext(request, _requested_partitions(request, uses_topic_ids), None, incremental=False)
            partitions = _requested(request, uses_topic_ids) if requested is None else requested
            session = None
            if request.session_epoch == INITIAL_EPOCH:
                session = self._new_session(
                    partitions, uses_topic_ids=uses_topic_ids, is_privileged=_replica_id(request) >= 0, now_ms=now_ms
                )
            return FetchContext(request, partitions.values(), session, incremental=False)
        return self._continue(request, uses_topic_ids, now_ms, requested)

    def _continue(
        self, request: FetchRequest, uses_topic_ids: bool, now_ms: int, requested: Requested | None
    ) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        partitions, changes = session.partitions, session.changes
        if changes is not None and changes.replica_id != _replica_id(request):
            changes.close()
            changes = session.changes = None
        if requested is not None:
            for key, new in requested.items():
                partitions.setdefault(key, new).take_over(new)
                if changes is not None:
                    changes.add(key, partitions[key])
        for topic in request.topics if requested is None else ():
            topic_key: TopicKey = topic.topic_id if uses_topic_ids else topic.topic
            for wanted in topic.partitions:
                known = partitions.get((topic_key, wanted.partition))
                if known is None:
                    known = partitions[(topic_key, wanted.partition)] = SessionPartition(topic_key, wanted)
                else:
                    known.update(wanted)
                if changes is not None:
                    changes.add((topic_key, wanted.partition), known)
        for forgotten in request.forgotten_topics_data:
            topic_key = forgotten.topic_id if uses_topic_ids else forgotten.topic
            for index in forgotten.partitions:
                partitions.pop((topic_key, index), None)
                if changes is not None:
                    changes.forget((topic_key, index))
        if not partitions:
            self._remove(session.session_id)
            return FetchContext(request, (), None, incremental=False)
        self.advance(session, now_ms)
        fetch = FetchContext(request, partitions.values(), session, incremental=True)
        if changes is not None:
            fetch.look_at(changes)
        return fetch

    def _new_session(
        self,
        partitions: dict[PartitionKey, SessionPartition],
        *,
        uses_topic_ids: bool,
        is_privileged: bool,
        now_ms: int,
    ) -> FetchSession | None:
        session_id = INVALID_SESSION_ID
        while session_id == INVALID_SESSION_ID or session_id in self._sessions:
            session_id = self._rng.randint(1, _MAX_SESSION_ID)
        session = FetchSession(
            session_id, partitions, uses_topic_ids=uses_topic_ids, is_privileged=is_privileged, now_ms=now_ms
        )
        if len(self._sessions) >= self._slots and not self._evict(session, now_ms):
            return None
        self._sessions[session_id] = session
        return session

    def _evict(self, new: FetchSession, now_ms: int) -> bool:
        """Remove a session for the new one. Returns whether there was one that could be removed."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is not None and now_ms - oldest.last_used_ms > self.EVICTION_MS:
            self._remove(oldest.session_id)
            return True
        evictable = [
            session
            for session in self._sessions.values()
            if now_ms - session.created_ms > self.EVICTION_MS or (new.is_privileged and not session.is_privileged)
        ]
        lowest = min(evictable, key=lambda session: session.rank, default=None)
        if lowest is not None and lowest.rank < new.rank:
            self._remove(lowest.session_id)
            return True
        return False

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()


def _replica_id(request: FetchRequest) -> int:
    """The broker id of a follower; -1 for consumers."""
    return max(request.replica_id, request.replica_state.replica_id)


def _requested(request: FetchRequest, uses_topic_ids: bool) -> Requested:
    partitions: Requested = {}
    for topic in request.topics:
        topic_key: TopicKey = topic.topic_id if uses_topic_ids else topic.topic
        for wanted in topic.partitions:
            partitions[(topic_key, wanted.partition)] = SessionPartition(topic_key, wanted)
    return partitions


def _requested_partitions(request: FetchRequest, uses_topic_ids: bool) -> tuple[SessionPartition, ...]:
    """The requested partitions without the keys, which takes less memory."""
    if len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
        (topic,) = request.topics
        return (SessionPartition(topic.topic_id if uses_topic_ids else topic.topic, topic.partitions[0]),)
    return tuple(_requested(request, uses_topic_ids).values())


def requested_in_steps(request: FetchRequest, version: int) -> Generator[int, None, Requested]:
    """The partitions of a request; yields after each partition."""
    uses_topic_ids = version >= 13
    partitions: Requested = {}
    for topic in request.topics:
        topic_key: TopicKey = topic.topic_id if uses_topic_ids else topic.topic
        yield 0
        for wanted in topic.partitions:
            partitions[(topic_key, wanted.partition)] = SessionPartition(topic_key, wanted)
            yield 1
    return partitions

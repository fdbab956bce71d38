"""Incremental fetch sessions (KIP-227): a consumer names its partitions once, and later only what changed.

A session holds the partitions in the order in which they will be served. Partitions that returned records go to the
end, so that with ``max_bytes`` used up by the first ones the others get their turn. What the client was told last of
each partition (high watermark, log start offset) is kept, and a partition is left out of an incremental answer when
nothing of it changed.

The epochs: -1 asks for no session (and ends the named one), 0 for a new one, and n for the n-th incremental request
of the session; a request with another epoch than the expected one was lost or sent twice, and is refused.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.fetch import FetchPartition, FetchRequest

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 0x7FFFFFFF

TopicKey = bytes | str  # the topic id since version 13, the name before
PartitionKey = tuple[TopicKey, int]


class SessionPartition:
    """What a client wants of one partition, and what it was last told of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "known_high_watermark",
        "known_log_start_offset",
        "last_fetched_epoch",
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
        """Take over the position of a newer request."""
        self.fetch_offset = request.fetch_offset
        self.max_bytes = request.partition_max_bytes
        self.current_leader_epoch = request.current_leader_epoch
        self.last_fetched_epoch = request.last_fetched_epoch


class FetchSession:
    """The partitions of one consumer."""

    __slots__ = ("created_ms", "epoch", "last_used_ms", "partitions", "session_id", "uses_topic_ids")

    def __init__(
        self, session_id: int, partitions: dict[PartitionKey, SessionPartition], *, uses_topic_ids: bool, now_ms: int
    ) -> None:
        self.session_id = session_id
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1  # the epoch that the next request must have
        self.created_ms = now_ms
        self.last_used_ms = now_ms

    def move_to_end(self, keys: Iterable[PartitionKey]) -> None:
        """Serve these last next time."""
        for key in keys:
            partition = self.partitions.pop(key, None)
            if partition is not None:
                self.partitions[key] = partition


class FetchContext:
    """One fetch request as its session makes it: what to read, and how to answer."""

    __slots__ = ("incremental", "partitions", "session")

    def __init__(
        self, partitions: dict[PartitionKey, SessionPartition], session: FetchSession | None, *, incremental: bool
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.incremental = incremental

    @property
    def session_id(self) -> int:
        """What the answer carries; 0 tells the client that it has no session."""
        return self.session.session_id if self.session is not None else INVALID_SESSION_ID


class FetchSessionCache:
    """The sessions of a broker, at most ``max.incremental.fetch.session.cache.slots`` of them."""

    # A session may be pushed out by another when it was not used for so long, or is older than that and smaller.
    EVICTION_MS = 120_000

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, version: int, now_ms: int) -> FetchContext:
        """Find, make or end the session that ``request`` asks for.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        uses_topic_ids = version >= 13
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            partitions = _requested(request, uses_topic_ids)
            session = None
            if request.session_epoch == INITIAL_EPOCH:
                session = self._new_session(partitions, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
            return FetchContext(partitions, session, incremental=False)
        return self._continue(request, uses_topic_ids, now_ms)

    def _continue(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        partitions = session.partitions
        for topic in request.topics:
            topic_key: TopicKey = topic.topic_id if uses_topic_ids else topic.topic
            for wanted in topic.partitions:
                known = partitions.get((topic_key, wanted.partition))
                if known is None:
                    partitions[(topic_key, wanted.partition)] = SessionPartition(topic_key, wanted)
                else:
                    known.update(wanted)
        for forgotten in request.forgotten_topics_data:
            topic_key = forgotten.topic_id if uses_topic_ids else forgotten.topic
            for index in forgotten.partitions:
                partitions.pop((topic_key, index), None)
        if not partitions:
            del self._sessions[session.session_id]
            return FetchContext(partitions, None, incremental=False)
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return FetchContext(partitions, session, incremental=True)

    def _new_session(
        self, partitions: dict[PartitionKey, SessionPartition], *, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        if len(self._sessions) >= self._slots and not self._evict(len(partitions), now_ms):
            return None
        session_id = random.randint(1, 0x7FFFFFFF)
        while session_id in self._sessions:
            session_id = random.randint(1, 0x7FFFFFFF)
        session = FetchSession(session_id, partitions, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        self._sessions[session_id] = session
        return session

    def _evict(self, size: int, now_ms: int) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > self.EVICTION_MS:
            del self._sessions[oldest.session_id]
            return True
        smallest = min(self._sessions.values(), key=lambda session: len(session.partitions))
        if len(smallest.partitions) < size and now_ms - smallest.created_ms > self.EVICTION_MS:
            del self._sessions[smallest.session_id]
            return True
        return False


def _requested(request: FetchRequest, uses_topic_ids: bool) -> dict[PartitionKey, SessionPartition]:
    partitions: dict[PartitionKey, SessionPartition] = {}
    for topic in request.topics:
        topic_key: TopicKey = topic.topic_id if uses_topic_ids else topic.topic
        for wanted in topic.partitions:
            partitions[(topic_key, wanted.partition)] = SessionPartition(topic_key, wanted)
    return partitions

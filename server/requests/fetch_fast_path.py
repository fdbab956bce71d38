"""Fetches that repeat an earlier one except for the position: decoded once, answered by filling in a template.

A consumer of one partition repeats itself. From one request to the next, only the correlation id, the offset and the
epoch of its session differ. So when such a request was served on the slow path (`dispatch`, `handlers.fetch`) and
returned records, its connection keeps an entry (`_Entry`). The entry has the bytes around the differing fields, the
request that they encode, and the head of the response as a template with blanks. It serves later requests with the same
bytes.

All other requests take the slow path, each time: other shapes and versions, several partitions, fewer bytes than
``min_bytes``, errors, data that is not in memory, and aborted transactions. The fast path never rejects and never
waits, and it changes nothing (the session) before it is certain that it can respond. So the slow path determines all
other responses. The fast path decides nothing that the slow path does not decide, and the bytes of both responses are
the same.

If a decision on the slow path depends on more than the request, the session and the partition (an access control list,
a quota), a change of that must discard the entry.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...log.descriptors import ColdRead, FileRange
from ...protocol.errors import KafkaError
from ...protocol.runtime import varint
from ..records.fetch_session import FINAL_EPOCH, INVALID_SESSION_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...protocol.messages.fetch import FetchRequest, FetchResponse
    from ...replication.replicas import Replicas
    from ..concurrency.clock import Clock
    from ..network.frames import Frame, Part
    from ..records.fetch_session import FetchSession, FetchSessionCache, SessionPartition, TopicKey
    from .dispatch import Route

# The first version with sessions.
LOWEST_VERSION = 7
_LOWEST_FLEXIBLE_VERSION = 12
_LOWEST_TOPIC_ID_VERSION = 13
_LOWEST_LEADER_EPOCH_VERSION = 9
_LOWEST_FOLLOWER_VERSION = 11
_LOWEST_TAGGED_REPLICA_VERSION = 15

# The maximum number of entries in a row that are created and never used. Then the client's requests are assumed to be
# new each time.
MAX_UNUSED = 8

_HEADER_SIZE = 8  # of a request: API key, version, correlation id
_START = struct.Struct(">ii")  # of a response: length, which does not count itself, and correlation id
_LENGTH = struct.Struct(">i")
_OFFSETS = struct.Struct(">qqq")  # high watermark, last stable offset, log start offset: neighbors in the response
# Numbers that are unlikely in a response, to find the position of the blanks in the template.
_BLANK = (0x5EED_0FF5_E70F_BA5E, 0x5EED_0A99_E4D7_1BE0, 0x5EED_0FF5_E757_A470)


class _Entry:
    """An entry: the request that certain bytes encode, and the template of the response."""

    __slots__ = (
        "behind",
        "form",
        "layout",
        "offsets_position",
        "request",
        "requested",
        "route",
        "said",
        "session",
        "topic",
        "wanted",
    )

    def __init__(self, route: Route, request: FetchRequest, layout: struct.Struct, frame: Frame) -> None:
        (topic,) = request.topics
        self.route = route
        self.request = request
        self.topic: TopicKey = topic.topic_id if route.version >= _LOWEST_TOPIC_ID_VERSION else topic.topic
        (self.requested,) = topic.partitions
        self.layout = layout
        before, _, between, _, after = layout.unpack(frame)
        self.said = before, between, after
        self.session: FetchSession | None = None
        self.wanted: SessionPartition | None = None  # the session's only partition
        self.form = bytearray()  # the response up to the length of the records
        self.offsets_position = 0
        self.behind = b""  # the bytes behind the records


class FetchFastPath:
    """The entry of one connection."""

    __slots__ = ("_entry", "_max_bytes", "_now_ms", "_replicas", "_sessions", "_unused")

    def __init__(
        self, replicas: Replicas, sessions: FetchSessionCache, now_ms: Clock, max_bytes: Callable[[], int]
    ) -> None:
        """``max_bytes`` returns the limit of one response, ``fetch.max.bytes``."""
        self._replicas = replicas
        self._sessions = sessions
        self._now_ms = now_ms
        self._max_bytes = max_bytes
        self._entry: _Entry | None = None
        self._unused = 0

    def serve(self, route: Route, correlation_id: int, frame: Frame) -> list[Part] | None:
        """The response, or None if the request must take the slow path."""
        entry = self._entry
        if entry is None or entry.route is not route or len(frame) != entry.layout.size:
            return None
        before, session_epoch, between, offset, after = entry.layout.unpack(frame)
        if (before, between, after) != entry.said:
            return None
        session, wanted, requested = entry.session, entry.wanted, entry.requested
        if session is None:
            if session_epoch != FINAL_EPOCH:
                return None
        elif not self._sessions.expects(session, session_epoch) or (
            len(session.partitions) != 1 or session.partitions.get((entry.topic, requested.partition)) is not wanted
        ):
            return None
        partition = self._replicas.partition_by_key(entry.topic, requested.partition)
        if partition is None:
            return None
        request = entry.request
        if request.rack_id and partition.in_sync is not None:
            return None  # a follower in this rack may be preferred
        max_bytes = min(request.max_bytes, self._max_bytes())
        try:
            partition.check_leader(
                requested.current_leader_epoch, or_follower=route.version >= _LOWEST_FOLLOWER_VERSION
            )
            fetched = partition.read(
                offset,
                max(0, min(requested.partition_max_bytes, max_bytes)),
                isolation_level=request.isolation_level,
                min_one_batch=True,
                wait=False,
            )
        except ColdRead as found:
            found.range.release()
            return None
        except KafkaError:
            return None
        records = fetched.records
        if records is None:
            return None
        if fetched.aborted_transactions or records.length < min(request.min_bytes, max_bytes):
            records.release()
            return None
        high_watermark, log_start_offset = partition.high_watermark, partition.log.log_start_offset
        if session is not None:
            assert wanted is not None
            self._sessions.advance(session, self._now_ms())
            requested.fetch_offset = offset
            wanted.update(requested)
            wanted.known_high_watermark = high_watermark
            wanted.known_log_start_offset = log_start_offset
        self._unused = 0
        route.repeated += 1
        traffic = partition.traffic
        traffic.fetches += 1
        traffic.bytes_out += records.length
        form = entry.form
        if route.version >= _LOWEST_FLEXIBLE_VERSION:
            length = varint(records.length + 1)
        else:
            length = _LENGTH.pack(records.length)
        size = len(form) + len(length) + records.length + len(entry.behind) - _LENGTH.size
        _START.pack_into(form, 0, size, correlation_id)
        _OFFSETS.pack_into(form, entry.offsets_position, high_watermark, partition.last_stable_offset, log_start_offset)
        return [form + length, records, entry.behind] if entry.behind else [form + length, records]

    def learn(self, route: Route, frame: Frame, offset: int, request: FetchRequest, response: FetchResponse) -> None:
        """Keep an entry for requests like this one, if it has the usual shape.

        The request was served on the slow path. Its body begins at ``offset`` of the frame, after the header.
        """
        if self._unused == MAX_UNUSED or len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return
        if route.version < LOWEST_VERSION or request.forgotten_topics_data or response.error_code:
            return
        (requested,) = request.topics[0].partitions
        is_replica = max(request.replica_id, request.replica_state.replica_id) >= 0
        if is_replica or requested.last_fetched_epoch >= 0:
            return
        if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
            return  # a session may have more partitions than the request
        (data,) = response.responses[0].partitions
        if data.error_code or data.aborted_transactions or not isinstance(data.records, FileRange):
            return
        layout = _layout(route.version, frame, offset, request)
        if layout is None:
            return
        entry = _Entry(route, request, layout, frame)
        if request.session_epoch == FINAL_EPOCH:
            if request.session_id != INVALID_SESSION_ID:
                return  # it ends a session
        else:
            session = entry.session = self._sessions.get(request.session_id)
            if session is None or len(session.partitions) != 1:
                return
            entry.wanted = session.partitions.get((entry.topic, requested.partition))
            if entry.wanted is None:
                return
        saved = data.high_watermark, data.last_stable_offset, data.log_start_offset
        data.high_watermark, data.last_stable_offset, data.log_start_offset = _BLANK
        head, _, *behind = route.encode_response(0, response)
        data.high_watermark, data.last_stable_offset, data.log_start_offset = saved
        assert not isinstance(head, FileRange)
        flexible = route.version >= _LOWEST_FLEXIBLE_VERSION
        length_size = len(varint(len(data.records) + 1)) if flexible else _LENGTH.size
        entry.form = bytearray(head[:-length_size])
        entry.offsets_position = entry.form.index(_OFFSETS.pack(*_BLANK))
        entry.behind = b"".join(behind)  # type: ignore[arg-type]
        self._entry = entry
        self._unused += 1


def _layout(version: int, frame: Frame, offset: int, request: FetchRequest) -> struct.Struct | None:
    """The layout of a request for one partition: constant bytes, session epoch, constant bytes, offset, constant bytes.

    Returns None if a varint is longer than needed, which is allowed. These fields precede the epoch: replica id (in a
    tag since version 15), max wait, min bytes, max bytes, isolation level and session id.
    """
    epoch_position = offset + (17 if version >= _LOWEST_TAGGED_REPLICA_VERSION else 21)
    (topic,) = request.topics
    (requested,) = topic.partitions
    name = topic.topic.encode()
    if version >= _LOWEST_TOPIC_ID_VERSION:
        between = b"\2" + topic.topic_id + b"\2"
    elif version >= _LOWEST_FLEXIBLE_VERSION:
        between = b"\2" + varint(len(name) + 1) + name + b"\2"
    else:
        between = struct.pack(f">ih{len(name)}si", 1, len(name), name, 1)
    between += struct.pack(">i", requested.partition)
    if version >= _LOWEST_LEADER_EPOCH_VERSION:
        between += struct.pack(">i", requested.current_leader_epoch)
    position = epoch_position + _LENGTH.size
    end = position + len(between)
    if frame[position:end] != between:
        return None
    after = len(frame) - end - 8
    return struct.Struct(f">{_HEADER_SIZE}x{epoch_position - _HEADER_SIZE}si{len(between)}sq{after}s")

"""Produce requests that repeat an earlier one: decoded once, answered by filling in a template.

A producer repeats itself. The client id, acks, timeout, topic and partition are the same in each of its requests, byte
for byte. Only the correlation id and the records are new. So when a request of the usual shape, one batch for one
partition, was served on the slow path (`dispatch`, `handlers.produce`), its connection keeps an entry (`_Entry`). The
entry has the bytes between the correlation id and the records, the partition of the records, and the response as a
template with four blanks. It serves later requests with the same bytes:

1. `offer` takes a frame that begins with known bytes and has exactly one field of records behind them. The records are
   not copied: they stay in the connection's receive buffer.
2. `serve` runs when the buffer holds no more complete frames, or a frame that was not taken. Neighboring requests with
   the same entry are appended with one write (`Log.append_plain`), and the templates are filled in.
3. With ``acks=all`` and other replicas, the responses of such neighbors have one place in the order of the connection's
   responses (`_Replicating`), with one timer. They are sent together when the replicas have the last of the records.

All other requests take the slow path, each time: the first request, other shapes and versions, ``acks=0``, the first
batch of a transaction, one whose transactional id was not checked, a partition that is no longer led here, an append
that waits for a flush alone, and a batch that is special or invalid in any way. The fast path never rejects: anything
it cannot append unchanged falls back to the slow path, which determines the response. So the fast path decides nothing
that the slow path does not decide, and the bytes of both responses are the same. If records are appended and not
replicated, the slow path builds the response.

If a decision on the slow path depends on more than the request, the partition and the batch (an access control list, a
quota), a change of that must discard the entries.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records import ATTRIBUTES_POSITION, TRANSACTIONAL_MASK
from ..context import ServedRequest
from ..network.frames import AnsweredRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...log.partition_log import AppendInfo
    from ...protocol.messages.produce import ProduceRequest, ProduceResponse
    from ...replication.partition import Partition
    from ..broker import Broker
    from ..concurrency.timers import Timer
    from ..network.connection import Connection
    from ..network.frames import Frame, InFlight, Part
    from .dispatch import Route

# Since version 7, every codec is allowed (the slow path checks older versions), and the response has the fields of the
# template.
LOWEST_VERSION = 7
LOWEST_FLEXIBLE_VERSION = 9
# The maximum number of entries. A producer has one for each partition that it sends to.
MAX_ENTRIES = 256
# The maximum number of different lengths of the repeated bytes. Topic names differ in length; topic ids (version 13) do
# not.
MAX_LENGTHS = 8
# One of this many is measured, if durations are. Both clocks and the histogram cost as much as a tenth of the request.
SAMPLED = 32
# The maximum number of requests that are served together. It bounds the work if each of them turns out to be special.
MAX_TAKEN = 128

_HEADER = struct.Struct(">Ii")  # api key and version as one number, correlation id
_HEADER_SIZE = 8
_LENGTH = struct.Struct(">i")
_CORRELATION_POSITION = 4  # in a response: after its length
_ERROR = struct.Struct(">h")  # in a response: before the next fields
_RESULT = struct.Struct(">qqq")  # base offset, log append time, log start offset: neighbors in the response
# Numbers that are unlikely in a response, to find the position of the blanks in the template.
_BLANK = (0x5EED_0FF5_E70F_BA5E, 0x5EED_0A99_E4D7_1BE0, 0x5EED_0FF5_E757_A470)
_PRODUCER = struct.Struct(">qh")  # in a batch: producer id and epoch
_PRODUCER_POSITION = 43
_NO_TAGS = b"\0\0\0"  # of the partition, of the topic, of the request


class _Entry:
    """An entry: the partition of the records that follow certain bytes, and the template of the response."""

    __slots__ = ("acks", "form", "partition", "result_position", "route", "timeout_ms", "transactional")

    def __init__(
        self,
        partition: Partition,
        request: ProduceRequest,
        route: Route,
        form: bytearray,
        result_position: int,
        *,
        transactional: bool,
    ) -> None:
        """``transactional``: the request had records of a transaction. Otherwise, the client has not been authorized
        for the transactional id."""
        self.partition = partition
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.transactional = transactional
        self.route = route
        self.form = form
        self.result_position = result_position

    def response(self, correlation_id: int, info: AppendInfo) -> bytes:
        """The response to a request with this entry."""
        form = self.form
        _LENGTH.pack_into(form, _CORRELATION_POSITION, correlation_id)
        _RESULT.pack_into(form, self.result_position, info.first_offset, info.log_append_time_ms, info.log_start_offset)
        return bytes(form)


class _Replicating:
    """The place of neighboring requests whose records are appended, and which wait for other replicas."""

    __slots__ = (
        "_broker",
        "_connection",
        "_correlation_ids",
        "_entry",
        "_responses",
        "_timer",
        "held_bytes",
        "keeps_request",
        "kept_bytes",
        "parts",
    )

    completes_earlier = True

    def __init__(
        self, broker: Broker, connection: Connection, entry: _Entry, correlation_ids: list[int], responses: bytes
    ) -> None:
        self._broker = broker
        self._connection: Connection | None = connection
        self._entry = entry
        self._correlation_ids = correlation_ids
        self._responses = responses
        self.parts: list[Part] | None = None
        self.held_bytes = len(responses)
        self.keeps_request = True  # it waits for this server, not for the peer
        self.kept_bytes = 0
        self._timer: Timer | None = broker.timers.call_after(max(0, entry.timeout_ms), self._timed_out)

    def acknowledged(self, error: KafkaError | None) -> None:
        """All records are replicated. With an error, it is unknown whether they ever will be."""
        if self._connection is None:
            return  # the time is over, or the connection is closed
        if error is None:
            self._complete([self._responses])
        else:
            parts = self._failed(self._connection, error)
            if parts is not None:
                self._complete(parts)

    def _timed_out(self) -> None:
        self._timer = None
        responses = bytearray(self._responses)
        size = len(self._entry.form)
        for position in range(self._entry.result_position - _ERROR.size, len(responses), size):
            _ERROR.pack_into(responses, position, ErrorCode.REQUEST_TIMED_OUT)
        self._complete([responses])

    def _failed(self, connection: Connection, error: KafkaError) -> list[Part] | None:
        """The responses of the slow path; None if the connection had to be closed."""
        from ..handlers.produce import not_replicated

        entry = self._entry
        parts: list[Part] = []
        for correlation_id in self._correlation_ids:
            context = ServedRequest(connection, entry.route, correlation_id)
            encoded = entry.route.encode_or_fail(context, not_replicated(self._broker, context, entry.partition, error))
            if encoded is None:
                return None
            parts += encoded
        return parts

    def _complete(self, parts: list[Part]) -> None:
        connection = self._connection
        self.cancel()
        self.parts = parts
        if connection is not None:
            connection.response_ready(self)

    def cancel(self) -> None:
        """The connection is closed. The records remain."""
        self._connection = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def complete_early(self) -> None:
        """No effect: there is no response before the records are replicated, or the time is over."""


class ProduceFastPath:
    """The entries of one connection, and the taken requests that wait to be served together."""

    __slots__ = ("_broker", "_entries", "_route_key", "taken", "waiting")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._route_key = -1
        self._entries: dict[int, dict[bytes, _Entry]] = {}  # by the length of the repeated bytes, by these bytes
        self.taken: list[tuple[_Entry, int, memoryview, int, int]] = []
        """Entry, correlation id, records, and the positions in the buffer where the request begins and ends."""
        self.waiting: list[InFlight] = []
        """See `ProduceFastPathPort`."""

    def offer(self, buffer: memoryview, start: int, end: int) -> bool:
        """Take the request in ``buffer[start:end]`` if it begins with known bytes. Returns whether it was taken.

        The buffer must not change until the request is served or returned by `pop_unserved`.
        """
        if end - start < _HEADER_SIZE:
            return False
        route_key, correlation_id = _HEADER.unpack_from(buffer, start)
        if route_key != self._route_key:
            return False
        for length, entries in self._entries.items():
            position = start + _HEADER_SIZE + length
            entry = entries.get(bytes(buffer[start + _HEADER_SIZE : position]))
            if entry is not None:
                records = _records(buffer, position, end, route_key)
                if records is None or len(self.taken) == MAX_TAKEN or not entry.partition.log.header_only:
                    return False
                if (
                    len(records) > ATTRIBUTES_POSITION + 1
                    and records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_MASK
                    and not (entry.transactional and _in_transaction(entry.partition, records))
                ):
                    return False  # the log alone cannot decide this
                self.taken.append((entry, correlation_id, records, start, end))
                return True
        return False

    def serve(self, connection: Connection) -> bytes:
        """Append the taken requests, and return the responses of the first ones that were served; the places of those
        behind a request that waits for other replicas are in `waiting`.

        Requests that were not served remain in `taken`, and the first of them must take the slow path.
        """
        taken = self.taken
        answers: list[bytes] = []
        broker = self._broker
        appends = broker.appends
        now_ms = broker.now_ms()
        times = broker.produce_times
        began = 0.0
        if times is not None:
            times.skipped += 1
            if times.skipped >= SAMPLED:
                times.skipped = 0
                began = broker.turns.clock()
        served = 0
        while served < len(taken):
            entry = taken[served][0]
            batches = []
            for other, _, records, _, _ in taken[served:] if served else taken:
                if other is not entry:
                    break
                batches.append(records)
            partition = entry.partition
            if appends.is_waiting(partition):
                break
            appended = partition.append_plain(batches, acks=entry.acks, now_ms=now_ms)
            if not appended:
                break
            count = len(appended)
            ended = served + count
            partition.traffic.produces += count
            entry.route.repeated += count
            responses = [
                entry.response(each[1], info) for each, info in zip(taken[served:ended], appended, strict=True)
            ]
            end_offset = appended[-1].last_offset + 1
            if partition.waits_for_replicas(entry.acks) and end_offset > partition.high_watermark:
                ids = [each[1] for each in taken[served:ended]]
                self._wait(connection, entry, ids, responses, end_offset)
            elif self.waiting:
                joined = b"".join(responses)
                self.waiting.append(AnsweredRequest([joined], len(joined)))
            else:
                answers += responses
            served = ended
        if served == len(taken):
            taken.clear()
        else:
            del taken[:served]
        if began and times is not None:
            now = broker.turns.clock()
            times.observe(began, now, now)
            if answers:
                times.observe_sending(connection, None, now, broker.turns.clock)
        return answers[0] if len(answers) == 1 else b"".join(answers)

    def _wait(
        self, connection: Connection, entry: _Entry, ids: list[int], responses: Sequence[bytes], end_offset: int
    ) -> None:
        waiting = _Replicating(self._broker, connection, entry, ids, b"".join(responses))
        self.waiting.append(waiting)
        entry.partition.when_acknowledged(end_offset, entry.acks, waiting.acknowledged)

    def pop_unserved(self) -> tuple[int, int]:
        """Remove the first request of `taken`, which takes the slow path. Returns where it begins and ends."""
        _, _, _, start, end = self.taken.pop(0)
        return start, end

    def learn(self, route: Route, frame: Frame, request: ProduceRequest, response: ProduceResponse) -> None:
        """Keep an entry for requests like this one, which was served on the slow path, if it has the usual shape."""
        if request.acks == 0 or len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        result = response.responses[0].partition_responses[0]
        if result.error_code != ErrorCode.NONE or not data.records:
            return
        partition = self._broker.replicas.partition_by_key(
            topic.topic_id if route.version >= 13 else topic.name, data.index
        )
        if (
            partition is None
            or not partition.log.header_only
            or not (partition.acknowledges_appends(request.acks) or partition.waits_for_replicas(request.acks))
        ):
            return
        (route_key, _) = _HEADER.unpack_from(frame)
        if route_key != self._route_key:
            self._route_key = route_key
            self._entries.clear()
        flexible = route.version >= LOWEST_FLEXIBLE_VERSION
        records_size = len(data.records)
        records_end = len(frame) - (len(_NO_TAGS) if flexible else 0)
        length_size = _varint_size(records_size + 1) if flexible else _LENGTH.size
        position = records_end - records_size - length_size
        if _records(memoryview(frame), position, len(frame), route_key) is None:
            return  # tagged fields
        repeated = bytes(frame[_HEADER_SIZE:position])
        entries = self._entries.setdefault(len(repeated), {})
        known = entries.get(repeated)
        attributes = data.records[ATTRIBUTES_POSITION + 1]
        transactional = request.transactional_id is not None and bool(attributes & TRANSACTIONAL_MASK)
        if known is not None and known.partition is partition and (known.transactional or not transactional):
            return  # this request was special
        saved = result.base_offset, result.log_append_time_ms, result.log_start_offset
        result.base_offset, result.log_append_time_ms, result.log_start_offset = _BLANK
        form = bytearray(b"".join(route.encode_response(0, response)))  # type: ignore[arg-type]
        result.base_offset, result.log_append_time_ms, result.log_start_offset = saved
        result_position = form.index(_RESULT.pack(*_BLANK))
        if len(entries) >= MAX_ENTRIES or len(self._entries) > MAX_LENGTHS:
            self._entries.clear()
            entries = self._entries[len(repeated)] = {}
        entries[repeated] = _Entry(partition, request, route, form, result_position, transactional=transactional)


def _in_transaction(partition: Partition, records: memoryview) -> bool:
    """Whether the transaction of this batch is open in the partition. It may end before the batch is appended."""
    if len(records) < _PRODUCER_POSITION + _PRODUCER.size:
        return False
    return partition.has_open_transaction(*_PRODUCER.unpack_from(records, _PRODUCER_POSITION))


def _records(buffer: memoryview, position: int, end: int, route_key: int) -> memoryview | None:
    """The records, if only their length, they and empty tags are between ``position`` and ``end``; otherwise None."""
    if route_key & 0xFFFF < LOWEST_FLEXIBLE_VERSION:
        begin = position + _LENGTH.size
        if begin > end or _LENGTH.unpack_from(buffer, position)[0] != end - begin:
            return None
        return buffer[begin:end]
    end -= len(_NO_TAGS)
    size = shift = 0
    while position < end and shift <= 28:
        byte = buffer[position]
        position += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            # The encoded number is the length plus one; 0 would be null.
            if size != end - position + 1 or buffer[end : end + len(_NO_TAGS)] != _NO_TAGS:
                return None
            return buffer[position:end]
    return None


def _varint_size(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)

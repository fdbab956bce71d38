"""Fetch sessions: requests and responses that contain only what has changed (KIP-227)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from .. import partitions as p
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..fetch_session import FINAL, NEW, FetchSession, offsets_of, partitions_of
from ..record_batches import batch
from ..record_deletion import delete_before
from .fetch import response_of
from .fetch_limits import AN_HOUR_MS

SOURCE = "KIP-227"
FETCH = needs(ApiKey.FETCH, 12)
KINDS = {"by-name": (12,), "by-id": (None,)}
"""Versions with names, and the newest with topic IDs."""


@case(
    "fetch.session.exchange",
    "a session returns what is new, and nothing else",
    source=SOURCE,
    versions=versions_of(ApiKey.FETCH, 7),
)
def exchange(c: Check, version: int) -> None:
    """Sends: a full fetch of three partitions that begins a session, and incremental fetches, between which records are
    appended and the offsets of the session are moved.

    Expects: a session ID; all partitions in the first response; later only those with new records, which are returned
    until the client moves its offset.

    Why: consumers and followers use sessions by default; a partition that is missing is never read.
    """
    topic = c.topic(3)
    p.append(c, topic, batch(b"a"), partition=1)
    session = FetchSession(c, topic, {0: 0, 1: 0, 2: 0}, version)
    c.equal(session.first, {0: [], 1: [0], 2: []}, "the first response")
    c.equal(session.fetch({1: 1}), {}, "the response without new records")
    p.append(c, topic, batch(b"b"), partition=1)
    p.append(c, topic, batch(b"c"), partition=2)
    c.equal(session.fetch(), {1: [1], 2: [0]}, "the response after two appends")
    c.equal(session.fetch({2: 1}), {1: [1]}, "the response after one of the offsets was moved")
    c.equal(session.fetch({1: 2}), {}, "the response after both were moved")


@case(
    "fetch.session.topic",
    "incremental responses name the topic",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FETCH, 7),
)
def topic_of_response(c: Check, version: int) -> None:
    """Sends: an incremental fetch without topics, after Produce to partition 1 of the session.

    Expects: the topic by name, since version 13 by ID, with partition 1, high watermark 1 and log start offset 0.

    Why: the request names nothing, so that the response must be complete by itself.
    """
    topic = c.topic(2)
    session = FetchSession(c, topic, {0: 0, 1: 0}, version)
    p.append(c, topic, batch(b"a"), partition=1)
    response = session.fetch_response()
    c.equal(len(response.responses), 1, "responses (number of topics)")
    (found,) = response.responses
    if version >= 13:
        c.equal(found.topic_id, topic.topic_id, "responses[0].topic_id")
    else:
        c.equal(found.topic, topic.name, "responses[0].topic")
    c.equal([each.partition_index for each in found.partitions], [1], "the partitions")
    data = found.partitions[0]
    c.error(data.error_code, ErrorCode.NONE, "partitions[0].error_code")
    c.equal((data.high_watermark, data.log_start_offset), (1, 0), "high_watermark and log_start_offset")


@case(
    "fetch.session.wrong-epoch",
    "a request that is out of order in its session is rejected",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FETCH, 7),
)
def wrong_epoch(c: Check, version: int) -> None:
    """Sends: incremental fetches with the epochs 2 and 5 where 1 is the next; then 1, and 1 again.

    Expects: INVALID_FETCH_SESSION_EPOCH without topics, except for the first fetch with 1.

    Why: after a lost response, client and server disagree about the session; the client begins a new one.
    """
    topic = c.topic()
    session = FetchSession(c, topic, {0: 0}, version)
    p.append(c, topic, batch(b"a"))
    for epoch in (2, 5):
        response = session.ask(epoch=epoch)
        c.error(response.error_code, ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"error_code with epoch {epoch}")
        c.equal(response.responses, [], f"responses with epoch {epoch}")
    c.equal(session.fetch(), {0: [0]}, "the response with epoch 1")
    response = session.ask(epoch=1)
    c.error(response.error_code, ErrorCode.INVALID_FETCH_SESSION_EPOCH, "error_code with epoch 1 again")


@case(
    "fetch.session.unknown",
    "a session that does not exist is rejected",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FETCH, 7),
)
def unknown(c: Check, version: int) -> None:
    """Sends: an incremental fetch with another session ID.

    Expects: FETCH_SESSION_ID_NOT_FOUND, session ID 0, no topics; the real session continues.

    Why: a server forgets sessions when it restarts or has too many; the client begins a new one.
    """
    topic = c.topic()
    session = FetchSession(c, topic, {0: 0}, version)
    response = session.ask(epoch=1, session_id=session.session_id ^ 0x1234_5678)
    c.error(response.error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    c.equal(response.session_id, 0, "session_id")
    c.equal(response.responses, [], "responses")
    c.equal(session.fetch(), {}, "the response of the real session")


@case(
    "fetch.session.none",
    "a full fetch with epoch -1 has no session",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FETCH, 7),
)
def none(c: Check, version: int) -> None:
    """Sends: Fetch with session ID 0 and epoch -1, twice.

    Expects: session ID 0, and the records both times.

    Why: clients without sessions must not fill the server's limited number of them.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a"))
    for _ in range(2):
        response = response_of(c, topic, {0: 0}, version)
        c.error(response.error_code, ErrorCode.NONE)
        c.equal(response.session_id, 0, "session_id")
        c.equal(offsets_of(response), {0: [0]}, "the offsets")


@case(
    "fetch.session.partitions",
    "partitions are added to a session and forgotten",
    source=SOURCE,
    needs=FETCH,
    variants=KINDS,
)
def partitions(c: Check, highest: int | None) -> None:
    """Sends: incremental fetches that add partitions 2 and 1, and forget partitions 0 and 2; each has a record.

    Expects: the records of the partitions that are in the session at that moment.

    Why: a consumer that is assigned other partitions changes its session; records of forgotten ones would be consumed
    twice.
    """
    topic = c.topic(3)
    session = FetchSession(c, topic, {0: 0}, c.version(ApiKey.FETCH, highest))
    for partition in range(3):
        p.append(c, topic, batch(b"a"), partition=partition)
    c.equal(session.fetch(), {0: [0]}, "the response at first")
    c.equal(session.fetch({2: 0}), {0: [0], 2: [0]}, "the response with partition 2 added")
    c.equal(session.fetch(forget=[0]), {2: [0]}, "the response with partition 0 forgotten")
    c.equal(session.fetch({1: 0}, forget=[2]), {1: [0]}, "the response with 1 added and 2 forgotten")


@case(
    "fetch.session.emptied",
    "a session without partitions ends",
    source=SOURCE,
    needs=FETCH,
    level=Level.APACHE,
    variants=KINDS,
)
def emptied(c: Check, highest: int | None) -> None:
    """Sends: an incremental fetch that forgets the only partition, and one more.

    Expects: no error and session ID 0; then FETCH_SESSION_ID_NOT_FOUND.

    Why: the server does not keep sessions of nothing.
    """
    session = FetchSession(c, c.topic(), {0: 0}, c.version(ApiKey.FETCH, highest))
    response = session.ask(forget=[0])
    c.error(response.error_code, ErrorCode.NONE)
    c.equal((response.session_id, response.responses), (0, []), "session_id and responses")
    c.error(session.ask(epoch=2).error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "error_code of the next fetch")


@case(
    "fetch.session.closed",
    "a client closes its session with epoch -1",
    source=SOURCE,
    needs=FETCH,
    variants=KINDS,
)
def closed(c: Check, highest: int | None) -> None:
    """Sends: a full fetch with the session ID and epoch -1, then an incremental fetch.

    Expects: the records and session ID 0; then FETCH_SESSION_ID_NOT_FOUND.

    Why: consumers close their sessions when they close, so that others find room.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a"))
    session = FetchSession(c, topic, {0: 0}, c.version(ApiKey.FETCH, highest))
    response = session.ask({0: 0}, epoch=FINAL)
    c.error(response.error_code, ErrorCode.NONE)
    c.equal(response.session_id, 0, "session_id")
    c.equal(offsets_of(response), {0: [0]}, "the offsets")
    c.error(session.ask(epoch=1).error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "error_code of the next fetch")


@case(
    "fetch.session.replaced",
    "epoch 0 with a session ID begins another session",
    source=SOURCE,
    needs=FETCH,
    variants=KINDS,
)
def replaced(c: Check, highest: int | None) -> None:
    """Sends: a full fetch of partitions 0 and 2 with the ID of a session of 0 and 1, and epoch 0; then an incremental
    fetch of the old one.

    Expects: another session ID and the partitions 0 and 2; then FETCH_SESSION_ID_NOT_FOUND for the old session.

    Why: this is how clients recover from errors of their sessions.
    """
    topic = c.topic(3)
    p.append(c, topic, batch(b"a"))
    session = FetchSession(c, topic, {0: 0, 1: 0}, c.version(ApiKey.FETCH, highest))
    response = session.ask({0: 0, 2: 0}, epoch=NEW)
    c.error(response.error_code, ErrorCode.NONE)
    another = response.session_id not in (0, session.session_id)
    c.true(another, "session_id", expected=f"neither 0 nor {session.session_id}", actual=response.session_id)
    c.equal(offsets_of(response), {0: [0], 2: []}, "the offsets")
    c.error(session.ask(epoch=1).error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "error_code in the old session")


@case(
    "fetch.session.errors",
    "errors of partitions are returned until they end",
    source=SOURCE,
    needs=FETCH,
    variants=KINDS,
)
def errors(c: Check, highest: int | None) -> None:
    """Sends: a session with partition 9, which does not exist, and partition 0, whose offset becomes out of range.

    Expects: UNKNOWN_TOPIC_OR_PARTITION for 9 in each response; OFFSET_OUT_OF_RANGE for 0 until its offset is valid.

    Why: an error that is returned once only may be lost with its response.
    """
    topic = c.topic()
    session = FetchSession(c, topic, {0: 0, 9: 0}, c.version(ApiKey.FETCH, highest))
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = partitions_of(session.first_response)
    c.equal({index: data.error_code for index, data in found.items()}, {0: 0, 9: missing}, "errors at first")
    expected = (
        {9: missing},
        {0: ErrorCode.OFFSET_OUT_OF_RANGE, 9: missing},
        {0: ErrorCode.OFFSET_OUT_OF_RANGE, 9: missing},
    )
    changes: tuple[dict[int, int] | None, ...] = (None, {0: 5}, None)
    for number, (change, errors_of) in enumerate(zip(changes, expected, strict=True)):
        found = partitions_of(session.fetch_response(change))
        codes = {index: data.error_code for index, data in found.items()}
        c.equal(codes, dict(errors_of), f"errors of incremental fetch {number + 1}")
    found = partitions_of(session.fetch_response({0: 0}, forget=[9]))
    wrong = {index: data.error_code for index, data in found.items() if data.error_code}
    c.equal(wrong, {}, "errors after both were corrected")
    c.equal(session.fetch(), {}, "the partitions at the end")


@case(
    "fetch.session.offsets-changed",
    "a partition is returned if its log start offset has changed",
    source=SOURCE,
    needs=(*FETCH, *needs(ApiKey.DELETE_RECORDS, 0)),
    variants=KINDS,
)
def offsets_changed(c: Check, highest: int | None) -> None:
    """Sends: incremental fetches from the end of a partition with two records, before and after DeleteRecords.

    Expects: nothing at first; afterwards the partition without records and with log start offset 1; then nothing.

    Why: the client keeps the offsets of a partition from the responses in which it occurs.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a"))
    p.append(c, topic, batch(b"b"))
    session = FetchSession(c, topic, {0: 2}, c.version(ApiKey.FETCH, highest))
    c.equal(session.fetch(), {}, "the response at first")
    c.equal(delete_before(c, topic, 1).low_watermark, 1, "low_watermark of DeleteRecords")
    response = session.fetch_response()
    c.equal(offsets_of(response), {0: []}, "the response after DeleteRecords")
    c.equal(partitions_of(response)[0].log_start_offset, 1, "log_start_offset")
    c.equal(session.fetch(), {}, "the response at the end")


@case(
    "fetch.session.wait",
    "an incremental fetch waits for all partitions of its session",
    source=SOURCE,
    needs=FETCH,
    variants=KINDS,
)
def wait(c: Check, highest: int | None) -> None:
    """Sends: an incremental fetch without topics and with a maximum wait of an hour; Produce to the third partition of
    the session on another connection.

    Expects: a response with this partition and its record only.

    Why: an idle consumer has exactly this request in flight.
    """
    topic = c.topic(3)
    version = c.version(ApiKey.FETCH, highest)
    session = FetchSession(c, topic, {0: 0, 1: 0, 2: 0}, version)
    c.wire.send(session.request(max_wait_ms=AN_HOUR_MS, min_bytes=1), version)
    answer = p.produce(c, topic, batch(b"now"), partition=2, to=c.connect())
    c.error(answer.error_code, ErrorCode.NONE, "Produce error_code")
    c.equal(offsets_of(c.wire.receive()), {2: [0]}, "the offsets")


@case(
    "fetch.session.connection",
    "a session is not bound to a connection",
    source=SOURCE,
    needs=FETCH,
    level=Level.SHOULD,
    variants=KINDS,
)
def connection(c: Check, highest: int | None) -> None:
    """Sends: the first fetch of a session on a connection that is then closed, the next one on another.

    Expects: the new record of the session.

    Why: a client reconnects and continues.
    """
    topic = c.topic(2)
    first = c.connect()
    session = FetchSession(c, topic, {0: 0, 1: 0}, c.version(ApiKey.FETCH, highest), first)
    first.close()
    p.append(c, topic, batch(b"a"))
    session.connection = c.connect()
    c.equal(session.fetch(), {0: [0]}, "the response on the second connection")


@case(
    "fetch.session.several",
    "sessions are independent",
    source=SOURCE,
    needs=FETCH,
    variants=KINDS,
)
def several(c: Check, highest: int | None) -> None:
    """Sends: three sessions on one connection, with different partitions; incremental fetches in each of them.

    Expects: different session IDs; each session returns its own partitions, whatever the others have read.

    Why: consumers in one process may share a connection through a proxy, and brokers have sessions with each follower.
    """
    topic = c.topic(3)
    version = c.version(ApiKey.FETCH, highest)
    sessions = [FetchSession(c, topic, offsets, version) for offsets in ({0: 0}, {0: 0, 1: 0}, {2: 0})]
    c.equal(len({each.session_id for each in sessions}), 3, "the number of session IDs")
    for partition in range(3):
        p.append(c, topic, batch(b"a"), partition=partition)
    found = [each.fetch() for each in sessions]
    c.equal(found, [{0: [0]}, {0: [0], 1: [0]}, {2: [0]}], "the responses of the sessions")
    c.equal(sessions[0].fetch({0: 1}), {}, "the first session after its offset was moved")
    c.equal(sessions[1].fetch(), {0: [0], 1: [0]}, "the second session, whose offset was not moved")

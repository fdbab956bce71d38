"""ShareFetch and ShareAcknowledge: acquired records, their delivery counts, and share sessions (KIP-932)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from .. import configs as k
from .. import share_group as s
from ..case import Layer, case, needs, versions_of
from ..check import Check
from ..group_configs import is_config
from ..outcome import NotApplicableError
from ..partitions import append
from ..record_batches import batch
from ..share_group import ACCEPT, FEATURES, GAP, RECORDS, REJECT, RELEASE, RENEW

SOURCE = "KIP-932: ShareFetch API and ShareAcknowledge API"


@case(
    "share-groups.fetch.exchange",
    "ShareFetch acquires the records of a partition",
    source="KIP-932: ShareFetch API",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=RECORDS,
    versions=versions_of(ApiKey.SHARE_FETCH),
    alters_configs=True,
)
def exchange(c: Check, version: int) -> None:
    """Sends: ShareFetch with session epoch 0 for a partition with three records; again with the next epochs.

    Expects: the records 0 to 2 with their values, acquired with delivery count 1, and the group's acquisition lock
    timeout; then none, as they are acquired.

    Why: a share consumer processes exactly the acquired records.
    """
    topic, (member,) = s.member_with_records(c, 3)
    found = member.acquire_until(topic, [0, 1, 2], version=version)
    c.equal(found.deliveries, {0: 1, 1: 1, 2: 1}, "acquired_records (offsets and delivery counts)")
    c.equal(found.values, {0: b"0", 1: b"1", 2: b"2"}, "the offsets and values of the records")
    answer = member.fetch(topic, version=version)
    c.error(answer.error_code, ErrorCode.NONE, "error_code of another fetch")
    timeout = answer.acquisition_lock_timeout_ms
    is_config(c, timeout, member.group, "share.record.lock.duration.ms", "acquisition_lock_timeout_ms")
    acquired = [each for one in answer.responses for data in one.partitions for each in data.acquired_records]
    c.equal(acquired, [], "acquired_records of another fetch")


@case(
    "share-groups.fetch.session",
    "ShareFetch is rejected without a session and with a wrong session epoch",
    source="KIP-932: Share Sessions",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=RECORDS,
    versions=versions_of(ApiKey.SHARE_FETCH),
    alters_configs=True,
)
def session(c: Check, version: int) -> None:
    """Sends: ShareFetch with epoch 1 before a session exists; with epoch 0; with epoch 7; with epoch 1; with epoch 1.

    Expects: SHARE_SESSION_NOT_FOUND, no error, INVALID_SHARE_SESSION_EPOCH, no error, INVALID_SHARE_SESSION_EPOCH.

    Why: acknowledgments of a lost or repeated request must not be applied twice.
    """
    topic, (member,) = s.member_with_records(c, 1)
    expected = (
        (1, ErrorCode.SHARE_SESSION_NOT_FOUND),
        (0, ErrorCode.NONE),
        (7, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        (1, ErrorCode.NONE),
        (1, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
    )
    for number, (epoch, code) in enumerate(expected, 1):
        answer = member.fetch(topic, version=version, share_session_epoch=epoch)
        c.error(answer.error_code, code, f"error_code of fetch {number}, with epoch {epoch}")


@case(
    "share-groups.fetch.unknown-partition",
    "ShareFetch of an unknown partition has an error for it",
    source="KIP-932: ShareFetch API",
    features=FEATURES,
    needs=RECORDS,
    alters_configs=True,
)
def unknown_partition(c: Check) -> None:
    """Sends: ShareFetch of partition 77 of a topic with one partition.

    Expects: UNKNOWN_TOPIC_OR_PARTITION for this partition.

    Why: a consumer with old metadata must refresh it.
    """
    topic, (member,) = s.member_with_records(c, 1)

    def errors() -> list[tuple[int, int]]:
        answer = member.fetch(topic, (77,), max_wait_ms=100)
        c.error(answer.error_code, ErrorCode.NONE)
        return [(each.partition_index, each.error_code) for one in answer.responses for each in one.partitions]

    c.equal(c.until(errors, "a response for the partition"), [(77, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)], "error_code")


@case(
    "share-groups.fetch.max-records",
    "ShareFetch in the mode record limit acquires at most max_records",
    source="KIP-1206",
    features=FEATURES,
    needs=(*RECORDS, *needs(ApiKey.SHARE_FETCH, 2)),
    alters_configs=True,
)
def max_records(c: Check) -> None:
    """Sends: ShareFetch with share_acquire_mode 1 and max_records 2 for a partition with five records, three times.

    Expects: records 0 and 1, then 2 and 3, then 4.

    Why: a consumer that can process two records must not lock others that could be processed elsewhere.
    """
    topic, (member,) = s.member_with_records(c, 5)
    for offsets in ([0, 1], [2, 3], [4]):
        member.acquire_until(topic, offsets, max_records=2, batch_size=2, share_acquire_mode=1)


@case(
    "share-groups.fetch.exclusive",
    "acquired records are not given to another member",
    source="KIP-932: Concepts, Delivery",
    features=FEATURES,
    needs=RECORDS,
    alters_configs=True,
)
def exclusive(c: Check) -> None:
    """Sends: ShareFetch of one member that acquires all three records; then of another member of the group.

    Expects: no records for the other member; it cannot acknowledge them either (INVALID_RECORD_STATE).

    Why: records are processed once, unless their processing fails.
    """
    topic, (first, second) = s.member_with_records(c, 3, members=2)
    first.acquire_until(topic, [0, 1, 2])
    for _ in range(3):
        c.equal(second.acquire(topic).deliveries, {}, "acquired_records of the other member")
    codes = second.acknowledged(topic, {0: [(0, 0, [ACCEPT])]})
    c.equal(codes, {0: ErrorCode.INVALID_RECORD_STATE}, "error_code of the other member's ShareAcknowledge")
    c.equal(first.acknowledged(topic, {0: [(0, 2, [ACCEPT])]}), {0: 0}, "error_code of the first member's")


@case(
    "share-groups.fetch.groups",
    "each share group gets all records",
    source="KIP-932: Concepts",
    features=FEATURES,
    needs=RECORDS,
    alters_configs=True,
)
def groups(c: Check) -> None:
    """Sends: ShareFetch of members of two groups, for the same topic.

    Expects: both acquire all records with delivery count 1.

    Why: groups are independent applications.
    """
    topic, (first,) = s.member_with_records(c, 2)
    second = s.ShareMember(c, s.group_from_start(c), topic)
    s.joined(c, second)
    for member in (first, second):
        c.equal(member.acquire_until(topic, [0, 1]).deliveries, {0: 1, 1: 1}, "acquired_records")


@case(
    "share-groups.acknowledge.exchange",
    "ShareAcknowledge accepts, releases and rejects records",
    source="KIP-932: ShareAcknowledge API",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=RECORDS,
    versions=versions_of(ApiKey.SHARE_ACKNOWLEDGE),
    alters_configs=True,
)
def acknowledge(c: Check, version: int) -> None:
    """Sends: ShareAcknowledge that accepts record 0, releases record 1, rejects record 2 and, with a list of types,
    accepts 3 and releases 4; then ShareFetch.

    Expects: no error for the partition; records 1 and 4 again, with delivery count 2, and no others.

    Why: released records must be processed by another attempt; accepted and rejected ones must not.
    """
    topic, (member,) = s.member_with_records(c, 5)
    member.acquire_until(topic, [0, 1, 2, 3, 4])
    given = [(0, 0, [ACCEPT]), (1, 1, [RELEASE]), (2, 2, [REJECT]), (3, 4, [ACCEPT, RELEASE])]
    answer = member.acknowledge(topic, {0: given}, version=version)
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal([each.topic_id for each in answer.responses], [topic.topic_id], "responses (topic_id)")
    found = [(each.partition_index, each.error_code, each.error_message) for each in answer.responses[0].partitions]
    c.equal(found, [(0, 0, None)], "responses[0].partitions")
    c.equal(member.acquire_until(topic, [1, 4]).deliveries, {1: 2, 4: 2}, "acquired_records after the release")
    c.equal(member.acquire(topic).deliveries, {}, "acquired_records of another fetch")


@case(
    "share-groups.acknowledge.not-acquired",
    "an acknowledgment of a record that is not acquired is rejected",
    source="KIP-932: ShareAcknowledge API",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=RECORDS,
    versions=versions_of(ApiKey.SHARE_ACKNOWLEDGE),
    alters_configs=True,
)
def not_acquired(c: Check, version: int) -> None:
    """Sends: ShareAcknowledge that accepts the second of three records twice; then one with a type that does not exist.

    Expects: no error, INVALID_RECORD_STATE with a message, INVALID_REQUEST.

    Why: a consumer that acknowledges too late must learn that the record was, or will be, processed by another one.
    """
    topic, (member,) = s.member_with_records(c, 3)
    member.acquire_until(topic, [0, 1, 2])
    expected = (([ACCEPT], 0), ([ACCEPT], ErrorCode.INVALID_RECORD_STATE), ([9], ErrorCode.INVALID_REQUEST))
    for types, code in expected:
        codes = member.acknowledged(topic, {0: [(1, 1, types)]}, version=version)
        c.equal(codes, {0: code}, f"error_code of an acknowledgment with the types {types}")


@case(
    "share-groups.acknowledge.session",
    "ShareAcknowledge needs a session and its epoch",
    source="KIP-932: Share Sessions",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=RECORDS,
    versions=versions_of(ApiKey.SHARE_ACKNOWLEDGE),
    alters_configs=True,
)
def acknowledge_session(c: Check, version: int) -> None:
    """Sends: ShareAcknowledge with epoch 1 of a member without a session; with epoch 0 and with an epoch that was used,
    of a member with a session.

    Expects: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH twice; the record can still be acknowledged.

    Why: acknowledgments of a lost or repeated request must not be applied twice.
    """
    topic, (member, other) = s.member_with_records(c, 1, members=2)
    given = {0: [(0, 0, [ACCEPT])]}
    answer = other.acknowledge(topic, given, version=version, share_session_epoch=1)
    c.error(answer.error_code, ErrorCode.SHARE_SESSION_NOT_FOUND, "error_code without a session")
    member.acquire_until(topic, [0])
    for epoch in (0, member.session_epoch + 1):
        answer = member.acknowledge(topic, given, version=version, share_session_epoch=epoch)
        c.error(answer.error_code, ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"error_code with epoch {epoch}")
    c.equal(member.acknowledged(topic, given, version=version), {0: 0}, "error_code with the right epoch")


@case(
    "share-groups.acknowledge.in-fetch",
    "ShareFetch acknowledges records of earlier fetches",
    source="KIP-932: ShareFetch API",
    features=FEATURES,
    needs=RECORDS,
    versions=versions_of(ApiKey.SHARE_FETCH),
    alters_configs=True,
)
def in_fetch(c: Check, version: int) -> None:
    """Sends: ShareFetch with acknowledgments for the last two of three records: accept 1, release 2; again for 1.

    Expects: record 2 in the response with delivery count 2; INVALID_RECORD_STATE as acknowledge_error_code.

    Why: consumers acknowledge with their next fetch, to save requests.
    """
    topic, (member,) = s.member_with_records(c, 3)
    member.acquire_until(topic, [0, 1, 2])
    given = {0: [(1, 1, [ACCEPT]), (2, 2, [RELEASE])]}
    found = member.acquire(topic, version=version, acknowledgments=given, max_wait_ms=500)
    deliveries = found.deliveries or member.acquire_until(topic, [2]).deliveries
    c.equal(deliveries, {2: 2}, "acquired_records")
    again = member.fetch(topic, version=version, acknowledgments={0: [(1, 1, [ACCEPT])]})
    c.error(again.error_code, ErrorCode.NONE)
    codes = [each.acknowledge_error_code for one in again.responses for each in one.partitions]
    c.equal(codes, [ErrorCode.INVALID_RECORD_STATE], "acknowledge_error_code of the repeated acknowledgment")


@case(
    "share-groups.acknowledge.first-fetch",
    "a fetch that opens a session cannot acknowledge",
    source="KIP-932: Share Sessions",
    features=FEATURES,
    needs=RECORDS,
    alters_configs=True,
)
def first_fetch(c: Check) -> None:
    """Sends: ShareFetch with epoch 0 and an acknowledgment.

    Expects: INVALID_REQUEST.

    Why: records that were acquired in an earlier session have been released with it.
    """
    topic, (member,) = s.member_with_records(c, 1)
    answer = member.fetch(topic, acknowledgments={0: [(0, 0, [ACCEPT])]})
    c.error(answer.error_code, ErrorCode.INVALID_REQUEST)


@case(
    "share-groups.acknowledge.gap",
    "a gap in an acknowledgment is for offsets without a record",
    source="KIP-932: ShareAcknowledge API",
    features=FEATURES,
    needs=RECORDS,
    alters_configs=True,
)
def gap(c: Check) -> None:
    """Sends: ShareAcknowledge for three records with the types accept, gap, accept; then ShareFetch.

    Expects: no error, and no record again.

    Why: consumers acknowledge ranges in which compaction or control records left gaps.
    """
    topic, (member,) = s.member_with_records(c, 3)
    member.acquire_until(topic, [0, 1, 2])
    codes = member.acknowledged(topic, {0: [(0, 2, [ACCEPT, GAP, ACCEPT])]})
    c.equal(codes, {0: 0}, "error_code")
    c.equal(member.acquire(topic, max_wait_ms=100).deliveries, {}, "acquired_records of another fetch")


@case(
    "share-groups.acknowledge.renew",
    "the lock of a record is renewed without another delivery",
    source="KIP-1222",
    features=FEATURES,
    needs=(*RECORDS, *needs(ApiKey.SHARE_ACKNOWLEDGE, 2)),
    alters_configs=True,
)
def renew(c: Check) -> None:
    """Sends: ShareAcknowledge with is_renew_ack and type 4; then the same type without is_renew_ack; then accept.

    Expects: no error and a positive lock timeout; INVALID_REQUEST for the second; the record can still be accepted.

    Why: a consumer whose processing takes long keeps its records.
    """
    topic, (member,) = s.member_with_records(c, 1)
    member.acquire_until(topic, [0])
    answer = member.acknowledge(topic, {0: [(0, 0, [RENEW])]}, is_renew_ack=True)
    c.error(answer.error_code, ErrorCode.NONE)
    codes = [each.error_code for one in answer.responses for each in one.partitions]
    c.equal(codes, [0], "error_code of the partition")
    timeout = answer.acquisition_lock_timeout_ms
    is_config(c, timeout, member.group, "share.record.lock.duration.ms", "acquisition_lock_timeout_ms")
    c.equal(member.acquire(topic).deliveries, {}, "acquired_records of another fetch")
    c.equal(member.acknowledged(topic, {0: [(0, 0, [ACCEPT])]}), {0: 0}, "error_code of the acceptance")


@case(
    "share-groups.delivery.limit",
    "a record is not delivered again when it has reached the limit of deliveries",
    source="KIP-932: Delivery Count",
    features=FEATURES,
    needs=RECORDS,
    alters_configs=True,
)
def delivery_limit(c: Check) -> None:
    """Sends: ShareFetch and a release of the only record, again and again; then a new record is appended.

    Expects: delivery counts from 1 to the limit of the group (5 by default), and afterwards only the new record.

    Why: a record that no consumer can process must not block its partition.
    """
    topic, (member,) = s.member_with_records(c, 1)
    resource = k.Resource(k.GROUP, member.group)
    limit = k.value(c, resource, "share.delivery.count.limit")
    if limit is None or limit[0] is None:
        broker = k.this_broker(c)
        limit = k.value(c, broker, "group.share.delivery.count.limit")
    if limit is None or limit[0] is None:
        raise NotApplicableError("the broker has no group.share.delivery.count.limit")
    for count in range(1, int(limit[0]) + 1):
        c.equal(member.acquire_until(topic, [0]).deliveries, {0: count}, "acquired_records")
        c.equal(member.acknowledged(topic, {0: [(0, 0, [RELEASE])]}), {0: 0}, "error_code of the release")
    append(c, topic, batch(b"new"))
    c.equal(member.acquire_until(topic, [1]).deliveries, {1: 1}, "acquired_records after the limit")


@case(
    "share-groups.session.close",
    "records of a closed session are released",
    source="KIP-932: Share Sessions",
    features=FEATURES,
    needs=RECORDS,
    alters_configs=True,
)
def close(c: Check) -> None:
    """Sends: one member acquires two records and accepts the first one, and closes its session; the other one fetches.

    Expects: the second record for the other member; the closed session no longer exists.

    Why: the records of a consumer that is closed must be processed by others without delay.
    """
    topic, (first, second) = s.member_with_records(c, 2, members=2)
    first.acquire_until(topic, [0, 1])
    c.equal(first.acknowledged(topic, {0: [(0, 0, [ACCEPT])]}), {0: 0}, "error_code of the acceptance")
    epoch = first.session_epoch
    c.error(first.close(topic).error_code, ErrorCode.NONE, "error_code of the fetch with epoch -1")
    found = second.acquire_until(topic, [1])
    c.equal(found.values, {1: b"1"}, "the record of the other member")
    answer = first.fetch(topic, share_session_epoch=epoch)
    c.error(answer.error_code, ErrorCode.SHARE_SESSION_NOT_FOUND, "error_code after the session was closed")

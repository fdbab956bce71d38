"""OffsetCommit: the exchange in each version, and what is committed or rejected without a member."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.offset_commit import OffsetCommitRequest
from .. import committed_offsets as o
from ..case import Layer, Level, Release, case, needs, versions_of
from ..check import Check, Topic
from ..classic_group import ClassicGroup

OFFSETS = needs(ApiKey.OFFSET_COMMIT, 2, ApiKey.OFFSET_FETCH, 1)
LEADER_EPOCH = 6
"""The first version of OffsetCommit with leader epochs (KIP-320)."""
EPOCH_IN_FETCH = 5
"""The first version of OffsetFetch with leader epochs."""
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
MISSING_ID = b"\x05" * 16
DEFAULT_METADATA_LIMIT = "4096"


@case(
    "offsets.commit.exchange",
    "offsets are committed without a member",
    source="Protocol: OffsetCommit",
    layer=Layer.WIRE,
    needs=needs(ApiKey.OFFSET_FETCH, 1),
    versions=versions_of(ApiKey.OFFSET_COMMIT),
)
def exchange(c: Check, version: int) -> None:
    """Sends: OffsetCommit for partitions 2 and 0 of a topic with metadata, by a group that does not exist; then
    OffsetFetch for partitions 0 to 2.

    Expects: an entry for each partition, in any order, without an error, with the topic's name or, from
    version 10 on, its ID; then the same offsets and metadata, and -1 for partition 1.

    Why: consumers that assign partitions themselves store their position like this.
    """
    topic = c.topic(3)
    group = ClassicGroup(c)
    request = o.commit_request(group.id, topic, {2: 0, 0: 17}, metadata="řeka")
    response = c.call(request, version, to=group.wire)
    c.equal(len(response.topics), 1, "topics (number)")
    (found,) = response.topics
    if version >= o.COMMIT_BY_ID:
        c.equal(found.topic_id, topic.topic_id, "topics[0].topic_id")
    else:
        c.equal(found.name, topic.name, "topics[0].name")
    c.equal(
        sorted((each.partition_index, each.error_code) for each in found.partitions),
        [(0, 0), (2, 0)],
        "partitions (partition_index, error_code)",
    )
    fetch_version = c.version(ApiKey.OFFSET_FETCH)
    fetched = o.fetch(c, group.wire, group.id, {topic: [0, 1, 2]}, fetch_version)
    c.error(fetched.error_code, ErrorCode.NONE, "OffsetFetch error_code")
    expected = {0: o.Committed(17, metadata="řeka"), 1: o.NONE, 2: o.Committed(0, metadata="řeka")}
    c.equal(fetched.topics, {o.key_of(topic, fetch_version): expected}, "what OffsetFetch returns")


@case(
    "offsets.commit.unknown-partition",
    "a partition that does not exist is rejected, the others are committed",
    source="Protocol: OffsetCommit",
    layer=Layer.WIRE,
    needs=needs(ApiKey.OFFSET_FETCH, 1),
    versions=versions_of(ApiKey.OFFSET_COMMIT),
)
def unknown_partition(c: Check, version: int) -> None:
    """Sends: OffsetCommit for partitions 0, 77 and -1 of a topic with one partition.

    Expects: UNKNOWN_TOPIC_OR_PARTITION for 77 and -1; the offset of partition 0 is committed.

    Why: a consumer with old metadata must not lose the offsets of partitions that exist.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    found = o.commit(c, group.wire, o.commit_request(group.id, topic, {77: 1, 0: 5, -1: 1}), version)
    c.equal(list(found), [o.key_of(topic, version)], "topics")
    expected = [(-1, UNKNOWN), (0, 0), (77, UNKNOWN)]
    c.equal(found[o.key_of(topic, version)], expected, "partitions (partition_index, error_code)")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 5}, "offsets afterwards")


@case(
    "offsets.commit.unknown-topic",
    "a topic that does not exist is rejected, the others are committed",
    source="Protocol: OffsetCommit, KIP-848",
    layer=Layer.WIRE,
    needs=needs(ApiKey.OFFSET_FETCH, 1),
    versions=versions_of(ApiKey.OFFSET_COMMIT),
)
def unknown_topic(c: Check, version: int) -> None:
    """Sends: OffsetCommit for a topic that does not exist, by name or, from version 10 on, by ID, and for one that
    does.

    Expects: UNKNOWN_TOPIC_OR_PARTITION or, for the ID, UNKNOWN_TOPIC_ID; the other topic's offset is committed.

    Why: a topic that was deleted must not prevent the commits for others.
    """
    topic, missing = c.topic(), Topic(c.name("missing"), MISSING_ID)
    group = ClassicGroup(c)
    request = o.commit_request(group.id, missing, {0: 1})
    request.topics += o.commit_request(group.id, topic, {0: 5}).topics
    code = ErrorCode.UNKNOWN_TOPIC_ID if version >= o.COMMIT_BY_ID else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    expected = {o.key_of(missing, version): [(0, int(code))], o.key_of(topic, version): [(0, 0)]}
    c.equal(o.commit(c, group.wire, request, version), expected, "partitions (partition_index, error_code) by topic")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 5}, "offsets afterwards")


@case(
    "offsets.commit.several-topics",
    "each topic of a request has its own entry",
    source="Protocol: OffsetCommit",
    layer=Layer.WIRE,
    needs=needs(ApiKey.OFFSET_FETCH, 1),
    versions=versions_of(ApiKey.OFFSET_COMMIT),
)
def several_topics(c: Check, version: int) -> None:
    """Sends: OffsetCommit for different offsets of two topics with two partitions each.

    Expects: four entries without errors; OffsetFetch returns each offset for its own partition.

    Why: a consumer commits all its partitions with one request.
    """
    first, second = c.topic(2), c.topic(2)
    group = ClassicGroup(c)
    request = o.commit_request(group.id, first, {0: 10, 1: 11})
    request.topics += o.commit_request(group.id, second, {0: 20, 1: 21}).topics
    expected = {o.key_of(topic, version): [(0, 0), (1, 0)] for topic in (first, second)}
    c.equal(o.commit(c, group.wire, request, version), expected, "partitions (partition_index, error_code) by topic")
    c.equal(o.offsets(c, group.wire, group.id, first, [0, 1]), {0: 10, 1: 11}, "offsets of the first topic")
    c.equal(o.offsets(c, group.wire, group.id, second, [0, 1]), {0: 20, 1: 21}, "offsets of the second topic")


@case(
    "offsets.commit.leader-epoch",
    "the leader epoch of a committed offset is stored",
    source="KIP-320",
    layer=Layer.WIRE,
    needs=needs(ApiKey.OFFSET_FETCH, EPOCH_IN_FETCH),
    versions=versions_of(ApiKey.OFFSET_COMMIT),
)
def leader_epoch(c: Check, version: int) -> None:
    """Sends: OffsetCommit with leader epoch 3, from version 6 on; then OffsetFetch.

    Expects: the epoch 3, or -1 for a version without leader epochs.

    Why: a consumer that starts at this offset detects with it that the log was truncated.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    request = o.commit_request(group.id, topic, {0: 4}, leader_epoch=3)
    c.error(o.commit_error(c, group.wire, request, version), ErrorCode.NONE)
    fetch_version = c.version(ApiKey.OFFSET_FETCH)
    found = o.fetch(c, group.wire, group.id, {topic: [0]}, fetch_version).topics[o.key_of(topic, fetch_version)]
    expected = o.Committed(4, 3 if version >= LEADER_EPOCH else -1)
    c.equal(found, {0: expected}, "what OffsetFetch returns")


@case(
    "offsets.commit.replaces",
    "a later commit replaces an earlier one, also with a lower offset",
    source="Protocol: OffsetCommit",
    needs=OFFSETS,
)
def replaces(c: Check) -> None:
    """Sends: OffsetCommit of 100 with metadata and an epoch; then of 7 with other metadata and no epoch.

    Expects: 7 with its own metadata and epoch -1.

    Why: users reset groups to earlier offsets.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    first = o.commit_request(group.id, topic, {0: 100}, metadata="first", leader_epoch=3)
    c.error(o.commit_error(c, group.wire, first), ErrorCode.NONE)
    second = o.commit_request(group.id, topic, {0: 7}, metadata="second")
    c.error(o.commit_error(c, group.wire, second), ErrorCode.NONE)
    version = c.version(ApiKey.OFFSET_FETCH)
    found = o.fetch(c, group.wire, group.id, {topic: [0]}, version).topics[o.key_of(topic, version)]
    c.equal(found, {0: o.Committed(7, metadata="second")}, "what OffsetFetch returns")


@case(
    "offsets.commit.any-offset",
    "an offset need not exist in the log",
    source="Protocol: OffsetCommit",
    level=Level.SHOULD,
    needs=OFFSETS,
    variants={"0": (0,), "1": (1,), "beyond-int32": (2**40 + 1,), "highest": (2**63 - 1,)},
)
def any_offset(c: Check, offset: int) -> None:
    """Sends: OffsetCommit for an empty partition.

    Expects: no error, and OffsetFetch returns the same offset.

    Why: the coordinator does not know the log; a consumer resets offsets that are out of range.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    c.error(o.commit_error(c, group.wire, o.commit_request(group.id, topic, {0: offset})), ErrorCode.NONE)
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: offset}, "offsets afterwards")


@case(
    "offsets.commit.metadata",
    "metadata is returned as it was committed; null becomes empty",
    source="Protocol: OffsetCommit",
    level=Level.SHOULD,
    needs=OFFSETS,
    variants={"null": (None, ""), "empty": ("", ""), "text": ("a b", "a b"), "unicode": ("🦌 ř", "🦌 ř")},
)
def metadata(c: Check, sent: str | None, expected: str) -> None:
    """Sends: OffsetCommit with metadata, or null.

    Expects: the same metadata from OffsetFetch, and an empty string for null.

    Why: consumers may store state here that they read when they are assigned the partition.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    request = o.commit_request(group.id, topic, {0: 3}, metadata=sent)
    c.error(o.commit_error(c, group.wire, request), ErrorCode.NONE)
    version = c.version(ApiKey.OFFSET_FETCH)
    found = o.fetch(c, group.wire, group.id, {topic: [0]}, version).topics[o.key_of(topic, version)]
    c.equal(found, {0: o.Committed(3, metadata=expected)}, "what OffsetFetch returns")


@case(
    "offsets.commit.metadata-size",
    "metadata has a maximum size, for each partition",
    source="Protocol: OffsetCommit",
    level=Level.SHOULD,
    layer=Layer.WIRE,
    needs=(*OFFSETS, *needs(ApiKey.DESCRIBE_CONFIGS, 1)),
    versions=versions_of(ApiKey.OFFSET_COMMIT),
    variants={"largest": (0,), "too-large": (1,)},
)
def metadata_size(c: Check, version: int, excess: int) -> None:
    """Sends: OffsetCommit for two partitions, one with metadata of `offset.metadata.max.bytes` (default: 4096), or one
    byte more.

    Expects: no error, or OFFSET_METADATA_TOO_LARGE for that partition only, whose offset is then not committed.

    Why: committed offsets are kept in memory; a client that stores too much with them must learn it.
    """
    topic = c.topic(2)
    group = ClassicGroup(c)
    size = int(c.broker_config("offset.metadata.max.bytes", DEFAULT_METADATA_LIMIT)) + excess
    request = o.commit_request(group.id, topic, {0: 3, 1: 4})
    request.topics[0].partitions[0].committed_metadata = "m" * size
    expected = ErrorCode.OFFSET_METADATA_TOO_LARGE if excess else ErrorCode.NONE
    found = o.commit(c, group.wire, request, version)
    c.equal(found, {o.key_of(topic, version): [(0, int(expected)), (1, 0)]}, "error codes by topic")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0, 1]), {0: -1 if excess else 3, 1: 4}, "offsets afterwards")


@case(
    "offsets.commit.no-topics",
    "a commit without topics has a response without topics",
    source="Protocol: OffsetCommit",
    level=Level.SHOULD,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.OFFSET_COMMIT),
)
def no_topics(c: Check, version: int) -> None:
    """Sends: OffsetCommit with an empty array of topics.

    Expects: an empty array.

    Why: a consumer without assigned partitions may commit.
    """
    group = ClassicGroup(c)
    c.equal(c.call(OffsetCommitRequest(group_id=group.id), version, to=group.wire).topics, [], "topics")


@case(
    "offsets.commit.unknown-member",
    "a member of a group that does not exist is rejected",
    source="Protocol: OffsetCommit, KIP-848",
    layer=Layer.WIRE,
    needs=needs(ApiKey.OFFSET_FETCH, 1),
    versions=versions_of(ApiKey.OFFSET_COMMIT),
)
def unknown_group(c: Check, version: int) -> None:
    """Sends: OffsetCommit with a member ID and generation 3 for a group that does not exist.

    Expects: ILLEGAL_GENERATION; from version 9 on GROUP_ID_NOT_FOUND is also right. Nothing is committed.

    Why: a consumer whose group was deleted must rejoin instead of going on.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    request = o.commit_request(group.id, topic, {0: 1}, member_id="stranger", generation=3)
    allowed = {ErrorCode.ILLEGAL_GENERATION} | ({ErrorCode.GROUP_ID_NOT_FOUND} if version >= 9 else set())
    c.error(o.commit_error(c, group.wire, request, version), allowed)
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: -1}, "offsets afterwards")


@case(
    "offsets.commit.unknown-group",
    "the error of a member of a group that does not exist depends on the version",
    source="KIP-848",
    layer=Layer.WIRE,
    level=Level.APACHE,
    since=Release(4, 0),
    versions=versions_of(ApiKey.OFFSET_COMMIT),
)
def unknown_group_error(c: Check, version: int) -> None:
    """Sends: OffsetCommit with a member ID and generation 3 for a group that does not exist; then DescribeGroups.

    Expects: ILLEGAL_GENERATION up to version 8, GROUP_ID_NOT_FOUND from version 9 on; the state Dead.

    Why: version 9 is for members of both protocols, and generations are of the classic one only.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    request = o.commit_request(group.id, topic, {0: 1}, member_id="stranger", generation=3)
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    c.error(o.commit_error(c, group.wire, request, version), expected)
    c.equal(group.describe().group_state, "Dead", "group_state in DescribeGroups")


@case(
    "offsets.commit.empty-group-id",
    "the empty group has offsets, but no members",
    source="Protocol: OffsetCommit",
    level=Level.APACHE,
    layer=Layer.WIRE,
    needs=needs(ApiKey.OFFSET_FETCH, 1, ApiKey.OFFSET_DELETE, 0),
    versions=versions_of(ApiKey.OFFSET_COMMIT),
)
def empty_group_id(c: Check, version: int) -> None:
    """Sends: OffsetCommit for the group with the empty name, without a member; OffsetFetch; OffsetDelete.

    Expects: the offset is committed; OffsetDelete is rejected with INVALID_GROUP_ID.

    Why: old consumers committed offsets without a group name.
    """
    topic = c.topic()
    group = ClassicGroup(c, "")
    c.error(o.commit_error(c, group.wire, o.commit_request("", topic, {0: 3}), version), ErrorCode.NONE)
    c.equal(o.offsets(c, group.wire, "", topic, [0]), {0: 3}, "offsets afterwards")
    deleted = o.delete(c, group.wire, "", {topic.name: [0]})
    c.error(deleted.error_code, ErrorCode.INVALID_GROUP_ID, "OffsetDelete error_code")
    c.equal(deleted.topics, [], "OffsetDelete topics")


@case(
    "offsets.commit.zero-topic-id",
    "the topic ID zero is unknown",
    source="KIP-848",
    level=Level.APACHE,
    needs=needs(ApiKey.OFFSET_COMMIT, 10, ApiKey.OFFSET_FETCH, 10),
)
def zero_id(c: Check) -> None:
    """Sends: OffsetCommit in version 10 with the topic ID zero.

    Expects: UNKNOWN_TOPIC_ID.

    Why: the zero ID stands for no topic; it must not match any.
    """
    group = ClassicGroup(c)
    request = o.commit_request(group.id, Topic("", bytes(16)), {0: 1})
    found = [(each.topic_id, each.partitions[0].error_code) for each in c.call(request, 10, to=group.wire).topics]
    c.equal(found, [(bytes(16), int(ErrorCode.UNKNOWN_TOPIC_ID))], "topics (topic_id, error_code)")


@case(
    "offsets.commit.many-partitions",
    "a commit of many partitions has an entry for each",
    source="Protocol: OffsetCommit",
    needs=OFFSETS,
)
def many_partitions(c: Check) -> None:
    """Sends: OffsetCommit for 50 partitions with different offsets.

    Expects: 50 entries; OffsetFetch returns each offset for its partition.

    Why: a consumer of wide topics commits all its partitions with one request.
    """
    topic = c.topic(50)
    group = ClassicGroup(c)
    wanted = {index: 1_000 + index for index in reversed(range(50))}
    version = c.version(ApiKey.OFFSET_COMMIT)
    found = o.commit(c, group.wire, o.commit_request(group.id, topic, wanted), version)
    c.equal(found, {o.key_of(topic, version): [(index, 0) for index in range(50)]}, "error codes by topic")
    c.equal(o.offsets(c, group.wire, group.id, topic, range(50)), wanted, "offsets afterwards")


@case(
    "offsets.commit.deleted-topic",
    "offsets of a topic that is deleted are removed",
    source="Protocol: OffsetCommit",
    level=Level.SHOULD,
    needs=(*OFFSETS, *needs(ApiKey.DELETE_TOPICS, 1, ApiKey.OFFSET_FETCH, 2)),
)
def deleted_topic(c: Check) -> None:
    """Sends: OffsetCommit for two topics; DeleteTopics of one; then OffsetFetch of everything until it is gone.

    Expects: only the offset of the other topic.

    Why: a topic that is created again with this name begins at offset 0; old offsets would skip its records.
    """
    lost, kept = c.topic(), c.topic()
    group = ClassicGroup(c)
    for topic, offset in ((lost, 4), (kept, 5)):
        o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: offset}))
    c.delete_topic(lost)
    version = c.version(ApiKey.OFFSET_FETCH, 9)

    def fetched() -> object:
        return o.fetch(c, group.wire, group.id, None, version)

    expected = o.Fetched(0, {kept.name: {0: o.Committed(5)}})
    c.until(lambda: fetched() == expected, f"OffsetFetch returns only offsets of {kept.name}")


@case(
    "offsets.commit.pipelined",
    "the last commit of several on one connection wins",
    source="Protocol: Network",
    needs=OFFSETS,
)
def pipelined(c: Check) -> None:
    """Sends: 50 OffsetCommit requests with rising offsets on one connection, without waiting for responses.

    Expects: 50 responses without errors; then the last offset.

    Why: a consumer commits asynchronously; an older offset that replaces a newer one repeats records.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    wire = c.connect(address=group.wire.address)
    version = c.version(ApiKey.OFFSET_COMMIT)
    for offset in range(50):
        wire.send(o.commit_request(group.id, topic, {0: offset}), version)
    found = [wire.receive().topics[0].partitions[0].error_code for _ in range(50)]
    c.equal(found, [0] * 50, "error_code of the 50 responses")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: 49}, "offsets afterwards")


@case(
    "offsets.commit.nothing-known",
    "a commit of unknown topics only does not create the group",
    source="Protocol: OffsetCommit",
    level=Level.APACHE,
    needs=needs(ApiKey.OFFSET_COMMIT, 2, ApiKey.DESCRIBE_GROUPS, 0),
)
def nothing_known(c: Check) -> None:
    """Sends: OffsetCommit for a topic that does not exist, by a group that does not exist; then DescribeGroups.

    Expects: an error for the partition, and the state Dead.

    Why: mistyped names must not leave groups behind.
    """
    group = ClassicGroup(c)
    request = o.commit_request(group.id, Topic(c.name("missing"), MISSING_ID), {0: 1})
    found = o.commit_error(c, group.wire, request)
    c.error(found, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
    c.equal(group.describe().group_state, "Dead", "group_state in DescribeGroups")

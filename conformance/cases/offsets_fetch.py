"""OffsetFetch: by partitions, of everything, of several groups (KIP-709), by topic ID (KIP-848)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.offset_fetch import OffsetFetchRequest
from .. import committed_offsets as o
from ..case import Layer, Level, Release, case, needs, versions_of
from ..check import Check, Topic
from ..classic_group import ClassicGroup
from ..pending_offsets import PendingOffsets

COMMIT = needs(ApiKey.OFFSET_COMMIT, 2)
ALL = 2
"""The first version in which null topics request everything."""
LEADER_EPOCH = 5
STABLE = 7
"""The first version with `require_stable` (KIP-447)."""
MEMBER = 9
"""The first version with member IDs and epochs (KIP-848)."""
MISSING_ID = b"\x05" * 16


@case(
    "offsets.fetch.exchange",
    "committed offsets are returned for the requested partitions",
    source="Protocol: OffsetFetch",
    layer=Layer.WIRE,
    needs=needs(ApiKey.OFFSET_COMMIT, 6),
    versions=versions_of(ApiKey.OFFSET_FETCH, 1),
)
def exchange(c: Check, version: int) -> None:
    """Sends: OffsetFetch for partitions 2 and 0 of a topic, after a commit for 0 and 1 with metadata and leader epoch
    0.

    Expects: offset -1, epoch -1 and empty metadata for 2; what was committed for 0, with its epoch from version 5 on;
    no entry for 1; the topic's name or, in version 10, its ID; no error, also not for the group.

    Why: a consumer starts at these offsets.
    """
    topic = c.topic(3)
    group = ClassicGroup(c)
    request = o.commit_request(group.id, topic, {0: 4, 1: 5}, metadata="mine", leader_epoch=0)
    o.committed_before(c, group.wire, request)
    found = o.fetch(c, group.wire, group.id, {topic: [2, 0]}, version)
    c.error(found.error_code, ErrorCode.NONE, "error_code of the group")
    expected = {2: o.NONE, 0: o.Committed(4, 0 if version >= LEADER_EPOCH else -1, "mine")}
    c.equal(found.topics, {o.key_of(topic, version): expected}, "partitions by topic")


@case(
    "offsets.fetch.unknown-group",
    "a group that does not exist has no offsets",
    source="Protocol: OffsetFetch",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.OFFSET_FETCH, 1),
)
def unknown_group(c: Check, version: int) -> None:
    """Sends: OffsetFetch for partition 0, and for one that the topic does not have, of a group that does not exist;
    from version 2 on also for everything.

    Expects: offset -1 and no error for both; no topic for everything.

    Why: a new group starts with `auto.offset.reset`; an error would stop its consumers.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    found = o.fetch(c, group.wire, group.id, {topic: [0, 77]}, version)
    c.equal(found, o.Fetched(0, {o.key_of(topic, version): {0: o.NONE, 77: o.NONE}}), "error_code and partitions")
    if version >= ALL:
        c.equal(
            o.fetch(c, group.wire, group.id, None, version), o.Fetched(0, {}), "error_code and topics of everything"
        )


@case(
    "offsets.fetch.unknown-topic",
    "a topic that does not exist has no offsets; an unknown ID is an error",
    source="Protocol: OffsetFetch, KIP-848",
    layer=Layer.WIRE,
    needs=COMMIT,
    versions=versions_of(ApiKey.OFFSET_FETCH, 1),
)
def unknown_topic(c: Check, version: int) -> None:
    """Sends: OffsetFetch for a topic that does not exist, by name or, in version 10, by ID, and for one with an offset.

    Expects: offset -1 without an error for the name, with UNKNOWN_TOPIC_ID for the ID; the offset of the other topic.

    Why: a consumer must not lose all its positions as one topic is missing.
    """
    topic, missing = c.topic(), Topic(c.name("missing"), MISSING_ID)
    group = ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: 4}))
    found = o.fetch(c, group.wire, group.id, {missing: [0], topic: [0]}, version)
    c.error(found.error_code, ErrorCode.NONE, "error_code of the group")
    nothing = o.NONE
    if version >= o.FETCH_BY_ID:
        nothing = o.Committed(-1, error_code=int(ErrorCode.UNKNOWN_TOPIC_ID))
    expected = {o.key_of(missing, version): {0: nothing}, o.key_of(topic, version): {0: o.Committed(4)}}
    c.equal(found.topics, expected, "partitions by topic")


@case(
    "offsets.fetch.all",
    "null topics request all offsets of the group",
    source="Protocol: OffsetFetch",
    layer=Layer.WIRE,
    needs=COMMIT,
    versions=versions_of(ApiKey.OFFSET_FETCH, ALL),
)
def fetch_all(c: Check, version: int) -> None:
    """Sends: OffsetFetch with null topics, for a group with offsets of three partitions of two topics; another group
    has offsets, too.

    Expects: these three offsets and no other entry.

    Why: tools show and reset all offsets of a group.
    """
    first, second = c.topic(3), c.topic()
    group, other = ClassicGroup(c), ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, first, {0: 4, 2: 6}, metadata="m"))
    o.committed_before(c, group.wire, o.commit_request(group.id, second, {0: 8}))
    o.committed_before(c, other.wire, o.commit_request(other.id, first, {1: 99}))
    found = o.fetch(c, group.wire, group.id, None, version)
    c.error(found.error_code, ErrorCode.NONE, "error_code of the group")
    expected = {
        o.key_of(first, version): {0: o.Committed(4, metadata="m"), 2: o.Committed(6, metadata="m")},
        o.key_of(second, version): {0: o.Committed(8)},
    }
    c.equal(found.topics, expected, "partitions by topic")


@case(
    "offsets.fetch.no-topics",
    "an empty array of topics requests nothing",
    source="Protocol: OffsetFetch",
    layer=Layer.WIRE,
    needs=COMMIT,
    versions=versions_of(ApiKey.OFFSET_FETCH, ALL),
)
def no_topics(c: Check, version: int) -> None:
    """Sends: OffsetFetch with an empty array of topics, for a group with an offset.

    Expects: no topics, and no error.

    Why: null requests everything; an empty array must not.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: 4}))
    c.equal(o.fetch(c, group.wire, group.id, {}, version), o.Fetched(0, {}), "error_code and topics")


@case(
    "offsets.fetch.stable",
    "offsets without an open transaction are stable",
    source="KIP-447",
    layer=Layer.WIRE,
    needs=COMMIT,
    versions=versions_of(ApiKey.OFFSET_FETCH, STABLE),
    variants={"partitions": (False,), "all": (True,)},
)
def stable(c: Check, version: int, everything: bool) -> None:
    """Sends: OffsetFetch with require_stable, for partitions or for everything.

    Expects: the committed offset, and no error.

    Why: consumers of transactional applications always request stable offsets.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: 4}))
    requested = None if everything else {topic: [0]}
    found = o.fetch(c, group.wire, group.id, requested, version, require_stable=True)
    c.equal(found, o.Fetched(0, {o.key_of(topic, version): {0: o.Committed(4)}}), "error_code and partitions by topic")


@case(
    "offsets.fetch.several-groups",
    "each group of a request has its own entry",
    source="KIP-709",
    layer=Layer.WIRE,
    needs=COMMIT,
    versions=versions_of(ApiKey.OFFSET_FETCH, o.BATCHED_FETCH),
)
def several_groups(c: Check, version: int) -> None:
    """Sends: OffsetFetch for four groups: one partition, everything, another partition, and a group that does not
    exist.

    Expects: four entries, each with its own offset and no error.

    Why: an admin client reads the offsets of all groups of a broker with one request.
    """
    topic = c.topic(2)
    groups = [ClassicGroup(c)]
    while len(groups) < 4:
        # With several brokers, all groups of the request must have one coordinator.
        other = ClassicGroup(c)
        if other.wire.address == groups[0].wire.address:
            groups.append(other)
    one, two, three, missing = groups
    for group, partition, offset in ((one, 0, 10), (two, 1, 20), (three, 0, 30)):
        o.committed_before(c, group.wire, o.commit_request(group.id, topic, {partition: offset}))
    request = OffsetFetchRequest(
        groups=[
            o.fetch_group(one.id, {topic: [0]}),
            o.fetch_group(two.id, None),
            o.fetch_group(three.id, {topic: [1, 0]}),
            o.fetch_group(missing.id, {topic: [0]}),
        ]
    )
    response = c.call(request, version, to=one.wire)
    c.equal(
        sorted(each.group_id for each in response.groups), sorted(group.id for group in groups), "groups (group_id)"
    )
    found = {each.group_id: o.fetched(c, each, version) for each in response.groups}
    key = o.key_of(topic, version)
    expected = {
        one.id: o.Fetched(0, {key: {0: o.Committed(10)}}),
        two.id: o.Fetched(0, {key: {1: o.Committed(20)}}),
        three.id: o.Fetched(0, {key: {1: o.NONE, 0: o.Committed(30)}}),
        missing.id: o.Fetched(0, {key: {0: o.NONE}}),
    }
    c.equal(found, expected, "error_code and partitions by group")


@case(
    "offsets.fetch.no-groups",
    "a request without groups has a response without groups",
    source="KIP-709",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=versions_of(ApiKey.OFFSET_FETCH, o.BATCHED_FETCH),
    since=Release(4, 0),
)
def no_groups(c: Check, version: int) -> None:
    """Sends: OffsetFetch with an empty array of groups.

    Expects: an empty array.

    Why: it does not mean all groups.
    """
    c.equal(c.call(OffsetFetchRequest(groups=[]), version).groups, [], "groups")


@case(
    "offsets.fetch.classic-group-member",
    "the member of a classic group is not checked",
    source="KIP-848",
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=COMMIT,
    versions=versions_of(ApiKey.OFFSET_FETCH, MEMBER),
)
def classic_group_member(c: Check, version: int) -> None:
    """Sends: OffsetFetch with a member ID and epoch that do not exist, of a stable classic group.

    Expects: no error.

    Why: a consumer that moves from the new protocol to the classic one must find its offsets.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    group.complete(group.member())
    found = o.fetch(c, group.wire, group.id, {topic: [0]}, version, member_id="stranger", member_epoch=77)
    c.equal(found, o.Fetched(0, {o.key_of(topic, version): {0: o.NONE}}), "error_code and partitions by topic")


@case(
    "offsets.fetch.by-id-after-commit-by-name",
    "offsets follow the ID of a topic in version 10",
    source="KIP-848",
    needs=(*COMMIT, *needs(ApiKey.OFFSET_FETCH, o.FETCH_BY_ID)),
)
def by_id(c: Check) -> None:
    """Sends: OffsetCommit by name; then OffsetFetch by ID, and of everything.

    Expects: the offset with the topic's ID in both responses.

    Why: clients with different versions share one group.
    """
    topic = c.topic(2)
    group = ClassicGroup(c)
    by_name = o.commit_request(group.id, topic, {1: 12})
    c.error(o.commit_error(c, group.wire, by_name, 9), ErrorCode.NONE, "OffsetCommit error_code")
    expected = o.Fetched(0, {topic.topic_id: {1: o.Committed(12)}})
    version = o.FETCH_BY_ID
    c.equal(o.fetch(c, group.wire, group.id, {topic: [1]}, version), expected, "by ID")
    c.equal(o.fetch(c, group.wire, group.id, None, version), expected, "everything")


@case(
    "offsets.fetch.transaction",
    "an offset of an open transaction is not stable",
    source="KIP-447",
    needs=(
        *COMMIT,
        *needs(
            ApiKey.INIT_PRODUCER_ID, 0, ApiKey.ADD_OFFSETS_TO_TXN, 0, ApiKey.TXN_OFFSET_COMMIT, 0, ApiKey.END_TXN, 0
        ),
    ),
    versions=versions_of(ApiKey.OFFSET_FETCH, STABLE),
    variants={"commit": (True,), "abort": (False,)},
)
def transaction(c: Check, version: int, committed: bool) -> None:
    """Sends: TxnOffsetCommit of 20 for a partition with the offset 10; OffsetFetch with and without require_stable,
    also of another partition; then EndTxn and OffsetFetch.

    Expects: UNSTABLE_OFFSET_COMMIT and offset -1 with require_stable, 10 without, and no error for the other
    partition; after the end 20, or 10 if it was aborted.

    Why: a consumer that starts at 10 while the transaction is open repeats what the transaction has processed.
    """
    topic = c.topic(2)
    group = ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: 10, 1: 11}))
    pending = PendingOffsets(c, group)
    pending.send(topic, {0: 20})
    key = o.key_of(topic, version)
    unstable = o.Committed(-1, error_code=int(ErrorCode.UNSTABLE_OFFSET_COMMIT))
    found = o.fetch(c, group.wire, group.id, {topic: [0, 1]}, version, require_stable=True)
    c.equal(found, o.Fetched(0, {key: {0: unstable, 1: o.Committed(11)}}), "with require_stable")
    found = o.fetch(c, group.wire, group.id, None, version, require_stable=True)
    c.equal(found, o.Fetched(0, {key: {0: unstable, 1: o.Committed(11)}}), "everything, with require_stable")
    found = o.fetch(c, group.wire, group.id, {topic: [0, 1]}, version)
    c.equal(found, o.Fetched(0, {key: {0: o.Committed(10), 1: o.Committed(11)}}), "without require_stable")
    pending.end(committed=committed)

    def is_stable() -> o.Fetched | None:
        fetched = o.fetch(c, group.wire, group.id, {topic: [0]}, version, require_stable=True)
        return None if fetched.topics[key][0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT else fetched

    found = c.until(is_stable, "a stable offset after EndTxn")
    c.equal(found, o.Fetched(0, {key: {0: o.Committed(20 if committed else 10)}}), "after EndTxn")

"""JoinGroup: the exchange in each version, member IDs (KIP-394), and what is rejected."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...testing.group_requests import subscription
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..classic_group import MEMBER_ID_REQUIRED, ClassicGroup, Member, shortest_session_ms

JOIN = needs(ApiKey.JOIN_GROUP, 4)
STATIC = 5
"""The first version with instance IDs (KIP-345)."""
LONG = 2**31 - 1


def rejected(c: Check, member: Member, expected: ErrorCode, version: int | None = None) -> None:
    """JoinGroup has this error, and none of the fields of a generation."""
    version = c.version(ApiKey.JOIN_GROUP) if version is None else version
    answer = member.ask_join(version)
    c.error(answer.error_code, expected)
    c.equal(answer.generation_id, -1, "generation_id")
    c.equal(answer.leader, "", "leader")
    c.equal(answer.members, [], "members")
    c.true(not answer.protocol_name, "protocol_name", expected="null or empty", actual=answer.protocol_name)


@case(
    "groups.join.exchange",
    "the first member of a group becomes its leader",
    source="Protocol: JoinGroup",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.JOIN_GROUP),
)
def exchange(c: Check, version: int) -> None:
    """Sends: JoinGroup of a new member with two protocols; from version 4 on twice, as the first response has its ID.

    Expects: a generation, the first protocol, the member as the leader and as the only entry of members, with the
    metadata of the first protocol; in version 7 and later the protocol type; in version 9 no request to skip the
    assignment.

    Why: the leader assigns partitions to the members of this response, by their metadata for the chosen protocol.
    """
    group = ClassicGroup(c)
    member = group.member(protocol_type="opaque", protocols={"b": b"preferred", "a": b"\x00second"})
    answer = member.join(version)
    c.error(answer.error_code, ErrorCode.NONE)
    c.true(answer.generation_id >= 0, "generation_id", expected="0 or more", actual=answer.generation_id)
    c.equal(answer.protocol_name, "b", "protocol_name")
    c.true(answer.member_id, "member_id", expected="a member ID", actual=answer.member_id)
    c.equal(answer.member_id, member.member_id, "member_id")
    c.equal(answer.leader, answer.member_id, "leader")
    found = [(each.member_id, each.group_instance_id, each.metadata) for each in answer.members]
    c.equal(found, [(answer.member_id, None, b"preferred")], "members (member_id, group_instance_id, metadata)")
    if version >= 7:
        c.equal(answer.protocol_type, "opaque", "protocol_type")
    if version >= 9:
        c.equal(answer.skip_assignment, False, "skip_assignment")


@case(
    "groups.join.member-id-required",
    "a new member receives its ID and must repeat the request",
    source="KIP-394",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.JOIN_GROUP, MEMBER_ID_REQUIRED),
)
def member_id_required(c: Check, version: int) -> None:
    """Sends: JoinGroup without a member ID; then DescribeGroups; then JoinGroup with the ID of the first response.

    Expects: MEMBER_ID_REQUIRED with a member ID, generation -1 and no members; the group has no member after it; then
    no error, a generation and the same member ID.

    Why: a client whose first request times out would leave members behind that delay each rebalance.
    """
    group = ClassicGroup(c)
    group.keep()
    member = group.member()
    answer = member.ask_join(version)
    c.error(answer.error_code, ErrorCode.MEMBER_ID_REQUIRED)
    c.true(answer.member_id, "member_id", expected="a member ID", actual=answer.member_id)
    c.equal((answer.generation_id, answer.leader, answer.members), (-1, "", []), "generation_id, leader and members")
    c.equal(group.describe().members, [], "DescribeGroups members before the second request")
    member.member_id = answer.member_id
    second = member.ask_join(version)
    c.error(second.error_code, ErrorCode.NONE, "error_code of the second JoinGroup")
    c.equal(second.member_id, answer.member_id, "member_id of the second JoinGroup")
    generation = second.generation_id
    c.true(generation >= 0, "generation_id of the second JoinGroup", expected="0 or more", actual=generation)


@case(
    "groups.join.no-second-request",
    "old versions join with one request",
    source="KIP-394",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.JOIN_GROUP, 0, 3),
)
def no_second_request(c: Check, version: int) -> None:
    """Sends: JoinGroup without a member ID in a version before 4.

    Expects: no error, a member ID and a generation.

    Why: old clients treat MEMBER_ID_REQUIRED as a fatal error.
    """
    answer = ClassicGroup(c).member().ask_join(version)
    c.error(answer.error_code, ErrorCode.NONE)
    c.true(answer.member_id, "member_id", expected="a member ID", actual=answer.member_id)
    c.true(answer.generation_id >= 0, "generation_id", expected="0 or more", actual=answer.generation_id)


@case(
    "groups.join.static",
    "a static member joins with one request",
    source="KIP-345",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.JOIN_GROUP, STATIC),
)
def static(c: Check, version: int) -> None:
    """Sends: JoinGroup with an instance ID and without a member ID.

    Expects: no error, a generation, a member ID, and the instance ID in the entry of members.

    Why: the leader assigns the same partitions to an instance after its restart, when its member ID is another.
    """
    answer = ClassicGroup(c).member(instance_id="instance-1").ask_join(version)
    c.error(answer.error_code, ErrorCode.NONE)
    c.true(answer.generation_id >= 0, "generation_id", expected="0 or more", actual=answer.generation_id)
    c.true(answer.member_id, "member_id", expected="a member ID", actual=answer.member_id)
    c.equal(answer.leader, answer.member_id, "leader")
    found = [(each.member_id, each.group_instance_id) for each in answer.members]
    c.equal(found, [(answer.member_id, "instance-1")], "members (member_id, group_instance_id)")


@case(
    "groups.join.unknown-member",
    "a member ID that the group does not have is rejected",
    source="Protocol: JoinGroup",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.JOIN_GROUP),
    variants={"group": (True,), "no-group": (False,)},
)
def unknown_member(c: Check, version: int, exists: bool) -> None:
    """Sends: JoinGroup with a member ID that the server has not given, to a group with one member or to none.

    Expects: UNKNOWN_MEMBER_ID, generation -1, and the group unchanged.

    Why: a consumer whose session has expired forgets its member ID after this error, and joins as a new member.
    """
    group = ClassicGroup(c)
    member = group.member()
    if exists:
        group.complete(member)
    stranger = group.member()
    stranger.member_id = "stranger"
    rejected(c, stranger, ErrorCode.UNKNOWN_MEMBER_ID, version)
    c.equal(len(group.describe().members), int(exists), "members in DescribeGroups")
    if exists:
        c.error(member.heartbeat(), ErrorCode.NONE, "Heartbeat error_code of the member")


@case(
    "groups.join.error-without-protocol",
    "a response with an error has no protocol",
    source="KIP-559",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=versions_of(ApiKey.JOIN_GROUP),
)
def error_without_protocol(c: Check, version: int) -> None:
    """Sends: JoinGroup with a member ID that the group does not have.

    Expects: an empty protocol name; from version 7 on a null protocol name and a null protocol type.

    Why: an empty name could be a protocol's name; since version 7 the absence of one is null.
    """
    stranger = ClassicGroup(c).member()
    stranger.member_id = "stranger"
    answer = stranger.ask_join(version)
    c.error(answer.error_code, ErrorCode.UNKNOWN_MEMBER_ID)
    c.equal(answer.protocol_name, None if version >= 7 else "", "protocol_name")
    c.equal(answer.protocol_type, None, "protocol_type")


@case(
    "groups.join.empty-group-id",
    "the empty group has no members",
    source="Protocol: JoinGroup",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.JOIN_GROUP),
)
def empty_group_id(c: Check, version: int) -> None:
    """Sends: JoinGroup with an empty group ID.

    Expects: INVALID_GROUP_ID and generation -1.

    Why: consumers of unrelated applications without a name would share one group, and each other's partitions.
    """
    rejected(c, ClassicGroup(c, "").member(), ErrorCode.INVALID_GROUP_ID, version)


@case(
    "groups.join.no-common-protocol",
    "a member without a protocol that all members have is rejected",
    source="Protocol: JoinGroup",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.JOIN_GROUP),
    variants={"name": ("consumer", "roundrobin"), "type": ("connect", "range")},
)
def no_common_protocol(c: Check, version: int, protocol_type: str, protocol: str) -> None:
    """Sends: JoinGroup of a second member, with another protocol or another protocol type than the first one's.

    Expects: INCONSISTENT_GROUP_PROTOCOL; the first member's heartbeats have no error, and it stays alone.

    Why: a misconfigured member must not stop the group, and members without a common assignor cannot share partitions.
    """
    group = ClassicGroup(c)
    member = group.member(protocols={"range": b""})
    group.complete(member)
    other = group.member(protocol_type=protocol_type, protocols={protocol: b""})
    rejected(c, other, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, version)
    c.error(member.heartbeat(), ErrorCode.NONE, "Heartbeat error_code of the first member")
    c.equal([each.member_id for each in group.describe().members], [member.member_id], "members in DescribeGroups")


@case(
    "groups.join.without-protocol",
    "a first member without protocols or protocol type is rejected",
    source="Protocol: JoinGroup",
    needs=JOIN,
    variants={"no-protocols": ("consumer", {}), "no-type": ("", {"range": b""})},
)
def without_protocol(c: Check, protocol_type: str, protocols: dict[str, bytes]) -> None:
    """Sends: JoinGroup without protocols, or with an empty protocol type, to a group without members.

    Expects: INCONSISTENT_GROUP_PROTOCOL, and no member.

    Why: the group could never choose a protocol, and no other member could join it.
    """
    group = ClassicGroup(c)
    member = group.member(protocol_type=protocol_type, protocols=protocols)
    rejected(c, member, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    c.equal(group.describe().members, [], "members in DescribeGroups")


@case(
    "groups.join.session-timeout",
    "a session timeout out of bounds is rejected",
    source="KIP-62",
    needs=JOIN,
    variants={"minus-1": (-1,), "0": (0,), "1": (1,), "2147483647": (LONG,)},
)
def session_timeout(c: Check, milliseconds: int) -> None:
    """Sends: JoinGroup with a session timeout below `group.min.session.timeout.ms` or above the maximum.

    Expects: INVALID_SESSION_TIMEOUT, generation -1, and an empty member ID.

    Why: a member that crashes blocks its partitions for its session timeout, and one that is too short for the network
    rebalances forever.
    """
    group = ClassicGroup(c)
    answer = group.member(session_timeout_ms=milliseconds).ask_join()
    c.error(answer.error_code, ErrorCode.INVALID_SESSION_TIMEOUT)
    c.equal((answer.generation_id, answer.member_id, answer.members), (-1, "", []), "generation, member_id and members")


@case(
    "groups.join.session-timeout-bounds",
    "the bounds of the session timeout are accepted, what is beyond them is not",
    source="KIP-62",
    needs=(*JOIN, *needs(ApiKey.DESCRIBE_CONFIGS, 1)),
    level=Level.APACHE,
    variants={
        "lowest": ("group.min.session.timeout.ms", "6000", 0, True),
        "highest": ("group.max.session.timeout.ms", "1800000", 0, True),
        "below": ("group.min.session.timeout.ms", "6000", -1, False),
        "above": ("group.max.session.timeout.ms", "1800000", 1, False),
    },
)
def session_timeout_bounds(c: Check, config: str, default: str, difference: int, is_accepted: bool) -> None:
    """Sends: JoinGroup with a session timeout that is equal to a bound of the server, or beyond it by 1 ms.

    Expects: MEMBER_ID_REQUIRED with a member ID, as for any accepted first request, or INVALID_SESSION_TIMEOUT.

    Why: users set their timeouts to the documented bounds.
    """
    milliseconds = int(c.broker_config(config, default)) + difference
    answer = ClassicGroup(c).member(session_timeout_ms=milliseconds).ask_join()
    c.error(answer.error_code, ErrorCode.MEMBER_ID_REQUIRED if is_accepted else ErrorCode.INVALID_SESSION_TIMEOUT)
    c.equal(bool(answer.member_id), is_accepted, "whether there is a member_id")


@case(
    "groups.join.metadata",
    "the metadata of a protocol is not interpreted",
    source="Protocol: JoinGroup",
    needs=JOIN,
    variants={
        "empty": ("opaque", b""),
        "one-byte": ("opaque", b"\xff"),
        "bad-version": ("opaque", b"\x00\x09garbage"),
        "bad-length": ("opaque", b"\x00\x00\x7f\xff\xff\xff"),
        "large": ("opaque", bytes(100_000)),
        "consumer-empty": ("consumer", b""),
        "consumer-one-byte": ("consumer", b"\xff"),
        "consumer-large": ("consumer", bytes(100_000)),
    },
)
def metadata(c: Check, protocol_type: str, data: bytes) -> None:
    """Sends: JoinGroup with any bytes as metadata; then SyncGroup with the same bytes.

    Expects: the same bytes in the responses, and in DescribeGroups.

    Why: the group protocol is used by others than consumers, such as Kafka Connect and schema registries.
    """
    group = ClassicGroup(c)
    member = group.member(protocol_type=protocol_type, protocols={"range": data})
    answer = member.join()
    c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code")
    c.equal([each.metadata for each in answer.members], [data], "JoinGroup members (metadata)")
    synced = member.sync({member.member_id: data})
    c.error(synced.error_code, ErrorCode.NONE, "SyncGroup error_code")
    c.equal(synced.assignment, data, "SyncGroup assignment")
    found = [(each.member_metadata, each.member_assignment) for each in group.describe().members]
    c.equal(found, [(data, data)], "DescribeGroups members (member_metadata, member_assignment)")


@case(
    "groups.join.instance-id",
    "any instance ID is accepted",
    source="KIP-345",
    needs=needs(ApiKey.JOIN_GROUP, STATIC, ApiKey.DESCRIBE_GROUPS, 4),
    level=Level.APACHE,
    variants={
        "empty": ("",),
        "dot": (".",),
        "space": ("with space",),
        "unicode": ("ž",),
        "long": ("x" * 250,),
    },
)
def instance_id(c: Check, instance: str) -> None:
    """Sends: JoinGroup with an unusual instance ID.

    Expects: no error, and the same instance ID in the response and in DescribeGroups.

    Why: clients check instance IDs themselves; those that do not must not lose members.
    """
    group = ClassicGroup(c)
    answer = group.member(instance_id=instance).ask_join()
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal([each.group_instance_id for each in answer.members], [instance], "members (group_instance_id)")
    found = [each.group_instance_id for each in group.describe().members]
    c.equal(found, [instance], "DescribeGroups members (group_instance_id)")


@case(
    "groups.join.member-ids-differ",
    "each member has its own member ID, which begins with its client ID or instance ID",
    source="Protocol: JoinGroup",
    level=Level.APACHE,
    needs=needs(ApiKey.JOIN_GROUP, STATIC),
)
def member_ids_differ(c: Check) -> None:
    """Sends: JoinGroup of two dynamic members of the client "me" and of two static members, to one group.

    Expects: four member IDs, two that begin with "me-" and one for each instance ID.

    Why: operators recognize members by these prefixes; two members with one ID would fence each other.
    """
    group = ClassicGroup(c)
    first, second = group.member(client_id="me"), group.member(client_id="me")
    first.take_id()
    second.take_id()
    c.true(first.member_id != second.member_id, "the member IDs", expected="different", actual=first.member_id)
    for member in (first, second):
        c.equal(member.member_id[:3], "me-", "the beginning of member_id")
    answer = ClassicGroup(c).member(instance_id="instance-1", client_id="me").ask_join()
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal(answer.member_id[:11], "instance-1-", "the beginning of the static member's member_id")


@case(
    "groups.join.reason",
    "a reason does not change the response",
    source="KIP-800",
    layer=Layer.WIRE,
    needs=needs(ApiKey.JOIN_GROUP, 8),
    level=Level.SHOULD,
    variants={"null": (None,), "empty": ("",), "text": ("the subscription changed",), "long": ("x" * 10_000,)},
)
def reason(c: Check, text: str | None) -> None:
    """Sends: JoinGroup with a reason, or without one, in version 8 or later.

    Expects: the same response as without a reason: one member.

    Why: the reason is for the log of the server only.
    """
    member = ClassicGroup(c).member()
    member.reason = text
    answer = member.join()
    c.error(answer.error_code, ErrorCode.NONE)
    c.equal(len(answer.members), 1, "number of members")


@case(
    "groups.join.pending-member-expires",
    "a member ID that is not used blocks a rebalance only for its session timeout",
    source="KIP-394",
    needs=JOIN,
)
def pending_member_expires(c: Check) -> None:
    """Sends: JoinGroup without a member ID, whose response has one that is never used; then JoinGroup of the leader.

    Expects: the rebalance completes after the session timeout of the unused ID, without it; JoinGroup with this ID is
    then UNKNOWN_MEMBER_ID.

    Why: a consumer that crashes between its two requests must not stop the group.
    """
    session = shortest_session_ms(c)
    group = ClassicGroup(c)
    leader = group.member()
    group.complete(leader)
    pending = group.member(session_timeout_ms=session)
    pending.take_id()
    answer = leader.join()
    c.error(answer.error_code, ErrorCode.NONE, "JoinGroup error_code of the leader")
    c.equal(answer.generation_id, 2, "generation_id")
    c.equal([each.member_id for each in answer.members], [leader.member_id], "members (member_id)")
    c.until(lambda: pending.ask_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID, "UNKNOWN_MEMBER_ID for the unused ID")


@case(
    "groups.join.pending-member-is-awaited",
    "a rebalance waits for a member that has received its ID",
    source="KIP-394",
    needs=JOIN,
)
def pending_member_is_awaited(c: Check) -> None:
    """Sends: JoinGroup without a member ID; then JoinGroup of the leader; then JoinGroup with the ID.

    Expects: one generation with both members.

    Why: without it, each consumer that starts causes two rebalances.
    """
    group = ClassicGroup(c)
    leader = group.member()
    group.complete(leader)
    new = group.member()
    new.take_id()
    leader.start_join()
    group.wait_for_state("PreparingRebalance")
    joined = new.join()
    c.error(joined.error_code, ErrorCode.NONE, "JoinGroup error_code of the new member")
    answer = leader.joined()
    c.equal((answer.generation_id, joined.generation_id), (2, 2), "generation_id of both members")
    found = {each.member_id for each in answer.members}
    c.equal(found, {leader.member_id, new.member_id}, "members (member_id)")


@case(
    "groups.join.consumer-subscription",
    "the leader receives the subscriptions of all members as they were sent",
    source="KIP-429",
    needs=JOIN,
    variants={f"v{version}": (version,) for version in range(4)},
)
def consumer_subscription(c: Check, version: int) -> None:
    """Sends: JoinGroup of two consumers, with subscriptions of a version of the consumer protocol and owned partitions.

    Expects: each member's metadata in the leader's response, byte by byte.

    Why: the leader's assignor needs owned partitions and generations to move as few partitions as possible.
    """
    group = ClassicGroup(c)
    own = subscription("a", owned={"a": [0, 2]}, version=version)
    leader, follower = group.member(), group.member(protocols={"range": own})
    group.complete(leader)
    follower.start_join()
    leader.wait_for_rebalance()
    found = {each.member_id: each.metadata for each in leader.join().members}
    c.error(follower.joined().error_code, ErrorCode.NONE, "JoinGroup error_code of the follower")
    c.equal(found, {leader.member_id: subscription("a"), follower.member_id: own}, "members (metadata by member_id)")

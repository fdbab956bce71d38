"""StreamsGroupDescribe, and streams groups in the requests of all groups (KIP-1071)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_groups import DeleteGroupsRequest
from ...protocol.messages.describe_groups import DescribeGroupsRequest
from ...protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from .. import consumer_group as g
from .. import streams_group as s
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..classic_group import ClassicGroup
from ..consumer_group import ConsumerMember
from ..streams_group import ENDPOINT, FEATURES, NEEDS, SUBTOPOLOGY, TAGS, StreamsMember, tasks_of


@case(
    "streams-groups.describe.exchange",
    "StreamsGroupDescribe returns the state of a group, its topology and its members",
    source="KIP-1071: StreamsGroupDescribe API",
    layer=Layer.WIRE,
    features=FEATURES,
    needs=NEEDS,
    versions=versions_of(ApiKey.STREAMS_GROUP_DESCRIBE),
)
def describe(c: Check, version: int) -> None:
    """Sends: StreamsGroupDescribe of a stable group with one member that has a rack, an endpoint and a tag.

    Expects: state Stable, equal epochs, the topology, and the member with its client, process, rack, endpoint, tags,
    tasks and target tasks; no authorized operations. After the member has left: Empty without members.

    Why: kafka-streams-groups.sh shows these fields.
    """
    topic = c.topic(2)
    group = c.group()
    wire = c.connect(client_id="streams-client", address=c.coordinator(group).address)
    member = StreamsMember(c, group, topic, wire=wire)
    with c.setup("a stable streams group"):
        answer = member.join(rack_id="rack", user_endpoint=ENDPOINT, client_tags=TAGS, process_id="process")
        c.error(answer.error_code, ErrorCode.NONE)
        s.settle(c, member)
    found = s.describe(c, group, version)
    c.error(found.error_code, ErrorCode.NONE)
    c.equal(found.group_state, "Stable", "group_state")
    c.equal((found.group_epoch, found.assignment_epoch), (member.epoch, member.epoch), "the epochs of the group")
    c.equal(found.authorized_operations, -(2**31), "authorized_operations")
    c.true(found.topology is not None, "topology", expected="a topology", actual=None)
    parts = [
        (each.subtopology_id, each.source_topics) for each in (found.topology and found.topology.subtopologies) or ()
    ]
    c.equal(parts, [(SUBTOPOLOGY, [topic.name])], "topology.subtopologies")
    c.equal(len(found.members), 1, "members (number)")
    one = found.members[0]
    identity = one.member_id, one.member_epoch, one.instance_id, one.rack_id, one.client_id, one.process_id
    expected = member.member_id, member.epoch, None, "rack", "streams-client", "process"
    c.equal(identity, expected, "IDs, epoch, rack, client and process of the member")
    g.is_address(c, one.client_host, "client_host")
    endpoint = one.user_endpoint and (one.user_endpoint.host, one.user_endpoint.port)
    c.equal(endpoint, (ENDPOINT.host, ENDPOINT.port), "user_endpoint")
    c.equal([(each.key, each.value) for each in one.client_tags], [("zone", "z1")], "client_tags")
    c.equal((one.topology_epoch, one.is_classic), (0, False), "topology_epoch and is_classic")
    for name in ("assignment", "target_assignment"):
        tasks = getattr(one, name)
        c.equal(tasks_of(tasks.active_tasks), [0, 1], f"{name}.active_tasks")
        c.equal((tasks.standby_tasks, tasks.warmup_tasks), ([], []), f"{name}: standby and warm-up tasks")
    member.leave()
    empty = s.describe(c, group, version)
    c.equal((empty.group_state, empty.members), ("Empty", []), "group_state and members of the empty group")


@case(
    "streams-groups.describe.unknown-group",
    "StreamsGroupDescribe rejects a group that does not exist or is no streams group",
    source="KIP-1071: StreamsGroupDescribe API",
    layer=Layer.WIRE,
    features=FEATURES | g.FEATURES,
    needs=NEEDS,
    versions=versions_of(ApiKey.STREAMS_GROUP_DESCRIBE),
)
def describe_unknown(c: Check, version: int) -> None:
    """Sends: StreamsGroupDescribe of an unknown group, and of a consumer group.

    Expects: GROUP_ID_NOT_FOUND with a message for both, and no members.

    Why: tools find out the type of a group by this error.
    """
    consumer = ConsumerMember(c, c.group(), c.topic())
    g.stable(c, consumer)
    for group in (c.name("unknown"), consumer.group):
        found = s.describe(c, group, version)
        c.error(found.error_code, ErrorCode.GROUP_ID_NOT_FOUND)
        c.true(found.error_message, "error_message", expected="a message", actual=found.error_message)
        c.equal(found.members, [], "members")


@case(
    "streams-groups.describe.authorized-operations",
    "StreamsGroupDescribe returns what the principal may do, if it is requested",
    source="KIP-430 and KIP-1071",
    level=Level.SHOULD,
    features=FEATURES,
    needs=NEEDS,
)
def authorized_operations(c: Check) -> None:
    """Sends: StreamsGroupDescribe with include_authorized_operations.

    Expects: at least READ (bit 3) and DESCRIBE (bit 8), and operations of groups only.

    Why: a user interface shows only what its user may do.
    """
    member = StreamsMember(c, c.group(), c.topic())
    c.error(member.join().error_code, ErrorCode.NONE)
    request = StreamsGroupDescribeRequest(group_ids=[member.group], include_authorized_operations=True)
    (found,) = c.call(request, to=member.wire).groups
    operations = found.authorized_operations
    c.equal(operations & (1 << 3 | 1 << 8), 1 << 3 | 1 << 8, "authorized_operations, as far as READ and DESCRIBE")
    everything = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    c.equal(operations & ~everything, 0, "authorized_operations other than those of groups")


@case(
    "streams-groups.list",
    "ListGroups returns streams groups, and filters them by type",
    source="KIP-1071: ListGroups API",
    features=FEATURES,
    needs=(*NEEDS, *needs(ApiKey.LIST_GROUPS, 5)),
)
def list_groups(c: Check) -> None:
    """Sends: ListGroups without filters, with type streams, with type consumer, and with state Empty.

    Expects: the streams group with protocol type streams, type streams and state Stable in the first two; not in the
    others.

    Why: tools choose the API that describes a group by its type.
    """
    member = StreamsMember(c, c.group(), c.topic())
    s.stable(c, member)
    for types in ((), ("streams",), ("Streams", "classic")):
        found = g.listed(c, member.group, types=types)
        shown = [(each.protocol_type, each.group_type, each.group_state) for each in found.values()]
        c.equal(shown, [("streams", "streams", "Stable")], f"the group with the types {types}")
    c.equal(g.listed(c, member.group, types=("consumer", "classic")), {}, "the group with the other types")
    c.equal(g.listed(c, member.group, states=("Empty",)), {}, "the group with the state Empty")


@case(
    "streams-groups.other-protocols",
    "members of other protocols cannot join a streams group",
    source="KIP-1071: Group Type",
    features=FEATURES | g.FEATURES,
    needs=(*NEEDS, *needs(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, ApiKey.JOIN_GROUP, 9)),
)
def other_protocols(c: Check) -> None:
    """Sends: JoinGroup, ConsumerGroupHeartbeat and DescribeGroups for a streams group; StreamsGroupHeartbeat for a
    consumer group.

    Expects: INCONSISTENT_GROUP_PROTOCOL, GROUP_ID_NOT_FOUND, state Dead; GROUP_ID_NOT_FOUND. Both groups continue.

    Why: an application that uses the same name for both must not disturb the other one.
    """
    topic = c.topic()
    member = StreamsMember(c, c.group(), topic)
    s.stable(c, member)
    classic = ClassicGroup(c, member.group).member()
    classic.member_id = "chosen by the client"
    c.error(classic.ask_join().error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "JoinGroup error_code")
    classic.member_id = ""
    g.rejected(c, ConsumerMember(c, member.group, topic).try_join(), ErrorCode.GROUP_ID_NOT_FOUND)
    (found,) = c.call(DescribeGroupsRequest(groups=[member.group]), to=member.wire).groups
    c.equal((found.group_state, found.members), ("Dead", []), "DescribeGroups group_state and members")
    c.error(member.heartbeat().error_code, ErrorCode.NONE, "error_code of the streams member")
    other = ConsumerMember(c, c.group(), topic)
    g.stable(c, other)
    s.rejected(c, StreamsMember(c, other.group, topic).join(), ErrorCode.GROUP_ID_NOT_FOUND)
    c.error(other.heartbeat().error_code, ErrorCode.NONE, "error_code of the consumer member")


@case(
    "streams-groups.delete",
    "a streams group is deleted when it is empty",
    source="KIP-1071: DeleteGroups API",
    features=FEATURES,
    needs=(*NEEDS, *needs(ApiKey.DELETE_GROUPS, 2)),
)
def delete(c: Check) -> None:
    """Sends: DeleteGroups for a streams group with a member, and again after it has left.

    Expects: NON_EMPTY_GROUP, then no error, and the group no longer exists.

    Why: kafka-streams-groups.sh --delete does this.
    """
    member = StreamsMember(c, c.group(), c.topic())
    s.stable(c, member)

    def error_of() -> int:
        (result,) = c.call(DeleteGroupsRequest(groups_names=[member.group]), to=member.wire).results
        c.equal(result.group_id, member.group, "results[0].group_id")
        return int(result.error_code)

    c.error(error_of(), ErrorCode.NON_EMPTY_GROUP, "error_code with a member")
    c.error(member.heartbeat().error_code, ErrorCode.NONE, "error_code of the member's heartbeat")
    member.leave()
    c.error(error_of(), ErrorCode.NONE, "error_code of the empty group")
    c.error(s.describe(c, member.group).error_code, ErrorCode.GROUP_ID_NOT_FOUND, "StreamsGroupDescribe error_code")

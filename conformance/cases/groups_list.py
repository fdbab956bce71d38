"""ListGroups: all groups of a broker, and filters by state (KIP-518) and type (KIP-848)."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_groups import DeleteGroupsRequest
from ...protocol.messages.list_groups import ListGroupsRequest
from .. import committed_offsets as o
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..classic_group import ClassicGroup, listed
from .groups_describe import join_consumer_group

STATES = 4
TYPES = 5


@case(
    "groups.list.exchange",
    "all groups of a broker are listed",
    source="Protocol: ListGroups, KIP-518, KIP-848",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LIST_GROUPS),
)
def exchange(c: Check, version: int) -> None:
    """Sends: ListGroups after a group with a member has become stable, and another one has committed offsets only.

    Expects: both, once each: the first with its protocol type, the second with none; from version 4 on their states
    Stable and Empty; in version 5 the type "classic".

    Why: tools find groups by it; from version 4 on they show the states without further requests.
    """
    topic = c.topic()
    group, empty = ClassicGroup(c), ClassicGroup(c)
    group.complete(group.member(protocol_type="opaque", protocols={"a": b""}))
    o.committed_before(c, empty.wire, o.commit_request(empty.id, topic, {0: 1}))
    for each, protocol_type, state in ((group, "opaque", "Stable"), (empty, "", "Empty")):
        found = [
            (entry.group_id, entry.protocol_type, entry.group_state, entry.group_type)
            for entry in listed(c, each.wire, ListGroupsRequest(), version)
            if entry.group_id == each.id
        ]
        expected = (each.id, protocol_type, state if version >= STATES else "", "classic" if version >= TYPES else "")
        c.equal(found, [expected], "groups (group_id, protocol_type, group_state, group_type)")


@case(
    "groups.list.unknown",
    "a group that does not exist is not listed",
    source="Protocol: ListGroups",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LIST_GROUPS),
)
def unknown(c: Check, version: int) -> None:
    """Sends: Heartbeat, JoinGroup without a second request, OffsetFetch and DescribeGroups of a group that does not
    exist; then ListGroups.

    Expects: neither of these requests has created the group.

    Why: tools that look at groups must not create them.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    stranger = group.member()
    stranger.member_id, stranger.generation = "stranger", 1
    c.error(stranger.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID, "Heartbeat error_code")
    c.error(stranger.ask_join().error_code, ErrorCode.UNKNOWN_MEMBER_ID, "JoinGroup error_code")
    c.equal(o.offsets(c, group.wire, group.id, topic, [0]), {0: -1}, "OffsetFetch offsets")
    group.describe()
    c.equal(listed(c, group.wire, ListGroupsRequest(), version), [], "groups of this case")


@case(
    "groups.list.by-state",
    "groups are filtered by state",
    source="KIP-518",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.LIST_GROUPS, STATES),
    variants={
        "stable": (["Stable"], "S"),
        "empty": (["Empty"], "E"),
        "completing": (["CompletingRebalance"], "C"),
        "preparing": (["PreparingRebalance"], ""),
        "dead": (["Dead"], ""),
        "two": (["Empty", "Stable"], "SE"),
        "lower-case": (["stable"], "S"),
        "unknown": (["nonsense"], ""),
        "unknown-and-known": (["nonsense", "Empty"], "E"),
        "none": ([], "SEC"),
    },
)
def by_state(c: Check, version: int, states: list[str], expected: str) -> None:
    """Sends: ListGroups with states, for a stable group, an empty one, and one that waits for assignments.

    Expects: the groups in these states, in any case of letters, with their states; none for an unknown state; all if no
    state is given.

    Why: a tool that looks for empty groups to delete must not be given groups with members.
    """
    topic = c.topic()
    groups = {"S": ClassicGroup(c), "E": ClassicGroup(c), "C": ClassicGroup(c)}
    groups["S"].complete(groups["S"].member())
    o.committed_before(c, groups["E"].wire, o.commit_request(groups["E"].id, topic, {0: 1}))
    groups["C"].member().join()
    request = ListGroupsRequest(states_filter=states)
    for key, name in (("S", "Stable"), ("E", "Empty"), ("C", "CompletingRebalance")):
        group = groups[key]
        found = [
            (each.group_id, each.group_state)
            for each in listed(c, group.wire, request, version)
            if each.group_id == group.id
        ]
        c.equal(found, [(group.id, name)] if key in expected else [], f"groups for the group in the state {name}")


@case(
    "groups.list.by-type",
    "groups are filtered by type",
    source="KIP-848",
    layer=Layer.WIRE,
    needs=needs(ApiKey.LIST_GROUPS, TYPES),
    variants={
        "classic": (["classic"], [], True),
        "upper-case": (["CLASSIC"], [], True),
        "consumer": (["consumer"], [], False),
        "both": (["consumer", "classic"], [], True),
        "none": ([], [], True),
        "unknown": (["nonsense"], [], False),
        "with-its-state": (["classic"], ["Empty"], True),
        "with-another-state": (["classic"], ["Stable"], False),
        "other-type-with-its-state": (["consumer"], ["Empty"], False),
    },
)
def by_type(c: Check, types: list[str], states: list[str], is_listed: bool) -> None:
    """Sends: ListGroups with types, and with states in some variants, for an empty classic group.

    Expects: the group if both its type and its state are requested; no filter means all; no error for unknown types.

    Why: tools show groups of one type; the filters are combined.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: 1}))
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    found = [(each.group_id, each.group_type) for each in listed(c, group.wire, request)]
    c.equal(found, [(group.id, "classic")] if is_listed else [], "groups of this case (group_id, group_type)")


@case(
    "groups.list.consumer-groups",
    "groups with the consumer protocol have their own type",
    source="KIP-848",
    features={"group.version": 1},
    needs=needs(ApiKey.LIST_GROUPS, TYPES, ApiKey.CONSUMER_GROUP_HEARTBEAT, 0),
    variants={
        "all": ([], [], True),
        "consumer": (["consumer"], [], True),
        "mixed-case": (["Consumer"], [], True),
        "classic": (["classic"], [], False),
        "both": (["classic", "consumer"], [], True),
        "with-another-state": (["consumer"], ["Empty"], False),
    },
)
def consumer_groups(c: Check, types: list[str], states: list[str], is_listed: bool) -> None:
    """Sends: ListGroups for a group whose member uses ConsumerGroupHeartbeat, with types and states.

    Expects: the group with the type "consumer" and the protocol type "consumer", unless a filter excludes it.

    Why: a tool decides by the type whether it uses ConsumerGroupDescribe or DescribeGroups.
    """
    group = ClassicGroup(c)
    join_consumer_group(c, group)
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    found = [(each.group_id, each.protocol_type, each.group_type) for each in listed(c, group.wire, request)]
    c.equal(
        found,
        [(group.id, "consumer", "consumer")] if is_listed else [],
        "groups of this case (group_id, protocol_type, group_type)",
    )


@case(
    "groups.list.deleted",
    "a group that was deleted is not listed",
    source="Protocol: ListGroups",
    level=Level.SHOULD,
    needs=needs(ApiKey.LIST_GROUPS, 0, ApiKey.DELETE_GROUPS, 0),
)
def deleted(c: Check) -> None:
    """Sends: ListGroups before and after DeleteGroups of an empty group.

    Expects: the group; then no group.

    Why: users look at the list to see whether the deletion has worked.
    """
    topic = c.topic()
    group = ClassicGroup(c)
    o.committed_before(c, group.wire, o.commit_request(group.id, topic, {0: 1}))
    c.equal([each.group_id for each in listed(c, group.wire, ListGroupsRequest())], [group.id], "groups before")
    results = c.call(DeleteGroupsRequest(groups_names=[group.id]), to=group.wire).results
    c.equal([(each.group_id, each.error_code) for each in results], [(group.id, 0)], "DeleteGroups results")
    c.equal(listed(c, group.wire, ListGroupsRequest()), [], "groups of this case afterwards")

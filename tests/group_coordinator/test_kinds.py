"""The registry of group kinds: a third kind, which only this test knows, is served like the others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import pytest

from moldau.coordinator.outcome import Caller, Now, Outcome, Record
from moldau.group_coordinator.classic.group import ClassicGroup
from moldau.group_coordinator.classic.join_group import handle_join_group
from moldau.group_coordinator.classic.kind import CLASSIC
from moldau.group_coordinator.consumer.kind import CONSUMER
from moldau.group_coordinator.group import CheckPartition
from moldau.group_coordinator.kind import Converted, GroupKind, GroupKinds, converts, serves
from moldau.group_coordinator.records import KEYS, OFFSET_KEYS, VALUES, Key, Value
from moldau.group_coordinator.registered_kinds import KINDS
from moldau.group_coordinator.shard import GroupShard
from moldau.group_coordinator.states import GroupStates
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.schema import int32, string

from .classic.actors import join_request, stable_group
from .harness import Coordinator

SESSION_MS = 5000
RECORD_TYPE = 999


class SwarmKey(Key, api_key=RECORD_TYPE):
    group: str = string("0")


class SwarmValue(Value, api_key=RECORD_TYPE):
    size: int = int32("0+")


# Other tests compare all known records with Apache Kafka's. This type is known only while a test of this module runs.
del KEYS[RECORD_TYPE], VALUES[RECORD_TYPE]


@dataclass
class SwarmHeartbeat:
    """The request of the kind: the group has so many members."""

    group_id: str
    size: int = 1


class SwarmDescription(NamedTuple):
    size: int
    error_code: ErrorCode = ErrorCode.NONE


@dataclass
class SwarmGroup:
    type: ClassVar[str] = "swarm"

    group_id: str
    size: int = 0
    waiting: list[Caller] = field(default_factory=list)

    protocol_type = "swarm"
    static_members: ClassVar[dict[str, str]] = {}

    @property
    def state_name(self) -> str:
        return "Swarming" if self.size else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self.size

    @property
    def members(self) -> dict[str, None]:
        return {f"bee-{number}": None for number in range(self.size)}

    def session_deadline(self, member_id: str) -> str:
        return "swarm session"

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> CheckPartition | None:
        return None

    def committed(self, member_id: str, now: Now) -> None: ...

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    def check_offset_delete(self) -> None: ...

    def check_delete(self) -> None:
        if self.size:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        return False

    def expiration_base_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def records(self) -> list[Record]:
        return [swarm_record(self.group_id, self.size)]

    def tombstones(self) -> list[Record]:
        return [Record(SwarmKey(group=self.group_id), None)]


def swarm_record(group_id: str, size: int) -> Record:
    return Record(SwarmKey(group=group_id), SwarmValue(size=size))


def replay(states: GroupStates, record: Record) -> None:
    assert isinstance(record.key, SwarmKey)
    group_id = record.key.group
    if record.value is None:
        states.groups.pop(group_id, None)
        return
    assert isinstance(record.value, SwarmValue)
    group = states.find(group_id, SwarmGroup)
    if group is None:
        group = states.groups[group_id] = SwarmGroup(group_id)
    group.size = record.value.size


def set_session(states: GroupStates, group_id: str, now: Now) -> None:
    def end(now: Now) -> Outcome:
        return Outcome([swarm_record(group_id, 0)])

    states.deadlines.set(group_id, "swarm session", now.monotonic_ms + SESSION_MS, end)


def loaded(states: GroupStates, now: Now) -> None:
    for group in states.all_of(SwarmGroup):
        set_session(states, group.group_id, now)


def waiting_callers(states: GroupStates) -> list[Caller]:
    return [caller for group in states.all_of(SwarmGroup) for caller in group.waiting]


def handle_heartbeat(states: GroupStates, caller: Caller, request: SwarmHeartbeat, now: Now) -> Outcome:
    group = states.groups.get(request.group_id)
    records = [swarm_record(request.group_id, request.size)]
    if group is not None and not isinstance(group, SwarmGroup):
        records = [*states.kinds.convert(states, group, SwarmGroup, now).records, *records]
    set_session(states, request.group_id, now)
    response: Any = SwarmDescription(request.size)
    return Outcome(records, [(caller, response)])


def handle_sync(states: GroupStates, caller: Caller, request: SyncGroupRequest, now: Now) -> Outcome:
    group = states.find(request.group_id, SwarmGroup)
    assert group is not None
    group.waiting.append(caller)
    return Outcome()


def convert_classic(states: GroupStates, group: ClassicGroup, now: Now) -> Converted[SwarmGroup]:
    group.check_delete()
    return Converted(SwarmGroup(group.group_id), group.tombstones())


def describe(states: GroupStates, group_id: str, api_version: int) -> SwarmDescription:
    group = states.find(group_id, SwarmGroup)
    return SwarmDescription(0, ErrorCode.GROUP_ID_NOT_FOUND) if group is None else SwarmDescription(group.size)


SWARM = GroupKind(
    group_class=SwarmGroup,
    keys=[SwarmKey],
    replay=replay,
    loaded=loaded,
    waiting_callers=waiting_callers,
    requests=[serves(SwarmHeartbeat, handle_heartbeat)],
    also_serves=[serves(SyncGroupRequest, handle_sync)],
    conversions=[converts(ClassicGroup, SwarmGroup, convert_classic)],
    describe=describe,
)


class SwarmCoordinator(Coordinator):
    """A coordinator that knows the third kind, too."""

    def new_shard(self) -> GroupShard:
        shard = super().new_shard()
        self.states.kinds = GroupKinds(*KINDS, SWARM)
        return shard

    def swarm(self, size: int = 1, group_id: str = "swarm") -> object:
        return self.send(SwarmHeartbeat(group_id, size), 0).answer

    def describe_swarm(self, group_id: str = "swarm") -> SwarmDescription:
        return self.runtime.read(group_id).describe(SWARM, group_id, api_version=0)

    def commit(self, group_id: str) -> None:
        topic = OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=0)])
        response = self.send(OffsetCommitRequest(group_id=group_id, topics=[topic]), 9).response
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE

    def listed(self, types: list[str] | None = None) -> list[tuple[str, str, str, str]]:
        (groups,) = self.runtime.read().list_groups([], types or [])
        return [(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in groups]


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> SwarmCoordinator:
    monkeypatch.setitem(KEYS, RECORD_TYPE, SwarmKey)
    monkeypatch.setitem(VALUES, RECORD_TYPE, SwarmValue)
    return SwarmCoordinator()


def test_a_third_kind_is_listed_and_described(coordinator: SwarmCoordinator) -> None:
    stable_group(coordinator)
    coordinator.swarm(3)
    assert coordinator.listed(["SWARM"]) == [("swarm", "swarm", "Swarming", "swarm")]
    assert {group_id for group_id, *_ in coordinator.listed()} == {"swarm", "group"}
    assert coordinator.describe_swarm() == SwarmDescription(3)
    assert coordinator.describe_swarm("group") == SwarmDescription(0, ErrorCode.GROUP_ID_NOT_FOUND)
    assert coordinator.shard.is_stable("swarm") is False


@pytest.mark.parametrize(("kind", "name"), [(CLASSIC, "classic"), (CONSUMER, "consumer")])
def test_other_kinds_describe_it_as_not_found(coordinator: SwarmCoordinator, kind: GroupKind[Any], name: str) -> None:
    coordinator.swarm()
    found = coordinator.shard.describe(kind, "swarm", api_version=6)
    assert (found.error_code, found.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group swarm is not a {name} group.",
    )


def test_a_third_kind_is_loaded_from_its_records(coordinator: SwarmCoordinator) -> None:
    coordinator.swarm(3)
    coordinator.restart()
    assert coordinator.describe_swarm() == SwarmDescription(3)
    coordinator.advance(SESSION_MS)
    assert coordinator.describe_swarm() == SwarmDescription(0)  # the session began when the group was loaded


def test_a_coordinator_that_does_not_know_the_kind_skips_its_records(coordinator: SwarmCoordinator) -> None:
    coordinator.swarm()
    del KEYS[RECORD_TYPE]
    coordinator.restart()
    assert not coordinator.has_group("swarm")


def test_a_third_kind_is_deleted_with_its_offsets(coordinator: SwarmCoordinator) -> None:
    coordinator.swarm(1)
    coordinator.commit("swarm")
    assert coordinator.delete_group("swarm").error is ErrorCode.NON_EMPTY_GROUP
    coordinator.swarm(0)
    assert coordinator.delete_group("swarm").error is ErrorCode.NONE
    coordinator.restart()
    assert not coordinator.has_group("swarm")
    assert not coordinator.states.offsets.count("swarm")


def test_an_empty_group_of_a_third_kind_expires_with_its_last_offset(coordinator: SwarmCoordinator) -> None:
    coordinator.swarm(0)
    coordinator.commit("swarm")
    config = coordinator.config
    coordinator.advance(config.offsets_retention_ms + config.offsets_retention_check_interval_ms)
    assert not coordinator.has_group("swarm")


def test_the_session_of_its_member_is_ended_for_tests(coordinator: SwarmCoordinator) -> None:
    coordinator.swarm(2)
    coordinator.runtime.decide("swarm", coordinator.shard.end_session("swarm", "bee-1"))
    assert coordinator.describe_swarm() == SwarmDescription(0)


def test_an_empty_classic_group_is_converted(coordinator: SwarmCoordinator) -> None:
    coordinator.commit("group")
    assert coordinator.swarm(4, "group") == SwarmDescription(4)
    coordinator.restart()
    assert coordinator.describe_swarm("group") == SwarmDescription(4)
    assert coordinator.states.offsets.count("group") == 1


def test_a_group_that_cannot_be_converted_is_rejected(coordinator: SwarmCoordinator) -> None:
    stable_group(coordinator)
    assert coordinator.send(SwarmHeartbeat("group"), 0).error is ErrorCode.NON_EMPTY_GROUP
    coordinator.send(
        ConsumerGroupHeartbeatRequest(
            group_id="c", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
        )
    )
    assert coordinator.send(SwarmHeartbeat("c"), 0).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_requests_of_other_kinds_have_the_same_errors_for_any_other_kind(coordinator: SwarmCoordinator) -> None:
    coordinator.swarm()
    assert coordinator.send(join_request(group_id="swarm")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.send(HeartbeatRequest(group_id="swarm", member_id="m")).error is ErrorCode.UNKNOWN_MEMBER_ID
    leave = LeaveGroupRequest(group_id="swarm", members=[MemberIdentity(member_id="m")])
    assert coordinator.send(leave).response.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="swarm", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert coordinator.send(heartbeat).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_callers_that_wait_in_its_groups_get_a_response_when_the_shard_resigns(coordinator: SwarmCoordinator) -> None:
    coordinator.swarm()
    waiting = coordinator.send(SyncGroupRequest(group_id="swarm", member_id="m"))
    assert waiting.waits  # served by the kind of the group, not by that of the request
    coordinator.runtime.close()
    assert waiting.error is ErrorCode.NOT_COORDINATOR


class Other(SwarmGroup):
    type = "other"


@pytest.mark.parametrize(
    ("what", "kinds"),
    [
        ("name", [CLASSIC, CLASSIC]),
        ("record", [SWARM, replace(SWARM, group_class=Other, requests=[])]),
        ("request", [SWARM, replace(SWARM, group_class=Other, keys=[])]),
    ],
)
def test_kinds_do_not_share_names_records_or_requests(what: str, kinds: list[GroupKind[object]]) -> None:
    with pytest.raises(ValueError, match=f"Two kinds of groups have the same {what}"):
        GroupKinds(*kinds)


def test_a_request_without_a_group_goes_to_the_kind_of_its_protocol() -> None:
    assert KINDS.handlers[JoinGroupRequest][type(None)] is handle_join_group


def test_every_known_record_belongs_to_a_kind_or_to_offsets() -> None:
    assert {*KEYS.values()} == {*OFFSET_KEYS, *(key for kind in KINDS for key in kind.keys)}

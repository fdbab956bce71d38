"""Every request in every state that a group can be in, of either protocol: one table.

The rows of "member" are requests of a current or former member of the group, those of "stranger" of a member that never
was in it, and those of "nobody" requests without a member ID. The tests of each protocol check the responses in detail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from moldau.group_coordinator.consumer.kind import CONSUMER
from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.steps import completed

from ..coordinator.harness import FakeCaller
from .harness import Coordinator

GROUP = "group"
WAITS = "waits"


# -- requests ----------------------------------------------------------------------------------------------------------


def join_request(member_id: str = "", instance_id: str | None = None) -> JoinGroupRequest:
    metadata = b"\0\0" + encode(ConsumerProtocolSubscription(topics=["t"]), 0)
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def consumer_join_request(member_id: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


# -- states ------------------------------------------------------------------------------------------------------------


class Member(NamedTuple):
    """A current or former member of the group, and its generation or epoch."""

    member_id: str = "m"
    epoch: int = 1


State = Callable[[Coordinator], Member]


def no_group(coordinator: Coordinator) -> Member:
    return Member()


def only_offsets(coordinator: Coordinator) -> Member:
    commit(coordinator, Member("", -1))
    return Member()


def classic_completing(coordinator: Coordinator) -> Member:
    joining = coordinator.send(join_request(), 3)
    coordinator.advance(3000)
    return Member(joining.response.member_id, joining.response.generation_id)


def classic_stable(coordinator: Coordinator) -> Member:
    member = classic_completing(coordinator)
    assert sync(coordinator, member) is ErrorCode.NONE
    return member


def classic_preparing(coordinator: Coordinator) -> Member:
    member = classic_stable(coordinator)
    assert coordinator.send(join_request(), 3).waits
    return member


def classic_empty(coordinator: Coordinator) -> Member:
    member = classic_stable(coordinator)
    assert leave(coordinator, member) is ErrorCode.NONE
    return member


def consumer_stable(coordinator: Coordinator) -> Member:
    response = coordinator.send(consumer_join_request("m")).response
    return Member("m", response.member_epoch)


def consumer_reconciling(coordinator: Coordinator) -> Member:
    """Another member has joined, and the member has not revoked the other's half yet."""
    member = consumer_stable(coordinator)
    coordinator.advance(1000)
    coordinator.send(consumer_join_request("other"))
    return member


def consumer_assigning(coordinator: Coordinator) -> Member:
    """Another member has joined, and it is too early for another assignment."""
    member = consumer_stable(coordinator)
    coordinator.send(consumer_join_request("other"))
    return member


def consumer_empty(coordinator: Coordinator) -> Member:
    member = consumer_stable(coordinator)
    leaving = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=-1)
    assert coordinator.send(leaving).error is ErrorCode.NONE
    return member


STATES: dict[str, State] = {
    "none": no_group,
    "offsets": only_offsets,
    "classic Empty": classic_empty,
    "classic PreparingRebalance": classic_preparing,
    "classic CompletingRebalance": classic_completing,
    "classic Stable": classic_stable,
    "consumer Empty": consumer_empty,
    "consumer Assigning": consumer_assigning,
    "consumer Reconciling": consumer_reconciling,
    "consumer Stable": consumer_stable,
}


def state_of(coordinator: Coordinator) -> str:
    if not coordinator.has_group():
        return "none"
    group = coordinator.group()
    return "offsets" if not group.protocol_type else f"{group.type} {group.state_name}"


# -- asking ------------------------------------------------------------------------------------------------------------

Reply = ErrorCode | str
Ask = Callable[[Coordinator, Member], Reply]


def answer_of(caller: FakeCaller) -> Reply:
    return WAITS if caller.waits else caller.error


def join(coordinator: Coordinator, member: Member) -> Reply:
    return answer_of(coordinator.send(join_request(member.member_id)))


def join_in_version_3(coordinator: Coordinator, member: Member) -> Reply:
    return answer_of(coordinator.send(join_request(member.member_id), 3))


def join_static(coordinator: Coordinator, member: Member) -> Reply:
    return answer_of(coordinator.send(join_request(member.member_id, "instance")))


def sync(coordinator: Coordinator, member: Member) -> Reply:
    request = SyncGroupRequest(
        group_id=GROUP,
        member_id=member.member_id,
        generation_id=member.epoch,
        protocol_type="consumer",
        protocol_name="range",
    )
    return answer_of(coordinator.send(request))


def heartbeat(coordinator: Coordinator, member: Member) -> Reply:
    request = HeartbeatRequest(group_id=GROUP, member_id=member.member_id, generation_id=member.epoch)
    return answer_of(coordinator.send(request))


def leave(coordinator: Coordinator, member: Member) -> Reply:
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member.member_id)])
    response = coordinator.send(request).response
    assert not response.error_code
    return ErrorCode(response.members[0].error_code)


def consumer_join(coordinator: Coordinator, member: Member) -> Reply:
    return answer_of(coordinator.send(consumer_join_request(member.member_id)))


def consumer_heartbeat(coordinator: Coordinator, member: Member) -> Reply:
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member.member_id, member_epoch=member.epoch)
    return answer_of(coordinator.send(request))


def consumer_leave(coordinator: Coordinator, member: Member) -> Reply:
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member.member_id, member_epoch=-1)
    return answer_of(coordinator.send(request))


def commit(coordinator: Coordinator, member: Member) -> Reply:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic_id = coordinator.topics.id_of("t") or bytes(16)
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id=member.member_id,
        generation_id_or_member_epoch=member.epoch,
        topics=[OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[partition])],
    )
    caller = coordinator.send(request, 9)
    return caller.error if caller.failed else error_of_partition(caller)


def txn_commit(coordinator: Coordinator, member: Member) -> Reply:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id=GROUP,
        producer_id=1,
        producer_epoch=0,
        generation_id=member.epoch,
        member_id=member.member_id,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    caller = coordinator.send(request)
    return caller.error if caller.failed else error_of_partition(caller)


def error_of_partition(caller: FakeCaller) -> ErrorCode:
    return ErrorCode(caller.response.topics[0].partitions[0].error_code)


def fetch(coordinator: Coordinator, member: Member) -> Reply:
    request = OffsetFetchRequestGroup(
        group_id=GROUP, member_id=member.member_id or None, member_epoch=member.epoch, topics=None
    )
    return ErrorCode(completed(coordinator.runtime.read(GROUP).fetch_offsets(request, require_stable=True)).error_code)


def delete_offset(coordinator: Coordinator, member: Member) -> Reply:
    """Of the topic that all members subscribe to."""
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    request = OffsetDeleteRequest(group_id=GROUP, topics=[OffsetDeleteRequestTopic(name="t", partitions=partitions)])
    caller = coordinator.send(request)
    return caller.error or error_of_partition(caller)


def describe(coordinator: Coordinator, member: Member) -> Reply:
    return ErrorCode(coordinator.describe(GROUP).error_code)


def consumer_describe(coordinator: Coordinator, member: Member) -> Reply:
    try:
        return ErrorCode(coordinator.runtime.read(GROUP).describe(CONSUMER, GROUP, api_version=1).error_code)
    except KafkaError as error:
        return error.code


def delete(coordinator: Coordinator, member: Member) -> Reply:
    return coordinator.delete_group(GROUP).error


# -- the table ---------------------------------------------------------------------------------------------------------

ANSWERS: dict[str, Reply] = {
    "ok": ErrorCode.NONE,
    "waits": WAITS,
    "unkn": ErrorCode.UNKNOWN_MEMBER_ID,
    "idreq": ErrorCode.MEMBER_ID_REQUIRED,
    "rebal": ErrorCode.REBALANCE_IN_PROGRESS,
    "none": ErrorCode.GROUP_ID_NOT_FOUND,
    "memb": ErrorCode.NON_EMPTY_GROUP,
    "gener": ErrorCode.ILLEGAL_GENERATION,
    "read": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
}

LETTERS = dict(zip("-oEPCSears", STATES, strict=True))
"""The columns, and after an answer the state that it leaves the group in. Capitals are those of classic groups."""

TABLE = """
who      request            -        o        E        P        C        S        e        a        r        s
member   join               unkn     unkn     unkn     ok>C     ok       ok>C     unkn     ok       ok       ok
member   join_in_version_3  unkn     unkn     unkn     ok>C     ok       ok>C     unkn     ok       ok       ok
member   sync               unkn     unkn     unkn     rebal    ok>S     ok       unkn     unkn     unkn     unkn
member   heartbeat          unkn     unkn     unkn     rebal    ok       ok       unkn     unkn     unkn     unkn
member   leave              unkn     unkn     unkn     ok>C     ok>E     ok>E     unkn     ok       ok>a     ok>e
member   consumer_join      ok>s     ok>s     ok>s     ok>r     ok>s     ok>s     ok>a     ok       ok       ok
member   consumer_heartbeat none     none     none     none     none     none     unkn     ok       ok       ok
member   consumer_leave     none     none     none     none     none     none     unkn     ok       ok>a     ok>e
member   commit             none     unkn     unkn     ok       rebal    ok       unkn     ok       ok       ok
member   txn_commit         gener    unkn     unkn     ok       ok       ok       unkn     ok       ok       ok
member   fetch              ok       ok       ok       ok       ok       ok       unkn     ok       ok       ok
stranger join               unkn     unkn     unkn     unkn     unkn     unkn     unkn     ok       ok>a     ok>a
stranger join_static        unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn
stranger sync               unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn
stranger heartbeat          unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn
stranger leave              unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn
stranger consumer_join      ok>s     ok>s     ok>s     ok>r     ok>r     ok>r     ok>a     ok       ok>a     ok>a
stranger consumer_heartbeat none     none     none     none     none     none     unkn     unkn     unkn     unkn
stranger consumer_leave     none     none     none     none     none     none     unkn     unkn     unkn     unkn
stranger commit             none     unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn
stranger txn_commit         gener    unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn     unkn
stranger fetch              ok       ok       ok       ok       ok       ok       unkn     unkn     unkn     unkn
nobody   join               idreq>o  idreq    idreq    idreq    idreq    idreq    idreq>o  idreq    idreq    idreq
nobody   join_in_version_3  waits>P  waits>P  waits>P  waits    waits>P  waits>P  waits>P  ok       ok>a     ok>a
nobody   join_static        waits>P  waits>P  waits>P  waits    waits>P  waits>P  waits>P  ok       ok>a     ok>a
nobody   commit             ok>o     ok       ok       unkn     unkn     unkn     ok       unkn     unkn     unkn
nobody   txn_commit         ok>o     ok       ok       ok       ok       ok       ok       ok       ok       ok
nobody   fetch              ok       ok       ok       ok       ok       ok       ok       ok       ok       ok
nobody   delete_offset      none     ok       ok       read     read     read     ok       read     read     read
nobody   describe           none     ok       ok       ok       ok       ok       none     none     none     none
nobody   consumer_describe  none     none     none     none     none     none     ok       ok       ok       ok
nobody   delete             none     ok>-     ok>-     memb     memb     memb     ok>-     memb     memb     memb
"""

REQUESTS: dict[str, Ask] = {
    ask.__name__: ask
    for ask in (
        join, join_in_version_3, join_static, sync, heartbeat, leave, consumer_join, consumer_heartbeat, consumer_leave,
        commit, txn_commit, fetch, delete_offset, describe, consumer_describe, delete,
    )
}  # fmt: skip


def cells() -> Iterator[object]:
    for line in TABLE.strip().splitlines()[1:]:
        who, request, *row = line.split()
        for state, cell in zip(STATES, row, strict=True):
            yield pytest.param(who, request, state, cell, id=f"{request} of {who} in {state}")


@pytest.mark.parametrize(("who", "request_name", "state", "cell"), list(cells()))
def test_each_request_in_each_state(who: str, request_name: str, state: str, cell: str) -> None:
    coordinator = Coordinator()
    coordinator.topics.create("t", 4)
    member = STATES[state](coordinator)
    assert state_of(coordinator) == state
    asking = {"member": member, "stranger": Member("stranger"), "nobody": Member("", -1)}[who]

    answer, _, letter = cell.partition(">")
    assert REQUESTS[request_name](coordinator, asking) == ANSWERS[answer]
    assert state_of(coordinator) == (LETTERS[letter] if letter else state)


@pytest.mark.parametrize("state", STATES)
def test_each_state_responds_after_a_restart(state: str) -> None:
    """Its state in the log: complete generations, and all of consumer groups."""
    coordinator = Coordinator()
    coordinator.topics.create("t", 4)
    STATES[state](coordinator)
    coordinator.restart()
    remains = {
        "classic PreparingRebalance": "classic Stable",
        "classic CompletingRebalance": "none",
    }
    assert state_of(coordinator) == remains.get(state, state)

"""Members of groups without a client: single requests of both protocols, and requests about groups.

A `ClassicMember` or a `ConsumerMember` sends only what a test requests: no automatic heartbeat, no rejoin. It has its
own connection, because the response to JoinGroup or SyncGroup may wait for other members; ``start_join`` and
``start_sync`` send without waiting, ``joined`` and ``synced`` receive the response.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from moldau.protocol.codec import decode, encode
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from moldau.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ResponseTopicPartition,
    TopicPartition,
)
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from moldau.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from moldau.protocol.uuid import random_uuid, uuid_to_str
from moldau.testing.routed_wire import RoutedWire
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

Partitions = Mapping[str, Sequence[int]]


def code(error_code: int) -> str:
    """The name of an error code: what comparisons show when they fail."""
    return ErrorCode(error_code).name


# -- the opaque fields of the classic protocol, as consumers write them --


def subscription(*topics: str, owned: Partitions | None = None, version: int = 1) -> bytes:
    """What a consumer sends as metadata of its protocols."""
    metadata = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            TopicPartition(topic=topic, partitions=list(partitions)) for topic, partitions in (owned or {}).items()
        ],
    )
    return version.to_bytes(2, "big") + encode(metadata, version)


def assignment(partitions: Partitions, version: int = 1) -> bytes:
    """The assignment of a member, as a leader sends it."""
    assigned = [ResponseTopicPartition(topic=topic, partitions=list(each)) for topic, each in partitions.items()]
    return version.to_bytes(2, "big") + encode(ConsumerProtocolAssignment(assigned_partitions=assigned), version)


def assigned(data: bytes) -> dict[str, list[int]]:
    """The partitions of an assignment."""
    found = decode(ConsumerProtocolAssignment, data, int.from_bytes(data[:2], "big"), 2)
    return {each.topic: sorted(each.partitions) for each in found.assigned_partitions}


class Member:
    """The parts common to both kinds: a connection, a group, an identity."""

    def __init__(
        self, bootstrap_servers: str, group_id: str, *, instance_id: str | None = None, client_id: str = "wire"
    ) -> None:
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.wire = WireClient(bootstrap_servers, client_id=client_id, timeout_s=60)

    def close(self) -> None:
        """Close the connection without leaving the group."""
        self.wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ClassicMember(Member):
    """A member of a classic group."""

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        *,
        instance_id: str | None = None,
        client_id: str = "wire",
        protocol_type: str = "consumer",
        protocols: Mapping[str, bytes] | None = None,
        session_timeout_ms: int = 30_000,
        rebalance_timeout_ms: int = 30_000,
    ) -> None:
        super().__init__(bootstrap_servers, group_id, instance_id=instance_id, client_id=client_id)
        self.protocol_type = protocol_type
        self.protocols = dict(protocols if protocols is not None else {"range": subscription("a")})
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.generation = -1
        self.protocol_name: str | None = next(iter(self.protocols), None)
        self.leader = ""
        self._version = 9

    @property
    def is_leader(self) -> bool:
        """As of the last join."""
        return self.leader == self.member_id

    def join(self, version: int = 9) -> JoinGroupResponse:
        """Join, with a second request if the first one only returned a member id; return the last response."""
        self.start_join(version)
        return self.joined()

    def start_join(self, version: int = 9) -> None:
        """Send JoinGroup with a member id, which is requested from the server if this member has none."""
        self._version = version
        if not self.member_id and self.instance_id is None and version >= 4:
            given = self.ask_join(version)
            assert code(given.error_code) == "MEMBER_ID_REQUIRED", given
            assert given.member_id
            self.member_id = given.member_id
        self.wire.send(self.join_request(), version)

    def joined(self) -> JoinGroupResponse:
        """The response to ``start_join``; it updates the identity and the generation."""
        answer: JoinGroupResponse = self.wire.receive()
        if answer.error_code == 0:
            self.member_id, self.generation, self.leader = answer.member_id, answer.generation_id, answer.leader
            self.protocol_name = answer.protocol_name
        return answer

    def ask_join(self, version: int = 9) -> JoinGroupResponse:
        """One JoinGroup and its response, which does not change this member."""
        answer: JoinGroupResponse = self.wire.call(self.join_request(), version)
        return answer

    def join_request(self) -> JoinGroupRequest:
        """With the current state of this member."""
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in self.protocols.items()],
        )

    def sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5) -> SyncGroupResponse:
        """SyncGroup; a leader sends the assignments by member id."""
        self.start_sync(assignments, version)
        return self.synced()

    def start_sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5) -> None:
        """Send SyncGroup."""
        self.wire.send(self.sync_request(assignments), version)

    def sync_request(self, assignments: Mapping[str, bytes] | None = None) -> SyncGroupRequest:
        """With the current state of this member. The protocol is sent from version 5 on (KIP-559)."""
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=data)
                for member, data in (assignments or {}).items()
            ],
        )

    def synced(self) -> SyncGroupResponse:
        """The response to ``start_sync``."""
        answer: SyncGroupResponse = self.wire.receive()
        return answer

    def heartbeat(self, version: int = 4) -> str:
        """Send a heartbeat, and return the name of its error code."""
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return code(self.wire.call(request, version).error_code)

    def leave(self, version: int = 5) -> LeaveGroupResponse:
        """LeaveGroup for this member."""
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        else:
            request = leave_request(self.group_id, (self.member_id, self.instance_id))
        answer: LeaveGroupResponse = self.wire.call(request, version)
        return answer


def leave_request(group_id: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    """A batch of (member id, instance id), for versions from 3 on."""
    leaving = [MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members]
    return LeaveGroupRequest(group_id=group_id, members=leaving)


def rebalance(leader: ClassicMember, *others: ClassicMember, assignments: Mapping[str, bytes] | None = None) -> None:
    """Complete one generation with all members; the first is the leader or, in an empty group, becomes it.

    ``assignments`` are by member id; without any each member gets its own id as its assignment.
    """
    members = (leader, *others)
    old = [member for member in others if member.generation >= 0]
    new = [member for member in others if member.generation < 0]
    if leader.generation < 0:
        assert not others, "the leader must have a generation first"
    # A rebalance completes when all members have joined, so the new ones must be members before the last old one
    # rejoins.
    for number, member in enumerate(new, len(old) + 2):
        member.start_join()
        wait_until(_has_members(leader, number), f"{number} members")
    leader.start_join()
    if not new:
        for member in old:
            wait_for_rebalance(member)
    for member in old:
        member.start_join()
    for member in members:
        answer = member.joined()
        assert answer.error_code == 0, code(answer.error_code)
    assert len({member.generation for member in members}) == 1
    assert leader.is_leader
    sent = assignments or {member.member_id: member.member_id.encode() for member in members}
    for member in members:
        member.start_sync(sent if member.is_leader else None)
    for member in members:
        given = member.synced()
        assert given.error_code == 0, code(given.error_code)
        assert given.assignment == sent.get(member.member_id, b"")


def wait_for_rebalance(member: ClassicMember) -> None:
    """Send heartbeats until a response requires a rejoin."""
    wait_until(lambda: member.heartbeat() == "REBALANCE_IN_PROGRESS", "a rebalance")


def _has_members(member: Member, count: int) -> Callable[[], bool]:
    return lambda: len(describe_group(member.wire, member.group_id).members) == count


class ConsumerMember(Member):
    """A member of a consumer group (KIP-848)."""

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        *topics: Topic,
        instance_id: str | None = None,
        client_id: str = "wire",
        member_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 30_000,
    ) -> None:
        super().__init__(bootstrap_servers, group_id, instance_id=instance_id, client_id=client_id)
        # Since version 1 members generate their ids (KIP-1082).
        self.member_id = uuid_to_str(random_uuid()) if member_id is None else member_id
        self.epoch = 0
        self.assignor = assignor
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.owned: dict[bytes, list[int]] = {}
        self._topics = {topic.topic_id: topic.name for topic in topics}

    @property
    def partitions(self) -> dict[str, list[int]]:
        """What it owns, by the topics' names."""
        return {self._topics[topic_id]: partitions for topic_id, partitions in self.owned.items() if partitions}

    def join_request(self) -> ConsumerGroupHeartbeatRequest:
        """The first heartbeat, with all fields."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=0,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            subscribed_topic_names=list(self._topics.values()),
            server_assignor=self.assignor,
            topic_partitions=[],
        )

    def join(self, version: int = 1) -> ConsumerGroupHeartbeatResponse:
        """Join, and return the response."""
        return self.send(self.join_request(), version)

    def send(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> ConsumerGroupHeartbeatResponse:
        """Send any heartbeat for this member, which its response updates."""
        return self._take(self.wire.call(request, version))

    def heartbeat(self, version: int = 1, *, owned: bool = False) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat, with the owned partitions if ``owned``; its response updates the member."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            topic_partitions=self._owned() if owned else None,
        )
        return self.send(request, version)

    def leave(self, *, epoch: int = -1, version: int = 1) -> ConsumerGroupHeartbeatResponse:
        """The last heartbeat; a static member that will return sends epoch -2."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        answer: ConsumerGroupHeartbeatResponse = self.wire.call(request, version)
        return answer

    def _owned(self) -> list[TopicPartitions]:
        return [TopicPartitions(topic_id=topic, partitions=each) for topic, each in self.owned.items() if each]

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        if answer.error_code == 0:
            assert answer.member_id is not None
            self.member_id, self.epoch = answer.member_id, answer.member_epoch
            if answer.assignment is not None:
                self.owned = {each.topic_id: sorted(each.partitions) for each in answer.assignment.topic_partitions}
        return answer


def settle(*members: ConsumerMember) -> None:
    """Let all members send heartbeats until the group is stable; each revokes partitions immediately."""
    first = members[0]

    def is_stable() -> bool:
        for member in members:
            answer = member.heartbeat()
            assert answer.error_code == 0, code(answer.error_code)
            if answer.assignment is not None:
                answer = member.heartbeat(owned=True)
                assert answer.error_code == 0, code(answer.error_code)
        return describe_consumer_group(first.wire, first.group_id).group_state == "Stable"

    wait_until(is_stable, f"a stable group {first.group_id}")


# -- requests about groups --


def wait_for_coordinator(bootstrap_servers: str, group_id: str = "any") -> None:
    """Return when the coordinator of this group is available, whether or not the group exists.

    The first FindCoordinator makes Kafka create `__consumer_offsets`, and the coordinator then loads it.
    """
    with RoutedWire(bootstrap_servers) as wire:

        def answers() -> bool:
            (found,) = wire.call(FindCoordinatorRequest(coordinator_keys=[group_id]), 4).coordinators
            if found.error_code:
                return False
            return code(describe_group(wire, group_id).error_code) in ("NONE", "GROUP_ID_NOT_FOUND")

        # FindCoordinator may succeed before another broker has loaded the group, and fail again meanwhile.
        wait_until(answers, f"the coordinator of {group_id}", retry=KafkaError)


def describe_group(wire: WireClient, group_id: str, version: int = 6) -> DescribedGroup:
    """DescribeGroups of one group."""
    (group,) = wire.call(DescribeGroupsRequest(groups=[group_id]), version).groups
    assert isinstance(group, DescribedGroup)
    return group


def describe_consumer_group(wire: WireClient, group_id: str, version: int = 1) -> DescribedConsumerGroup:
    """ConsumerGroupDescribe of one group."""
    (group,) = wire.call(ConsumerGroupDescribeRequest(group_ids=[group_id]), version).groups
    assert isinstance(group, DescribedConsumerGroup)
    return group


def list_groups(
    wire: WireClient, *, states: Sequence[str] = (), types: Sequence[str] = (), version: int = 5
) -> dict[str, ListedGroup]:
    """ListGroups, by group id."""
    answer = wire.call(ListGroupsRequest(states_filter=list(states), types_filter=list(types)), version)
    assert answer.error_code == 0, code(answer.error_code)
    return {group.group_id: group for group in answer.groups}


def delete_groups(wire: WireClient, *group_ids: str, version: int = 2) -> dict[str, str]:
    """DeleteGroups: the names of the error codes by group."""
    answer = wire.call(DeleteGroupsRequest(groups_names=list(group_ids)), version)
    return {result.group_id: code(result.error_code) for result in answer.results}


def commit_request(
    group_id: str,
    topic: str | Topic,
    offsets: Mapping[int, int],
    *,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    metadata: str | None = "",
) -> OffsetCommitRequest:
    """OffsetCommit for partitions of one topic; without a member it is a commit from outside the group.

    Without the topic's id it is one for versions up to 9.
    """
    name, topic_id = topic if isinstance(topic, Topic) else (topic, bytes(16))
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
        for index, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)],
    )


def commit(wire: WireClient, request: OffsetCommitRequest, version: int = 9) -> dict[int, str]:
    """The names of the error codes by partition."""
    ((*partitions,),) = [topic.partitions for topic in wire.call(request, version).topics]
    return {partition.partition_index: code(partition.error_code) for partition in partitions}


def committed(wire: WireClient, group_id: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """The offsets that a group has committed; -1 for none."""
    requested = [OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=requested)])
    (group,) = wire.call(request, 9).groups
    assert group.error_code == 0, code(group.error_code)
    ((*found,),) = [each.partitions for each in group.topics]
    assert [each.error_code for each in found] == [0] * len(found)
    return {each.partition_index: each.committed_offset for each in found}

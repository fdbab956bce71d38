"""Random events: members start, stop and fail, transactions end, the log rejects appends, topics change."""

from __future__ import annotations

from collections.abc import Callable

from moldau.group_coordinator.classic.kind import CLASSIC
from moldau.group_coordinator.consumer.kind import CONSUMER
from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.describe_groups import DescribeGroupsResponse
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.list_groups import ListGroupsResponse
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponse
from moldau.protocol.steps import completed

from .classic_client import KAFKA_1, KAFKA_2_4, NEW, ClassicClient
from .client_assignors import COOPERATIVE, RANGE
from .consumer_client import ConsumerClient
from .world import GROUPS, TOPICS, Member, World

KINDS = ("eager", "cooperative", "connect", "consumer", "mixed")
"""The kinds of the members in a run."""

REGEXES = ("p.*", "apples|plums", ".*s")
INSTANCE_IDS = ("i-1", "i-2")
REJECTIONS = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
MAX_MEMBERS = 5


class Events:
    """All events, with their relative frequency."""

    def __init__(self, world: World, kind: str) -> None:
        self.world = world
        self.kind = kind
        self.random = world.random
        self._names = 0
        weighted: tuple[tuple[int, Callable[[], None]], ...] = (
            (12, self._a_client_commits),
            (14, self._producers_commit),
            (6, self._a_transaction_ends),
            (4, self.a_member_starts),
            (2, self._a_member_leaves),
            (2, self._a_member_crashes),
            (3, self._a_member_pauses),
            (3, self._an_application_is_busy),
            (3, self._a_member_changes_its_subscription),
            (4, self._appends_are_rejected_or_accepted),
            (4, self._high_watermark_stalls_or_resumes),
            (3, self._the_coordinator_restarts),
            (3, self._topics_change),
            (4, self._an_admin_queries),
            (2, self._an_admin_deletes),
        )
        self._events = [event for _, event in weighted]
        self._weights = [weight for weight, _ in weighted]

    def one(self) -> None:
        """Run a random event."""
        self.random.choices(self._events, self._weights)[0]()

    # -- members -------------------------------------------------------------------------------------------------------

    def a_member_starts(self) -> None:
        """Start a member, unless the group has too many."""
        random, world = self.random, self.world
        group_id = random.choice(GROUPS) if random.random() < 0.3 else GROUPS[0]
        others = list(world.members_of(group_id))
        if len(others) >= MAX_MEMBERS:
            return
        instance_id = random.choice(INSTANCE_IDS) if random.random() < 0.3 else None
        if instance_id is not None and any(one.instance_id == instance_id for one in others) and random.random() < 0.8:
            return  # two processes with one instance ID are a user error, and less frequent
        self._names += 1
        name = f"client-{self._names}"
        protocol = random.choice(("consumer", "eager")) if self.kind == "mixed" else self.kind
        topics = frozenset(world.some_of(TOPICS))
        world.note("{} starts: {}, group {}, {}, {}", name, protocol, group_id, instance_id, sorted(topics))
        make = self._new_consumer if protocol == "consumer" else self._new_classic
        world.clients.append(make(protocol, name, group_id, topics, instance_id))

    def _new_consumer(
        self, protocol: str, name: str, group_id: str, topics: frozenset[str], instance_id: str | None
    ) -> Member:
        random = self.random
        api_version = random.choice((1, 1, 0)) if instance_id is None else 1
        regex = random.choice(REGEXES) if api_version >= 1 and random.random() < 0.3 else None
        return ConsumerClient(
            self.world,
            name,
            group_id,
            topics=frozenset() if regex is not None and random.random() < 0.8 else topics,
            regex=regex,
            instance_id=instance_id,
            server_assignor=random.choice((None, None, "uniform", "range")),
            api_version=api_version,
        )

    def _new_classic(
        self, protocol: str, name: str, group_id: str, topics: frozenset[str], instance_id: str | None
    ) -> Member:
        random = self.random
        versions = NEW
        if instance_id is None:
            # The oldest subscriptions have no owned partitions, which the cooperative protocol requires.
            versions = random.choice((NEW, NEW, KAFKA_2_4, KAFKA_1 if protocol == "eager" else KAFKA_2_4))
        assignors = {"cooperative": (COOPERATIVE,), "connect": ("sessioned",)}.get(protocol, (RANGE, "roundrobin"))
        return ClassicClient(
            self.world,
            name,
            group_id,
            topics=topics,
            assignors=assignors,
            protocol_type="connect" if protocol == "connect" else "consumer",
            instance_id=instance_id,
            versions=versions,
            session_timeout_ms=random.choice((6000, 8000)),
            rebalance_timeout_ms=random.choice((6000, 10_000)),
        )

    def _some_member(self) -> Member | None:
        members = self.world.members()
        return self.random.choice(members) if members else None

    def _some_acting_member(self) -> Member | None:
        member = self._some_member()
        return member if member is not None and member.paused_until_ms <= self.world.clock.monotonic_ms else None

    def _a_client_commits(self) -> None:
        member = self._some_acting_member()
        if member is not None and self.random.random() < 0.9:
            member.commit()
        else:
            self.world.outsider.commit()

    def _producers_commit(self) -> None:
        """Several producers may commit for one member: one of them is a zombie, or left its transaction open."""
        member = self._some_acting_member() if self.random.random() < 0.5 else None
        for producer in self.world.some_of(self.world.producers):
            producer.commit(member)

    def _a_transaction_ends(self) -> None:
        self.random.choice(self.world.producers).end(committed=self.random.random() < 0.6)

    def _a_member_leaves(self) -> None:
        member = self._some_acting_member()
        if member is not None:
            self.world.note("{} leaves", member)
            member.leave()

    def _a_member_crashes(self) -> None:
        member = self._some_member()
        if member is not None:
            self.world.note("{} crashes", member)
            member.stop()

    def _a_member_pauses(self) -> None:
        member = self._some_member()
        if member is not None:
            for_ms = self.random.choice((500, 5000, 15_000))
            self.world.note("{} pauses for {} ms", member, for_ms)
            member.paused_until_ms = self.world.clock.monotonic_ms + for_ms

    def _an_application_is_busy(self) -> None:
        member = self._some_member()
        if member is not None and not member.busy_until_ms:
            for_ms = self.random.choice((500, 5000, 15_000))
            self.world.note("{} is busy for {} ms", member, for_ms)
            member.be_busy(for_ms)

    def _a_member_changes_its_subscription(self) -> None:
        member = self._some_acting_member()
        if isinstance(member, ClassicClient):
            member.request_rebalance()
        elif isinstance(member, ConsumerClient):
            with_regex = member.api_version >= 1 and self.random.random() < 0.3
            regex = self.random.choice(REGEXES) if with_regex else None
            member.subscribe(frozenset(self.world.some_of(TOPICS)), regex)
            self.world.note("{} reads {} and {}", member, sorted(member.topics), regex)

    # -- the coordinator and its log -----------------------------------------------------------------------------------

    def _appends_are_rejected_or_accepted(self) -> None:
        log = self.world.log
        if log.rejection is not None:
            log.rejection = None
        elif self.random.random() < 0.5:
            log.rejection = self.random.choice(REJECTIONS)
        self.world.note("appends are rejected with {!r}", log.rejection)

    def _high_watermark_stalls_or_resumes(self) -> None:
        log = self.world.log
        if log.is_stalled:
            self.world.note("records are released")
            self.world.release_records()
        elif self.random.random() < 0.5:
            self.world.note("the high watermark stalls")
            log.is_stalled = True

    def _the_coordinator_restarts(self) -> None:
        if self.world.coordinator.is_active:
            if self.random.random() < 0.5:
                self.world.resign()
            else:
                self.world.kill()
            self.world.restart(from_high_watermark=self.random.random() < 0.5)

    def _topics_change(self) -> None:
        topics, name = self.world.topics, self.random.choice(TOPICS)
        count = topics.partition_count(name)
        deleted = []
        if not count:
            topics.create(name, self.random.randint(1, 4))
        elif self.random.random() < 0.5 and count < 6:
            topics.grow(name)
        else:
            topics.delete(name)
            deleted.append(name)
            if self.random.random() < 0.4:
                topics.create(name, self.random.randint(1, 4))
        self.world.note("{} has {} partitions", name, topics.partition_count(name))
        self.world.coordinator.topics_changed(deleted)

    # -- administrators ------------------------------------------------------------------------------------------------

    def _an_admin_deletes(self) -> None:
        group_id = self.random.choice(GROUPS)
        what = self.random.randrange(3)
        send = self.world.outsider.send_request
        if what == 0:
            send(DeleteGroupsRequest(groups_names=[group_id]), 2)
        elif what == 1:
            partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in range(3)]
            topics = [OffsetDeleteRequestTopic(name=self.random.choice(TOPICS), partitions=partitions)]
            send(OffsetDeleteRequest(group_id=group_id, topics=topics), 0)
        else:
            members = [MemberIdentity(member_id="", group_instance_id=one) for one in INSTANCE_IDS]
            send(LeaveGroupRequest(group_id=group_id, members=members), 5)

    def _an_admin_queries(self) -> None:
        """Query all properties of a group. Its offsets must be those in the log whose topics exist."""
        world, group_id = self.world, self.random.choice(GROUPS)
        if not world.coordinator.is_active:
            return
        shard = world.coordinator.runtime.read()
        encode(ListGroupsResponse(groups=[one for some in shard.list_groups([], []) for one in some]), 5)
        requested = OffsetFetchRequestGroup(group_id=group_id, topics=None)
        require_stable = self.random.random() < 0.5
        fetched = completed(shard.fetch_offsets(requested, require_stable=require_stable))
        encode(OffsetFetchResponse(groups=[fetched]), 9)
        assert not fetched.error_code
        offsets = {
            (topic.name, partition.partition_index): (partition.committed_offset, partition.error_code)
            for topic in fetched.topics
            for partition in topic.partitions
        }
        unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        log = world.invariants.log
        committed = {
            of: unstable if require_stable and log.is_pending((group_id, *of)) else (value.offset, 0)
            for of, value in log.offsets_of(group_id).items()
            if value.topic_id in (bytes(16), world.topics.id_of(of[0]))
        }
        assert offsets == committed, f"fetched {offsets}, committed {committed}"
        encode(DescribeGroupsResponse(groups=[shard.describe(CLASSIC, group_id, api_version=5)]), 5)
        if world.is_consumer_group(group_id):
            encode(ConsumerGroupDescribeResponse(groups=[shard.describe(CONSUMER, group_id, api_version=1)]), 1)
        else:
            try:
                shard.describe(CONSUMER, group_id, api_version=1)
            except KafkaError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise

"""Three replicas of one partition, a controller and a network, all in memory and determined by a seed.

The replicas are real: `Partition` on an in-memory file system, `Following`, `Proposal`. The controller decides by
`change_partition`. Requests and responses are delivered late, or get lost; metadata arrive at each broker at another
time; brokers are killed and return with their files. After each step, `check` compares what must never differ.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from moldau.log.config import LogConfig
from moldau.log.descriptors import DescriptorCache
from moldau.log.memory_files import MemoryFileSystem
from moldau.log.partition_loading import load_log
from moldau.metadata.partition_changes import change_partition
from moldau.metadata.records import PartitionChangeRecord
from moldau.metadata.registrations import PartitionRegistration
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.alter_partition import PartitionData as ProposedData
from moldau.protocol.messages.alter_partition import ResponsePartitionData
from moldau.protocol.messages.fetch import EpochEndOffset, PartitionData
from moldau.protocol.records import Record, build_batch, iter_records
from moldau.replication.following import Following, Position
from moldau.replication.partition import Partition
from moldau.replication.proposals import Proposal, Settled, expansion, reduction

TOPIC_ID = b"\1" * 16
DIRECTORY = "/data/t-0"
NODES = (1, 2, 3)
MAX_LAG_MS = 1000
_METADATA_VERSION = 30
_MIN_IN_SYNC = 2
_WALL_MS = 1_700_000_000_000


class Entry(NamedTuple):
    """A record in a log."""

    offset: int
    leader_epoch: int
    value: bytes


class Request(NamedTuple):
    """A fetch on its way to the leader, or its response on the way back."""

    leader_id: int
    broker_epoch: int
    position: Position
    following: Following
    response: PartitionData | None = None


class Node:
    """A broker with its replica."""

    def __init__(self, node_id: int) -> None:
        self.id = node_id
        self.files = MemoryFileSystem()
        self.files.make_directory(DIRECTORY)
        for directory in ("", "/data"):
            self.files.sync_directory(directory)
        self.checkpoint = 0  # of the high watermark
        self.is_running = False
        self.broker_epoch = 0
        self.applied = 0  # changes of the metadata
        self.partition: Partition
        self.following: Following | None = None
        self.in_flight: Request | None = None
        self.proposal: Proposal | None = None
        self.proposal_response: ResponsePartitionData | None = None

    def open(self, *, clean: bool) -> None:
        """Start with the files that are there."""
        log = load_log(DescriptorCache(self.files, 8), DIRECTORY, "t", 0, LogConfig(), clean=clean, now_ms=_WALL_MS)
        self.partition = Partition("t", TOPIC_ID, 0, self.id, log)
        self.partition.update_config(log.config, min_insync_replicas=_MIN_IN_SYNC)
        self.partition.restore_high_watermark(self.checkpoint)
        self.following = self.in_flight = self.proposal = self.proposal_response = None

    @property
    def leads(self) -> bool:
        """Whether it believes that it is the leader."""
        return self.is_running and self.partition.leader_id == self.id

    def entries(self) -> list[Entry]:
        """All records of its log."""
        log = self.partition.log
        found = []
        for batch in log.batches(log.log_start_offset):
            found += [
                Entry(record.offset, batch.partition_leader_epoch, bytes(record.value or b""))
                for record in iter_records(batch)
            ]
        return found


class Cluster:
    """See the module docstring."""

    failures = 1
    """How often brokers are killed and fenced, compared with the usual frequency."""
    loses_power = False
    """Whether a machine may lose power, with what is not synced. It returns immediately."""
    elr_enabled = False
    """Whether replicas stay eligible for leadership after they have left the in-sync set (KIP-966)."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now_ms = 1_000_000
        self.steps: list[str] = []
        self.weights = [
            weight * (self.failures if action in ("kill", "expire") else 1) for action, (weight, _) in _ACTIONS.items()
        ]
        self.nodes = {node_id: Node(node_id) for node_id in NODES}
        self.history = [PartitionRegistration(NODES, NODES, 1)]
        self.live: set[int] = set()
        self.acknowledged: dict[bytes, int] = {}
        self.seen: dict[int, Entry] = {}
        self.watermarks: dict[tuple[int, int, int], int] = {}  # by node, its life, and leader epoch
        self.produced = 0
        for node in self.nodes.values():
            node.open(clean=True)
            self.start(node)

    @property
    def registration(self) -> PartitionRegistration:
        """The state that the controller has committed."""
        return self.history[-1]

    # -- the controller ------------------------------------------------------------------------------------------------

    def change(self, **target: Any) -> bool:
        """Change the partition. Returns whether anything has changed."""
        change = change_partition(
            self.registration,
            TOPIC_ID,
            0,
            may_lead=lambda broker_id: broker_id in self.live,
            metadata_version=_METADATA_VERSION,
            elr_minimum=_MIN_IN_SYNC if self.elr_enabled else None,
            **target,
        )
        if change is None:
            return False
        assert isinstance(change.record, PartitionChangeRecord)
        self.history.append(self.registration.merge(change.record))
        return True

    def fence(self, node: Node) -> None:
        """The session of the broker has ended."""
        self.live.discard(node.id)
        self.leave(node)

    def leave(self, node: Node, **target: Any) -> None:
        """The broker is not in sync any longer."""
        self.change(isr=[each for each in self.registration.isr if each != node.id], **target)

    def alter(self, node: Node, proposed: ProposedData) -> ResponsePartitionData:
        """AlterPartition, with the checks of the controller in their order."""
        before = self.registration
        code = ErrorCode.NONE
        isr = [member.broker_id for member in proposed.new_isr_with_epochs]
        if proposed.leader_epoch < before.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif before.leader != node.id:
            code = ErrorCode.INVALID_REQUEST
        elif proposed.partition_epoch < before.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            member.broker_id not in self.live
            or member.broker_epoch not in (-1, self.nodes[member.broker_id].broker_epoch)
            for member in proposed.new_isr_with_epochs
        ):
            code = ErrorCode.INELIGIBLE_REPLICA
        else:
            self.change(isr=isr)
        after = self.registration
        return ResponsePartitionData(
            error_code=code,
            leader_id=after.leader,
            leader_epoch=after.leader_epoch,
            isr=list(after.isr),
            partition_epoch=after.partition_epoch,
        )

    # -- brokers -------------------------------------------------------------------------------------------------------

    def start(self, node: Node) -> None:
        """The broker registers, catches up with the metadata, and is unfenced."""
        self.live.discard(node.id)
        if node.broker_epoch and (self.elr_enabled or node.id in self.registration.isr):
            self.leave(node, unclean_replicas=(node.id,))  # it was killed
        node.broker_epoch += 1
        node.applied = len(self.history) - 1  # a broker that starts knows the latest state only
        node.is_running = True
        self.apply(node)
        self.live.add(node.id)
        self.change()

    def kill(self, node: Node) -> None:
        """The process ends; its files remain. The controller notices that later."""
        node.is_running = False
        node.partition.log.abandon()

    def apply(self, node: Node) -> bool:
        """Apply the next change of the metadata. Returns False if there is none."""
        if node.applied == len(self.history):
            return False
        registration = self.history[node.applied]
        node.applied += 1
        partition = node.partition
        if registration.leader == node.id:
            partition.become_leader(
                leader_epoch=registration.leader_epoch,
                partition_epoch=registration.partition_epoch,
                replicas=registration.replicas,
                isr=registration.isr,
                now_ms=self.now_ms,
            )
        else:
            partition.become_follower(
                leader_id=registration.leader,
                leader_epoch=registration.leader_epoch,
                partition_epoch=registration.partition_epoch,
                replicas=registration.replicas,
                isr=registration.isr,
            )
        if partition.leader_id in (-1, node.id):
            node.following = None
        elif node.following is None or not node.following.is_current:
            node.following = Following(partition)
            self.truncate(node.following)
        return True

    def produce(self, node: Node, acks: int) -> None:
        """A client sends a record with a unique value."""
        self.produced += 1
        value = b"%d" % self.produced
        try:
            batch = build_batch([Record(0, _WALL_MS, None, value)])
            info = node.partition.append(batch, acks=acks, now_ms=_WALL_MS)
        except KafkaError as error:  # the client retries
            if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS):
                return
            raise
        if acks == -1:
            offset = info.first_offset

            def acknowledged(error: KafkaError | None) -> None:
                if error is None:
                    self.acknowledged[value] = offset

            node.partition.when_acknowledged(offset + 1, acks, acknowledged)

    # -- fetches -------------------------------------------------------------------------------------------------------

    def send_fetch(self, node: Node) -> None:
        """A follower sends its next request."""
        following = node.following
        if node.in_flight is None and following is not None and following.is_due(self.now_ms):
            node.in_flight = Request(following.leader_id, node.broker_epoch, following.position, following)

    def serve_fetch(self, follower: Node) -> None:
        """The request arrives at the leader."""
        request = follower.in_flight
        assert request is not None
        leader = self.nodes[request.leader_id]
        if not leader.is_running:
            follower.in_flight = None
            return
        follower.in_flight = request._replace(response=self.respond(leader, follower, request))

    def respond(self, leader: Node, follower: Node, request: Request) -> PartitionData:
        """As the handler of Fetch (`server.handlers.fetch`)."""
        partition, position = leader.partition, request.position
        try:
            if request.broker_epoch < follower.broker_epoch:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            partition.check_follower(follower.id, position.leader_epoch)
            diverging = partition.diverging_epoch(position.fetch_offset, position.last_fetched_epoch)
            if diverging is not None:
                return PartitionData(
                    high_watermark=partition.high_watermark,
                    log_start_offset=0,
                    diverging_epoch=EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
                    records=b"",
                )
            if position.fetch_offset <= partition.log.log_end_offset:
                partition.follower_fetched(
                    follower.id,
                    position.fetch_offset,
                    now_ms=self.now_ms,
                    eligible=follower.id in self.live and request.broker_epoch == follower.broker_epoch,
                    current_leader_epoch=position.leader_epoch,
                    broker_epoch=request.broker_epoch,
                )
                partition.advance_high_watermark()
            max_bytes = self.rng.choice([1, 100, 10_000])
            read = partition.read_as_leader(position.fetch_offset, max_bytes, min_one_batch=True)
        except KafkaError as error:
            return PartitionData(error_code=error.code, records=b"", high_watermark=-1)
        records = b""
        if read.records is not None:
            records = read.records.read()
            read.records.release()
        if leader.proposal is None:
            leader.proposal = expansion(partition)
        return PartitionData(
            high_watermark=partition.high_watermark, log_start_offset=partition.log.log_start_offset, records=records
        )

    def receive_fetch(self, node: Node) -> None:
        """The response arrives at the follower."""
        request, node.in_flight = node.in_flight, None
        assert request is not None
        assert request.response is not None
        if node.following is not None and node.following.leader_id == request.leader_id:
            self.handle(node, node.following, request)

    def handle(self, node: Node, following: Following, request: Request) -> None:
        assert request.response is not None
        response = request.response
        if response.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            leader = self.nodes[request.leader_id]
            if leader.leads and leader.partition.leader_epoch == request.position.leader_epoch:
                following.found_offsets(
                    request.position, leader.partition.log.log_end_offset, leader.partition.log.log_start_offset
                )
        else:
            following.handle(request.position, response, now_ms=self.now_ms, wall_ms=_WALL_MS, max_pause_ms=100)
        self.truncate(following)

    def truncate(self, following: Following) -> None:
        """Do what the follower has decided."""
        truncation = following.truncation
        if truncation is not None:
            assert truncation.is_complete or truncation.offset >= following.partition.high_watermark, (
                f"{truncation} removes records below the high watermark, {following.partition.high_watermark}"
            )
            following.truncate(now_ms=self.now_ms, wall_ms=_WALL_MS, max_pause_ms=100)

    # -- proposals -----------------------------------------------------------------------------------------------------

    def send_proposal(self, node: Node) -> None:
        """The controller decides on the proposal, or on its repetition."""
        proposal = node.proposal
        if proposal is None or not proposal.is_pending:
            node.proposal = None
            return
        node.proposal_response = self.alter(node, proposal.to_request(node.broker_epoch))

    def settle(self, node: Node, response: ResponsePartitionData) -> None:
        assert node.proposal is not None
        if node.proposal.settle(response, self.now_ms) is not Settled.REPEAT:
            node.proposal = expansion(node.partition)

    # -- what happens --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Something happens."""
        node = self.nodes[self.rng.choice(NODES)]
        action = self.rng.choices(list(_ACTIONS), self.weights)[0]
        self.steps.append(f"{action} {node.id}")
        _ACTIONS[action][1](self, node)

    def maybe_kill(self, node: Node) -> None:
        if node.is_running and self.loses_power and set(self.registration.isr) & self.live - {node.id}:
            self.kill(node)
            node.files = node.files.crash(self.rng)
            node.open(clean=False)
            self.start(node)
        elif node.is_running:
            self.kill(node)
        elif self.rng.random() < 0.5:
            node.open(clean=False)
            self.start(node)

    def maybe_produce(self, node: Node) -> None:
        if node.leads:
            self.produce(node, self.rng.choice([-1, -1, 1]))

    def move_fetch(self, node: Node) -> None:
        if not node.is_running:
            return
        if node.in_flight is None:
            self.send_fetch(node)
        elif node.in_flight.response is None:
            self.serve_fetch(node)
        else:
            self.receive_fetch(node)

    def lose(self, node: Node) -> None:
        """A connection is lost, with what is on its way."""
        if self.rng.random() < 0.5:
            node.in_flight = None
        else:
            node.proposal_response = None

    def move_proposal(self, node: Node) -> None:
        if not node.is_running or node.proposal is None:
            return
        if node.proposal_response is None:
            self.send_proposal(node)
        elif self.rng.random() < 0.2:
            node.proposal_response = None
            self.settle(node, ResponsePartitionData(error_code=ErrorCode.REQUEST_TIMED_OUT))
        else:
            response, node.proposal_response = node.proposal_response, None
            self.settle(node, response)

    def apply_if_running(self, node: Node) -> None:
        if node.is_running:
            self.apply(node)

    def pass_time(self, node: Node) -> None:
        self.now_ms += self.rng.choice([10, 100, MAX_LAG_MS])
        if node.leads and node.proposal is None:
            node.proposal = reduction(node.partition, self.now_ms, MAX_LAG_MS)

    def expire(self, node: Node) -> None:
        if node.id in self.live and (not node.is_running or self.rng.random() < 0.2):
            self.fence(node)
        elif node.is_running and node.id not in self.live and node.applied == len(self.history):
            self.live.add(node.id)  # a broker that was paused returns with the same epoch
            self.change()

    def write_checkpoint(self, node: Node) -> None:
        if node.is_running:
            node.checkpoint = node.partition.high_watermark

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Compare the replicas with what clients have seen."""
        for node in self.nodes.values():
            if not node.leads:
                continue
            partition = node.partition
            key = (node.id, node.broker_epoch, partition.leader_epoch)
            assert partition.high_watermark >= self.watermarks.get(key, 0), "the high watermark has decreased"
            self.watermarks[key] = partition.high_watermark
            if partition.may_miss_committed_records:
                continue
            for entry in node.entries():
                if entry.offset < partition.high_watermark:
                    known = self.seen.setdefault(entry.offset, entry)
                    assert known == entry, f"a consumer has seen {known}, and now {entry}"
        leader = self.nodes.get(self.registration.leader)
        if leader is not None and leader.is_running:
            self._check_in_sync(leader)
            present = {entry.value: entry.offset for entry in leader.entries()}
            for value, offset in self.acknowledged.items():
                assert present.get(value) == offset, f"{value!r} was acknowledged at {offset}, and is lost"

    def _check_in_sync(self, leader: Node) -> None:
        """The leader counts each member of the in-sync set that the controller has committed, and each of them has all
        below the high watermark."""
        partition, registration = leader.partition, self.registration
        if leader.leads and partition.leader_epoch == registration.leader_epoch:
            in_sync = partition.in_sync
            assert in_sync is not None
            counted = {*in_sync.isr, *(in_sync.proposed or ())}
            assert set(registration.isr) <= counted, f"{registration.isr} are in sync, and {counted} count"
            for replica_id in registration.isr:
                end_offset = self.nodes[replica_id].partition.log.log_end_offset
                assert end_offset >= partition.high_watermark, (
                    f"in-sync replica {replica_id} ends at {end_offset}, below the high watermark, "
                    f"{partition.high_watermark}"
                )

    def heal(self) -> None:
        """All brokers run, and nothing is lost any longer."""
        for node in self.nodes.values():
            if not node.is_running:
                node.open(clean=False)
                self.start(node)
        for _ in range(400):
            self.now_ms += 200
            for node in self.nodes.values():
                while self.apply(node):
                    pass
                if node.id not in self.live:
                    self.live.add(node.id)
                    self.change()
                self.move_fetch(node)
                self.move_proposal(node)
                if node.leads and node.proposal is None:
                    node.proposal = expansion(node.partition)
            self.check()
            if self.is_whole:
                return
        states = {
            node.id: (node.partition.leader_id, node.partition.log.log_end_offset, node.partition.high_watermark)
            for node in self.nodes.values()
        }
        raise AssertionError(f"the replicas do not agree: {self.registration}, {states}")

    @property
    def is_whole(self) -> bool:
        """Whether all replicas are in sync, and equal."""
        logs = [node.entries() for node in self.nodes.values()]
        return (
            set(self.registration.isr) == set(NODES)
            and logs[0] == logs[1] == logs[2]
            and len({node.partition.high_watermark for node in self.nodes.values()}) == 1
        )


_ACTIONS: dict[str, tuple[int, Callable[[Cluster, Node], None]]] = {
    "produce": (20, Cluster.maybe_produce),
    "fetch": (60, Cluster.move_fetch),
    "lose": (2, Cluster.lose),
    "proposal": (15, Cluster.move_proposal),
    "apply": (15, Cluster.apply_if_running),
    "time": (5, Cluster.pass_time),
    "kill": (1, Cluster.maybe_kill),
    "expire": (3, Cluster.expire),
    "checkpoint": (2, Cluster.write_checkpoint),
}


def run(seed: int, steps: int = 400, cluster: type[Cluster] = Cluster) -> Cluster:
    """A history of this seed, and a whole cluster at its end."""
    simulated = cluster(seed)
    for _ in range(steps):
        simulated.step()
        simulated.check()
    simulated.heal()
    return simulated

"""The same random transaction requests to Moldau and to Apache Kafka have the same responses, logs and offsets.

Some actors share a few transactional ids, so some of them are zombies most of the time. An actor knows only its own
responses. It sends its own producer id and epoch, an older or newer epoch, or the producer id of another actor, in any
version of a request, in any order. After each request, the test waits until both servers have written their markers,
because the time that this takes may differ. Producer ids are compared by the order of their assignment.
"""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from moldau.compat_tests.transaction_server import CONFIG
from moldau.compat_tests.transaction_wire import (
    Producer,
    consume,
    describe,
    end_offset,
    fetch,
    marker,
    partitions_of,
    producers,
    wait_for_coordinators,
    write_markers,
)
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.messages.fetch import PartitionData
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.records import RecordBatch, iter_records
from moldau.testing import topic_requests as w
from moldau.testing.full_run import first_of
from moldau.testing.group_requests import code, committed
from moldau.testing.servers import start_server
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

pytestmark = pytest.mark.slow

SEEDS = range(8)
STEPS = 250
IDS, ACTORS, PARTITIONS = 3, 6, 2


class Request(NamedTuple):
    """One request, chosen independently of all responses."""

    op: str
    actor: int
    version: int
    partition: int
    relation: str
    """The relation of the producer id and epoch in the request to those of the actor."""
    choice: int


OPERATIONS: dict[str, tuple[range, int]] = {
    "init": (range(6), 3),
    "resume": (range(3, 6), 2),
    "add": (range(4), 6),
    "produce": (range(3, 14), 16),
    "gap": (range(3, 14), 2),
    "again": (range(3, 14), 3),
    "plain": (range(3, 14), 1),
    "add_offsets": (range(5), 3),
    "commit_offsets": (range(6), 5),
    "commit": (range(6), 6),
    "abort": (range(6), 4),
    "marker": (range(1, 3), 2),
    "delete": (range(1, 3), 1),
    "look": (range(4, 13), 6),
}
"""The versions of the request, and its relative frequency."""

UNVERIFIED = ("plain", "marker")
"""Writes that the coordinator does not verify. If such a write contains a future epoch, the partition rejects the
marker of the current epoch. Then Apache Kafka leaves the transaction prepared forever, and Moldau completes it."""

RELATIONS = {"own": 30, "older": 1, "newer": 1, "other": 1, "oldest": 1}


def requests(seed: int) -> list[Request]:
    rng = random.Random(seed)
    operations, weights = list(OPERATIONS), [weight for _, weight in OPERATIONS.values()]
    found: list[Request] = []
    while len(found) < STEPS:
        (op,) = rng.choices(operations, weights)
        (relation,) = rng.choices(list(RELATIONS), list(RELATIONS.values()))
        if op in UNVERIFIED and relation in ("newer", "other"):
            continue
        found.append(
            Request(
                op,
                rng.randrange(ACTORS),
                rng.choice(OPERATIONS[op][0]),
                rng.randrange(PARTITIONS),
                relation,
                rng.randrange(1000),
            )
        )
    return found


class Play:
    """All actors at one server."""

    def __init__(self, wire: WireClient, address: str, seed: int) -> None:
        self.wire = wire
        self.name = f"seed-{seed}"
        self.topic: Topic = w.create_topic(address, self.name, PARTITIONS)
        self.actors = [Producer(wire, f"{self.name}-{number % IDS}") for number in range(ACTORS)]
        self._known: dict[int, int] = {-1: -1}

    def ask(self, request: Request) -> Any:
        """The response, and the visible state after it."""
        actor = self.actors[request.actor]
        asking = actor.duplicate()
        if request.relation == "older":
            asking.epoch -= 1
        elif request.relation == "newer":
            asking.epoch += 1
        elif request.relation == "oldest":
            asking.epoch = 0
        elif request.relation == "other":
            asking.producer_id = self.actors[request.choice % ACTORS].producer_id
        answer = self._perform(asking, request)
        if request.relation == "own":
            self.actors[request.actor] = asking
        self._settle()
        return answer, self._normal(asking.producer_id), asking.epoch, self._seen(actor)

    def _perform(self, asking: Producer, request: Request) -> Any:
        version, at = request.version, (self.topic.name, request.partition)
        match request.op:
            case "init":
                return asking.init(version)
            case "resume":
                return asking.init(version, resume=True)
            case "add":
                return asking.add(self.topic, request.partition, version=version)
            case "produce":
                value = b"%d" % request.choice
                return asking.produce(self.topic, value, value, partition=request.partition, version=version)
            case "gap" | "again" | "plain":
                step = {"gap": 3, "again": -2, "plain": 0}[request.op]
                batch = asking.batch(
                    b"-",
                    b"-",
                    sequence=max(0, asking.sequences.get(at, 0) + step),
                    transactional=request.op != "plain",
                )
                return asking.send(self.topic, batch, partition=request.partition, version=version)
            case "add_offsets":
                return asking.add_offsets(self.name, version)
            case "commit_offsets":
                return asking.commit_offsets(self.name, self.topic, {request.partition: request.choice}, version)
            case "commit" | "abort":
                return asking.end(version, committed=request.op == "commit")
            case "marker":
                if asking.producer_id < 0 or asking.epoch < 0:
                    return "unknown"
                said = marker(
                    asking.producer_id,
                    asking.epoch,
                    {self.topic.name: [request.partition]},
                    committed=request.choice % 2 == 0,
                    transaction_version=request.choice % 3 if version == 2 else 0,
                )
                return list(write_markers(self.wire, said, version=version).values())
            case "delete":
                return self._delete_records(request.partition, version)
            case "look":
                return self._look(request)
            case _:
                raise AssertionError(request.op)

    def _delete_records(self, partition: int, version: int) -> Any:
        """Delete half of the records."""
        ends = [
            end_offset(self.wire, self.topic, partition=partition, timestamp=timestamp).offset for timestamp in (-2, -1)
        ]
        requested = DeleteRecordsPartition(partition_index=partition, offset=sum(ends) // 2)
        topic = DeleteRecordsTopic(name=self.topic.name, partitions=[requested])
        answer = self.wire.call(DeleteRecordsRequest(topics=[topic], timeout_ms=5_000), version)
        return ends, code(answer.topics[0].partitions[0].error_code)

    def _look(self, request: Request) -> Any:
        """The records that readers of both isolation levels get from some offset on."""
        partition = request.partition
        first, end = (self._end(partition, timestamp) for timestamp in (-2, -1))
        offset = first + request.choice % (end - first + 1)
        seen = []
        for is_committed in (True, False):
            data = fetch(
                self.wire, self.topic, offset, partition=partition, committed=is_committed, version=request.version
            )
            batches = w.batches_of(data)
            seen.append(
                (
                    (data.high_watermark, data.last_stable_offset, data.log_start_offset),
                    self._aborted(data, batches),
                    [batch.base_offset for batch in batches],
                )
            )
        return seen, self._stable_offsets(), consume(self.wire, self.topic, partition=partition, start=first)

    def _end(self, partition: int, timestamp: int) -> int:
        return end_offset(self.wire, self.topic, partition=partition, timestamp=timestamp).offset

    def _aborted(self, data: PartitionData, batches: list[RecordBatch]) -> Any:
        """Those that affect the records read: Apache Kafka also reports some that begin after them."""
        if data.aborted_transactions is None:
            return None
        last = batches[-1].last_offset if batches else -1
        return [
            (self._normal(each.producer_id), each.first_offset)
            for each in data.aborted_transactions
            if each.first_offset <= last
        ]

    def _stable_offsets(self) -> Any:
        requested = OffsetFetchRequestTopics(name=self.topic.name, partition_indexes=list(range(PARTITIONS)))
        group = OffsetFetchRequestGroup(group_id=self.name, topics=[requested])
        (found,) = self.wire.call(OffsetFetchRequest(groups=[group], require_stable=True), 9).groups
        return [(each.committed_offset, code(each.error_code)) for topic in found.topics for each in topic.partitions]

    def _settle(self) -> None:
        def is_settled() -> bool:
            return not any(self._state(number).startswith("Prepare") for number in range(IDS))

        wait_until(is_settled, "the markers", pause=0.002)

    def _state(self, number: int) -> str:
        return describe(self.wire, f"{self.name}-{number}").transaction_state

    def _seen(self, actor: Producer) -> Any:
        found = describe(self.wire, actor.transactional_id)
        if found.error_code:
            return code(found.error_code)
        epoch = found.producer_epoch
        return found.transaction_state, self._normal(found.producer_id), epoch, partitions_of(found)

    def _normal(self, producer_id: int) -> int:
        return self._known.setdefault(producer_id, len(self._known))

    def left(self) -> dict[str, Any]:
        """The state of the partitions and of the group at the end."""
        found: dict[str, Any] = {"offsets": committed(self.wire, self.name, self.topic.name, range(PARTITIONS))}
        for partition in range(PARTITIONS):
            first = self._end(partition, -2)
            data = fetch(self.wire, self.topic, first, partition=partition, committed=False)
            stable = fetch(self.wire, self.topic, first, partition=partition)
            found[f"log of {partition}"] = [self._batch(batch) for batch in w.batches_of(data)]
            found[f"stable in {partition}"] = (
                stable.last_stable_offset,
                end_offset(self.wire, self.topic, partition=partition).offset,
                len(w.batches_of(stable)),
            )
            found[f"aborted in {partition}"] = self._aborted(stable, w.batches_of(stable))
            found[f"producers of {partition}"] = {
                self._normal(each.producer_id): (each.producer_epoch, each.last_sequence, each.current_txn_start_offset)
                for each in producers(self.wire, self.topic, partition).values()
            }
        return found

    def _batch(self, batch: RecordBatch) -> Any:
        offsets = (batch.base_offset, batch.last_offset)
        said = (self._normal(batch.producer_id), batch.producer_epoch, batch.base_sequence, batch.is_transactional)
        records = [(record.key, record.value) for record in iter_records(batch)]
        if batch.is_control:
            (key, value), *_ = records
            assert value is not None
            return (*offsets, *said, key, int.from_bytes(value[:2], "big"))
        return (*offsets, *said, records)


@pytest.fixture(scope="module")
def addresses(both_servers: None) -> Iterator[tuple[str, str]]:
    with start_server(apache=False, config=CONFIG) as ours, start_server(apache=True, config=CONFIG) as theirs:
        for server in (ours, theirs):
            wait_for_coordinators(server.bootstrap_servers)
        yield ours.bootstrap_servers, theirs.bootstrap_servers


@pytest.mark.parametrize("seed", first_of(SEEDS))
def test_the_same_responses(addresses: tuple[str, str], seed: int) -> None:
    with WireClient(addresses[0]) as one, WireClient(addresses[1]) as other:
        plays = [Play(wire, address, seed) for wire, address in zip((one, other), addresses, strict=True)]
        story: list[str] = []
        for request in requests(seed):
            answers = [play.ask(request) for play in plays]
            story.append(f"{request} -> {answers[1]}")
            assert answers[0] == answers[1], "\n".join(story)
        ours, theirs = (play.left() for play in plays)
        for what, expected in theirs.items():
            assert ours[what] == expected, (what, "\n".join(story))

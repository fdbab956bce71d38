"""Five times to Apache Kafka and back on one directory, with clients that write in between: no record is lost or
duplicated.

Ten servers start, one after the other, on the same directory. Each is stopped or killed with ``kill -9``, depending on
the seed. Each must first return all data that the earlier servers have acknowledged: topics and their ids, settings,
offsets, records, groups with their members and committed offsets, and transactions. Then clients write to it. Between
two servers, ``moldau log verify`` checks the directory, and Apache Kafka's dump tool checks a copy of it.

`Ledger` holds the expected data in memory; its only source is the responses of the servers.
"""

import random
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from moldau.compat_tests.test_directories import end, send, values
from moldau.compat_tests.test_log_verify import verify, wrong
from moldau.compat_tests.test_retention import alter
from moldau.compat_tests.test_transactions_directories import Story as Transactions
from moldau.compat_tests.transaction_server import CONFIG
from moldau.compat_tests.transaction_wire import end_offset, wait_for_coordinators
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.records import Record, build_batch, iter_records
from moldau.testing import Broker
from moldau.testing import topic_requests as w
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.clients.java import JavaClient
from moldau.testing.dump_tool import COMPLAINTS
from moldau.testing.group_requests import (
    ClassicMember,
    ConsumerMember,
    assignment,
    commit,
    commit_request,
    committed,
    describe_consumer_group,
    describe_group,
    settle,
    subscription,
)
from moldau.testing.servers import Server
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("both_servers")]

HOUR_MS = 3_600_000
TOPIC, BROKER = 2, 4
EARLIEST, LATEST = -2, -1

SETTINGS = {
    **CONFIG,
    # Periodic tasks of both run often.
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "200",
    "log.segment.delete.delay.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "group.consumer.session.timeout.ms": "60000",
}
EVERY_BATCH_A_SEGMENT = {"internal.segment.bytes": "200", "file.delete.delay.ms": "200"}
VALUE = b"x" * 80
# Apache Kafka shows settings that are only for tests, Moldau does not; and it sets one for all brokers automatically.
UNSEEN = {"internal.segment.bytes", "min.insync.replicas"}

Offsets = dict[tuple[str, int], tuple[int, int, int]]


def moldau(directory: Path) -> AbstractContextManager[Server]:
    return Broker(data_dir=directory, config=SETTINGS)


def apache(directory: Path) -> AbstractContextManager[Server]:
    return ApacheKafka(SETTINGS, data_dir=directory)


class Ledger:
    """The responses of the servers so far, which are the expected data."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._random = random.Random(seed)
        self._phase = 0
        self._topics: dict[str, Topic] = {}
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._offsets: Offsets = {}
        self._sequence = 0
        self._keys: dict[bytes, bytes | None] = {}
        self._updates: dict[int, tuple[bytes | None, bytes | None]] = {}
        self._reborn: list[bytes] = []
        self._committed: dict[tuple[str, str], dict[int, int]] = {}
        self._classic: ClassicMember | None = None
        self._consumer: ConsumerMember | None = None
        self._transactions = Transactions()

    # -- what was there before --

    def check(self, server: Server) -> None:
        """Check that the server has all the data."""
        address = server.bootstrap_servers
        wait_for_coordinators(address)
        for topic in self._all_topics():
            w.wait_for_topic(address, topic.name, 2)
        with WireClient(address) as wire:
            listed = wire.call(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12).topics
            assert {topic.name: topic.topic_id for topic in listed if not topic.name.startswith("__")} == {
                topic.name: topic.topic_id for topic in self._all_topics()
            }
            assert offsets(wire, self._all_topics()) == self._offsets
            for (kind, name), configs in self._configs.items():
                assert described(wire, kind, name) == configs
            for (group, name), expected in self._committed.items():
                assert committed(wire, group, name, expected) == expected
        if self._phase:
            assert values(address, "idempotent") == [b"%d" % number for number in range(self._sequence)]
            assert values(address, "reborn") == self._reborn
            self._check_compacted(address)
            self._check_groups(address)

    def _all_topics(self) -> list[Topic]:
        of_transactions = self._transactions.topic
        return [*self._topics.values(), *([of_transactions] if of_transactions else [])]

    def _check_compacted(self, address: str) -> None:
        """Check that each stored record was written at its offset, and that the latest record of each key is stored."""
        stored = updates(address)
        assert stored.items() <= self._updates.items()
        last: dict[bytes | None, bytes | None] = {}
        for _offset, (key, value) in sorted(stored.items()):
            last[key] = value
        alive = {key: value for key, value in last.items() if value is not None}
        assert alive == {key: value for key, value in self._keys.items() if value is not None}

    def _check_groups(self, address: str) -> None:
        """Check that the groups have the same members, generations and partitions."""
        assert self._classic is not None
        assert self._consumer is not None
        for member in (self._classic, self._consumer):
            member.wire.close()
            member.wire = WireClient(address, timeout_s=60)
        assert self._classic.heartbeat() == "NONE"
        found = describe_group(self._classic.wire, "classic")
        assert [member.member_id for member in found.members] == [self._classic.member_id]
        owned = self._consumer.partitions
        answer = self._consumer.heartbeat(owned=True)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        settle(self._consumer)
        assert self._consumer.partitions == owned
        (described_member,) = describe_consumer_group(self._consumer.wire, "consumer").members
        assert described_member.member_id == self._consumer.member_id

    def close(self) -> None:
        """Close the connections."""
        for member in (self._classic, self._consumer):
            if member is not None:
                member.close()

    # -- what comes now --

    def write(self, server: Server) -> None:
        """Write some data of each kind."""
        address = server.bootstrap_servers
        self._transactions.continue_writing(address)
        if not self._phase:
            self._begin(address)
        with WireClient(address) as wire:
            self._write_idempotent(address, wire)
            self._change_configs(wire)
            self._expire(wire)
            self._trim(wire)
            self._recreate(address, wire)
            self._compact(server, wire)
            self._commit(wire)
            self._wait_for_trimmed(wire)
            self._offsets = offsets(wire, self._all_topics())
        self._phase += 1

    def _begin(self, address: str) -> None:
        every = EVERY_BATCH_A_SEGMENT
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **every}
        self._create(address, "idempotent", {"compression.type": "producer"})
        self._create(address, "trimmed", {"retention.ms": "-1"})
        self._create(address, "expiring", {"retention.ms": str(HOUR_MS), **every})
        self._create(address, "compacted", compacted)
        topic = self._create(address, "assigned", {})
        metadata = {"range": subscription("assigned")}
        self._classic = ClassicMember(address, "classic", protocols=metadata, session_timeout_ms=60_000)
        # It is the only member and the leader; assignments use its id, which it receives during the join.
        self._classic.join()
        shares = {self._classic.member_id: assignment({"assigned": [0, 1]})}
        given = self._classic.sync(shares)
        assert given.error_code == 0, ErrorCode(given.error_code)
        self._consumer = ConsumerMember(address, "consumer", topic)
        assert self._consumer.join().error_code == 0
        settle(self._consumer)
        assert self._consumer.partitions == {"assigned": [0, 1]}

    def _create(self, address: str, name: str, configs: Mapping[str, str]) -> Topic:
        topic = self._topics[name] = w.create_topic(address, name, 2, configs)
        self._configs[TOPIC, name] = {key: value for key, value in configs.items() if key not in UNSEEN}
        return topic

    def _write_idempotent(self, address: str, wire: WireClient) -> None:
        """A producer that continues on all servers, and repeats its last batch."""
        if self._sequence:
            assert send(address, "idempotent", self._sequence - 10) == (0, self._sequence - 10)
            gap, _ = send(address, "idempotent", self._sequence + 10)
            assert gap == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for _ in range(self._random.randint(1, 5)):
            assert send(address, "idempotent", self._sequence) == (0, self._sequence)
            self._sequence += 10
        answer = w.produce(wire, "idempotent", build_batch(w.records(b"%d" % self._phase)), partition=1)
        assert answer.error_code == 0

    def _change_configs(self, wire: WireClient) -> None:
        for kind, name, setting, value in (
            (TOPIC, "idempotent", "retention_ms", str(24 * HOUR_MS + self._phase)),
            (BROKER, "", "message_max_bytes", str(2_000_000 + self._phase)),
            (BROKER, "1", "log_cleaner_threads", str(1 + self._phase % 2)),
        ):
            alter(wire, kind, name, **{setting: value})
            self._configs.setdefault((kind, name), {})[setting.replace("_", ".")] = value

        def known() -> bool:
            expected = self._configs.items()
            return all(described(wire, kind, name) == configs for (kind, name), configs in expected)

        wait_until(known, "the settings")

    def _expire(self, wire: WireClient) -> None:
        """Write old records after a recent one: retention deletes the segments of the old ones."""
        latest = position(wire, "expiring", LATEST)
        if latest:
            delete_records(wire, "expiring", latest)
        for age_ms in (2 * HOUR_MS, 3 * HOUR_MS, 0):
            now_ms = int(time.time() * 1000)
            batch = build_batch([Record(timestamp=now_ms - age_ms, key=b"k", value=VALUE)])
            assert w.produce(wire, "expiring", batch).error_code == 0
        wait_until(lambda: position(wire, "expiring", EARLIEST) == latest + 2, "retention")

    def _trim(self, wire: WireClient) -> None:
        """DeleteRecords into the middle of a segment, and of a batch."""
        before = position(wire, "trimmed", LATEST)
        assert w.produce(wire, "trimmed", build_batch(w.records(*[b"r"] * 7))).base_offset == before
        delete_records(wire, "trimmed", before + self._random.randint(1, 6))

    def _recreate(self, address: str, wire: WireClient) -> None:
        """Re-create one topic, and delete another. The DeleteRecords of the old topic must not affect the new one,
        which has fewer records."""
        if len(self._reborn) > 1:
            delete_records(wire, "reborn", len(self._reborn))
            self._wait_for_checkpoint("reborn", len(self._reborn))
        for name in ("reborn", "gone"):
            if name in self._topics:
                (answer,) = wire.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5).responses
                assert answer.error_code == 0
                del self._topics[name], self._configs[TOPIC, name]
                w.wait_for_no_topic(address, name)
        self._create(address, "reborn", {"retention.ms": str(HOUR_MS + self._phase)})
        if self._phase % 3 == 0:
            self._create(address, "gone", {})
        self._reborn = [b"life %d, %d" % (self._phase, number) for number in range(self._random.randint(0, 5))]
        if self._reborn:
            assert w.produce(wire, "reborn", build_batch(w.records(*self._reborn))).error_code == 0

    def _compact(self, server: Server, wire: WireClient) -> None:
        """Write the same keys repeatedly, and delete some, until compaction has removed records."""
        for _ in range(20):
            key = b"%d" % self._random.randrange(6)
            value = None if self._random.random() < 0.2 else b"%d" % self._random.randrange(10**9)
            record = Record(timestamp=int(time.time() * 1000), key=key, value=value, headers=[("h", b"1")])
            answer = w.produce(wire, "compacted", build_batch([record]))
            assert answer.error_code == 0
            self._keys[key] = value
            self._updates[answer.base_offset] = (key, value)
        if isinstance(server, Broker):
            server.compact("compacted")
        first_new = max(self._updates) - 19
        wait_until(
            lambda: sum(offset >= first_new for offset in updates(server.bootstrap_servers)) < 15,
            "compaction of the records of this phase",
        )

    def _commit(self, wire: WireClient) -> None:
        assert self._classic is not None
        assert self._consumer is not None
        offsets = {0: self._phase, 1: 100 + self._phase}
        topic = self._topics["assigned"]
        for group, member, generation in (
            ("simple", "", -1),
            ("classic", self._classic.member_id, self._classic.generation),
            ("consumer", self._consumer.member_id, self._consumer.epoch),
        ):
            request = commit_request(group, topic, offsets, member_id=member, generation=generation)
            assert commit(wire, request) == {0: "NONE", 1: "NONE"}
            self._committed[group, topic.name] = offsets

    def _wait_for_trimmed(self, wire: WireClient) -> None:
        """The result of DeleteRecords is in a checkpoint, which both servers write periodically: a kill may come
        first."""
        self._wait_for_checkpoint("trimmed", position(wire, "trimmed", EARLIEST))

    def _wait_for_checkpoint(self, topic: str, start: int) -> None:
        path = self._directory / "log-start-offset-checkpoint"
        wait_until(lambda: f"{topic} 0 {start}\n" in path.read_text(), f"{topic} from {start} on in the checkpoint")


def offsets(wire: WireClient, topics: list[Topic]) -> Offsets:
    """First, next and last stable offset of every partition."""
    return {
        (topic.name, partition): (
            end_offset(wire, topic, partition=partition, timestamp=EARLIEST).offset,
            end_offset(wire, topic, partition=partition, committed=False).offset,
            end_offset(wire, topic, partition=partition).offset,
        )
        for topic in topics
        for partition in (0, 1)
    }


def position(wire: WireClient, topic: str, timestamp: int) -> int:
    return int(end_offset(wire, Topic(topic, b""), committed=False, timestamp=timestamp).offset)


def updates(address: str) -> dict[int, tuple[bytes | None, bytes | None]]:
    """The records of the compacted topic, by offset."""
    batches = w.stored_batches(address, "compacted")
    return {record.offset: (record.key, record.value) for batch in batches for record in iter_records(batch)}


def described(wire: WireClient, kind: int, name: str) -> dict[str, str | None]:
    """The settings that are set for the resource itself."""
    requested = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (found,) = wire.call(DescribeConfigsRequest(resources=[requested]), 4).results
    assert found.error_code == 0, found
    own = {TOPIC: 1, BROKER: 2 if name else 3}[kind]
    return {c.name: c.value for c in found.configs if c.config_source == own and c.name not in UNSEEN}


def delete_records(wire: WireClient, topic: str, offset: int) -> None:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=10_000)
    (answer,) = wire.call(request, 2).topics[0].partitions
    assert (answer.error_code, answer.low_watermark) == (0, offset)


@pytest.fixture
def java() -> Iterator[JavaClient]:
    with JavaClient("127.0.0.1:1") as client:
        yield client


def inspect_files(java: JavaClient, directory: Path, copy: Path, how: str) -> None:
    """No tool reports an error. The tool works on a copy, because it opens indexes to write and truncates them."""
    assert wrong(verify(directory)) == []
    shutil.copytree(directory, copy)
    logs = [path for path in sorted(copy.glob("*-[0-9]/*.log")) if path.parent.name != "__cluster_metadata-0"]
    complain_not(java, logs, "--deep-iteration")
    if how == "stop":  # otherwise indexes of active segments are as the process had them: with zeros, or not yet there
        complain_not(java, sorted(copy.glob("*-[0-9]/*.index")), "--index-sanity-check")
    assert [path.name for path in directory.glob("*-stray")] == []
    shutil.rmtree(copy)


def complain_not(java: JavaClient, files: list[Path], option: str) -> None:
    arguments = ["--files", ",".join(map(str, files)), option]
    result = java.tool("org.apache.kafka.tools.DumpLogSegments", arguments)
    assert result.exit_code == 0, result
    assert not COMPLAINTS.search(result.stdout + result.stderr), result.stderr
    assert len(re.findall("^Dumping ", result.stdout, re.MULTILINE)) == len(files)


@pytest.mark.parametrize(
    ("first", "second", "seed", "rounds"),
    [
        pytest.param(moldau, apache, 1, 1, id="once"),
        pytest.param(moldau, apache, 1, 5, id="from Moldau", marks=pytest.mark.full),
        pytest.param(apache, moldau, 2, 5, id="from Apache Kafka", marks=pytest.mark.full),
    ],
)
def test_to_and_fro(
    tmp_path: Path,
    java: JavaClient,
    first: Callable[[Path], AbstractContextManager[Server]],
    second: Callable[[Path], AbstractContextManager[Server]],
    seed: int,
    rounds: int,
) -> None:
    directory = tmp_path / "data"
    ledger = Ledger(directory, seed)
    ends = ["stop", "kill"] * rounds
    random.Random(seed).shuffle(ends)
    for start, how in zip((first, second) * rounds, ends, strict=True):
        with start(directory) as server:
            ledger.check(server)
            ledger.write(server)
            end(server, how)
        inspect_files(java, directory, tmp_path / "copy", how)
    with first(directory) as server:
        ledger.check(server)
    ledger.close()

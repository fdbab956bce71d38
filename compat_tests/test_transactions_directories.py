"""One data directory, two servers, and transactions that one server begins and the other one ends.

At each change of servers, by a stop or by ``kill -9``, a transaction with records in two partitions and offsets of a
group is open. The next server restores it, does not return its records, continues it and ends it, alternately by a
commit and by an abort. It also repeats the response to the previous EndTxn. So each server must understand all data of
the other: the coordinator's log, the group's, markers, the index of aborted transactions, and the producer state of
partitions. At the end, Apache Kafka's own tool reads all of it.
"""

import re
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from moldau.compat_tests.transaction_server import CONFIG
from moldau.compat_tests.transaction_wire import (
    Producer,
    consume,
    describe,
    partitions_of,
    producers,
    read,
    wait_for_coordinators,
)
from moldau.testing import Broker
from moldau.testing import topic_requests as w
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.clients.java import JavaClient
from moldau.testing.group_requests import committed
from moldau.testing.servers import Server
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("both_servers")]

GROUP = "group"


def moldau(directory: Path) -> AbstractContextManager[Server]:
    return Broker(data_dir=directory, config=CONFIG)


def apache(directory: Path) -> AbstractContextManager[Server]:
    # A new directory is formatted by Apache Kafka's own tool.
    return ApacheKafka(CONFIG, data_dir=directory)


class Story:
    """One producer and its transactions, over all servers."""

    def __init__(self) -> None:
        self.number = 0
        self.expected: list[bytes] = []
        self.aborted: list[tuple[int, int]] = []
        self.offset = -1
        self.stable = 0
        self.topic: Topic | None = None
        self.producer: Producer | None = None
        self.ended: tuple[Producer, bool] | None = None

    def continue_writing(self, address: str) -> None:
        """Connect to the next server, or to the first one."""
        wait_for_coordinators(address)
        with WireClient(address) as wire:
            if self.topic is None or self.producer is None:
                self.topic = w.create_topic(address, "shared", 2)
                self.producer = Producer(wire, "x").begin()
            else:
                w.wait_for_topic(address, self.topic.name, 2)
                self.producer.wire = wire
                self._end(self.producer, self.topic, wire)
            self._begin(self.producer, self.topic)

    def _begin(self, producer: Producer, topic: Topic) -> None:
        for partition in (0, 1):
            producer.write(topic, b"%d-a" % self.number, partition=partition)
        assert producer.commit_offsets(GROUP, topic, {0: self.number}) == {0: "NONE"}

    def _end(self, producer: Producer, topic: Topic, wire: WireClient) -> None:
        described = describe(wire, "x")
        assert (described.transaction_state, described.producer_epoch) == ("Ongoing", producer.epoch)
        assert partitions_of(described) == {topic.name: [0, 1], "__consumer_offsets": [0]}
        for partition in (0, 1):
            found = read(wire, topic, partition=partition)
            assert (found.last_stable_offset, found.aborted) == (self.stable, self.aborted)
            assert consume(wire, topic, partition=partition) == self.expected
            assert producers(wire, topic, partition)[producer.producer_id].current_txn_start_offset == self.stable
        assert committed(wire, GROUP, topic.name, [0]) == {0: self.offset}
        gap = producer.batch(b"-", sequence=7)
        assert producer.send(topic, gap) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        if self.ended is not None:
            zombie, how = self.ended
            zombie.wire = wire
            assert zombie.end(committed=how) == "PRODUCER_FENCED"  # the next transaction is open

        for partition in (0, 1):
            producer.write(topic, b"%d-b" % self.number, partition=partition)
        commits = self.number % 2 == 0
        before = producer.duplicate()
        if commits:
            producer.commit()
            self.expected += [b"%d-a" % self.number, b"%d-b" % self.number]
            self.offset = self.number
        else:
            producer.abort()
            self.aborted.append((producer.producer_id, self.stable))
        self.stable += 3
        for partition in (0, 1):
            assert consume(wire, topic, partition=partition) == self.expected
        wait_until(lambda: committed(wire, GROUP, topic.name, [0]) == {0: self.offset}, "the offsets")
        retried = before.duplicate()
        assert retried.end(committed=commits) == "NONE"
        assert retried.epoch == producer.epoch
        self.ended = (before, commits)
        self.number += 1


@pytest.mark.full
def test_to_and_fro(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    story = Story()
    for start, how in (
        (moldau, "stop"),
        (apache, "kill"),
        (moldau, "kill"),
        (apache, "stop"),
        (moldau, "stop"),
    ):
        with start(directory) as server:
            story.continue_writing(server.bootstrap_servers)
            if how == "kill":
                server.kill()
            else:
                server.stop()
    assert story.expected == [b"0-a", b"0-b", b"2-a", b"2-b"]
    with JavaClient("unused:0") as java:
        markers = dump(java, directory / "shared-0" / f"{0:020}.log", "--deep-iteration", "--print-data-log")
        assert re.findall(r"endTxnMarker: (\w+)", markers) == ["COMMIT", "ABORT"] * 2
        aborted = dump(java, directory / "shared-0" / f"{0:020}.txnindex")
        assert re.findall(r"firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", aborted) == [
            ("3", "5", "6"),
            ("9", "11", "12"),
        ]
        log = directory / "__transaction_state-0" / f"{0:020}.log"
        states = re.findall(
            r'"transactionalId":"x".*"producerEpoch":(\d).*"transactionStatus":(\d)',
            dump(java, log, "--transaction-log-decoder"),
        )
        ends = [(epoch, status) for epoch, status in states if status in "2345"]
        # Prepared and complete: 2 and 4 of a commit, 3 and 5 of an abort.
        assert ends == [("1", "2"), ("1", "4"), ("2", "3"), ("2", "5"), ("3", "2"), ("3", "4"), ("4", "3"), ("4", "5")]
        offsets = dump(java, directory / "__consumer_offsets-0" / f"{0:020}.log", "--offsets-decoder")
        pending = r'isTransactional: true isControl: false(?:.*\n)+?.*"group":"group","topic":"shared".*"offset":(\d)'
        assert re.findall(pending, offsets) == ["0", "1", "2", "3", "4"]
        assert re.findall(r"endTxnMarker: (\w+)", offsets) == ["COMMIT", "ABORT"] * 2


def dump(java: JavaClient, file: Path, *options: str) -> str:
    """The output of Apache Kafka's tool for a file; it must report no problem."""
    result = java.tool("org.apache.kafka.tools.DumpLogSegments", ["--files", str(file), *options])
    assert result.exit_code == 0, result
    assert "Exception" not in result.stderr, result
    return result.stdout

"""Kafka Streams with ``processing.guarantee=exactly_once_v2``: a word count, while all processes are killed with -9.

Streams uses nearly all features of transactions: the transactions of a producer span the topics of changelog,
repartition and result; offsets are sent with the group's metadata; stores are restored from committed records; records
are deleted after they are read. The program writes each change of a count. So for each word, a ``read_committed``
reader must find 1, 2, 3 up to the number of times that it was sent. A count that is missing, duplicated or out of order
is detected.
"""

import json
import random
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from moldau.compat_tests.transaction_wire import producers
from moldau.testing.clients.java import java_command
from moldau.testing.clients.kafka_python import KafkaPythonClient
from moldau.testing.routed_wire import RoutedWire
from moldau.testing.servers import Server
from moldau.testing.topic_requests import create_topic
from moldau.testing.waiting import wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 2
DEADLINE_S = 300
WORDS = tuple(f"word-{number}" for number in range(20))


@pytest.mark.timeout(600)
def test_counts_are_exact_whichever_process_was_killed(
    restartable_transaction_server: Server, topic_name: Callable[[], str]
) -> None:
    """One instance is killed at a random moment, or all are killed while some written counts are uncommitted.

    Once, the server is killed, too.
    """
    application = Application(restartable_transaction_server.bootstrap_servers, topic_name())
    moments = random.Random(7)
    with application, Feeder(application.address, application.source) as feeder:
        running = {name: application.start(name) for name in ("a", "b")}
        for instance in running.values():
            instance.wait_working()
        for killed in (("a",), ("a", "b"), ("b",), ("a", "b")):
            if len(killed) == 1:
                time.sleep(moments.uniform(0, 0.5))  # the moment, not a wait for something
            else:
                application.pause_in_transaction(list(running.values()))
            for name in killed:
                running[name].kill()
            if killed == ("b",):
                restartable_transaction_server.kill()
                restartable_transaction_server.start()
            for name in killed:
                running[name] = application.start(name)
            for instance in running.values():
                instance.wait_working()
        feeder.stop()
        counts = feeder.counts
        wait_until(lambda: len(application.read(application.target)) >= counts.total(), "all counts", pause=0.5)
        for instance in running.values():
            instance.stop()

    found = application.changes(application.target)
    assert found == {word: list(range(1, count + 1)) for word, count in counts.items()}
    assert len(application.read(application.target, committed=False)) > counts.total(), "nothing was aborted"
    with KafkaPythonClient(application.address) as client:
        changelog, repartition = (f"{application.name}-counts-{kind}" for kind in ("changelog", "repartition"))
        assert client.topic_configs(changelog)["cleanup.policy"] == "compact"
        assert {word: each[-1] for word, each in application.changes(changelog).items()} == counts
        firsts, ends = zip(*(client.offsets(repartition, partition) for partition in range(PARTITIONS)), strict=True)
        assert all(firsts), f"nothing was deleted: {firsts}"
        assert sum(ends) > counts.total(), f"no markers: {ends}"


class Application:
    """The word count: its topics, and its processes."""

    def __init__(self, address: str, name: str) -> None:
        self.address, self.name = address, name
        self._resources = ExitStack()
        # Not pytest's, which is kept: the store's library is unpacked there, 15 MB, and a killed process does not
        # delete it.
        self._folder = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="streams-")))
        self.source = create_topic(address, f"{name}-source", PARTITIONS).name
        self._target = create_topic(address, f"{name}-target", PARTITIONS)
        self.target = self._target.name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._resources.close()

    def start(self, instance: str) -> "Instance":
        """It finds the state of the previous instance of this name."""
        options = {
            "bootstrap_servers": self.address,
            "application_id": self.name,
            "instance": instance,
            "state_dir": str(self._folder / instance),
            "source": self.source,
            "target": self.target,
        }
        java, *rest = java_command("WordCountStreams")
        command = [java, f"-Djava.io.tmpdir={self._folder}", *rest, json.dumps(options)]
        return self._resources.enter_context(Instance(command, self._folder / f"{instance}.log"))

    def pause_in_transaction(self, instances: "Sequence[Instance]") -> None:
        """Stop all processes, as SIGSTOP does, at a moment when there are counts that are neither committed nor
        aborted."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            for instance in instances:
                instance.send_signal(signal.SIGSTOP)
            if self._has_open_counts():
                return
            assert time.monotonic() < deadline, "there were never any"
            for instance in instances:
                instance.send_signal(signal.SIGCONT)
            time.sleep(0.02)  # so long they run

    def _has_open_counts(self) -> bool:
        with RoutedWire(self.address) as wire:
            return any(
                producer.current_txn_start_offset >= 0
                for partition in range(PARTITIONS)
                for producer in producers(wire, self._target, partition).values()
            )

    def changes(self, topic: str) -> dict[str, list[int]]:
        """The committed counts of each word, in their order."""
        found: dict[str, list[int]] = {}
        for word, count in self.read(topic):
            found.setdefault(word, []).append(count)
        return found

    def read(self, topic: str, *, committed: bool = True) -> list[tuple[str, int]]:
        """Words and counts, from the beginning of a topic to its end, partition by partition in their order."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "reading",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
        found: list[tuple[str, int]] = []
        at_end: set[int] = set()
        while len(at_end) < PARTITIONS:
            for message in consumer.consume(1000, timeout=0.1):
                if message.error() is None:
                    found.append((message.key().decode(), *struct.unpack(">q", message.value())))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition())
                else:
                    raise KafkaException(message.error())
        consumer.close()
        return found


class Instance:
    """A process of the program. Its output is read continuously, so that it never blocks."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        self._signs_of_life = threading.Semaphore(0)
        with log.open("a") as complaints:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True)
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def wait_working(self) -> None:
        """Return when it has processed another record."""
        while self._signs_of_life.acquire(blocking=False):
            pass
        assert self._signs_of_life.acquire(timeout=DEADLINE_S), f"it hangs: {self._log.read_text()[-6000:]}"
        assert self._process.poll() is None, f"it has ended: {self._log.read_text()[-6000:]}"

    def kill(self) -> None:
        """``kill -9``."""
        self._process.kill()
        self._process.wait()
        self._listener.join()

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        """Send SIGTERM, so that it commits its transaction first."""
        self.send_signal(signal.SIGTERM)
        self._process.wait(DEADLINE_S)
        self._listener.join()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                if line == "working\n":
                    self._signs_of_life.release()
        self._signs_of_life.release()  # a waiting thread checks whether it has exited


class Feeder:
    """Sends lines of words until ``stop``, and counts them."""

    def __init__(self, address: str, topic: str) -> None:
        self.counts: Counter[str] = Counter()
        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0})
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Return when all sent records are acknowledged."""
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(DEADLINE_S) == 0

    def _run(self) -> None:
        choice = random.Random(11)
        while not self._stopping.wait(0.01):
            for partition in range(PARTITIONS):
                words = choice.choices(WORDS, k=5)
                self.counts.update(words)
                self._producer.produce(self._topic, " ".join(words), partition=partition)
            self._producer.poll(0)

"""The programs as a user runs them, in several instances, while instances and the server are killed.

The content of the source is known. A read_committed reader of the target must find the transformed records, each once,
and those of a partition in their order. A read_uncommitted one must find more, which shows that transactions were hit.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from moldau.compat_tests.transaction_wire import describe, producers, wait_for_coordinators
from moldau.testing.full_run import first_of
from moldau.testing.routed_wire import RoutedWire
from moldau.testing.servers import Server
from moldau.testing.topic_requests import create_topic
from moldau.testing.waiting import wait_until

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent
SOURCE_PARTITIONS = 4
TARGET_PARTITIONS = 2
INSTANCES = ("a", "b", "c")
DEADLINE_S = 180


@pytest.fixture(scope="module")
def mortal_server(new_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[Server]:
    """A server that may be killed."""
    with new_server({"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}) as started:
        wait_for_coordinators(started.bootstrap_servers)
        yield started


@pytest.fixture(params=first_of(["with_confluent_kafka.py", "with_kafka_python.py"]))
def pipe(request: pytest.FixtureRequest, mortal_server: Server) -> Iterator[Pipe]:
    with Pipe(request.param, mortal_server.bootstrap_servers) as made:
        yield made


@pytest.mark.parametrize("kills", first_of([2, 8]))
def test_each_record_is_written_once_after_kills(pipe: Pipe, mortal_server: Server, kills: int) -> None:
    """Instances die at random moments, one joins in between, and the server is killed, too."""
    moments = random.Random(7)
    running = {name: pipe.start(name) for name in INSTANCES[:-1]}
    with pipe.fed() as feeder:
        for kill in range(kills):
            name = moments.choice(sorted(running))
            running[name].wait_working()
            if kill % 2:
                pipe.pause_in_transaction(name, running[name])
            else:
                time.sleep(moments.uniform(0, 0.3))  # a random moment, not a wait for a condition
            running[name].kill()
            running[name] = pipe.start(name)
            if kill == kills // 2:
                running[INSTANCES[-1]] = pipe.start(INSTANCES[-1])
        for instance in running.values():
            instance.wait_working()
        mortal_server.kill()
        mortal_server.start()
        running = {name: pipe.keep_working(name, instance) for name, instance in running.items()}
    pipe.wait_done(feeder.sent)

    for instance in running.values():
        assert instance.stop() == 0, instance.words()
    assert pipe.read("read_committed") == feeder.expected()
    everything = pipe.read("read_uncommitted")
    assert sum(map(len, everything.values())) > sum(map(len, feeder.sent.values())), "no record was aborted"


def test_an_instance_whose_name_is_used_by_another_one_ends_without_committed_records(pipe: Pipe) -> None:
    """It is paused like a virtual machine, considered dead, and resumed."""
    with pipe.fed() as feeder:
        sleeper = pipe.start("a")
        sleeper.wait_working()
        pipe.pause_in_transaction("a", sleeper)
        successor = pipe.start("a")
        successor.wait_working()
        sleeper.send_signal(signal.SIGCONT)
        assert sleeper.wait(DEADLINE_S) != 0, sleeper.words()
        successor = pipe.keep_working("a", successor)
    pipe.wait_done(feeder.sent)

    assert successor.stop() == 0, successor.words()
    assert pipe.read("read_committed") == feeder.expected()


Values = dict[str, list[str]]
"""The values by key, in their order."""


class Pipe:
    """One of the programs, with a separate source and target."""

    def __init__(self, program: str, bootstrap_servers: str) -> None:
        self._program = program
        self._address = bootstrap_servers
        self._name = f"{program.removesuffix('.py').replace('_', '-')}-{uuid4().hex[:8]}"
        self._source = create_topic(bootstrap_servers, f"{self._name}-source", SOURCE_PARTITIONS)
        self._target = create_topic(bootstrap_servers, f"{self._name}-target", TARGET_PARTITIONS)
        self._resources = ExitStack()

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *exception: object) -> None:
        self._resources.close()

    def start(self, instance: str) -> Instance:
        command = [sys.executable, str(FOLDER / self._program), "--bootstrap-server", self._address]
        command += ["--source", self._source.name, "--target", self._target.name]
        command += ["--group", self._name, "--instance", instance]
        return self._resources.enter_context(Instance(command))

    def has_open_records(self, instance: str) -> bool:
        """Whether the instance has a transaction with records in the target."""
        with RoutedWire(self._address) as wire:
            transaction = describe(wire, f"{self._name}-{instance}")
            if transaction.transaction_state != "Ongoing":
                return False
            for partition in range(TARGET_PARTITIONS):
                producer = producers(wire, self._target, partition).get(transaction.producer_id)
                if producer is not None and producer.current_txn_start_offset >= 0:
                    return True
        return False

    def pause_in_transaction(self, name: str, instance: Instance) -> None:
        """Stop the process with SIGSTOP, at a moment when it has records that are neither committed nor aborted."""
        deadline = time.monotonic() + DEADLINE_S
        instance.send_signal(signal.SIGSTOP)
        while not self.has_open_records(name):
            assert time.monotonic() < deadline, "it never had an open transaction"
            instance.send_signal(signal.SIGCONT)
            time.sleep(0.005)  # time to run
            instance.send_signal(signal.SIGSTOP)

    def keep_working(self, name: str, instance: Instance) -> Instance:
        """Return the instance when it is working again. kafka-python's may have ended itself, and is then restarted."""
        if instance.works():
            return instance
        assert self._program == "with_kafka_python.py", instance.words()
        successor = self.start(name)
        successor.wait_working()
        return successor

    @contextmanager
    def fed(self) -> Iterator[Feeder]:
        """Produce records to the source while the context lasts."""
        feeder = Feeder(self._address, self._source.name)
        feeder.start()
        try:
            yield feeder
        finally:
            feeder.stop()

    def wait_done(self, sent: Values) -> None:
        """Return when the target has the expected number of records."""
        count = sum(map(len, sent.values()))
        wait_until(lambda: sum(map(len, self.read("read_committed").values())) >= count, f"{count} records", pause=0.3)

    def read(self, isolation_level: str) -> Values:
        """The target from its beginning to its end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "reading",
                "isolation.level": isolation_level,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
        )
        consumer.assign(
            [TopicPartition(self._target.name, each, OFFSET_BEGINNING) for each in range(TARGET_PARTITIONS)]
        )
        values: Values = {}
        at_end: set[int] = set()
        while len(at_end) < TARGET_PARTITIONS:
            for message in consumer.consume(1000, timeout=0.1):
                if message.error() is None:
                    values.setdefault(message.key().decode(), []).append(message.value().decode())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition())
                else:
                    raise KafkaException(message.error())
        consumer.close()
        return values


class Instance(subprocess.Popen[str]):
    """A process of the program. Its output is read continuously, so that it never blocks."""

    def __init__(self, command: list[str]) -> None:
        super().__init__(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._lines: list[str] = []
        self._ended = False
        self._printed = threading.Condition()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def __exit__(self, *exception: object) -> None:
        self.kill()
        self._listener.join()
        super().__exit__(None, None, None)

    def wait_working(self) -> None:
        """Return when it has reported one more committed transaction."""
        assert self.works(), self.words()

    def works(self) -> bool:
        """Wait until it has reported one more committed transaction, or has ended."""
        with self._printed:
            seen = len(self._lines)
            assert self._printed.wait_for(lambda: self._ended or self._has_worked(seen), DEADLINE_S), "it hangs"
            return self._has_worked(seen)

    def _has_worked(self, seen: int) -> bool:
        return any(line.endswith(" records\n") for line in self._lines[seen:])

    def stop(self) -> int:
        """Stop it as by Ctrl-C; returns its exit code."""
        self.send_signal(signal.SIGINT)
        return self.wait(DEADLINE_S)

    def words(self) -> str:
        """Its whole output, after it has ended."""
        self._listener.join()
        return "".join(self._lines)

    def _listen(self) -> None:
        assert self.stdout is not None
        for line in self.stdout:
            with self._printed:
                self._lines.append(line)
                self._printed.notify_all()
        with self._printed:
            self._ended = True
            self._printed.notify_all()


class Feeder(threading.Thread):
    """Produces until it is stopped: each key always has the same partition, and the values of a key count up."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        super().__init__()
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
        self._topic = topic
        self._stopping = threading.Event()
        self.sent: Values = {f"key-{partition}": [] for partition in range(SOURCE_PARTITIONS)}

    def expected(self) -> Values:
        """The expected content of the target."""
        return {key: [value.upper() for value in values] for key, values in self.sent.items()}

    def run(self) -> None:
        while not self._stopping.wait(0.02):
            for partition, (key, values) in enumerate(self.sent.items()):
                for number in range(len(values), len(values) + 20):
                    values.append(f"word-{number}")
                    self._producer.produce(self._topic, key=key, value=values[-1], partition=partition)
            self._producer.poll(0)

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        assert self._producer.flush(DEADLINE_S) == 0

"""Rounds of ``kill -9``: clients write continuously, the server is killed at a random moment and restarted, and its
data is compared with the acknowledgments.

    python -m moldau.compat_tests.kill_rounds --rounds 200

Five writers, each with its own thread and client that survives the kills (librdkafka), number their records:

    topic        written by                       must hold after each start
    idempotent   an idempotent producer           every acknowledged record once, in order
    durable      the same, with flush.messages=1  the same
    repeated     acks=all, not idempotent         everything acknowledged, in order; repetitions are allowed
    compacted    idempotent, cleanup.policy=      of each key what was acknowledged last, or something later
                 compact
    retained     idempotent, a small              from the log start on as `idempotent`
                 retention.bytes
    transactions transactions over two            every transaction that was committed, whole and once; none that was
                 partitions, some aborted         aborted; one whose end the client does not know, whole or not at all

A consumer group commits offsets, and finds the last acknowledged one or a later one. Segments last for 100 ms, and
retention and compaction run continuously, so that they are killed, too.

At the end the server is stopped cleanly. ``moldau log verify`` and Apache Kafka's DumpLogSegments check every file.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.inspection.finding import Severity
from moldau.inspection.log_directories import inspect
from moldau.log.files import RealFileSystem
from moldau.testing import Broker, jvm, kafka_jars
from moldau.testing.dump_tool import COMPLAINTS
from moldau.testing.retriable_steps import retried
from moldau.testing.servers import around_tracebacks

DEADLINE_S = 60.0
"""The timeout of each wait: far longer than it takes on a busy machine."""

CONFIG = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "50",
    "log.initial.task.delay.ms": "50",
    "log.retention.check.interval.ms": "100",
    "log.flush.scheduler.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
    "log.segment.delete.delay.ms": "100",
}
SMALL = {"segment.ms": "100", "file.delete.delay.ms": "100"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0", **SMALL}
RETAINED = {"retention.bytes": "20000", **SMALL}

GROUP = "kill-rounds"
_AT_MOST_UNANSWERED = 100
# A thousand records a second from each: it is the number of kills that counts.
_BATCH_RECORDS = 10
_PAUSE_S = 0.01
_KEYS = 20
_CLIENT = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "log_level": 0,
}


class WrongError(AssertionError):
    """A record is lost, duplicated, or out of order."""


def client_config(bootstrap_servers: str, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap_servers, **_CLIENT, **{key.replace("_", "."): v for key, v in more.items()}}


class Reader:
    """Reads whole topics with one client, committed records only."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._consumer = Consumer(
            client_config(
                bootstrap_servers,
                group_id=f"{GROUP}-reader",
                enable_auto_commit=False,
                enable_partition_eof=True,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
            )
        )

    def read(self, topic: str, partition: int, offset: int) -> list[Message]:
        """Read from `offset` (or the log start, if that is later) to the current end, or to the last stable offset."""
        messages: list[Message] = []
        deadline = time.monotonic() + DEADLINE_S
        wanted = TopicPartition(topic, partition, offset)
        end = self._end(wanted, deadline)
        if offset >= end:
            return messages
        self._consumer.assign([wanted])
        try:
            while time.monotonic() < deadline:
                message = self._consumer.poll(1.0)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    messages.append(message)
                    if message.offset() + 1 >= end:
                        return messages
                elif error.code() == KafkaError._PARTITION_EOF:
                    return messages
                elif not error.retriable() and error.code() not in TRANSIENT:
                    raise KafkaException(error)
            raise TimeoutError(f"{topic}-{partition} could not be read to the end")
        finally:
            self._consumer.unassign()

    def _end(self, wanted: TopicPartition, deadline: float) -> int:
        while True:
            try:
                return int(self._consumer.get_watermark_offsets(wanted, timeout=5)[1])
            except KafkaException as error:
                if error.args[0].code() not in TRANSIENT or time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        self._consumer.close()


TRANSIENT = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,  # the coordinator was killed, and another one is not known yet
    KafkaError._UNKNOWN_PARTITION,  # the client has not requested the metadata yet
)


class Writer(ABC):
    """One client in one thread, from `start` to `stop`, and its acknowledgments."""

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic = topic
        self.partitions = partitions
        self.written = 0
        """Acknowledged: records, transactions, commits."""
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=f"writer of {topic}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_S)
        if self._thread.is_alive():
            raise WrongError(f"the writer of {self.topic} has not ended")
        self.check_alive()

    def check_alive(self) -> None:
        if self.failure is not None:
            raise WrongError(f"the writer of {self.topic} failed: {self.failure!r}") from self.failure

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - check_alive() raises it
            self.failure = error

    @abstractmethod
    def _run(self) -> None: ...

    @abstractmethod
    def snapshot(self) -> Any:
        """The current acknowledgments, which `check` needs after the next startup."""

    @abstractmethod
    def check(self, reader: Reader, acknowledged: Any) -> None:
        """Raise `WrongError` unless all records are as they must be. Most writers check only records that are new since
        the last check."""

    def check_again(self) -> None:  # noqa: B027 - other writers check all records each time
        """The next check begins at offset 0."""


class NumberedWriter(Writer):
    """Writes 0, 1, 2, ... into each partition; the key is the number modulo a small number."""

    pause_s = _PAUSE_S
    """Between batches."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, *, idempotent: bool = True) -> None:
        super().__init__(topic, partitions)
        more = {} if idempotent else {"max_in_flight": 1}
        self._producer = Producer(
            client_config(bootstrap_servers, enable_idempotence=idempotent, acks="all", linger_ms=2, **more)
        )
        self._sent = [0] * partitions
        self._acknowledged: list[int] = [-1] * partitions
        """The last number of each partition: they are acknowledged in their order."""
        self._unanswered = 0

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            if self._unanswered < _AT_MOST_UNANSWERED:
                self._send(number % self.partitions)
                number += 1
                self._producer.poll(0)
                if number % _BATCH_RECORDS == 0:
                    self._stopping.wait(self.pause_s)
            else:
                self._producer.poll(0.02)
        left = self._producer.flush(DEADLINE_S)
        if left:
            raise TimeoutError(f"{left} records were not acknowledged")

    def _send(self, partition: int) -> None:
        number = self._sent[partition]
        self._sent[partition] += 1
        self._unanswered += 1

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self._unanswered -= 1
            if error is not None:
                raise KafkaException(error)
            if number != self._acknowledged[partition] + 1:
                raise WrongError(
                    f"{self.topic}-{partition}: {number} acknowledged after {self._acknowledged[partition]}"
                )
            self._acknowledged[partition] = number
            self.written += 1
            self._on_acknowledged()

        key, value = str(number % _KEYS), str(number)
        self._producer.produce(self.topic, key=key, value=value, partition=partition, on_delivery=on_delivery)

    def _on_acknowledged(self) -> None:
        """Called for each acknowledged record."""

    def snapshot(self) -> list[int]:
        return list(self._acknowledged)


class OnceWriter(NumberedWriter):
    """All records exist once and in order. Records are read only once, and again at the end."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap_servers, topic, partitions)
        self._next = [(0, 0)] * partitions  # offset to read from, number to find there

    def check(self, reader: Reader, acknowledged: list[int]) -> None:
        for partition, last in enumerate(acknowledged):
            offset, number = self._next[partition]
            for message in reader.read(self.topic, partition, offset):
                _expect(message, number)
                number += 1
                offset = message.offset() + 1
            _reached(self.topic, partition, number - 1, last)
            self._next[partition] = offset, number

    def check_again(self) -> None:
        """The next check begins at offset 0."""
        self._next = [(0, 0)] * self.partitions


class RepeatedWriter(NumberedWriter):
    """All records exist, first seen in order; the client may repeat records without an acknowledgment."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap_servers, topic, partitions, idempotent=False)
        self.check_again()

    def check_again(self) -> None:
        self.repetitions = 0
        self._next = [(0, -1)] * self.partitions  # offset to read from, largest number so far

    def check(self, reader: Reader, acknowledged: list[int]) -> None:
        for partition, last in enumerate(acknowledged):
            offset, largest = self._next[partition]
            for message in reader.read(self.topic, partition, offset):
                offset = message.offset() + 1
                number = int(message.value() or b"")
                if number > largest:
                    _expect(message, largest + 1)
                    largest = number
                else:
                    self.repetitions += 1
            _reached(self.topic, partition, largest, last)
            self._next[partition] = offset, largest


class CompactedWriter(NumberedWriter):
    """Of each key the last acknowledged record exists, or a later one; numbers only increase."""

    def check(self, reader: Reader, acknowledged: list[int]) -> None:
        for partition, last in enumerate(acknowledged):
            latest: dict[bytes, int] = {}
            previous = -1
            for message in reader.read(self.topic, partition, 0):
                number = int(message.value() or b"")
                if number <= previous:
                    raise WrongError(f"{self.topic}-{partition}: {number} after {previous}")
                latest[message.key() or b""] = previous = number
            for number in range(max(0, last - _KEYS + 1), last + 1):
                found = latest.get(str(number % _KEYS).encode(), -1)
                if found < number:
                    raise WrongError(f"{self.topic}-{partition}: {number} of its key is lost, {found} is the latest")


class RetainedWriter(NumberedWriter):
    """From the log start on, all records exist once and in order."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap_servers, topic, partitions)
        self.first = [0] * partitions

    def check(self, reader: Reader, acknowledged: list[int]) -> None:
        for partition, last in enumerate(acknowledged):
            # Retention may delete records before they are read; then the reader restarts at the new log start.
            largest = -1
            for message in reader.read(self.topic, partition, 0):
                number = int(message.value() or b"")
                if message.offset() != number:
                    raise WrongError(f"{self.topic}-{partition}: {number} at offset {message.offset()}")
                if largest < 0:
                    self.first[partition] = number
                largest = number
            if largest >= 0:
                _reached(self.topic, partition, largest, last)


class TransactionalWriter(Writer):
    """Transactions over all partitions, every fourth aborted by the client."""

    pause_s = 0.0
    """Between transactions."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        super().__init__(topic, partitions)
        self._producer = Producer(
            client_config(bootstrap_servers, transactional_id=topic, transaction_timeout_ms=int(DEADLINE_S * 1000))
        )
        self.committed: list[int] = []
        self.aborted: set[int] = set()
        self.check_again()

    def check_again(self) -> None:
        self._seen: dict[int, Counter[tuple[int, int]]] = {}
        self._next = [(0, -1)] * self.partitions  # offset to read from, the last transaction so far

    def _run(self) -> None:
        retried(lambda: self._producer.init_transactions(DEADLINE_S))
        number = 0
        while not self._stopping.is_set():
            self._producer.begin_transaction()
            for partition in range(self.partitions):
                for index in range(1 + (number + partition) % 3):
                    self._producer.produce(self.topic, value=f"{number} {index}", partition=partition)
            if number % 4 == 3:
                self.aborted.add(number)
                # Flush, so that the records are in the log, and the coordinator knows the transaction. If it died
                # before that, librdkafka would try to abort a transaction that the coordinator does not know, and give
                # up.
                self._producer.flush(DEADLINE_S)
                retried(lambda: self._producer.abort_transaction(DEADLINE_S))
            else:
                self._commit(number)
            number += 1
            self._stopping.wait(self.pause_s)

    def _commit(self, number: int) -> None:
        try:
            retried(lambda: self._producer.commit_transaction(DEADLINE_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.aborted.add(number)
            retried(lambda: self._producer.abort_transaction(DEADLINE_S))
        else:
            self.committed.append(number)
            self.written += 1

    def snapshot(self) -> int:
        return len(self.committed)

    def check(self, reader: Reader, acknowledged: int) -> None:
        committed = set(self.committed[:acknowledged])
        deadline = time.monotonic() + DEADLINE_S
        while True:
            found = self._found(reader)
            missing = committed - set(found)
            if not missing:
                break
            if time.monotonic() > deadline:
                raise WrongError(f"{self.topic}: the committed transactions {sorted(missing)} are lost")
            # Acknowledged, and the markers are still to be written: readers see it when they are.
        visible_aborted = set(found) & self.aborted
        if visible_aborted:
            raise WrongError(f"{self.topic}: the aborted transactions {sorted(visible_aborted)} can be read")
        # The reader reads one partition after the other, so it may see the last transactions in part.
        settled = max(committed, default=-1)
        for number in found:
            if number <= settled and found[number] != self._whole(number):
                raise WrongError(f"{self.topic}: of transaction {number} there is {sorted(found[number].elements())}")

    def _whole(self, number: int) -> Counter[tuple[int, int]]:
        return Counter(
            (partition, index) for partition in range(self.partitions) for index in range(1 + (number + partition) % 3)
        )

    def _found(self, reader: Reader) -> dict[int, Counter[tuple[int, int]]]:
        for partition in range(self.partitions):
            offset, last = self._next[partition]
            for message in reader.read(self.topic, partition, offset):
                offset = message.offset() + 1
                number, index = map(int, (message.value() or b"").split())
                if number < last:
                    raise WrongError(f"{self.topic}-{partition}: transaction {number} after {last}")
                last = number
                self._seen.setdefault(number, Counter())[partition, index] += 1
            self._next[partition] = offset, last
        return self._seen


class OffsetWriter(Writer):
    """A group's member commits growing offsets, each acknowledged."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        super().__init__(topic, 1)
        self._bootstrap_servers = bootstrap_servers
        self._tried = 0

    def _open(self) -> Consumer:
        return Consumer(client_config(self._bootstrap_servers, group_id=GROUP, enable_auto_commit=False))

    def _run(self) -> None:
        consumer = self._open()
        try:
            while not self._stopping.is_set():
                self._tried += 1
                # A kill during the commit: it is unknown whether it counts.
                with contextlib.suppress(KafkaException):
                    offsets = [TopicPartition(self.topic, 0, self._tried)]
                    (answer,) = consumer.commit(offsets=offsets, asynchronous=False)
                    if answer.error is None:
                        self.written = self._tried
                self._stopping.wait(0.005)
        finally:
            consumer.close()

    def snapshot(self) -> int:
        return self.written

    def check(self, reader: Reader, acknowledged: int) -> None:
        consumer = self._open()
        try:
            deadline = time.monotonic() + DEADLINE_S
            while True:
                try:
                    (found,) = consumer.committed([TopicPartition(self.topic, 0)], timeout=5)
                    if found.error is None:
                        break
                except KafkaException as error:
                    if time.monotonic() > deadline:
                        raise TimeoutError("the committed offsets could not be read") from error
            if not acknowledged <= found.offset <= self._tried:
                raise WrongError(f"group {GROUP} has {found.offset}, and {acknowledged} was acknowledged")
        finally:
            consumer.close()


def _expect(message: Message, number: int) -> None:
    if int(message.value() or b"") != number:
        where = f"{message.topic()}-{message.partition()} at offset {message.offset()}"
        raise WrongError(f"{where}: {(message.value() or b'').decode()} where {number} should be")


def _reached(topic: str, partition: int, found: int, acknowledged: int) -> None:
    if found < acknowledged:
        raise WrongError(f"{topic}-{partition} ends with {found}, and {acknowledged} was acknowledged")


class KillRounds:
    """The server and its writers; `run` does the rounds."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self._broker = broker
        self._dice = random.Random(seed)
        address = broker.bootstrap_servers
        self._create_topics(address)
        self._repeated = RepeatedWriter(address, "repeated", 1)
        self._retained = RetainedWriter(address, "retained", 2)
        self._transactions = TransactionalWriter(address, "transactions", 2)
        self.writers: list[Writer] = [
            OnceWriter(address, "idempotent", 3),
            OnceWriter(address, "durable", 2),
            self._repeated,
            CompactedWriter(address, "compacted", 2),
            self._retained,
            self._transactions,
            OffsetWriter(address, "idempotent"),
        ]
        self._reader = Reader(address)
        self.rounds = 0
        self.compactions = 0

    @staticmethod
    def _create_topics(address: str) -> None:
        wanted: Mapping[str, tuple[int, Mapping[str, str]]] = {
            "idempotent": (3, {"segment.ms": "300"}),
            "durable": (2, {"flush.messages": "1"}),
            "repeated": (1, {}),
            "compacted": (2, COMPACTED),
            "retained": (2, RETAINED),
            "transactions": (2, {"segment.ms": "300"}),
        }
        topics = [NewTopic(name, count, 1, config=dict(config)) for name, (count, config) in wanted.items()]
        admin = AdminClient({"bootstrap.servers": address})
        for future in admin.create_topics(topics).values():
            future.result(DEADLINE_S)

    def run(self, rounds: int) -> Iterator[int]:
        """Run this many rounds; yields each number when its round is complete."""
        for writer in self.writers:
            writer.start()
        for number in range(1, rounds + 1):
            self._wait_all_write()
            # A random moment in the work of the server, not a wait for a condition.
            time.sleep(self._dice.random() * 0.3)
            self._broker.kill()
            acknowledged = [writer.snapshot() for writer in self.writers]
            self._broker.start()
            for writer, count in zip(self.writers, acknowledged, strict=True):
                writer.check(self._reader, count)
            self.rounds = number
            yield number
        self._wait_all_write()
        for writer in self.writers:
            writer.stop()
        for writer in self.writers:
            writer.check_again()
            writer.check(self._reader, writer.snapshot())
        self._reader.close()
        self.compactions = self._broker.log().count("Compacted compacted-")

    def _wait_all_write(self) -> None:
        """Wait until each writer has a new acknowledgment."""
        deadline = time.monotonic() + DEADLINE_S
        for writer in self.writers:
            before = writer.written
            while writer.written == before:
                writer.check_alive()
                if time.monotonic() > deadline:
                    raise WrongError(f"records of {writer.topic} are no longer acknowledged")
                time.sleep(0.002)

    def table(self) -> list[tuple[str, str, str]]:
        """Topic, what was acknowledged in it, and what else is worth knowing."""
        rows = []
        for writer in self.writers:
            what, more = "records", ""
            if isinstance(writer, RepeatedWriter):
                more = f"{writer.repetitions} sent again by the client"
            elif isinstance(writer, CompactedWriter):
                more = f"{self.compactions} passes of compaction"
            elif isinstance(writer, RetainedWriter):
                more = f"{sum(writer.first)} deleted by retention"
            elif isinstance(writer, TransactionalWriter):
                what, more = "transactions", f"{len(writer.aborted)} aborted"
            elif isinstance(writer, OffsetWriter):
                what = "commits of offsets"
            rows.append((writer.topic, f"{writer.written} {what}", more))
        return rows


def problems_of_verify(data_dir: Path) -> list[str]:
    """The findings of ``moldau log verify --deep`` in a directory."""
    findings = inspect(RealFileSystem(), [str(data_dir)], deep=True).findings
    return [f"{found.path}: {found.text}" for found in findings if found.severity is not Severity.NOTE]


def problems_of_dump_tool(data_dir: Path) -> list[str]:
    """The problems that Apache Kafka's DumpLogSegments reports for the files of a directory."""
    problems: list[str] = []
    # Records of the coordinators' topics and of the metadata are batches like any other.
    for pattern, option in (("*.log", "--deep-iteration"), ("*index", "--index-sanity-check")):
        paths = sorted(str(path) for path in data_dir.glob(f"*-[0-9]*/{pattern}") if path.stat().st_size)
        for start in range(0, len(paths), 200):
            group = paths[start : start + 200]
            command = jvm.command("org.apache.kafka.tools.DumpLogSegments", option, "--files", ",".join(group))
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            output = done.stdout + done.stderr
            problems += [line for line in output.splitlines() if COMPLAINTS.search(line)]
            if done.returncode:
                problems.append(f"it ended with {done.returncode}: {output[-500:]}")
    return problems


@dataclass(frozen=True)
class Outcome:
    """The result of the rounds. It exists only if no record was lost."""

    table: list[tuple[str, str, str]]
    """Topic, what was acknowledged in it, and what else is worth knowing."""
    examiners: list[str]
    """The tools that have checked the files."""
    problems: list[str]
    """Their findings, and internal errors in the log of the server."""


def kill_rounds(
    rounds: int, seed: int, *, on_round: Callable[[int, float], None] = lambda _number, _seconds: None
) -> Outcome:
    """Run the rounds, stop cleanly, and check the files. The dump tool is skipped if Java or the jars are missing.

    Raises `WrongError` if a record is lost, duplicated or out of order.
    """
    began = time.monotonic()
    with Broker(config=CONFIG, timeout_s=DEADLINE_S) as broker:
        running = KillRounds(broker, seed)
        for number in running.run(rounds):
            on_round(number, time.monotonic() - began)
        broker.stop()
        log = broker.log()
        problems = [f"the server's log: {around_tracebacks(log)}"] if "Traceback" in log else []
        examiners = ["moldau log verify"]
        problems += problems_of_verify(broker.data_dir)
        if kafka_jars.jars_dir() is not None and shutil.which("java") is not None:
            examiners.append("DumpLogSegments")
            problems += problems_of_dump_tool(broker.data_dir)
    return Outcome(running.table(), examiners, problems)


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m moldau.compat_tests.kill_rounds", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2), "big"), help="of the moments")
    options = parser.parse_args(None if arguments is None else list(arguments))
    print(f"{options.rounds} rounds, seed {options.seed}", flush=True)

    def print_round(number: int, seconds: float) -> None:
        if number % 10 == 0 or number == options.rounds:
            print(f"round {number} of {options.rounds}, {seconds:.0f} s: no record lost or duplicated", flush=True)

    try:
        outcome = kill_rounds(options.rounds, options.seed, on_round=print_round)
    except WrongError as error:
        print(f"wrong: {error}", file=sys.stderr)
        return 1
    for topic, written, more in outcome.table:
        print(f"{topic:14}{written:32}{more}".rstrip())
    for problem in outcome.problems[:20]:
        print(problem, file=sys.stderr)
    print(f"{' and '.join(outcome.examiners)}: {len(outcome.problems) or 'no'} problems")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""The load of `cluster_kills`: writers of `kill_rounds` with one partition each, consumer groups, and a client that
creates topics. Each of them accepts only errors that a client retries."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.compat_tests.kill_rounds import (
    DEADLINE_S,
    TRANSIENT,
    OnceWriter,
    Reader,
    TransactionalWriter,
    Writer,
    WrongError,
    client_config,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.testing.wire import WireClient

PAUSE_S = 0.1
"""A longer time between two acknowledgments of a partition is a pause."""

_BETWEEN_TOPICS_S = 2.0
_COMMIT_EACH_S = 0.2

# A member learns by these that its group was rebalanced. It rejoins.
_REBALANCED = {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._NO_OFFSET,
}


def is_retriable(error: KafkaError) -> bool:
    code = error.code()
    return bool(error.retriable()) or code in TRANSIENT or (code > 0 and ErrorCode(code).retriable)


@dataclass
class Pause:
    """A time between two acknowledgments of a partition (seconds of `time.monotonic`)."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def overlaps(self, other: Pause) -> bool:
        return self.begin < other.end and other.begin < self.end


class TimedWriter(OnceWriter):
    """An idempotent producer of one partition that records when it was not acknowledged for a while."""

    pause_s = 0.05

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        super().__init__(bootstrap_servers, topic, 1)
        self.pauses: list[Pause] = []
        self.last_at: float | None = None

    def _on_acknowledged(self) -> None:
        now = time.monotonic()
        if self.last_at is not None and now - self.last_at > PAUSE_S:
            self.pauses.append(Pause(self.last_at, now))
        self.last_at = now


class SlowTransactions(TransactionalWriter):
    """Some transactions in a second: what counts is the number of kills."""

    pause_s = 0.05


@dataclass
class Progress:
    """What a group has read of the partition of a topic. The number of a record is its offset."""

    next: int = 0
    """After the last record that any member was given."""
    committed: int = 0
    """The highest acknowledged offset."""


@dataclass
class Group:
    """The state that the members of a group share, and what they must not do."""

    name: str
    protocol: str
    topics: Sequence[str]
    errors: Counter[str] = field(default_factory=Counter)
    read: int = 0
    repeated: int = 0
    """Records that were given again, because their offsets were not committed."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self.progress = {topic: Progress() for topic in self.topics}

    def deliver(self, topic: str, offset: int, value: bytes) -> None:
        with self._lock:
            progress = self.progress[topic]
            if int(value) != offset:
                raise WrongError(f"{topic} has record {value!r} at offset {offset}")
            if offset > progress.next:
                raise WrongError(f"group {self.name} skips {topic} {progress.next} to {offset - 1}")
            if offset < progress.committed:
                raise WrongError(f"group {self.name} has committed {topic} {progress.committed}, and reads {offset}")
            self.read += 1
            self.repeated += offset < progress.next
            progress.next = max(progress.next, offset + 1)

    def commit(self, topic: str, offset: int) -> None:
        with self._lock:
            progress = self.progress[topic]
            progress.committed = max(progress.committed, offset)

    def reject(self, error: KafkaError) -> None:
        """Count an error that the client retries; raise any other one."""
        if not is_retriable(error) and error.code() not in _REBALANCED:
            raise KafkaException(error)
        with self._lock:
            self.errors[error.name()] += 1


class Member(Writer):
    """A member of a group that reads all topics and commits what it has read."""

    def __init__(self, bootstrap_servers: str, group: Group, number: int) -> None:
        super().__init__(f"group {group.name}", 1)
        self._group = group
        self._read: dict[str, int] = {}
        """The next offsets of the assigned partitions, by topic, as far as records have been read since the commit."""
        # A member that rejoins with a new id holds up the rebalance until the session of its earlier id has expired at
        # one coordinator. If coordinators are killed more often than that, the group may read nothing until the end.
        classic = {"session_timeout_ms": 10_000} if group.protocol == "classic" else {}
        self._consumer = Consumer(
            client_config(
                bootstrap_servers,
                group_id=group.name,
                client_id=f"{group.name}-{number}",
                group_protocol=group.protocol,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                **classic,
            )
        )

    def _run(self) -> None:
        self._consumer.subscribe(list(self._group.topics), on_revoke=self._forget, on_lost=self._forget)
        commit_at = 0.0
        try:
            while not self._stopping.is_set():
                message = self._consumer.poll(0.1)
                if message is not None:
                    error = message.error()
                    if error is not None:
                        self._group.reject(error)
                    else:
                        self._group.deliver(message.topic(), message.offset(), message.value() or b"")
                        self._read[message.topic()] = message.offset() + 1
                if self._read and time.monotonic() >= commit_at:
                    self._commit()
                    self._read.clear()
                    commit_at = time.monotonic() + _COMMIT_EACH_S
        finally:
            self._consumer.close()

    def _forget(self, _consumer: Consumer, revoked: list[TopicPartition]) -> None:
        """Do not commit what was read before the rebalance. The member may get the same partition again, which begins
        with the committed offset: a commit of a later one would be followed by records before it."""
        for each in revoked:
            self._read.pop(each.topic, None)

    def _commit(self) -> None:
        offsets = [TopicPartition(topic, 0, offset) for topic, offset in self._read.items()]
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self._group.reject(error.args[0])
            return
        for answer in answers:
            if answer.error is not None:
                self._group.reject(answer.error)
            else:
                self._group.commit(answer.topic, answer.offset)
                self.written += 1

    def snapshot(self) -> None:
        """The group checks each record when it is read."""

    def check(self, reader: Reader, acknowledged: Any) -> None:
        """See `Group.deliver`."""


class TopicCreator(Writer):
    """Creates a topic every two seconds, and gets a producer id from the broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__("created topics", 3)
        self._addresses = bootstrap_servers.split(",")
        self._admin = AdminClient(client_config(bootstrap_servers))
        self.created: list[str] = []
        self.producer_ids: list[int] = []
        self.errors: Counter[str] = Counter()

    def _run(self) -> None:
        while not self._stopping.wait(_BETWEEN_TOPICS_S):
            name = f"created-{len(self.created)}"
            self._retried(self._create, name)
            self.created.append(name)
            self._retried(self._allocate, self._addresses[len(self.created) % len(self._addresses)])
            self.written += 1

    def _retried(self, attempt: Callable[[str], KafkaError | None], argument: str) -> None:
        """Attempt until there is no error. Raises for an error that is not retriable."""
        deadline = time.monotonic() + 2 * DEADLINE_S
        while True:
            error = attempt(argument)
            if error is None:
                return
            if not is_retriable(error) or time.monotonic() > deadline:
                raise KafkaException(error)
            self.errors[error.name()] += 1
            self._stopping.wait(0.05)

    def _create(self, name: str) -> KafkaError | None:
        (future,) = self._admin.create_topics([NewTopic(name, self.partitions, 1)], request_timeout=10).values()
        try:
            future.result(DEADLINE_S)
        except KafkaException as error:
            found: KafkaError = error.args[0]
            # Only this client creates this topic: the response to an earlier attempt was lost, of the client or of the
            # broker, which forwards the request to the next active controller if the first one dies.
            return None if found.code() == ErrorCode.TOPIC_ALREADY_EXISTS else found
        return None

    def _allocate(self, address: str) -> KafkaError | None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        try:
            with WireClient(address, timeout_s=DEADLINE_S) as wire:
                response = wire.call(request)
        except OSError:
            return KafkaError(KafkaError._TRANSPORT)
        if response.error_code:
            return KafkaError(response.error_code)
        self.producer_ids.append(response.producer_id)
        return None

    def snapshot(self) -> int:
        return len(self.created)

    def check(self, reader: Reader, acknowledged: int) -> None:
        found = self._admin.list_topics(timeout=DEADLINE_S).topics
        missing = [name for name in self.created[:acknowledged] if name not in found]
        if missing:
            raise WrongError(f"the created topics {missing} do not exist")
        incomplete = [name for name in self.created[:acknowledged] if len(found[name].partitions) != self.partitions]
        if incomplete:
            raise WrongError(f"the topics {incomplete} do not have {self.partitions} partitions")
        if len(set(self.producer_ids)) != len(self.producer_ids):
            raise WrongError("a producer id was assigned twice")


class Load:
    """All clients. The topics must exist: one topic with one partition for each of `timed`, and `transactions`."""

    def __init__(
        self, bootstrap_servers: str, timed: Sequence[str], transaction_partitions: int, *also: Writer
    ) -> None:
        """``also``: further clients."""
        self.timed = [TimedWriter(bootstrap_servers, topic) for topic in timed]
        self.transactions = SlowTransactions(bootstrap_servers, "transactions", transaction_partitions)
        self.creator = TopicCreator(bootstrap_servers)
        self.groups = [Group(protocol, protocol, timed) for protocol in ("classic", "consumer")]
        self._members = [Member(bootstrap_servers, group, number) for group in self.groups for number in range(2)]
        self._producers: list[Writer] = [*self.timed, self.transactions, self.creator, *also]
        self._address = bootstrap_servers

    def start(self) -> None:
        for writer in (*self._producers, *self._members):
            writer.start()

    def check_alive(self) -> None:
        for writer in (*self._producers, *self._members):
            writer.check_alive()

    def wait_for_progress(self) -> None:
        """Return when every client has been acknowledged something after this call, and every group has read."""

        def counts() -> list[int]:
            return [*(writer.written for writer in self._producers), *(group.read for group in self.groups)]

        before = counts()
        deadline = time.monotonic() + 2 * DEADLINE_S
        while any(count <= old for count, old in zip(counts(), before, strict=True)):
            self.check_alive()
            if time.monotonic() > deadline:
                raise WrongError(f"a client makes no progress: {before} is now {counts()}; {self.table()}")
            time.sleep(0.01)

    def stop_and_check(self) -> None:
        """Stop all clients, and compare what is read with what was acknowledged."""
        for writer in self._producers:
            writer.stop()
        deadline = time.monotonic() + 2 * DEADLINE_S
        ends = {writer.topic: writer.snapshot()[0] + 1 for writer in self.timed}
        while any(group.progress[topic].next < end for group in self.groups for topic, end in ends.items()):
            self.check_alive()
            if time.monotonic() > deadline:
                raise WrongError(f"groups do not read all records {ends}: {[group.progress for group in self.groups]}")
            time.sleep(0.01)
        for member in self._members:
            member.stop()
        reader = Reader(self._address)
        for writer in self._producers:
            writer.check_again()
            writer.check(reader, writer.snapshot())
        reader.close()

    def table(self) -> list[str]:
        """A line for each kind of client."""
        records = sum(writer.written for writer in self.timed)
        transactions = self.transactions
        creator = self.creator
        lines = [
            f"{len(self.timed)} idempotent producers: {records} records",
            f"transactional producer: {len(transactions.committed)} committed, {len(transactions.aborted)} aborted",
            f"{len(creator.created)} topics created; retried: {dict(creator.errors) or 'none'}",
        ]
        for group in self.groups:
            commits = sum(each.written for each in self._members if each.topic == f"group {group.name}")
            lines.append(
                f"group ({group.protocol}): {group.read} records read, {group.repeated} of them again before their "
                f"commit; {commits} commits; retried: {dict(group.errors) or 'none'}"
            )
        return lines

"""The interface between the scenarios and a client under test; each real client has an adapter.

An adapter only translates. It does not retry, hide an error or repair a value: a scenario sees what the client did.
Errors are ``ClientError`` with Kafka's name of the code, regardless of the client's name for it.

No adapter uses consumer groups: partitions are assigned, nothing is committed.

``without`` declares the features that a client lacks, with the reasons. The scenarios are skipped with these reasons,
so that the report of a run lists them. All other features must work.
"""

import enum
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# An operation that takes longer counts as hanging. Only failures take this long.
DEADLINE_SECONDS = 180.0

Headers = tuple[tuple[str, bytes | None], ...]


class Feature(enum.Enum):
    """Features that some clients lack."""

    TOPIC_ADMIN = "create, list and delete topics, and add partitions"
    CONFIG_ADMIN = "describe and alter the configs of a topic"
    INCREMENTAL_CONFIGS = "change one config without resetting the others"
    DELETE_RECORDS = "delete the records before an offset"
    SET_TIMESTAMP = "set the timestamp of a record"
    TIMESTAMP_TYPE = "report whether a timestamp is CreateTime or LogAppendTime"
    NULL_HEADERS = "send a header whose value is null"
    ZERO_BYTES_IN_HEADERS = "send a header that contains a zero byte"
    NULL_KEY_AND_VALUE = "send a record with neither key nor value"
    DELIVERY_REPORT = "report the offset of a stored record"
    ERROR_CODES = "report the error code of a failed request"
    OFFSET_OUT_OF_RANGE = "report an offset out of range instead of resetting"
    PARTITION_OFFSETS = "look up the first and last offset of a partition"
    COMMITTED_OFFSETS = "commit and look up an offset of a group without joining it"
    GROUP_ADMIN = "list and describe groups"
    DELETE_GROUPS = "delete a group"


class ClientError(Exception):
    """A request failed. ``code`` is Kafka's name of the error, for example ``MESSAGE_TOO_LARGE``."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Record:
    """A record for a producer. With ``timestamp_ms`` None the client sets the time."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Delivered:
    """The producer's report of one record; offset -1 if it is unknown (acks=0)."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Received:
    """One record as a consumer shows it. ``timestamp_type`` is None where the client does not show it."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str | None
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group as an administrator sees it. ``state`` is Kafka's name of it, such as ``Stable``."""

    state: str
    members: int


class Stream(ABC):
    """An idempotent producer that keeps sending numbered records to the partitions of a topic in turn.

    The value of the n-th record of partition p is ``b"p-n"``, n from 0. At most a few hundred are unacknowledged.
    """

    @abstractmethod
    def wait_acknowledged(self, count: int) -> None:
        """Return when at least ``count`` more records than at the last call have been acknowledged."""

    @abstractmethod
    def stop(self) -> dict[int, list[bytes]]:
        """Stop sending, wait for pending records, and return the acknowledged values by partition, in the order of
        sending.

        Raises ClientError if a record was not delivered; with unlimited retries and a running server all are.
        """


class Client(ABC):
    """A real client talking to one server."""

    name: ClassVar[str]
    without: ClassVar[Mapping[Feature, str]] = {}

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 - most adapters hold nothing between calls
        """Release connections, threads and processes."""

    @abstractmethod
    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        max_request_size: int = 1_048_576,
        linger_ms: int = 5,
        give_up_ms: int = 30_000,
        request_timeout_ms: int | None = None,
    ) -> list[Delivered]:
        """Send all records and wait for all acknowledgments. ``acks`` is ``0``, ``1`` or ``all``.

        ``max_request_size`` is the client's own limit in bytes; after ``give_up_ms`` it stops retrying; it waits for a
        response as long as ``request_timeout_ms``, or its default.
        Raises ClientError for the first record that failed.
        """

    @abstractmethod
    def read(
        self, topic: str, partition: int, start: int | None = None, *, fetch_max_bytes: int | None = None
    ) -> list[Received]:
        """All records from offset ``start`` (None: from the beginning) to the end at the time of the call.

        ``fetch_max_bytes`` limits a fetch, in total and by partition. An offset out of range is an error; it is never
        reset.
        """

    @abstractmethod
    def open_stream(self, topic: str, partitions: int) -> Stream:
        """Start an idempotent producer that sends until it is stopped."""

    @abstractmethod
    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset with this timestamp or a later one, or None."""

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic of replication factor 1, and return when the server leads its partitions."""
        from moldau.testing.topic_requests import wait_for_topic

        self.send_create_topic(topic, partitions, configs or {})
        wait_for_topic(self.bootstrap_servers, topic, partitions)

    # Clients that declare the feature in `without` do not implement the rest.

    def _unsupported(self, feature: Feature) -> AssertionError:
        reason = self.without.get(feature, "the adapter does not declare this in `without`")
        return AssertionError(f"{self.name} cannot {feature.value}: {reason}")

    def send_create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create a topic of replication factor 1, and return when the client does."""
        raise self._unsupported(Feature.TOPIC_ADMIN)

    def topics(self) -> dict[str, int]:
        """The topics, with the number of partitions of each."""
        raise self._unsupported(Feature.TOPIC_ADMIN)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        raise self._unsupported(Feature.TOPIC_ADMIN)

    def create_partitions(self, topic: str, total: int) -> None:
        """Increase the number of partitions to ``total``."""
        raise self._unsupported(Feature.TOPIC_ADMIN)

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        """All configs of a topic, defaults included."""
        raise self._unsupported(Feature.CONFIG_ADMIN)

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        """Change one config of a topic, and keep the others."""
        raise self._unsupported(Feature.CONFIG_ADMIN)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete the records before an offset, and return the new first offset."""
        raise self._unsupported(Feature.DELETE_RECORDS)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset of a partition, and the one after its last."""
        raise self._unsupported(Feature.PARTITION_OFFSETS)

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Commit an offset for a group without members."""
        raise self._unsupported(Feature.COMMITTED_OFFSETS)

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        """The committed offset of a group, or None."""
        raise self._unsupported(Feature.COMMITTED_OFFSETS)

    def groups(self) -> list[str]:
        """The names of all groups."""
        raise self._unsupported(Feature.GROUP_ADMIN)

    def describe_group(self, group: str) -> DescribedGroup:
        """The state of a group, and the number of its members."""
        raise self._unsupported(Feature.GROUP_ADMIN)

    def delete_group(self, group: str) -> None:
        """Delete a group."""
        raise self._unsupported(Feature.DELETE_GROUPS)


class ThreadStream(Stream):
    """A stream for clients that accept records one by one and report each in a callback.

    ``send(partition, value, done)`` gives a record to the client, which calls ``done(error)`` in its own thread;
    ``flush()`` waits until nothing is on its way; ``close()`` ends the client. ``wait()`` is for a client that calls
    back only from a call of ours: it is called while there is nothing to do but wait.
    """

    _IN_FLIGHT = 400

    def __init__(
        self,
        partitions: int,
        send: Callable[[int, bytes, Callable[[str | None], None]], None],
        flush: Callable[[], None],
        close: Callable[[], None],
        wait: Callable[[], object] | None = None,
    ) -> None:
        self._partitions = partitions
        self._send = send
        self._flush = flush
        self._close = close
        self._wait = wait
        self._room = threading.Semaphore(self._IN_FLIGHT)
        self._changed = threading.Condition()
        self._acknowledged: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        self._count = 0
        self._waited_for = 0
        self._failure: str | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stream", daemon=True)
        self._thread.start()

    def wait_acknowledged(self, count: int) -> None:
        with self._changed:
            self._waited_for = max(self._waited_for, self._count) + count
            reached = self._changed.wait_for(
                lambda: self._count >= self._waited_for or self._failure is not None, DEADLINE_SECONDS
            )
            self._raise_failure()
            assert reached, f"{self._count} of {self._waited_for} records acknowledged in {DEADLINE_SECONDS} s"

    def stop(self) -> dict[int, list[bytes]]:
        self._stopping.set()
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive(), "the producer no longer accepts records"
        self._flush()
        self._close()
        with self._changed:
            self._raise_failure()
            return self._acknowledged

    def _run(self) -> None:
        number = 0
        end = time.monotonic() + 4 * DEADLINE_SECONDS
        try:
            while not self._stopping.is_set() and time.monotonic() < end:
                for partition in range(self._partitions):
                    while not self._room.acquire(timeout=0.2 if self._wait is None else 0):
                        if self._stopping.is_set():
                            return
                        if self._wait is not None:
                            self._wait()
                    value = b"%d-%d" % (partition, number)
                    self._send(partition, value, self._when_done(partition, value))
                number += 1
        except Exception as error:  # noqa: BLE001 - stop() raises it
            self._fail(repr(error))

    def _when_done(self, partition: int, value: bytes) -> Callable[[str | None], None]:
        def done(error: str | None) -> None:
            self._room.release()
            if error is not None:
                self._fail(f"{value.decode()}: {error}")
                return
            with self._changed:
                self._acknowledged[partition].append(value)
                self._count += 1
                if self._count >= self._waited_for:
                    self._changed.notify_all()

        return done

    def _fail(self, reason: str) -> None:
        self._stopping.set()
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise ClientError("UNDELIVERED", self._failure)

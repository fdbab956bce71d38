"""A broker for the length of a ``with`` block, in its own process.

The broker is the real server: ``python -m moldau serve`` on a free port, with a temporary data directory. It is a
process because a busy test would slow down a server thread of the same interpreter, and because only a process can be
killed (:meth:`Broker.kill`, :meth:`Broker.crash`). A server in a thread with files in memory simulates power failures.

Invariants: the port and the data directory stay the same from the first :meth:`Broker.start` to :meth:`Broker.close`,
so that clients created before a restart find the broker again; the temporary directory lives exactly as long.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from .server_process import ServerProcess
from .server_run import BrokerError, ServerRun

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig
    from ..log.memory_files import MemoryFileSystem
    from ..protocol.api import ApiKey
    from .faults import Faults
    from .request_log import Recorded, Requests
    from .secured import Secured

ConfigValue = str | int | float | bool

_MEMORY_DIRECTORY = "/data"

# Defaults that suit tests: internal topics have one partition instead of 50. Groups assign partitions immediately
# instead of waiting for more members (three seconds in classic groups; one second in KIP-848 groups, whose clients
# then retry after five seconds). Old records are deleted when the test calls `delete_old_segments`, not in the
# background.
TEST_CONFIG: Mapping[str, ConfigValue] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "log.initial.task.delay.ms": 7 * 24 * 3_600_000,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
}


_ANY_PORT: Final = "127.0.0.1:0"


@cache
def _remove_leftovers_once() -> None:
    from ..server.storage.ephemeral import remove_leftovers

    remove_leftovers()


class Broker:
    """A Moldau broker for tests: ``with Broker() as broker: ... broker.bootstrap_servers``.

    ``config``: Kafka broker settings (``{"message.max.bytes": 2000000}``), over :data:`TEST_CONFIG`. With ``log.dirs``
    (not with ``thread``) the data is kept in these directories. With ``listeners`` (not with ``thread``), the first of
    them is for the broker's own requests, so it must be PLAINTEXT; :meth:`address_of` has the addresses of the others.
    ``data_dir``: keep the data here, also for later brokers; by default in a temporary directory that is removed.
    ``allow_non_empty``: ``data_dir`` (or ``log.dirs``) may contain other files but no data yet; they are not touched.
    ``ephemeral``: the server chooses a directory and removes it when it stops; no data survives a restart.
    ``thread``: run the server in a thread of this process; it cannot be killed then.
    ``memory``: keep the data in memory (with ``thread``): :meth:`crash` is then a power failure.
    ``listen``: ``HOST:PORT``; port 0 takes a free port at the first start and keeps it.
    ``tls``: clients use TLS; :attr:`ca_file` has the certificate that they trust. ``users``: names and passwords, for
    PLAIN and SCRAM. ``acls``: what the users may do, in the words of ``moldau acls add``; without an ACL, everything is
    denied. :meth:`client_config` has the settings of clients:

        with Broker(tls=True, users={"alice": "secret"}, acls=["alice write topic orders"]) as broker:
            producer = Producer(broker.client_config("alice"))

    ``timeout_s``: how long a start or a stop may take before :class:`BrokerError`.

    A broker is started by ``with`` or :meth:`start`, and may be stopped, killed and started again any number of times.
    """

    def __init__(
        self,
        *,
        config: Mapping[str, ConfigValue] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        allow_non_empty: bool = False,
        ephemeral: bool = False,
        thread: bool = False,
        memory: bool = False,
        listen: str = _ANY_PORT,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        acls: Sequence[str] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        if ephemeral and data_dir is not None:
            raise ValueError("an ephemeral broker has no data_dir")
        if "log.dirs" in (config or {}) and (ephemeral or thread or data_dir is not None):
            raise ValueError("log.dirs cannot be combined with data_dir, ephemeral or thread")
        if "listeners" in (config or {}) and (thread or listen != _ANY_PORT):
            raise ValueError("listeners cannot be combined with listen or thread")
        is_secured = tls or bool(users) or acls is not None
        if is_secured and "listeners" in (config or {}):
            raise ValueError("listeners cannot be combined with tls, users or acls")
        if memory and (not thread or ephemeral or data_dir is not None):
            raise ValueError("memory=True requires thread=True, and cannot be combined with data_dir or ephemeral")
        self.config: dict[str, ConfigValue] = {**TEST_CONFIG, **(config or {})}
        from ..server.storage.ephemeral import EphemeralDirectory

        _remove_leftovers_once()
        self._directory = EphemeralDirectory("moldau-test-")
        self._data_dir = Path(data_dir if data_dir is not None else Path(self._directory.path) / "data")
        self._allow_non_empty = allow_non_empty
        self._ephemeral = ephemeral
        self._thread = thread
        self._memory: MemoryFileSystem | None = _empty_memory() if memory else None
        self._listen = listen
        self._timeout_s = timeout_s
        self._log_path = Path(self._directory.path) / "server.log"
        self._bootstrap_servers: str | None = None
        self._secured: Secured | None = None
        self._secured_address = listen
        if is_secured:
            self._listen = _ANY_PORT
            from .secured import Secured  # most brokers do not need it

            self._secured = Secured(Path(self._directory.path), tls=tls, users=users or {}, acls=acls)
            self.config |= self._secured.settings()
        self._run: ServerRun | None = None
        self._ahead_ms = 0  # of the machine's clock
        self._uses_faults = False
        self._requests: Requests | None = None
        self._requests_run: ServerRun | None = None

    # -- state --

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT`` for any client; known from the first start on, and never changes."""
        if self._bootstrap_servers is None:
            raise BrokerError("the broker was never started: use `with Broker() as broker` or broker.start()")
        return self._bootstrap_servers

    @property
    def internal_address(self) -> str:
        """``HOST:PORT`` of the listener for the broker's own requests: without TLS, SASL and limits by ACLs.

        Without ``tls``, ``users`` and ``acls``, it is the same as `bootstrap_servers`.
        """
        return self.bootstrap_servers if self._secured is None else self._listen

    @property
    def ca_file(self) -> Path:
        """With ``tls``: the certificate of the authority that signed the certificate of the broker, in PEM."""
        if self._secured is None:
            raise BrokerError("the broker has no TLS: use Broker(tls=True)")
        return self._secured.ca_file

    def client_config(
        self, user: str | None = None, *, client: str = "confluent-kafka", mechanism: str = "SCRAM-SHA-256"
    ) -> dict[str, Any]:
        """The settings with which a client connects to the broker with ``tls`` or ``users``, as this user.

            consumer = KafkaConsumer("orders", **broker.client_config("alice", client="kafka-python"))

        ``client``: confluent-kafka, kafka-python, aiokafka, java (properties) or spark (options of
        ``format("kafka")``). ``mechanism``: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        """
        if self._secured is None:
            raise BrokerError("the broker has no security: use Broker(tls=True) or Broker(users=...)")
        return self._secured.client_config(self.bootstrap_servers, user, client, mechanism)

    def address_of(self, listener: str) -> str:
        """``HOST:PORT`` of a listener of the running broker, by its name in ``listeners``."""
        addresses: dict[str, str] = self._ask(self._timeout_s, do="addresses")
        if listener not in addresses:
            raise BrokerError(f"the broker has no listener {listener}, but {', '.join(addresses)}")
        return addresses[listener]

    @property
    def data_dir(self) -> Path:
        """The directory of the partitions' folders. The running server owns it."""
        if self._ephemeral:
            raise BrokerError("the data directory of an ephemeral broker is private")
        if self._memory is not None:
            raise BrokerError("a broker in memory has no data directory")
        return self._data_dir

    @property
    def running(self) -> bool:
        return self._run is not None and self._run.alive

    @property
    def pid(self) -> int:
        """The process that the server runs in."""
        return self._running().pid

    def log(self) -> str:
        """The standard error of the server since its first start; empty with ``thread``."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def reset(self) -> None:
        """Delete every topic with its records and configs, and return when they are deleted. Takes milliseconds.

        A clock that was moved (:meth:`advance`) is reset, and faults are removed. Internal topics remain. A client that
        is still producing with automatic topic creation re-creates its topic: close clients first.
        """
        from ..protocol.errors import ErrorCode, KafkaError
        from ..protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
        from ..protocol.messages.metadata import MetadataRequest
        from .wire import WireClient

        if self._ahead_ms:
            self._set_clock(0)
        if self._uses_faults:
            self.faults.clear()
        if self._requests is not None and self._requests_run is self._run:
            self._requests.clear()
        with WireClient(self._listen, timeout_s=self._timeout_s) as wire:
            listed = wire.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
            topics = [DeleteTopicState(name=topic.name) for topic in listed.topics if not topic.is_internal]
            if not topics:
                return
            timeout_ms = int(self._timeout_s * 1000)
            for result in wire.call(DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms), 6).responses:
                # Another client may have deleted a topic since they were listed.
                if result.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise KafkaError(ErrorCode(result.error_code), f"deleting {result.name}: {result.error_message}")

    # -- retention, compaction and time --

    def trim(self, topic: str, partition: int, offset: int) -> int:
        """Delete the records before ``offset`` (-1: all), as retention does, and return the new first offset.

        Raises :class:`~moldau.protocol.errors.KafkaError`: OFFSET_OUT_OF_RANGE if the offset is beyond the log's end.
        """
        from ..protocol.errors import ErrorCode, KafkaError
        from ..protocol.messages.delete_records import (
            DeleteRecordsPartition,
            DeleteRecordsRequest,
            DeleteRecordsTopic,
        )
        from .wire import WireClient

        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=int(self._timeout_s * 1000)
        )
        with WireClient(self._listen, timeout_s=self._timeout_s) as wire:
            (answer,) = wire.call(request).topics[0].partitions
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(
                ErrorCode(answer.error_code), f"deleting the records of {topic}-{partition} before {offset}"
            )
        return int(answer.low_watermark)

    def compact(self, topic: str) -> None:
        """Compact all partitions of the topic now, regardless of how much has changed, and return when this is done.

            producer.produce("prices", key="apple", value="1")
            producer.produce("prices", key="apple", value="2")
            producer.flush()
            broker.compact("prices")
            assert consume_all("prices") == [("apple", "2")]

        All partitions are rolled first, so that all records are compacted, except the records from the first open
        transaction on, and those that ``min.compaction.lag.ms`` protects. Records without a value are removed when
        ``delete.retention.ms`` has passed since they were first compacted: with 0, by the second call.

        Raises :class:`BrokerError` if the topic does not exist, or its ``cleanup.policy`` does not contain ``compact``.
        """
        self._ask(self._timeout_s, do="compact", topic=topic)

    def insert_offset_gap(self, topic: str, partition: int, count: int = 1) -> int:
        """Skip ``count`` offsets at the end of the partition, and return the offset of its next record.

        Compaction and transactions leave such gaps; clients must not treat them as data loss. The server is stopped
        cleanly and restarted, so this does not work with ``ephemeral``. Clients have to reconnect.
        """
        from .log_changes import insert_offset_gap

        return self._change_log(lambda config, data: insert_offset_gap(config, data, topic, partition, count))

    def truncate(self, topic: str, partition: int, offset: int, values: Sequence[bytes] = ()) -> int:
        """Lose the batch with ``offset`` and everything after it, append ``values``, and return the offset of the
        partition's next record.

            broker.truncate("orders", 0, 12, [b"another record with offset 12"])

        Acknowledged records are lost like this if a replica becomes the leader that does not have them (unclean leader
        election), or if the only replica lost them in a power failure. ``values`` have a new leader epoch, by which a
        consumer that has read further notices the loss (KIP-320). The server is stopped cleanly and restarted, so this
        does not work with ``ephemeral``. Clients have to reconnect.

        Raises ValueError if the partition does not exist, or does not have this offset.
        """
        from .log_changes import truncate

        return self._change_log(lambda config, data: truncate(config, data, topic, partition, offset, values))

    def roll(self, topic: str, partition: int) -> None:
        """Roll the active segment of the partition, as if it were full. Retention and compaction work on whole segments
        and skip the active one. Does nothing if the active segment is empty.

        Raises :class:`BrokerError` if the partition does not exist.
        """
        self._ask(self._timeout_s, do="roll", topic=topic, partition=partition)

    def advance(self, seconds: float) -> None:
        """Move the server's clock forward; it stays ahead until :meth:`reset`, also after restarts.

            broker.advance(7 * 24 * 3600)
            broker.delete_old_segments()
            assert consumer.get_watermark_offsets(partition) == (1000, 1000)

        This clock determines the timestamps of topics with LogAppendTime, retention, ``file.delete.delay.ms``, and the
        expiration of producers, committed offsets and transactional ids. Periodic tasks are not triggered: see
        :meth:`delete_old_segments`. Timeouts of requests, sessions and rebalances are not affected.
        """
        self._set_clock(self._ahead_ms + round(seconds * 1000))

    def delete_old_segments(self) -> None:
        """Apply the topics' ``retention.ms`` and ``retention.bytes`` now, instead of at the next periodic check
        (``log.retention.check.interval.ms``), and unlink the files that were deleted longer ago than
        ``file.delete.delay.ms``. Return when this is done.

        The broker of a test has no periodic check unless ``log.initial.task.delay.ms`` is in its ``config``.
        """
        self._ask(self._timeout_s, do="delete_old_segments")

    # -- groups --

    def await_group_stable(self, group: str, members: int | None = None, timeout: float = 30.0) -> None:
        """Return when the group is stable: all its members, ``members`` if given, have their partitions.

            consumers = [start_consumer("billing") for _ in range(3)]
            broker.await_group_stable("billing", members=3)

        Pass ``members``, because a group is already stable with its first member. A consumer joins only while it is
        polled, in another thread or before this call. The broker is not polled: it notifies the waiting test.

        Raises :class:`BrokerError` after ``timeout`` seconds, with the state of the group.
        """
        self._ask(timeout, do="wait_group_stable", group=group, members=members)

    def await_lag_zero(self, group: str, topic: str, timeout: float = 30.0) -> None:
        """Return when the group has committed the offsets of all records of the topic.

            producer.flush()
            broker.await_lag_zero("billing", "orders")
            assert invoices() == expected

        Records that are produced during the wait count. A consumer with automatic commits commits every five seconds;
        set a smaller ``auto.commit.interval.ms``, or commit explicitly.

        Raises :class:`BrokerError` after ``timeout`` seconds, with the partitions that lag; immediately if the topic
        does not exist.
        """
        self._ask(timeout, do="wait_lag_zero", group=group, topic=topic)

    def expire_member(self, group: str, member: str) -> None:
        """Expire the session of a member now, as if it had sent no heartbeat for its session timeout.

        ``member`` is its member id or its instance id (``group.instance.id``). When this returns, the member is
        removed from the group; its client receives an error for its next heartbeat, and rejoins.

            broker.expire_member("billing", "worker-1")
            broker.await_group_stable("billing", members=2)

        Raises :class:`BrokerError` if there is no such member, or if it waits in a rebalance and thus has no session.
        """
        self._ask(self._timeout_s, do="expire_member", group=group, member=member)

    # -- faults and requests --

    @property
    def faults(self) -> Faults:
        """Errors, delays, disconnects and more, for the requests that a test chooses: see :mod:`moldau.testing.faults`.

            broker.faults.error(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="orders", times=2)

        A restarted server has no faults.
        """
        from .faults import Faults

        self._uses_faults = True
        return Faults(lambda **command: self._ask(self._timeout_s, **command))

    @property
    def requests(self) -> Requests:
        """The requests that the server receives from now on: see :mod:`moldau.testing.request_log`. One object for each
        run of the server; recording begins with the first use.

            broker.requests.clear()
            send_order()
            assert len(broker.requests.of(ApiKey.PRODUCE)) == 1
        """
        from .request_log import Requests

        run = self._running()
        if self._requests is None or self._requests_run is not run:
            self._requests = Requests(lambda timeout_s, **command: self._ask(timeout_s, **command))
            self._requests_run = run
        return self._requests

    def wait_for_request(
        self, api: ApiKey, *, client_id: str | None = None, count: int = 1, timeout: float = 30.0
    ) -> Recorded:
        """Return the ``count``-th request of an API since ``requests`` was first used or cleared, when it has arrived.

            broker.requests.clear()
            start_consumer("billing")
            assert broker.wait_for_request(ApiKey.JOIN_GROUP).request.group_id == "billing"

        Raises :class:`BrokerError` after ``timeout`` seconds, with the requests that have arrived.
        """
        return self.requests.wait_for(api, client_id=client_id, count=count, timeout=timeout)

    # -- transactions --

    def expire_transaction(self, transactional_id: str) -> None:
        """Time out the open transaction of this id, and return when it is aborted in all of its partitions.

            producer.begin_transaction()
            producer.produce("orders", b"one")
            producer.flush()
            broker.expire_transaction("billing-1")
            with pytest.raises(KafkaException):
                producer.commit_transaction()

        Raises :class:`BrokerError` if this id has no open transaction.
        """
        self._ask(self._timeout_s, do="expire_transaction", transactional_id=transactional_id)

    # -- lifecycle --

    def start(self) -> Self:
        """Start the server and return when it responds; same port and data as before. No effect if it is running."""
        if not self.running:
            if self._run is not None:
                self._run.close()
            self._run = self._start_thread() if self._thread else self._start_process()
            self._bootstrap_servers = self._listen = self._run.wait_ready(self._timeout_s)
            if self._secured is not None:
                self._prepare(self._secured)
                self._bootstrap_servers = self._secured_address = self.address_of(self._secured.protocol)
            if self._ahead_ms:
                self._set_clock(self._ahead_ms)
        return self

    def stop(self) -> None:
        """Stop the server cleanly (SIGTERM) and wait for its exit. No effect if it is not running.

        Raises :class:`BrokerError` if it takes longer than ``timeout_s`` (it is then killed) or reports a failure.
        """
        run, self._run = self._run, None
        if run is not None:
            run.stop(self._timeout_s)

    def kill(self) -> None:
        """Kill the server (SIGKILL), as in a crash: no flush, no clean shutdown. :meth:`start` restarts it."""
        self._running().kill()
        self._run = None

    def crash(self, seed: int | None = None) -> None:
        """Crash the server and restart it with recovery: same port, same data.

            for order in orders:
                producer.produce("orders", order)
            broker.crash()
            producer.flush()
            assert all_values("orders") == orders

        A process is killed (SIGKILL); what it had written is kept, because the machine keeps running. With ``thread``
        and ``memory`` this is a power failure: unsynced data is lost, mostly the ends of logs, unless the topic has
        ``flush.messages=1`` or the broker ``log.flush.interval.messages=1``. With a ``seed``, a random part of the
        unsynced data is kept, as on real disks; the same seed makes the same choice.

        Clients lose their connections and reconnect. A clock that was moved stays ahead.

        Raises :class:`BrokerError` for a broker in a thread without ``memory``, and for an ephemeral one.
        """
        run = self._running()
        if self._ephemeral:
            raise BrokerError("an ephemeral broker has no data to recover")
        if self._memory is not None:
            self._memory = run.crash(None if seed is None else Random(seed), self._timeout_s)
            self._run = None
        else:
            self.kill()
        self.start()

    def restart(self) -> None:
        """Stop cleanly and start again: same port, same data, with the current :attr:`config`."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the temporary directory. The ``with`` block calls it at its end."""
        try:
            self.stop()
        finally:
            self._directory.remove()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- internals --

    def _change_log(self, change: Callable[[BrokerConfig, Path], int]) -> int:
        self._running()
        data_dir = self.data_dir
        self.stop()
        try:
            return change(self._broker_config(), data_dir)
        finally:
            self.start()

    def _prepare(self, secured: Secured) -> None:
        """After a start: create the users and ACLs."""
        secured.prepare(self._listen)

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "moldau", "serve", "--exit-with-stdin"]
        command += self._listen_options()
        if self._ephemeral:
            command += ["--ephemeral"]
        elif "log.dirs" not in self.config:
            command += ["--data-dir", str(self._data_dir)]
        if self._allow_non_empty:
            command += ["--allow-non-empty"]
        for name, value in self.config.items():
            command += ["--set", f"{name}={config_text(value)}"]
        return command

    def _listen_options(self) -> list[str]:
        if self._secured is not None:
            return ["--set", f"listeners={self._listeners()}"]
        return [] if "listeners" in self.config else ["--listen", self._listen]

    def _listeners(self) -> str:
        """The first listener is for the broker's own requests."""
        if self._secured is None:
            return f"PLAINTEXT://{self._listen}"
        return f"PLAINTEXT://{self._listen},{self._secured.protocol}://{self._secured_address}"

    def _start_process(self) -> ServerRun:
        return ServerProcess(self._command(), self._log_path)

    def _start_thread(self) -> ServerRun:
        from .server_thread import ServerThread

        if self._ephemeral:
            shutil.rmtree(self._data_dir, ignore_errors=True)
        if self._memory is not None:
            return ServerThread(self._broker_config(), _MEMORY_DIRECTORY, durable=True, memory=self._memory)
        return ServerThread(
            self._broker_config(),
            str(self._data_dir),
            durable=not self._ephemeral,
            allow_non_empty=self._allow_non_empty,
        )

    def _broker_config(self) -> BrokerConfig:
        from ..config.checks import check_broker_config
        from ..config.sources import load

        settings = {**self.config, "listeners": self._listeners()}
        config = load(overrides=[f"{name}={config_text(value)}" for name, value in settings.items()])
        check_broker_config(config)
        return config

    def _set_clock(self, ahead_ms: int) -> None:
        self._ask(self._timeout_s, do="set_clock", ahead_ms=ahead_ms)
        self._ahead_ms = ahead_ms

    def _ask(self, timeout_s: float, **request: object) -> Any:
        return self._running().ask({**request, "timeout_ms": int(timeout_s * 1000)})

    def _running(self) -> ServerRun:
        run = self._run  # another thread may stop it
        if run is None or not run.alive:
            raise BrokerError("the broker is not running")
        return run


def _empty_memory() -> MemoryFileSystem:
    from ..log.memory_files import MemoryFileSystem

    return MemoryFileSystem()


def config_text(value: ConfigValue) -> str:
    """A setting as Kafka writes it: ``True`` is ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)

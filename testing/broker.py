"""A broker for the length of a ``with`` block, in a process of its own.

The broker is the real server: ``python -m moldau serve`` on a free port, with a data directory that is thrown away. A
process, because a busy test would slow a server thread of the same interpreter, and because only a process can be
killed (:meth:`Broker.kill`, :meth:`Broker.crash`). With its files in memory and in a thread, it can lose its power.

Invariants: the port and the data directory stay the same from the first :meth:`Broker.start` to :meth:`Broker.close`,
so that clients created before a restart find the broker again; the temporary directory lives exactly as long.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .server_process import ServerProcess
from .server_run import BrokerError, ServerRun

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig
    from ..log.memory_files import MemoryFileSystem

ConfigValue = str | int | float | bool

_MEMORY_DIRECTORY = "/data"

# What makes a broker pleasant in a test: internal topics of one partition instead of 50, groups that assign partitions
# at once instead of waiting for more members (three seconds in classic groups, one second in KIP-848 groups, whose
# client then asks again five seconds later), and records of any time that are deleted when the test says so
# (`delete_old_segments`), and not in the midst of it.
TEST_CONFIG: Mapping[str, ConfigValue] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "log.initial.task.delay.ms": 7 * 24 * 3_600_000,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
}


@cache
def _remove_leftovers_once() -> None:
    from ..server.ephemeral import remove_leftovers

    remove_leftovers()


class Broker:
    """A Moldau broker for tests: ``with Broker() as broker: ... broker.bootstrap_servers``.

    ``config``: Kafka broker settings (``{"message.max.bytes": 2000000}``), over :data:`TEST_CONFIG`. With ``log.dirs``
    among them (not with ``thread``) the data is there, and stays there.
    ``data_dir``: keep the data here, across brokers; default is a temporary directory that :meth:`close` removes.
    ``allow_non_empty``: ``data_dir`` (or ``log.dirs``) may hold other files and no data yet; they are left alone.
    ``ephemeral``: the server itself picks a directory and removes it when it stops: nothing survives a restart.
    ``thread``: run the server in a thread of this process instead; it can then not be killed.
    ``memory``: keep the data in memory (with ``thread``): :meth:`crash` is then a loss of power.
    ``listen``: ``HOST:PORT``; port 0 takes a free port at the first start and keeps it.
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
        listen: str = "127.0.0.1:0",
        timeout_s: float = 30.0,
    ) -> None:
        if ephemeral and data_dir is not None:
            raise ValueError("an ephemeral broker has no data_dir")
        if "log.dirs" in (config or {}) and (ephemeral or thread or data_dir is not None):
            raise ValueError("log.dirs goes with neither data_dir nor ephemeral nor thread")
        if memory and (not thread or ephemeral or data_dir is not None):
            raise ValueError("memory=True needs thread=True, and neither data_dir nor ephemeral")
        self.config: dict[str, ConfigValue] = {**TEST_CONFIG, **(config or {})}
        from ..server.ephemeral import EphemeralDirectory

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
        self._run: ServerRun | None = None
        self._ahead_ms = 0  # of the machine's clock

    # -- what a test asks --

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT`` for any client; known from the first start on, and the same ever after."""
        if self._bootstrap_servers is None:
            raise BrokerError("the broker was never started: use `with Broker() as broker` or broker.start()")
        return self._bootstrap_servers

    @property
    def data_dir(self) -> Path:
        """Where the partitions' folders are. The server owns it while it runs."""
        if self._ephemeral:
            raise BrokerError("an ephemeral broker keeps its data directory to itself")
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
        """All that the server wrote to standard error so far, over all of its starts; nothing with ``thread``."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def reset(self) -> None:
        """Delete every topic with its records and configs, and return when they are gone. Milliseconds; no restart.

        A clock that was moved (:meth:`advance`) is right again.
        Topics that the server keeps for itself stay. A client that is still producing with automatic topic creation
        makes its topic again: close clients first.
        """
        from ..protocol.errors import ErrorCode, KafkaError
        from ..protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
        from ..protocol.messages.metadata import MetadataRequest
        from .wire import WireClient

        if self._ahead_ms:
            self._set_clock(0)
        with WireClient(self.bootstrap_servers, timeout_s=self._timeout_s) as wire:
            listed = wire.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
            topics = [DeleteTopicState(name=topic.name) for topic in listed.topics if not topic.is_internal]
            if not topics:
                return
            timeout_ms = int(self._timeout_s * 1000)
            for result in wire.call(DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms), 6).responses:
                # One that is gone already was deleted by somebody else meanwhile.
                if result.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise KafkaError(ErrorCode(result.error_code), f"deleting {result.name}: {result.error_message}")

    # -- what happens to topics in time, at once --

    def trim(self, topic: str, partition: int, offset: int) -> int:
        """Delete the records before ``offset`` (-1: all), as retention does; the first offset that is left.

        Raises :class:`~moldau.protocol.errors.KafkaError`: OFFSET_OUT_OF_RANGE where the log does not reach the offset.
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
        with WireClient(self.bootstrap_servers, timeout_s=self._timeout_s) as wire:
            (answer,) = wire.call(request).topics[0].partitions
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(
                ErrorCode(answer.error_code), f"deleting the records of {topic}-{partition} before {offset}"
            )
        return int(answer.low_watermark)

    def compact(self, topic: str) -> None:
        """Compact all partitions of the topic now, however little of them has changed, and return when it is done.

            producer.produce("prices", key="apple", value="1")
            producer.produce("prices", key="apple", value="2")
            producer.flush()
            broker.compact("prices")
            assert consume_all("prices") == [("apple", "2")]

        A new segment is begun first, so that all records count; left out are those of open transactions and of those
        that began after them, and what ``min.compaction.lag.ms`` protects. Records without a value go once
        ``delete.retention.ms`` has passed since they were first compacted: with 0, the second call removes them.

        Raises :class:`BrokerError` if there is no such topic, or ``cleanup.policy`` does not say ``compact``.
        """
        self._ask(self._timeout_s, do="compact", topic=topic)

    def insert_offset_gap(self, topic: str, partition: int, count: int = 1) -> int:
        """Let the partition go on ``count`` offsets higher; the offset that its next record will get.

        Compaction and transactions leave such gaps, and clients must not take them for loss. The server is stopped
        cleanly for it and started again, so an ephemeral one cannot do it. What it was doing for its clients goes on
        when they have connected again.
        """
        from .offset_gap import insert_offset_gap

        self._running()
        data_dir = self.data_dir
        self.stop()
        try:
            return insert_offset_gap(self._broker_config(), data_dir, topic, partition, count)
        finally:
            self.start()

    def roll(self, topic: str, partition: int) -> None:
        """Let the partition go on in a new segment, as it does when the old one is full: retention and compaction work
        on whole segments, and leave alone the one that is written to. Nothing where that one is empty.

        Raises :class:`BrokerError` if there is no such partition.
        """
        self._ask(self._timeout_s, do="roll", topic=topic, partition=partition)

    def advance(self, seconds: float) -> None:
        """Move the server's clock forward; it stays ahead until :meth:`reset`, over restarts too.

            broker.advance(7 * 24 * 3600)
            broker.delete_old_segments()
            assert consumer.get_watermark_offsets(partition) == (1000, 1000)

        By this clock go the timestamps of topics with LogAppendTime, retention, ``file.delete.delay.ms``, and when
        producers, committed offsets and transactional ids expire. Nothing happens by itself that happens now and then:
        see :meth:`delete_old_segments`. Timeouts of requests, sessions and rebalances take the time they take.
        """
        self._set_clock(self._ahead_ms + round(seconds * 1000))

    def delete_old_segments(self) -> None:
        """Delete what is too old or too much by the topics' ``retention.ms`` and ``retention.bytes``, now and not when
        the next look is due (``log.retention.check.interval.ms``); and unlink what was deleted longer ago than
        ``file.delete.delay.ms``. Return when it is done.

        A test's broker does not look by itself, but with a ``log.initial.task.delay.ms`` in its ``config``.
        """
        self._ask(self._timeout_s, do="delete_old_segments")

    # -- groups --

    def await_group_stable(self, group: str, members: int | None = None, timeout: float = 30.0) -> None:
        """Return when the group has members who all have their partitions: so many members, if that is said.

            consumers = [start_consumer("billing") for _ in range(3)]
            broker.await_group_stable("billing", members=3)

        Say how many: a group is stable with its first member, too. A consumer must be polled for it to join, in a
        thread of its own or before this is called. Nobody polls the broker: it tells when it has come to pass.

        Raises :class:`BrokerError` after ``timeout`` seconds, with the state that the group is in.
        """
        self._ask(timeout, do="wait_group_stable", group=group, members=members)

    def await_lag_zero(self, group: str, topic: str, timeout: float = 30.0) -> None:
        """Return when the group has committed the offsets of all records that the topic has.

            producer.flush()
            broker.await_lag_zero("billing", "orders")
            assert invoices() == expected

        What is produced meanwhile counts. A consumer that commits by itself does so every five seconds; make its
        ``auto.commit.interval.ms`` smaller, or commit what was read.

        Raises :class:`BrokerError` after ``timeout`` seconds, with the partitions that are behind; at once when there
        is no such topic.
        """
        self._ask(timeout, do="wait_lag_zero", group=group, topic=topic)

    def expire_member(self, group: str, member: str) -> None:
        """End the session of a member now, as if it had not been heard of for its whole session timeout.

        ``member`` is its member id or its instance id (``group.instance.id``). The member is out of the group when this
        returns; its client will be told with its next heartbeat, and come back.

            broker.expire_member("billing", "worker-1")
            broker.await_group_stable("billing", members=2)

        Raises :class:`BrokerError` if there is no such member, or if it waits in a rebalance: then it has no session.
        """
        self._ask(self._timeout_s, do="expire_member", group=group, member=member)

    # -- transactions --

    def expire_transaction(self, transactional_id: str) -> None:
        """Let the open transaction of this id time out: return when it is aborted in all of its partitions.

            producer.begin_transaction()
            producer.produce("orders", b"one")
            producer.flush()
            broker.expire_transaction("billing-1")
            with pytest.raises(KafkaException):
                producer.commit_transaction()

        Raises :class:`BrokerError` when there is no open transaction of that id.
        """
        self._ask(self._timeout_s, do="expire_transaction", transactional_id=transactional_id)

    # -- its life --

    def start(self) -> Self:
        """Start the server and return when it answers; same port and data as before. Nothing if it runs already."""
        if not self.running:
            if self._run is not None:
                self._run.close()
            self._run = self._start_thread() if self._thread else ServerProcess(self._command(), self._log_path)
            self._bootstrap_servers = self._listen = self._run.wait_ready(self._timeout_s)
            if self._ahead_ms:
                self._set_clock(self._ahead_ms)
        return self

    def stop(self) -> None:
        """Stop the server cleanly (SIGTERM) and wait for its end. Nothing if it does not run.

        Raises :class:`BrokerError` if it takes longer than ``timeout_s`` (it is then killed) or reports a failure.
        """
        run, self._run = self._run, None
        if run is not None:
            run.stop(self._timeout_s)

    def kill(self) -> None:
        """End the server at once (SIGKILL), as a crash does: no flush, no farewell. :meth:`start` brings it back."""
        self._running().kill()
        self._run = None

    def crash(self, seed: int | None = None) -> None:
        """Let the server die in the middle of whatever it does, and bring it back: same port, same data, recovered.

            for order in orders:
                producer.produce("orders", order)
            broker.crash()
            producer.flush()
            assert all_values("orders") == orders

        A process is killed (SIGKILL): what it had written is there, as the machine goes on. With ``thread`` and
        ``memory`` the power fails: what was not synced is lost, the end of a log most of all, unless the topic has
        ``flush.messages=1`` or the broker ``log.flush.interval.messages=1``. With a ``seed``, a part of what was not
        synced is there, or there in part, as with real disks; the same seed draws the same.

        Clients are not told: they lose their connections and come back. A clock that was moved stays so.

        Raises :class:`BrokerError` for a broker in a thread without ``memory``, and for one that keeps nothing.
        """
        run = self._running()
        if self._ephemeral:
            raise BrokerError("an ephemeral broker keeps nothing that could be recovered")
        if self._memory is not None:
            self._memory = run.crash(None if seed is None else Random(seed), self._timeout_s)
            self._run = None
        else:
            self.kill()
        self.start()

    def restart(self) -> None:
        """Stop cleanly and start again: same port, same data, configuration as it is in :attr:`config` now."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the temporary directory. The end of the ``with`` block."""
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

    # -- inside --

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "moldau", "serve", "--exit-with-stdin", "--listen", self._listen]
        if self._ephemeral:
            command += ["--ephemeral"]
        elif "log.dirs" not in self.config:
            command += ["--data-dir", str(self._data_dir)]
        if self._allow_non_empty:
            command += ["--allow-non-empty"]
        for name, value in self.config.items():
            command += ["--set", f"{name}={config_text(value)}"]
        return command

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

        settings = {**self.config, "listeners": f"PLAINTEXT://{self._listen}"}
        config = load(overrides=[f"{name}={config_text(value)}" for name, value in settings.items()])
        check_broker_config(config)
        return config

    def _set_clock(self, ahead_ms: int) -> None:
        self._ask(self._timeout_s, do="set_clock", ahead_ms=ahead_ms)
        self._ahead_ms = ahead_ms

    def _ask(self, timeout_s: float, **request: object) -> None:
        self._running().ask({**request, "timeout_ms": int(timeout_s * 1000)})

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

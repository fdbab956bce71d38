"""A whole server in a thread of the test's process. Tests can access its internals."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import pytest

from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.log.directory import LogDirectory
from moldau.log.files import FileSystem
from moldau.metadata.outcome import Versioned
from moldau.metadata.quorum import Metadata
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.replication.partition import Partition
from moldau.server.broker import Broker
from moldau.server.concurrency.clock import MovableClock
from moldau.server.concurrency.event_loop import new_event_loop
from moldau.server.network.listeners import Network
from moldau.server.nodes.server import Server
from moldau.testing.waiting import wait_until_async
from moldau.testing.wire import WireClient

T = TypeVar("T")


class RunningServer:
    """A server on a free port. `restart` starts a new server on the same directories."""

    server: Server
    loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        log_dirs: Sequence[str | Path],
        config: Mapping[str, str] | None = None,
        file_system: FileSystem | None = None,
    ) -> None:
        self.log_dirs = [str(directory) for directory in log_dirs]
        # Retention deletes records only when a test requests it, whatever their timestamps are.
        defaults = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.initial.task.delay.ms": "604800000"}
        self.config = defaults | dict(config or {})
        self.clock = MovableClock()
        self.file_system = file_system

    def start(self) -> Self:
        ready = threading.Event()
        self._failure: BaseException | None = None

        async def run() -> None:
            self.loop = asyncio.get_running_loop()
            self._stopping = asyncio.Event()
            settings = {name: StaticValue(text, "test") for name, text in self.config.items()}
            self.server = Server(
                BrokerConfig(settings),
                self.log_dirs,
                durable=False,
                file_system=self.file_system,
                clock=self.clock,
            )
            try:
                await self.server.start()
            except BaseException as failure:
                self._failure = failure
                raise
            finally:
                ready.set()
            await self._stopping.wait()
            await self.server.stop()

        def target() -> None:
            with contextlib.suppress(BaseException), asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(run())

        self._thread = threading.Thread(target=target)
        self._thread.start()
        assert ready.wait(60)
        if self._failure is not None:
            self._thread.join(60)
            raise self._failure
        return self

    def stop(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(60)
            assert not self._thread.is_alive()

    def restart(self) -> Self:
        self.stop()
        return self.start()

    @property
    def bootstrap_servers(self) -> str:
        return self.server.bootstrap_servers

    @property
    def broker(self) -> Broker:
        broker = self.server.broker
        assert broker is not None
        return broker

    @property
    def network(self) -> Network:
        network = self.server._network
        assert network is not None
        return network

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        partition = self.broker.replicas.partition_by_key(topic, index)
        assert partition is not None
        return partition

    def directory(self, topic: str = "t", index: int = 0) -> LogDirectory:
        """The log directory of a partition."""
        directory = self.broker.log_manager.directory_of(topic, index)
        assert directory is not None
        return directory

    def call(self, function: Callable[[], T]) -> T:
        """Run ``function`` on the server's event loop, and wait for the result."""

        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(60)

    def await_(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Like `call`, for a coroutine function."""
        return asyncio.run_coroutine_threadsafe(function(), self.loop).result(60)

    def wait_until(self, condition: Callable[[], T | None]) -> T:
        """Wait until the condition holds on the event loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(wait_until_async(condition, pause=0.002), self.loop).result()

    def wire(self) -> WireClient:
        # On a busy machine, the processes that decode batches get little time.
        return WireClient(self.bootstrap_servers, timeout_s=120)

    def append_metadata(self, make_record: Callable[[int], Versioned]) -> None:
        """Append a record to the metadata log; it is committed soon. ``make_record`` gets the offset of the record."""
        metadata = self.broker.metadata
        assert isinstance(metadata, Metadata)

        def append() -> None:
            metadata.controller.append([make_record(metadata.controller.end_offset)], self.clock())
            self.broker.group_commit.flush_soon(metadata.log)

        self.call(append)

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> bytes:
        """Create a topic, and return its id. The names of configs have underscores instead of dots."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=n.replace("_", "."), value=str(v)) for n, v in configs.items()],
                )
            ]
        )
        with self.wire() as wire:
            (result,) = wire.call(request, 7).topics
        assert result.error_code == 0, result
        topic_id: bytes = result.topic_id
        return topic_id


class MakeServer(Protocol):
    """Creates and starts a server, which is stopped at the end of the test."""

    def __call__(
        self,
        *,
        log_dirs: Sequence[str | Path] | None = None,
        config: Mapping[str, str] | None = None,
        file_system: FileSystem | None = None,
    ) -> RunningServer: ...


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[MakeServer]:
    running: list[RunningServer] = []

    def make(
        *,
        log_dirs: Sequence[str | Path] | None = None,
        config: Mapping[str, str] | None = None,
        file_system: FileSystem | None = None,
    ) -> RunningServer:
        server = RunningServer(log_dirs or [tmp_path / "data"], config, file_system)
        running.append(server)
        return server.start()

    yield make
    for server in running:
        server.stop()


@pytest.fixture
def server(make_server: MakeServer) -> RunningServer:
    return make_server()

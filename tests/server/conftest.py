"""A whole server in a thread of the test's process. Tests can access its internals."""

import asyncio
import contextlib
import threading

import pytest

from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.server.concurrency.clock import MovableClock
from moldau.server.concurrency.event_loop import new_event_loop
from moldau.server.server import Server
from moldau.testing.waiting import wait_until_async
from moldau.testing.wire import WireClient


class RunningServer:
    """A server on a free port. `restart` starts a new server on the same directories."""

    def __init__(self, log_dirs, config=None, file_system=None):
        self.log_dirs = [str(directory) for directory in log_dirs]
        # Retention deletes records only when a test asks for it, whatever their timestamps are.
        defaults = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.initial.task.delay.ms": "604800000"}
        self.config = defaults | (config or {})
        self.clock = MovableClock()
        self.file_system = file_system
        self.server = None

    def start(self):
        ready = threading.Event()
        self._failure = None

        async def run():
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

        def target():
            with contextlib.suppress(BaseException), asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(run())

        self._thread = threading.Thread(target=target)
        self._thread.start()
        assert ready.wait(60)
        if self._failure is not None:
            self._thread.join(60)
            raise self._failure
        return self

    def stop(self):
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(60)
            assert not self._thread.is_alive()

    def restart(self):
        self.stop()
        return self.start()

    @property
    def bootstrap_servers(self):
        return self.server.bootstrap_servers

    @property
    def broker(self):
        return self.server.broker

    def call(self, function):
        """Run ``function`` on the server's event loop, and wait for the result."""

        async def run():
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(60)

    def await_(self, function):
        """Like `call`, for a coroutine function."""
        return asyncio.run_coroutine_threadsafe(function(), self.loop).result(60)

    def wait_until(self, condition):
        """Wait until the condition holds on the event loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(wait_until_async(condition, pause=0.002), self.loop).result()

    def wire(self):
        return WireClient(self.bootstrap_servers)

    def append_metadata(self, make_record):
        """Append a record to the metadata log; it is committed soon. ``make_record`` gets the offset of the record."""
        metadata = self.broker.metadata

        def append():
            metadata.controller.append([make_record(metadata.controller.end_offset)], self.clock())
            self.broker.group_commit.flush_soon(metadata.log)

        self.call(append)

    def create_topic(self, name, partitions=1, **configs):
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
        return result.topic_id


@pytest.fixture
def make_server(tmp_path):
    running = []

    def make(*, log_dirs=None, config=None, file_system=None):
        server = RunningServer(log_dirs or [tmp_path / "data"], config, file_system)
        running.append(server)
        return server.start()

    yield make
    for server in running:
        server.stop()


@pytest.fixture
def server(make_server):
    return make_server()

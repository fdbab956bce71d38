"""One run of the server in a thread of this process, with its own event loop.

For tests that access the server's Python objects. The server shares the interpreter with the test: it waits while the
test computes, and it cannot be killed. It uses the logging of this process.

Its files may be in memory. Then a power failure can be simulated, which is more than a kill (`ServerThread.crash`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any

from ..server.concurrency.clock import MovableClock
from ..server.concurrency.event_loop import new_event_loop
from ..server.nodes.server import Server, StartError
from ..server.steering import Steering, SteeringError
from .server_run import BrokerError, ServerRun

if TYPE_CHECKING:
    from random import Random

    from ..config.broker_config import BrokerConfig
    from ..log.memory_files import MemoryFileSystem


class ServerThread(ServerRun):
    """A :class:`moldau.server.nodes.server.Server` in a daemon thread."""

    def __init__(
        self,
        config: BrokerConfig,
        log_dir: str,
        *,
        durable: bool,
        memory: MemoryFileSystem | None = None,
        allow_non_empty: bool = False,
    ) -> None:
        """``memory``: the file system that contains ``log_dir``, instead of the disk."""
        self._config = config
        self._log_dir = log_dir
        self._durable = durable
        self._memory = memory
        self._allow_non_empty = allow_non_empty
        self._server: Server | None = None
        self._loop = new_event_loop()
        self._stopping = asyncio.Event()
        self._ready: Future[str] = Future()
        self._steering: Steering | None = None
        self._asking = threading.Lock()
        self._pending: set[Future[Any]] = set()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="moldau-broker", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the limit of threads
            self._loop.close()
            raise

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def wait_ready(self, timeout_s: float) -> str:
        try:
            return self._ready.result(timeout_s)
        except StartError as error:
            self._thread.join()
            raise BrokerError(str(error)) from error
        except TimeoutError:
            raise BrokerError(f"the broker was not ready within {timeout_s:g} s") from None

    def ask(self, request: Mapping[str, Any]) -> Any:
        with self._asking:
            if self._steering is None:
                raise BrokerError("the broker no longer serves requests")
            answer = asyncio.run_coroutine_threadsafe(self._steering.perform(request), self._loop)
            self._pending.add(answer)
        try:
            return answer.result()
        except SteeringError as error:
            raise BrokerError(str(error)) from error
        except CancelledError:
            raise BrokerError("the broker was stopped before it responded") from None
        finally:
            self._pending.discard(answer)

    def stop(self, timeout_s: float) -> None:
        if self.alive:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise BrokerError(f"the broker did not stop within {timeout_s:g} s")
        if self._failure is not None:
            raise BrokerError(f"the broker failed: {self._failure!r}") from self._failure

    def kill(self) -> None:
        raise BrokerError("a broker in a thread cannot be killed: omit thread=True")

    def crash(self, random: Random | None, timeout_s: float) -> MemoryFileSystem:
        """Simulate a power failure, and return the remaining files: all synced data, and a part of the rest that
        ``random`` chooses; without it none."""

        async def fail() -> MemoryFileSystem:
            assert self._server is not None
            assert self._memory is not None
            # Disconnect first: otherwise clients could receive acknowledgments of data that is lost.
            self._server.disconnect()
            return self._memory.crash(random, discard_unsynced=random is None)

        survivor = asyncio.run_coroutine_threadsafe(fail(), self._loop).result(timeout_s)
        self.stop(timeout_s)  # on files that are no longer used
        return survivor

    def close(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - wait_ready() and stop() raise it
            if not self._ready.done():
                self._ready.set_exception(error)
            else:
                self._failure = error
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = Server(
            self._config,
            [self._log_dir],
            durable=self._durable,
            file_system=self._memory,
            clock=MovableClock(),
            allow_non_empty=self._allow_non_empty,
        )
        await server.start()
        self._server = server
        assert server.broker is not None
        self._steering = Steering(server.broker, server.network)
        self._ready.set_result(server.bootstrap_servers)
        await self._stopping.wait()
        with self._asking:
            self._steering = None
            for answer in list(self._pending):
                answer.cancel()
        await server.stop()

"""One run of the server in a thread of this process, on an event loop of its own.

For tests that must reach into the server with Python objects. It shares the interpreter with the test: while the test
computes, the server waits, and there is nothing to kill. Its log goes where this process's logging goes.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ..server.event_loop import new_event_loop
from ..server.server import Server, StartError
from .server_run import BrokerError, ServerRun

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig


class ServerThread(ServerRun):
    """A :class:`moldau.server.server.Server` in a daemon thread."""

    def __init__(self, config: BrokerConfig, log_dir: str, *, durable: bool) -> None:
        self._config = config
        self._log_dir = log_dir
        self._durable = durable
        self._loop = new_event_loop()
        self._stopping = asyncio.Event()
        self._ready: Future[str] = Future()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="moldau-broker", daemon=True)
        self._thread.start()

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

    def stop(self, timeout_s: float) -> None:
        if self.alive:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise BrokerError(f"the broker did not stop within {timeout_s:g} s")
        if self._failure is not None:
            raise BrokerError(f"the broker failed: {self._failure!r}") from self._failure

    def kill(self) -> None:
        raise BrokerError("a broker in a thread cannot be killed: leave out thread=True")

    def close(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - a thread has nobody to raise to: wait_ready() and stop() do
            if not self._ready.done():
                self._ready.set_exception(error)
            else:
                self._failure = error
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = Server(self._config, [self._log_dir], durable=self._durable)
        await server.start()
        self._ready.set_result(server.bootstrap_servers)
        await self._stopping.wait()
        await server.stop()

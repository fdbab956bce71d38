"""One run of the server, in a process or in a thread: the interface that a test's broker uses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

    from ..log.memory_files import MemoryFileSystem


class BrokerError(Exception):
    """The broker did not start, did not stop, or is not in the requested state. The text ends with the server's log."""


class ServerRun(ABC):
    """A server from its start, which the constructor initiates, to its exit."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """The id of the server's process."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the server has not exited."""

    @abstractmethod
    def wait_ready(self, timeout_s: float) -> str:
        """Return its address, ``HOST:PORT``, when it responds. :class:`BrokerError` if it exits or times out."""

    @abstractmethod
    def ask(self, request: Mapping[str, Any]) -> Any:
        """Send a request that clients do not have (`server.steering`), and return its result when it is done.

        Thread-safe. :class:`BrokerError` if the request is rejected, or if the server exits before it responds.
        """

    @abstractmethod
    def stop(self, timeout_s: float) -> None:
        """Stop it cleanly. :class:`BrokerError` if that takes too long or fails."""

    @abstractmethod
    def kill(self) -> None:
        """Kill it, where that is possible."""

    def crash(self, random: Random | None, timeout_s: float) -> MemoryFileSystem:
        """Simulate a power failure: lose unsynced data, and return the remaining files. Only with files in memory."""
        raise BrokerError("its files are not in memory")

    @abstractmethod
    def close(self) -> None:
        """Release the resources of a server that has exited."""

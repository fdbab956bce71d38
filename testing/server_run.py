"""What a test's broker needs of one run of the server, be it a process or a thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

    from ..log.memory_files import MemoryFileSystem


class BrokerError(Exception):
    """The broker did not start, did not stop, or is not in the state that was asked for. Ends with the server's log."""


class ServerRun(ABC):
    """A server from its start, which the constructor begins, to its end."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """The process that the server runs in."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether it has not ended."""

    @abstractmethod
    def wait_ready(self, timeout_s: float) -> str:
        """Return its address, ``HOST:PORT``, when it answers there. :class:`BrokerError` if it ends, or is too late."""

    @abstractmethod
    def ask(self, request: Mapping[str, Any]) -> None:
        """Ask the server for something that no client can ask (`server.steering`), and return when it is done.

        Any thread may ask, and several at once. :class:`BrokerError` if it is refused, or the server ends meanwhile.
        """

    @abstractmethod
    def stop(self, timeout_s: float) -> None:
        """End it cleanly. :class:`BrokerError` if that takes too long or fails."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once, where that is possible."""

    def crash(self, random: Random | None, timeout_s: float) -> MemoryFileSystem:
        """Lose its power, and what of its files was not synced; what is left of them. Only where they are in memory."""
        raise BrokerError("its files are not in memory")

    @abstractmethod
    def close(self) -> None:
        """Release what belongs to a run that has ended."""

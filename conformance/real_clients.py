"""The real clients of a run, and the processes in which they do the jobs of the cases of the layer `clients`.

Each client has an adapter, which `moldau conformance-client` uses too (`client.adapter`). A process does one job at a
time and is reused by the next case, because some clients start slowly.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection
from functools import cache
from typing import Final

from ..testing.clients import CLIENT_NAMES, installed
from .client.adapter import Adapter
from .outcome import InconclusiveError

ALL: Final = "all"
"""Instead of the names of all clients."""
IDLE_PROCESSES: Final = 2
"""The processes of one client that wait for the next case, as many as a case of a group has. A JVM takes 100 MB."""


class RealClients:
    """The clients that a run may use. All methods may be called by any thread."""

    def __init__(self, selected: Collection[str]) -> None:
        self._selected = frozenset(selected)
        self._idle: dict[str, list[Adapter]] = {}
        self._all: set[Adapter] = set()
        # A signal handler may interrupt the thread that holds it.
        self._lock = threading.RLock()
        self._building: dict[str, threading.Lock] = {}
        self._problems: dict[str, str] = {}
        self._prepared: set[str] = set()
        self._closed = False

    def reason_against(self, client: str) -> str | None:
        """Why the cases of a client do not apply; None if they do."""
        if client not in self._selected:
            return f"{client} is run with --clients {client} or --clients all"
        missing = what_is_missing(client)
        return None if missing is None else f"{client} cannot run on this machine: it needs {missing}"

    def prepare(self, client: str) -> None:
        """Build the program around the client, if it needs one. Raises InconclusiveError."""
        with self._lock:
            building = self._building.setdefault(client, threading.Lock())
        with building:
            if client not in self._prepared:
                try:
                    installed.build(client)
                except (RuntimeError, OSError) as error:
                    self._problems[client] = str(error)
                self._prepared.add(client)
            if client in self._problems:
                raise InconclusiveError(self._problems[client])

    def take(self, client: str) -> Adapter:
        """A process that has no job. `give_back` or `discard` ends its use."""
        with self._lock:
            if self._closed:
                raise InconclusiveError("the run has ended")
            idle = self._idle.get(client)
            if idle:
                return idle.pop()
            adapter = Adapter(adapter_command(client))
            self._all.add(adapter)
            return adapter

    def give_back(self, client: str, adapter: Adapter) -> None:
        """The process has no job, and another case may use it."""
        with self._lock:
            idle = self._idle.setdefault(client, [])
            keep = len(idle) < IDLE_PROCESSES and not self._closed
            if keep:
                idle.append(adapter)
            else:
                self._all.discard(adapter)
        if not keep:
            adapter.close()

    def discard(self, adapter: Adapter) -> None:
        """End a process that may have a job, from any thread."""
        adapter.end()

    def close(self) -> None:
        """End all processes, after the last case."""
        with self._lock:
            self._closed = True
            adapters = list(self._all)
            self._all.clear()
            self._idle.clear()
        for adapter in adapters:
            adapter.close()


def selected(
    given: Collection[str], *, areas: Collection[str] = (), ids: Collection[str] = (), layers: Collection[str] = ()
) -> tuple[str, ...]:
    """The clients of a run: those that are named (`all` for all), or all if the selection of cases names the layer."""
    requested = "clients" in areas or "clients" in layers or any(id.partition(".")[0] == "clients" for id in ids)
    if ALL in given or (requested and not given):
        return CLIENT_NAMES
    return tuple(client for client in CLIENT_NAMES if client in given)


def adapter_command(client: str) -> list[str]:
    """The command line of the adapter of a client."""
    return [sys.executable, "-m", "moldau.testing.clients.adapter", client]


@cache
def what_is_missing(client: str) -> str | None:
    """What the user has to install for a client; None if nothing is missing."""
    return installed.what_is_missing(client)


@cache
def title_of(client: str) -> str:
    """The name and version of a client that is installed."""
    return f"{client} {installed.version_of(client)}"

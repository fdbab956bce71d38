"""The processes of a simulated cluster: a controller and brokers, from their configuration to their death.

A `Node` is a machine with a disk. Its process is the server of production (`ControllerServer`, `Server`), on the event
loop, the network, the file system and the random source of the simulation. As `moldau serve` does, a node ends when its
membership is lost; like a supervisor, the simulation starts it again.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

from moldau.config.sources import BrokerConfig, load
from moldau.log.memory_files import MemoryFileSystem
from moldau.metadata.features import BOOTSTRAP_FEATURES
from moldau.metadata.metadata_log import write_bootstrap_records
from moldau.metadata.outcome import Versioned
from moldau.metadata.records import FeatureLevelRecord
from moldau.server.concurrency import background
from moldau.server.nodes import node_server
from moldau.server.nodes.controller_server import ControllerServer
from moldau.server.nodes.server import Server
from moldau.server.requests.load_ahead import modules_of_requests
from moldau.server.storage.formatting import format_directories

from .world import SimulatedBackground, SimulatedLoop

if TYPE_CHECKING:
    from moldau.metadata.broker_metadata import BrokerMetadata

    from .network import SimulatedNetwork
    from .world import World

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
CONTROLLER = 100
DATA = "/data"
PORT = 9092


def address_of(node_id: int) -> str:
    """The address of the machine of a node."""
    return f"10.0.0.{node_id}"


class Node:
    """See the module docstring."""

    def __init__(self, world: World, network: SimulatedNetwork, node_id: int, settings: dict[str, str]) -> None:
        self.world = world
        self.network = network
        self.node_id = node_id
        self.address = address_of(node_id)
        self.is_controller = node_id == CONTROLLER
        self.config = _config(node_id, settings)
        self.dice = Random(world.dice.random())
        self.files = MemoryFileSystem(journalled=self.dice.random() < 0.5)
        self.files.make_directory(DATA)
        self.files.sync_directory("")
        format_directories(self.config, [DATA], CLUSTER_ID, self.files)
        self.loop: SimulatedLoop | None = None
        self.server: Server | ControllerServer | None = None
        self.started: asyncio.Task[None] | None = None
        self.stopping: asyncio.Task[None] | None = None
        self.lives = 0

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self.loop is not None

    @property
    def serves(self) -> bool:
        """Whether the startup is complete, and no shutdown has begun."""
        return self.started is not None and self.started.done() and self.stopping is None

    @property
    def is_paused(self) -> bool:
        return self.loop is not None and self.loop.is_paused

    @property
    def metadata(self) -> BrokerMetadata | None:
        """The metadata of the process, if it has opened them."""
        server: Any = self.server
        if server is None:
            return None
        if isinstance(server, Server) and server._membership is not None:
            return server._membership.metadata
        return None if server._storage is None else server._storage.metadata

    def disable_eligible_leaders(self) -> None:
        """Before the first start of the controller: the cluster begins without eligible leader replicas (KIP-966), as
        those of earlier releases."""
        records = [FeatureLevelRecord(name=name, feature_level=level) for name, level in BOOTSTRAP_FEATURES.items()]
        write_bootstrap_records(self.files, DATA, [Versioned(record) for record in records])

    def start(self) -> None:
        """Start a process."""
        self.lives += 1
        self.network.power_on(self.address)
        loop = SimulatedLoop(self.world, f"node {self.node_id}", self.address, self.network.descriptors)
        kind = ControllerServer if self.is_controller else Server
        self.server = kind(
            self.config,
            [DATA],
            file_system=self.files,
            clock=self.world.wall_ms,
            rng=Random(self.dice.random()),
        )
        self.loop = loop
        self.started = loop.create_task(self.server.start())
        self.stopping = None
        self.world.loops.append(loop)

    def stop(self) -> None:
        """Begin a clean shutdown."""
        assert self.loop is not None
        assert self.server is not None
        self.stopping = self.loop.create_task(self.server.stop())

    def kill(self, *, power_lost: bool) -> None:
        """The process dies. Without power, the machine loses what was not synced."""
        self._end(power_lost=power_lost)
        self.files = self.files.crash(self.dice if power_lost else None)

    def ended(self) -> str | None:
        """If the process has ended by itself: forget it, and return the reason."""
        reason = self._reason_to_end()
        if reason is not None:
            self._end(power_lost=False)
            self.files = self.files.crash(None)  # without its locks
        return reason

    def _reason_to_end(self) -> str | None:
        if self.stopping is not None:
            if not self.stopping.done():
                return None
            self.stopping.result()
            return "stopped"
        if self.started is None or not self.started.done():
            return None
        error = self.started.exception()
        if error is not None:
            if not isinstance(error, node_server.StartError):
                raise error
            return f"not started: {error}"
        assert self.server is not None
        lost = self.server.membership_lost
        return f"membership lost: {lost.result()}" if lost is not None and lost.done() else None

    def _end(self, *, power_lost: bool) -> None:
        assert self.loop is not None
        self.network.end_process(self.address, power_lost=power_lost)
        self.world.loops.remove(self.loop)
        self.loop.discard()
        self.world.dead.append((self.loop, (self.server, self.started, self.stopping)))
        self.loop = self.server = self.started = self.stopping = None


def _config(node_id: int, settings: dict[str, str]) -> BrokerConfig:
    controller = f"{address_of(CONTROLLER)}:{PORT}"
    own = {
        "node.id": str(node_id),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controller,
    }
    if node_id == CONTROLLER:
        own |= {"process.roles": "controller", "listeners": f"CONTROLLER://{controller}"}
    else:
        own |= {"process.roles": "broker", "listeners": f"PLAINTEXT://{address_of(node_id)}:{PORT}"}
    return load(overrides=[f"{name}={text}" for name, text in {**settings, **own}.items()])


class ErrorLog(logging.Handler):
    """Collects what servers log as errors: a correct server has none, whatever happens around it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def load_modules() -> None:
    """Import what servers import after their startup, step by step, until all is imported in the process. Otherwise the
    first simulation of a process would have more steps than the others."""
    for name in modules_of_requests():
        importlib.import_module(name)


@contextmanager
def without_threads() -> Iterator[None]:
    """Servers do the work of threads in their event loop, in virtual time."""
    with (
        mock.patch.object(node_server, "Background", SimulatedBackground),
        mock.patch.object(background, "start_thread", return_value=None),
    ):
        yield

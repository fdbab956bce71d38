"""One measurement: the resources of a row, and their cleanup before the next one.

Before a measurement begins, the previous one has no more data to write to the disk: the files of its topics are
deleted, and the page cache is written. So a row only pays for its own work.
"""

import itertools
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from ..protocol.errors import ErrorCode
from ..protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ..protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ..testing.topic_requests import wait_for_topic
from ..testing.waiting import wait_until
from ..testing.wire import WireClient
from . import programs
from .ceiling import CeilingServer
from .row import Server, Subject
from .servers import MeasuredServer

_ADMIN_SECONDS = 120
_REMOVAL_SECONDS = 120.0
_SYNC_SECONDS = 60.0
_QUIET_BYTES = 4_000_000
_PAUSE_SECONDS = 0.05


class StartServer(Protocol):
    """Creates and starts a server of one subject."""

    def __call__(
        self,
        directory: Path,
        config: Mapping[str, str],
        data_dir: Path | None,
        brokers: int,
        listeners: Mapping[str, str],
    ) -> MeasuredServer: ...


class Measurement:
    """A ``row.Bench`` for the length of a ``with`` block; its topics, servers and folders are removed at the end."""

    def __init__(
        self, subject: Subject, *, server: Server | None, start_server: StartServer, parent: Path, scale: float
    ) -> None:
        self._subject = subject
        self._server = server
        self._start_server = start_server
        self._scale = scale
        self._resources = ExitStack()
        self._topics: list[str] = []
        self._numbers = itertools.count(1)
        self._directory = Path(
            self._resources.enter_context(
                tempfile.TemporaryDirectory(dir=parent, prefix="row-", ignore_cleanup_errors=True)
            )
        )
        self._work_dir = self._directory / "work"
        self._work_dir.mkdir()

    @property
    def subject(self) -> Subject:
        return self._subject

    @property
    def server(self) -> Server:
        assert self._server is not None, "a row with own_server starts its servers itself"
        return self._server

    @property
    def work_dir(self) -> Path:
        return self._work_dir

    def count(self, full: int) -> int:
        return max(1, round(full * self._scale))

    def topic(self, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        if isinstance(self.server, CeilingServer):
            return self.server.topic
        name = f"bench-{uuid.uuid4().hex[:12]}"
        self._topics.append(name)
        create_topic(self.server, name, partitions=partitions, config=config or {})
        return name

    def start_server(
        self,
        *,
        config: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
        brokers: int = 1,
        listeners: Mapping[str, str] | None = None,
    ) -> Server:
        directory = self._directory / f"server-{next(self._numbers)}"
        directory.mkdir()
        server = self._start_server(directory, config or {}, data_dir, brokers, listeners or {})
        self._resources.callback(server.close)
        return server

    def program(self, name: str) -> list[str]:
        return programs.command(name)

    def __enter__(self) -> "Measurement":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        """Delete the topics, stop the servers, remove the folders. After a failure no more requests are sent to the
        server."""
        with self._resources:
            if self._topics and kind is None:
                _delete_topics(self.server, self._topics)


def create_topic(server: Server, name: str, *, partitions: int, config: Mapping[str, str], replicas: int = 1) -> None:
    """Create a topic; returns when each partition has a leader."""
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in config.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=configs)
    with WireClient(server.bootstrap_servers, timeout_s=_ADMIN_SECONDS) as wire:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_ADMIN_SECONDS * 1000)
        (created,) = wire.call(request).topics
    if created.error_code:
        raise RuntimeError(f"no topic: {ErrorCode(created.error_code).name}: {created.error_message}")
    wait_for_topic(server.bootstrap_servers, name, partitions)


def _delete_topics(server: Server, names: list[str]) -> None:
    doomed = [DeleteTopicState(name=name) for name in names]
    with WireClient(server.bootstrap_servers, timeout_s=_ADMIN_SECONDS) as wire:
        request = DeleteTopicsRequest(topics=doomed, topic_names=names, timeout_ms=_ADMIN_SECONDS * 1000)
        for deleted in wire.call(request).responses:
            if deleted.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise RuntimeError(f"{deleted.name} is not deleted: {ErrorCode(deleted.error_code).name}")

    def gone() -> bool:
        return not any(folder.name.startswith(tuple(names)) for folder in server.data_dir.iterdir())

    wait_until(gone, f"the files of {', '.join(names)} are removed", seconds=_REMOVAL_SECONDS, pause=_PAUSE_SECONDS)


def settle() -> None:
    """Sync the page cache, and return when it is written: after at most a minute, because other processes may also be
    writing."""
    os.sync()
    with suppress(TimeoutError):
        wait_until(
            lambda: _unwritten_bytes() < _QUIET_BYTES, "the disk is quiet", seconds=_SYNC_SECONDS, pause=_PAUSE_SECONDS
        )


def _unwritten_bytes() -> int:
    """The bytes of the page cache that are not yet on the disk."""
    sizes = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(int(sizes[name].split()[0]) * 1024 for name in ("Dirty", "Writeback"))


@contextmanager
def run_directory(parent: Path) -> Iterator[Path]:
    """A folder for all files of one run. Leftovers of a killed run are removed."""
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob("run-*"):
        if not Path(f"/proc/{left.name.removeprefix('run-')}").exists():
            shutil.rmtree(left, ignore_errors=True)
    directory = parent / f"run-{os.getpid()}"
    directory.mkdir()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)

"""A server process without available threads recovers when it gets threads, and stops cleanly without them.

Tests use the limit of a control group if they may create one, and always a wrapper in the child process that rejects
threads while a file exists.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.testing.builders import batch, fetch, produce, produce_request, values
from moldau.testing.wire import WireClient

DEADLINE_S = 180
WRAPPED = """
import os, sys, threading
start = threading.Thread.start
def limited(thread):
    if os.path.exists(sys.argv[1]):
        raise RuntimeError("can't start new thread")
    start(thread)
threading.Thread.start = limited
from moldau.cli.main import main
main(sys.argv[2:])
"""


class ControlGroup:
    """A limit on the threads of the child process, enforced by the kernel."""

    def __init__(self, tmp_path: Path) -> None:
        parent = Path("/sys/fs/cgroup/pids")
        if not parent.exists():
            parent = Path("/sys/fs/cgroup")
        self.path = parent / f"moldau-test-{os.getpid()}"
        try:
            self.path.mkdir()
            (self.path / "pids.max").write_text("max")
        except OSError as error:
            with contextlib.suppress(OSError):
                self.path.rmdir()
            pytest.skip(f"no control group can be made here: {error}")

    def command(self, arguments: Any) -> list[Any]:
        # The shell joins the group and then executes the server.
        join = f'echo $$ > {self.path}/cgroup.procs && exec "$@"'
        return ["sh", "-c", join, "sh", sys.executable, "-m", "moldau", *arguments]

    def refuse(self, *, threads: Any) -> None:
        (self.path / "pids.max").write_text(str(1 + threads))

    def allow(self) -> None:
        (self.path / "pids.max").write_text("max")

    def close(self) -> None:
        self.path.rmdir()


class Wrapper:
    """Rejects every new thread, whatever the number of threads is."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "refuse threads"

    def command(self, arguments: Any) -> list[Any]:
        return [sys.executable, "-c", WRAPPED, str(self.path), *arguments]

    def refuse(self, *, threads: Any) -> None:
        self.path.touch()

    def allow(self) -> None:
        self.path.unlink()

    def close(self) -> None:
        pass


@pytest.fixture(params=[ControlGroup, Wrapper])
def limit(request: Any, tmp_path: Path) -> Iterator[Any]:
    made = request.param(tmp_path)
    yield made
    made.close()


@contextlib.contextmanager
def serving(limit: Any, tmp_path: Path, *, durable: bool = True) -> Iterator[Any]:
    arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    if durable:
        arguments.append("--durable")
    log = tmp_path / "server.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(limit.command(arguments), stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            assert line.startswith("moldau is ready: "), log.read_text()
            yield server, line.removeprefix("moldau is ready: ").split()[0]
        finally:
            server.kill()


def create(wire: WireClient) -> None:
    configs = [CreatableTopicConfig(name="compression.type", value="zstd")]
    topics = [CreatableTopic(name="t", num_partitions=4, replication_factor=1, configs=configs)]
    (result,) = wire.call(CreateTopicsRequest(topics=topics), 7).topics
    assert result.error_code == 0


def test_flushes_and_recompression_continue_when_threads_can_be_started(limit: Any, tmp_path: Path) -> None:
    limit.refuse(threads=0)
    with serving(limit, tmp_path) as (server, address):
        with WireClient(address) as wire, WireClient(address) as other:
            create(wire)
            wire.send(produce_request("t", batch(b"x" * 100_000)), 9)
            create_again = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1)])
            assert other.call(create_again, 7).topics[0].error_code == 36, "others are served meanwhile"
            limit.allow()
            assert wire.receive().responses[0].partition_responses[0].error_code == 0
            limit.refuse(threads=1)
            assert produce(wire, "t", batch(b"y" * 100_000)).error_code == 0, "the threads that are there are enough"
        server.send_signal(signal.SIGTERM)
        assert server.wait(DEADLINE_S) == 0
    log = (tmp_path / "server.log").read_text()
    assert log.count("No thread is running yet. Blocked until then: ") == 1
    assert "Starting threads works again" in log
    assert "Traceback" not in log


def test_a_shutdown_needs_no_thread(limit: Any, tmp_path: Path) -> None:
    limit.refuse(threads=0)
    with serving(limit, tmp_path) as (server, address), WireClient(address) as wire:
        create(wire)
        wire.send(produce_request("t", batch(b"x" * 100_000)), 9)
        with WireClient(address) as other:
            other.call(CreateTopicsRequest(topics=[CreatableTopic(name="u", num_partitions=1)]), 7)
        server.send_signal(signal.SIGTERM)
        assert server.wait(DEADLINE_S) == 0
        assert wire.receive().responses[0].partition_responses[0].error_code == 0, "it was flushed by the stop"
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    log = (tmp_path / "server.log").read_text()
    assert log.count("No thread is running yet. Blocked until then: ") == 1
    assert "Starting threads works again" not in log
    assert "Traceback" not in log


def test_requests_that_need_no_thread_are_served_without_threads(limit: Any, tmp_path: Path) -> None:
    """Work that needs a thread is logged (`There is no thread yet`) and waits."""
    limit.refuse(threads=0)
    with serving(limit, tmp_path, durable=False) as (server, address), WireClient(address) as wire:
        create(wire)
        assert produce(wire, "t", batch(b"x")).error_code == 0
        assert values(fetch(wire, "t")) == [b"x"]
        server.send_signal(signal.SIGTERM)
        assert server.wait(DEADLINE_S) == 0
    log = (tmp_path / "server.log").read_text()
    assert log.count("No thread is running yet. Blocked until then: ") == 1
    assert "Traceback" not in log

"""The interpreter that forks the servers of a test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.testing.server_host import CAN_FORK, ServerHost
from moldau.testing.server_process import ServerProcess, server_environment
from moldau.testing.server_run import BrokerError

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="other systems start new interpreters")


@pytest.fixture
def host() -> Iterator[ServerHost]:
    host = ServerHost(server_environment(os.environ))
    yield host
    host.close()


def start(host: ServerHost, folder: Path, *options: str) -> ServerProcess:
    return ServerProcess(["serve", "--exit-with-stdin", *options], folder / "server.log", host)


def test_a_server_is_a_fork_of_the_host(host: ServerHost, tmp_path: Path) -> None:
    server = start(host, tmp_path, "--listen", "127.0.0.1:0", "--ephemeral")
    assert server.wait_ready(60).startswith("127.0.0.1:")
    assert f"\nPPid:\t{host.pid}\n" in Path(f"/proc/{server.pid}/status").read_text()
    server.stop(60)
    assert not server.alive


def test_the_end_of_a_server_is_reported(host: ServerHost, tmp_path: Path) -> None:
    server = start(host, tmp_path, "--set", "num.partitions=none")
    with pytest.raises(BrokerError, match=r"(?s)exit code 1 before it was ready.*num\.partitions"):
        server.wait_ready(60)


def test_a_host_that_was_killed_starts_nothing(host: ServerHost, tmp_path: Path) -> None:
    os.kill(host.pid, signal.SIGKILL)
    with pytest.raises(BrokerError, match="cannot start the broker"):
        start(host, tmp_path, "--ephemeral")

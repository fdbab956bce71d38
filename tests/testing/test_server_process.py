"""The process of a server, with programs in the server's place."""

import sys
from pathlib import Path

import pytest

from moldau.testing.server_process import ServerProcess
from moldau.testing.server_run import BrokerError

DOES_NOT_READ = """
import os, time
os.close(0)
print("moldau is ready: 127.0.0.1:1", flush=True)
time.sleep(600)
"""


def test_a_request_without_a_reader_fails_and_does_not_prevent_the_end(tmp_path: Path) -> None:
    """As when the server is killed while another thread sends it a request."""
    process = ServerProcess([sys.executable, "-c", DOES_NOT_READ], tmp_path / "server.log")
    process.wait_ready(60)
    for _ in range(2):
        with pytest.raises(BrokerError, match="the broker has exited"):
            process.ask({"call": "await_group"})
    process.kill()
    assert not process.alive
    with pytest.raises(BrokerError, match="the broker has exited"):
        process.ask({"call": "await_group"})

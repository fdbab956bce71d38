"""``moldau serve`` as a process: its ready line, its shutdown, and its errors when it cannot start."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "moldau", "serve"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
DEADLINE_S = 180


@contextmanager
def serving(*options: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A server that is ready, and its address; killed at the end if it is still running."""
    with subprocess.Popen(
        [*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if not line.startswith("moldau is ready: "):
                server.kill()
                assert server.stderr is not None
                pytest.fail(f"not ready: {line!r}\n{server.stderr.read()}")
            yield server, line.removeprefix("moldau is ready: ").split()[0]
        finally:
            server.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_ready_line_has_a_reachable_address_and_a_signal_stops_the_server(
    tmp_path: Path, number: signal.Signals
) -> None:
    data = tmp_path / "data"
    with serving("--listen", "127.0.0.1:0", "--data-dir", str(data)) as (server, address):
        host, _, port = address.rpartition(":")
        assert host == "127.0.0.1"
        assert int(port) > 0
        socket.create_connection((host, int(port)), timeout=DEADLINE_S).close()
        server.send_signal(number)
        out, err = server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 0
    assert out == ""
    assert f"moldau: data directory: {data}" in err
    assert "Traceback" not in err
    assert (data / "meta.properties").exists()


def test_two_listeners(tmp_path: Path) -> None:
    options = ("--listen", "127.0.0.1:0", "--listen", "SECOND://127.0.0.1:0", "--ephemeral")
    with serving(*options) as (server, _):
        server.terminate()
        assert server.wait(DEADLINE_S) == 0


def test_second_server_on_the_same_directory_fails_with_a_message(tmp_path: Path) -> None:
    with serving("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)):
        refused = subprocess.run(
            [*COMMAND, "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            env=ENVIRONMENT,
            check=False,
        )
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert str(tmp_path) in refused.stderr.splitlines()[-1]
    assert refused.stderr.splitlines()[-1].startswith("moldau: ")
    assert "Traceback" not in refused.stderr


def test_second_server_on_the_same_port_fails_with_a_message(tmp_path: Path) -> None:
    with serving("--listen", "127.0.0.1:0", "--ephemeral") as (_, address):
        refused = subprocess.run(
            [*COMMAND, "--listen", address, "--data-dir", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            env=ENVIRONMENT,
            check=False,
        )
    assert refused.returncode == 1
    assert address in refused.stderr.splitlines()[-1]
    assert refused.stderr.splitlines()[-1].startswith("moldau: ")
    assert "Traceback" not in refused.stderr


def test_server_stops_with_its_standard_input(tmp_path: Path) -> None:
    server = subprocess.Popen(
        [*COMMAND, "--listen", "127.0.0.1:0", "--ephemeral", "--exit-with-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENVIRONMENT,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stdout.readline().startswith("moldau is ready: ")
    server.stdin.close()
    assert server.wait(DEADLINE_S) == 0
    server.stdout.close()


def test_second_signal_does_not_hang(tmp_path: Path) -> None:
    with serving("--listen", "127.0.0.1:0", "--ephemeral") as (server, _):
        server.terminate()
        server.terminate()
        server.wait(DEADLINE_S)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_server_without_tls_does_not_load_openssl() -> None:
    with serving("--ephemeral", "--listen", "127.0.0.1:0") as (server, _address):
        assert "libssl" not in Path(f"/proc/{server.pid}/maps").read_text()


def test_ssl_can_be_imported_after_asyncio_without_it() -> None:
    program = """
import sys
from moldau.server.asyncio_without_tls import import_asyncio
import_asyncio()
assert "ssl" not in sys.modules and "_ssl" not in sys.modules
import asyncio, ssl
assert ssl.create_default_context()
asyncio.run(asyncio.sleep(0))
import_asyncio()
assert sys.modules["ssl"] is ssl
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=DEADLINE_S)

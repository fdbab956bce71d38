"""`moldau console` and `moldau serve --console` as processes."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moldau.cli.main import main

pytest.importorskip("uvicorn", reason="needs pip install 'moldau[console]'")

MOLDAU = [sys.executable, "-m", "moldau"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
CONSOLE_READY = "moldau console is ready: "
DEADLINE_S = 180


@contextmanager
def running(*arguments: str, folder: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*MOLDAU, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        cwd=folder,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def console_address(process: subprocess.Popen[str]) -> tuple[str, int]:
    """The host and port of the line that says that the console is ready."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(CONSOLE_READY):
            host, _, port = line.removeprefix(f"{CONSOLE_READY}http://").partition("/")[0].rpartition(":")
            return host, int(port)
    assert process.stderr is not None
    pytest.fail(f"the console did not start: {process.stderr.read()}")


def get(address: tuple[str, int], path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(*address, timeout=DEADLINE_S)
    connection.request("GET", path)
    response = connection.getresponse()
    try:
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_console_serves_until_a_signal(bootstrap_servers: str, number: signal.Signals) -> None:
    with running("console", "-b", bootstrap_servers, "--listen", "127.0.0.1:0", "--read-only") as process:
        status, page = get(console_address(process), "/topics")
        assert status == 200
        assert "read-only" in page
        process.send_signal(number)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert "Traceback" not in errors


def test_elsewhere_than_on_loopback_a_token_is_needed(bootstrap_servers: str) -> None:
    with running("console", "-b", bootstrap_servers, "--listen", "0.0.0.0:0") as process:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert "?token=" in line
        port, _, token = line.rpartition(":")[2].partition("/?token=")
        assert len(token) > 20
        assert get(("127.0.0.1", int(port)), "/topics")[0] == 401
        assert get(("127.0.0.1", int(port)), f"/topics?token={token}")[0] == 303


@pytest.mark.parametrize(
    ("listen", "problem"),
    [
        ("127.0.0.1:x", "is not HOST:PORT"),
        ("127.0.0.1:70000", "is not HOST:PORT"),
        ("no-host.invalid:0", "cannot listen"),
    ],
)
def test_a_wrong_address_is_explained(capsys: pytest.CaptureFixture[str], listen: str, problem: str) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["console", "--listen", listen])
    assert exited.value.code in (1, 2)
    assert problem in capsys.readouterr().err


def test_an_address_in_use_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SystemExit) as exited:
            main(["console", "--listen", address])
    assert exited.value.code == 1
    assert capsys.readouterr().err == (
        f"moldau: cannot listen on {address}: the address is in use; use another one with --listen HOST:PORT "
        "(port 0 selects a free port)\n"
    )


@pytest.mark.parametrize(("end", "brokers"), [("terminate", "1"), ("kill", "1"), ("terminate", "2"), ("kill", "2")])
def test_the_console_of_a_server_ends_with_it(tmp_path: Path, end: str, brokers: str) -> None:
    options = ("serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0")
    (tmp_path / "starlette.py").write_text("raise ImportError('a file of the user')")
    with running(*options, "--brokers", brokers, folder=tmp_path) as server:
        address = console_address(server)
        assert "which is reachable" in get(address, "/")[1]
        getattr(server, end)()
        # The console has the same output, which ends when both have ended.
        server.communicate(timeout=DEADLINE_S)
    with pytest.raises(ConnectionRefusedError):
        get(address, "/")


@pytest.mark.slow
def test_the_console_of_a_secured_server_logs_in(tmp_path: Path) -> None:
    options = ("serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0")
    with running(*options, "--secure") as server:
        status, page = get(console_address(server), "/")
        assert status == 200
        assert "which is reachable" in page
        server.terminate()
        server.communicate(timeout=DEADLINE_S)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            [
                "--console",
                "127.0.0.1:0",
                "--listen",
                "SSL://127.0.0.1:0",
                "--set",
                "listener.security.protocol.map=SSL:SASL_PLAINTEXT",
            ],
            "--console cannot log in",
        ),
        (["--console", "127.0.0.1:x"], "--console: '127.0.0.1:x' is not HOST:PORT, such as 127.0.0.1:8080"),
    ],
)
def test_a_server_whose_console_could_not_connect_does_not_start(
    capsys: pytest.CaptureFixture[str], options: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["serve", "--ephemeral", *options])
    assert exited.value.code == 1
    assert problem in capsys.readouterr().err

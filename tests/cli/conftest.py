"""Commands run in this process, as ``main`` runs them, with their input and output as bytes.

Those that need a server use the one under test (``bootstrap_servers`` of the repository's ``conftest.py``), so that the
same expectations hold for Moldau and, with ``--apache``, for Apache Kafka.
"""

import json
import socket
import sys
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import pytest
from click.testing import CliRunner

from moldau.cli.main import main
from moldau.testing.topic_requests import wait_for_topic


class Result(NamedTuple):
    code: object
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def json(self) -> Any:
        """The output of a command with --json, as one document."""
        assert self.out, self.err
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Run(Protocol):
    def __call__(self, *arguments: str, input: bytes = b"") -> Result: ...


@pytest.fixture(scope="session")
def run() -> Run:
    """``run("topics", "list", input=b"")``: run a command, and return its result."""

    def run_command(*arguments: str, input: bytes = b"") -> Result:
        with CliRunner().isolation(input=input) as (out, err, _):
            with pytest.raises(SystemExit) as exited:
                main(list(arguments))
            sys.stdout.flush()
            sys.stderr.flush()
            return Result(exited.value.code, out.getvalue(), err.getvalue().decode())

    return run_command


@pytest.fixture(scope="session")
def ask(run: Run, bootstrap_servers: str) -> Run:
    """``run`` with the server under test."""

    def run_there(*arguments: str, input: bytes = b"") -> Result:
        return run(*arguments, "--bootstrap-server", bootstrap_servers, input=input)

    return run_there


_numbers = count(1)
_session = uuid4().hex[:8]


@pytest.fixture
def new_topic(ask: Run, bootstrap_servers: str) -> Callable[..., str]:
    """``new_topic(partitions, "key=value", ...)``: create a topic for this test, and return its name."""

    def make(partitions: int = 1, *configs: str) -> str:
        name = f"cli-{next(_numbers)}-{_session}"
        options = [option for config in configs for option in ("--config", config)]
        made = ask("topics", "create", name, "--partitions", str(partitions), *options)
        assert made.code == 0, made.err
        wait_for_topic(bootstrap_servers, name, partitions)
        return name

    return make


@pytest.fixture
def unused_port() -> int:
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

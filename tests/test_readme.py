"""Every example of README.md works, and works again: readers run an example a second time.

The examples of Python and the command lines are taken out of the page and run, twice, against one server. A command
that no test runs has to be named below, so that a new one is not forgotten. The example of Spark has its test in
spark_integration/.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.testing import Broker

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"

pytestmark = pytest.mark.skipif(not README.exists(), reason="reads the README of a checkout")

DEADLINE_S = 180
# The examples wait 10 s for a record. A test waits beyond its deadline instead: an example whose record does not arrive
# fails, and a slow machine does not matter.
TIMEOUTS = {"timeout_ms=10_000": "timeout_ms=600_000", "timeout=10": "timeout=600"}

PAGE = README.read_text(encoding="utf-8") if README.exists() else ""
PYTHON = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SHELL = re.findall(r"^    (\S.*)$", re.sub("```.*?```", "", PAGE, flags=re.DOTALL), re.MULTILINE)
COMMANDS = [line.partition("  #")[0].strip() for line in SHELL]

# They install, as the environment of these tests was installed (`make`, tox).
NOT_RUN = {"python3 -m venv venv && . venv/bin/activate", "pip install ."}
MAKE = {command for command in COMMANDS if command.startswith("make ")}
SERVE = [command for command in COMMANDS if command.startswith("moldau serve")]
KCAT = [command for command in COMMANDS if "kcat" in command.split()]
TOOLS = [command for command in COMMANDS if re.search(r"(^|\| )moldau (?!serve)", command)]


def examples(word: str) -> list[str]:
    return [example for example in PYTHON if word in example]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture
def environment(broker: Broker, tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    added = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "XDG_DATA_HOME": str(tmp_path / "data"), "PATH": path}
    return {**kept, **added}


def run(command: list[str] | str, environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        shell=isinstance(command, str),
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_every_example_is_run_by_a_test() -> None:
    known = {*NOT_RUN, *MAKE, *SERVE, *KCAT, *TOOLS}
    assert [command for command in COMMANDS if command not in known] == []
    assert len(examples("from kafka import")) == len(examples("from confluent_kafka import")) == 1
    assert len(examples("from moldau.testing import")) == len(examples("def test_")) == 1
    assert len(examples("moldau.spark_integration")) == 1
    assert len(PYTHON) == 5


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {command.split()[1] for command in MAKE} <= targets
    for page in ("CONTRIBUTING.md", "docs/compatibility.md", ".ci/run"):
        text = (ROOT / page).read_text(encoding="utf-8")
        named = set(re.findall(r"(?:^ *|`)make ([a-z][a-z-]*)", text, re.MULTILINE))
        assert named
        assert named <= targets, page


def test_continuous_integration_runs_the_command_of_the_readme() -> None:
    assert "make test" in MAKE
    assert re.search(r"^make test \|\| ", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)


def run_client(program: str, environment: dict[str, str], folder: Path) -> None:
    (timeout,) = (text for text in TIMEOUTS if text in program)
    done = run([sys.executable, "-c", program.replace(timeout, TIMEOUTS[timeout])], environment, folder)
    assert done.returncode == 0, f"{program}\n{done.stderr}"
    assert re.search(r"\d \d+ b'", done.stdout), done.stdout


def test_commands_and_clients_work_twice(broker: Broker, environment: dict[str, str], tmp_path: Path) -> None:
    groups = [command for command in TOOLS if command.startswith("moldau groups")]
    first = [command for command in TOOLS if command not in groups]
    for turn in range(2):
        for command in [*first, *(KCAT if shutil.which("kcat") else [])]:
            done = run(command.replace("localhost:9092", broker.bootstrap_servers), environment, tmp_path)
            exists = turn == 1 and command.startswith("moldau topics create") and "TOPIC_ALREADY_EXISTS" in done.stderr
            assert done.returncode == 0 or exists, f"{command}: {done.stderr}"
        assert run("moldau consume hello", environment, tmp_path).stdout.splitlines().count("first words") == turn + 1
        for word in ("from kafka import", "from confluent_kafka import"):
            (example,) = examples(word)
            run_client(example.replace("localhost:9092", broker.bootstrap_servers), environment, tmp_path)
        for command in groups:
            done = run(command, environment, tmp_path)
            assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.mark.parametrize("word", ["from kafka import", "from confluent_kafka import"])
def test_client_returns_immediately_with_the_record_that_it_sends_itself(
    word: str, broker: Broker, environment: dict[str, str], tmp_path: Path
) -> None:
    (example,) = examples(word)
    topic = word.split()[1]
    assert run(f"moldau topics create {topic} --partitions 3", environment, tmp_path).returncode == 0
    for _ in range(2):
        program = example.replace("localhost:9092", broker.bootstrap_servers).replace('"hello"', repr(topic))
        run_client(program, environment, tmp_path)


@pytest.mark.parametrize("command", SERVE)
def test_servers_start_twice(command: str, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=2\n")
    free_port = [] if "--listen" in command else ["--listen", "127.0.0.1:0"]
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-m", *command.split(), *free_port],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as server:
            try:
                assert server.stdout is not None
                assert server.stdout.readline().startswith("moldau is ready: 127.0.0.1:")
                server.send_signal(signal.SIGTERM)
                assert server.wait(DEADLINE_S) == 0
            finally:
                server.kill()


def test_broker_of_a_test_works_twice() -> None:
    (example,) = examples("from moldau.testing import")
    served: list[str] = []
    for _ in range(2):
        exec(example, {"run_my_application": served.append})
    assert len(served) == 2


def test_fixture_of_pytest_works_twice(environment: dict[str, str], tmp_path: Path) -> None:
    (example,) = examples("def test_")
    (tmp_path / "test_readme.py").write_text(f"def place_order(address):\n    assert ':' in address\n\n\n{example}")
    for _ in range(2):
        done = run([sys.executable, "-m", "pytest", "-q", "test_readme.py"], environment, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 passed" in done.stdout

"""The examples of docs/testing.md and docs/try_it.md work as they are printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.testing import Broker

DOCS = Path(__file__).parent.parent / "docs"


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_examples_of_tests_pass(tmp_path: Path) -> None:
    pytest.importorskip("aiokafka", reason="needs aiokafka")
    programs = examples("testing.md")
    (conftest,) = (text for text in programs if "def kafka_config" in text)
    (tmp_path / "conftest.py").write_text(conftest.replace('"auto.create.topics.enable": False', ""))
    programs.remove(conftest)
    for number, text in enumerate(programs):
        # A test waits longer than its example: a slow machine does not matter.
        (tmp_path / f"test_example_{number}.py").write_text(text.replace("(30)", "(200)"))

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(programs) == 4
    assert "4 passed" in done.stdout


def test_methods_that_the_page_names_exist() -> None:
    from moldau.testing.faults import Faults
    from moldau.testing.request_log import Requests

    text = (DOCS / "testing.md").read_text(encoding="utf-8")
    table = text[text.index("| a test can") : text.index("This test retries")]
    owners = {"faults": Faults, "requests": Requests}
    names = re.findall(r"`(?:(faults|requests)\.)?([a-z_]+)(?:`|\()", table)
    assert len(names) > 15
    missing = [name for owner, name in names if not hasattr(owners.get(owner, Broker), name)]
    assert missing == []


def test_the_first_steps_work(kafka: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    pytest.importorskip("polars", reason="needs polars")
    programs = examples("try_it.md")
    assert len(programs) == 2
    for program in programs:
        exec(program.replace("localhost:9092", kafka.bootstrap_servers), {})

    assert "from confluent-kafka" in capsys.readouterr().out

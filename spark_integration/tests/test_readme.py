"""The Spark example in README.md, run twice; tests/test_readme.py runs the other examples."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.testing.client import Client, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .conftest import MakeTopic

README = Path(__file__).parents[2] / "README.md"


def test_example_of_the_readme_works_twice(
    spark: SparkSession,
    bootstrap_servers: str,
    client: Client,
    make_topic: MakeTopic,
    capfd: pytest.CaptureFixture[str],
) -> None:
    topic = make_topic()
    client.produce(topic, [Record(b"first words")])
    python = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (example,) = (each for each in python if "moldau.spark_integration" in each)
    for _ in range(2):
        exec(example.replace("localhost:9092", bootstrap_servers).replace('"hello"', repr(topic)), {})
        assert "|first words" in capfd.readouterr().out

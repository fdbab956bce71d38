"""The examples of docs/dataframes.md work, and work again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from moldau.testing import Broker

for package in ("pyarrow", "polars"):
    pytest.importorskip(package, reason=f"needs {package}")

PAGE = Path(__file__).parents[2] / "docs" / "dataframes.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_examples_read_all_orders(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(3):
        producer.produce("orders", b'{"id": %d, "amount": %d.5}' % (number, number), partition=0)
    assert producer.flush(60) == 0
    assert len(EXAMPLES) == 3
    for _ in range(2):
        for example in EXAMPLES:
            exec(example.replace("localhost:9092", kafka.bootstrap_servers), {})

    assert "{0: (0, 3)}" in capsys.readouterr().out
    import pyarrow.parquet as parquet

    assert parquet.read_table(tmp_path / "orders.parquet").num_rows == 3

"""The measurement of compaction, on a little of each shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.benchmarks import compaction
from moldau.testing.requirements import require_kafka_jars, require_program

NOW = 1_700_000_000_000


@pytest.mark.parametrize("shape", compaction.SHAPES, ids=lambda shape: shape.name)
def test_each_shape_keeps_the_share_in_its_name(shape: compaction.Shape, tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    segments = compaction.write_partition(directory, shape, 0.3, NOW)
    before = sorted(directory.iterdir())
    statistics = compaction.compact_once(directory, segments, NOW)
    records = statistics.records_kept + statistics.records_dropped
    assert records == segments[-1].end_offset
    expected = {0.1: 0.1, 1.0: 0.63, 100.0: 0.99}[shape.keys_per_record]
    assert statistics.records_kept / records == pytest.approx(expected, abs=0.07)
    assert sorted(directory.iterdir()) == before


def test_apache_kafkas_cleaner_does_the_same(tmp_path: Path) -> None:
    require_program("javac")
    require_kafka_jars()
    shape = compaction.SHAPES[0]
    compaction.write_partition(tmp_path / "topic-0", shape, 0.3, NOW)
    assert compaction.compact_by_apache(tmp_path / "topic-0", tmp_path) > 0


def test_an_unknown_shape_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compaction.main(["2kB"])
    assert "unknown shape 2kB" in capsys.readouterr().err

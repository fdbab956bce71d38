"""Rows with little of their work: the values of the numbers do not matter, but they must exist."""

import math
from collections.abc import Mapping
from pathlib import Path

from moldau.benchmarks import programs
from moldau.benchmarks.measurement import Measurement
from moldau.benchmarks.row import Numbers, Row, Server, Subject
from moldau.benchmarks.servers import MoldauBrokers, MoldauServer
from moldau.testing.requirements import missing, require_kafka_jars


def small_bench(server: Server | None, folder: Path, *, scale: float, subject: Subject = Subject.MOLDAU) -> Measurement:
    """A `row.Bench` for this part of the work, in a ``with`` block; servers that it starts are Moldau's."""
    return Measurement(subject, server=server, start_server=started, parent=folder, scale=scale)


def measured(
    row: Row, server: Server | None, folder: Path, *, scale: float, subject: Subject = Subject.MOLDAU
) -> Numbers:
    """The results of a row, which include all values of its targets. The test is skipped if a requirement of the row is
    missing."""
    for need, how_to_get_it in programs.missing(row.needs).items():
        missing(need, how_to_get_it)
    if programs.needs_jars(row.needs):
        require_kafka_jars()
    with small_bench(server, folder, scale=scale, subject=subject) as bench:
        numbers = row.measure(bench)
    assert numbers.keys() >= {target.number for target in row.targets}
    assert [name for name, number in numbers.items() if not math.isfinite(number)] == []
    return numbers


def started(
    directory: Path, config: Mapping[str, str], data_dir: Path | None, brokers: int, listeners: Mapping[str, str]
) -> MoldauServer:
    started = (
        MoldauBrokers(brokers, directory, config=config, data_dir=data_dir)
        if brokers > 1
        else MoldauServer(directory, config=config, data_dir=data_dir, listeners=listeners)
    )
    started.start()
    return started

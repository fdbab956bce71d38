"""Spark tasks that pause in the middle, for tests of what happens in the meantime.

This is not a test module, and must be imported by its full name: a task finds its code by the name of its module, and
the name of a test module begins with the name of the folder that contains the checkout.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from moldau.spark_integration.tests.streams import DEADLINE_S


def halt_at(folder: Path, values: Mapping[bytes, int]):  # type: ignore[no-untyped-def] # the type is pyspark's
    """A function that returns its argument. Each of ``values``, with the number of its task, blocks until `resume`."""
    from pyspark.sql.functions import udf
    from pyspark.sql.types import BinaryType

    path, tasks = str(folder), dict(values)

    def value(given: bytearray) -> bytearray:
        task = tasks.get(bytes(given))
        if task is not None:
            _halt(Path(path), task)
        return given

    return udf(value, BinaryType()).asNondeterministic()


def halted(folder: Path) -> list[int]:
    """The tasks that are blocked."""
    return sorted(int(path.name.removeprefix("halted-")) for path in folder.glob("halted-*"))


def resume(folder: Path) -> None:
    """Let blocked tasks continue, and do not block any later ones."""
    (folder / "resume").touch()


def _halt(folder: Path, task: int) -> None:
    (folder / f"halted-{task}").touch()
    deadline = time.monotonic() + 2 * DEADLINE_S
    while not (folder / "resume").exists():
        assert time.monotonic() < deadline, "resume() was not called"
        time.sleep(0.02)

"""Tasks of Spark that stand still in their middle, for tests of what happens meanwhile.

It is no test module, and is to be imported by its whole name: what tasks run is found in their own processes by the
name of its module, and that of a test module begins with the name of the folder that the checkout happens to be in.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from moldau.spark_integration.streams import DEADLINE_S


def halt_at(folder: Path, values: Mapping[bytes, int]):  # type: ignore[no-untyped-def] # the type is pyspark's
    """A function of values that returns them; each of ``values``, by the number of its task, waits for `go_on`."""
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
    """The tasks that have come to where they stand still."""
    return sorted(int(path.name.removeprefix("halted-")) for path in folder.glob("halted-*"))


def go_on(folder: Path) -> None:
    """Whoever stands still goes on, and so does whoever comes later."""
    (folder / "go on").touch()


def _halt(folder: Path, task: int) -> None:
    (folder / f"halted-{task}").touch()
    deadline = time.monotonic() + 2 * DEADLINE_S
    while not (folder / "go on").exists():
        assert time.monotonic() < deadline, "nobody said that it goes on"
        time.sleep(0.02)

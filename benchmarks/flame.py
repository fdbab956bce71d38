"""Where the time of a row is spent: a flame graph of Moldau while it does the row's work.

    python -m moldau.benchmarks.flame producer-defaults fetch-64k

writes ``docs/performance/flame-<row>.svg`` for each. It needs py-spy (``pip install py-spy``), which samples the
process from outside, and the right to trace the user's own processes. Only running code is counted, not waiting for
requests.
"""

import argparse
import html
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from . import machine, measurement, registry, session
from .row import Row, Subject
from .servers import MeasuredServer, MoldauServer

_SAMPLES_PER_SECOND = 500
_STOP_SECONDS = 60


def record(row: Row, output: Path, py_spy: str) -> None:
    """Do the row's work once to warm up and once with py-spy, and write the graph to ``output``."""
    with ExitStack() as resources:
        parent = resources.enter_context(measurement.run_directory(session.cache_folder() / "work"))
        picture = parent / "flame.svg"
        server = _started(parent / "server", {}, None)
        resources.callback(server.close)
        for watched in (False, True):
            with measurement.Measurement(
                Subject.MOLDAU, server=server, start_server=_started, parent=parent, scale=1.0
            ) as bench:
                command = [py_spy, "record", "--pid", str(server.pid), "--output", str(picture)]
                command += ["--rate", str(_SAMPLES_PER_SECOND), "--duration", "3600"]
                observer = subprocess.Popen(command, stdout=subprocess.DEVNULL) if watched else None
                try:
                    row.measure(bench)
                finally:
                    if observer is not None:
                        observer.send_signal(signal.SIGINT)
                        observer.wait(_STOP_SECONDS)
            measurement.settle()
        output.write_text(anonymized(picture.read_text(encoding="utf-8"), row.title), encoding="utf-8")


def anonymized(svg: str, title: str) -> str:
    """py-spy's graph without data about the machine: the command line in the title, the checkout's folder."""
    svg = re.sub(r'(<text id="title"[^>]*>)[^<]*', lambda found: found[1] + html.escape(title), svg, count=1)
    root = machine.checkout()
    return svg.replace(f"({root.name}/", "(moldau/") if root is not None else svg


def _started(
    directory: Path,
    config: Mapping[str, str],
    data_dir: Path | None,
    brokers: int = 1,
    listeners: Mapping[str, str] | None = None,
) -> MeasuredServer:
    assert brokers == 1, "the graph is of a single process"
    directory.mkdir(exist_ok=True)
    server = MoldauServer(directory, config=config, data_dir=data_dir, listeners=listeners)
    server.start()
    return server


def main(arguments: Sequence[str] | None = None) -> int:
    """Create the graphs, and print their paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", metavar="ROW", help="see `moldau bench --list`")
    parser.add_argument("--folder", type=Path, help="where to write; default: docs/performance of the checkout")
    options = parser.parse_args(arguments)
    py_spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if py_spy is None:
        print("py-spy is not installed: pip install py-spy", file=sys.stderr)
        return 1
    root = machine.checkout()
    folder = options.folder or (root and root / "docs" / "performance") or Path()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        rows = registry.select(registry.all_rows(), options.rows)
    except KeyError as error:
        print(f"unknown row {error.args[0]}; `moldau bench --list` lists all rows", file=sys.stderr)
        return 1
    for row in rows:
        if row.own_server:
            print(f"{row.name} starts its servers itself, so there is no single server to trace", file=sys.stderr)
            return 1
        output = folder / f"flame-{row.name}.svg"
        record(row, output, py_spy)
        print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())

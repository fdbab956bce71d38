"""``moldau log verify``: check a log directory without changing it."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from .failure import Failure
from .output import print_json

if TYPE_CHECKING:
    from ..inspection.finding import Finding
    from ..inspection.log_directories import InspectionReport, Watcher

_UPDATES_PER_SECOND = 10


class CannotCheck(Failure):
    """The directories could not be checked: exit code 2."""

    exit_code = 2


@click.command("verify", short_help="Check every batch, index and snapshot.")
@click.argument("paths", metavar="DIR...", nargs=-1, required=True, type=click.Path())
@click.option("--deep", is_flag=True, help="Decompress every batch and check each record.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per finding and one with totals.")
def verify(paths: tuple[str, ...], deep: bool, as_json: bool) -> None:
    """Check log directories, of Moldau or of Apache Kafka, while no server uses them.

    DIR is a log directory, a partition's directory, or a file in one. Give all log directories of a server together.
    Every batch is checked (length, CRC, offsets, leader epochs, counts). Index entries, producer snapshots and aborted
    transactions are compared with the batches. Checkpoints, topic ids, meta.properties, the metadata log and its
    snapshots must agree with the logs.

    Nothing is changed. The exit code is 0 without findings (notes do not count), 1 with findings, and 2 if the
    directories could not be checked.

    \b
    Examples:
      moldau log verify /var/lib/moldau
      moldau log verify --deep /data/1 /data/2
      moldau log verify --json /var/lib/moldau/events-0
    """
    report = inspected(paths, deep=deep)
    if as_json:
        for finding in report.findings:
            print_json(finding.as_json())
        print_json(_totals(report))
    else:
        print_findings(report.findings)
        print(summary(report))
    if not report.is_clean:
        raise SystemExit(1)


def inspected(paths: Sequence[str], *, deep: bool = False) -> "InspectionReport":
    """The inspection report, with a progress bar on a terminal. Raises `CannotCheck`."""
    from ..inspection.log_directories import CannotInspectError, inspect
    from ..log.files import RealFileSystem

    began = time.monotonic()
    try:
        with progress_bar("Checking") as watcher:
            report = inspect(RealFileSystem(), paths, deep=deep, watcher=watcher)
    except CannotInspectError as error:
        raise CannotCheck(str(error)) from error
    report.seconds = time.monotonic() - began
    return report


@contextmanager
def progress_bar(what: str) -> Iterator["Watcher | None"]:
    """A progress bar in bytes on standard error, if it is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()]
    columns += [TimeRemainingColumn(), TextColumn("{task.fields[partition]}", markup=False)]
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None, partition="")
        yield _rate_limited(
            lambda done, total, name: progress.update(task, completed=done, total=total, partition=name)
        )


def _rate_limited(update: Callable[[int, int, str], object]) -> "Watcher":
    """Limit the rate of updates: updating a bar for each of 10,000 small partitions takes longer than the checks."""
    last = 0.0

    def watcher(done: int, total: int, name: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > 1 / _UPDATES_PER_SECOND or done >= total:
            last = now
            update(done, total, name)

    return watcher


def print_findings(findings: Sequence["Finding"]) -> None:
    """Print findings grouped by partition, one line each, with the repair for each finding."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.partition or "", []).append(finding)
    for name, group in groups.items():
        print(f"{name or 'log directory'}:")
        for finding in group:
            print(f"  {finding.severity.value:<7}  {_location(finding)}: {finding.text}")
            if finding.remedy is not None:
                print(f"  {'':<7}  repair: {finding.remedy.value}")
        print()


def _location(finding: "Finding") -> str:
    words = [finding.path]
    if finding.position is not None:
        words.append(f"position {finding.position}")
    if finding.offset is not None:
        words.append(f"offset {finding.offset}")
    return ", ".join(words)


def summary(report: "InspectionReport") -> str:
    """A one-line summary: totals and numbers of findings."""
    from ..inspection.finding import Severity

    totals = report.totals
    looked = (
        f"{_count(totals.partitions, 'partition')}, {_count(totals.segments, 'segment')}, "
        f"{_count(totals.batches, 'batch', 'batches')}, {_bytes(totals.bytes)}"
    )
    if totals.records:
        looked += f", {_count(totals.records, 'record')}"
    counts = [_count(report.count(severity), severity.value) for severity in Severity if report.count(severity)]
    return f"{looked}: {', '.join(counts) or 'no findings'}"


def _totals(report: "InspectionReport") -> dict[str, Any]:
    from ..inspection.finding import Severity

    totals = report.totals
    return {
        "kind": "totals",
        "partitions": totals.partitions,
        "segments": totals.segments,
        "batches": totals.batches,
        "records": totals.records,
        "bytes": totals.bytes,
        "seconds": round(report.seconds, 3),
        **{f"{severity.value}s": report.count(severity) for severity in Severity},
    }


def _count(number: int, name: str, plural: str | None = None) -> str:
    return f"{number:,} {name if number == 1 else plural or name + 's'}"


def _bytes(number: int) -> str:
    for unit, size in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"

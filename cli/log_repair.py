"""``moldau log repair``: repair the findings of ``verify`` that can be repaired without losing records."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .failure import Failure
from .log_verify import CannotCheck, print_findings, progress_bar, summary
from .output import print_json

if TYPE_CHECKING:
    from ..inspection.repair import Action, Repair


@click.command("repair", short_help="Repair indexes, snapshots and checkpoints.")
@click.argument("paths", metavar="DIR...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--truncate", is_flag=True, help="Truncate logs at damaged batches; keep the removed bytes in .cut- files."
)
@click.option("--dry-run", is_flag=True, help="Print the repairs without making them.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per action and per remaining finding.")
def repair(paths: tuple[str, ...], truncate: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Repair log directories, of Moldau or of Apache Kafka, while no server uses them.

    Rebuilds indexes, producer snapshots and leader epochs from the batches, corrects checkpoints and topic ids, and
    removes leftover files. Batches are not changed, unless --truncate is given: then a log is truncated before its
    first damaged batch, and the removed bytes are kept next to it in files with .cut- in their names.

    Prints the repairs and asks for confirmation. A report is written to the log directory as moldau-repair-<time>.json.
    The exit code is 0 if no findings remain, 1 if some remain, and 2 if the directories could not be checked.

    \b
    Examples:
      moldau log repair --dry-run /var/lib/moldau
      moldau log repair --truncate --yes /var/lib/moldau
    """
    from ..inspection.log_directories import CannotInspectError
    from ..inspection.repair import Repair
    from ..log.files import RealFileSystem

    try:
        with Repair(RealFileSystem(), paths, truncate=truncate) as work:
            with progress_bar("Checking") as watcher:
                actions = work.inspect(watcher)
            if dry_run:
                _show(actions, as_json=as_json)
            elif actions:
                _repair(work, actions, yes=yes, as_json=as_json)
            _finish(work, as_json=as_json)
    except CannotInspectError as error:
        raise CannotCheck(str(error)) from error
    except OSError as error:
        raise CannotCheck(f"cannot continue, {error.filename} failed: {error.strerror or error}") from error


def _repair(work: "Repair", actions: "list[Action]", *, yes: bool, as_json: bool) -> None:
    if not yes:
        _show(actions, as_json=False, to_error=True)
        if not click.confirm("Make these repairs?", err=True):
            raise Failure("canceled; nothing was changed")
    with progress_bar("Checking") as watcher:
        reports = work.run(actions, now_ms=time.time_ns() // 1_000_000, watcher=watcher)
    _show(work.done, as_json=as_json)
    if not as_json:
        for path in reports:
            print(f"report: {path}")
        print()


def _show(actions: "Sequence[Action]", *, as_json: bool, to_error: bool = False) -> None:
    for action in actions:
        if as_json:
            print_json(action.as_json())
        else:
            click.echo(action.text, err=to_error)


def _finish(work: "Repair", *, as_json: bool) -> None:
    """Print the remaining findings. Exits with 1 if there are any."""
    report = work.report
    if as_json:
        for finding in report.findings:
            print_json(finding.as_json())
    else:
        print_findings(report.findings)
        print(summary(report))
    if not report.is_clean:
        raise SystemExit(1)

"""``moldau log repair``: mend what ``verify`` finds, as far as nothing is lost by it."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .failure import Failure
from .log_verify import CannotLook, print_findings, progress_bar, summary
from .output import print_json

if TYPE_CHECKING:
    from ..server.repair import Action, Repair


@click.command("repair", short_help="Mend indexes, snapshots and checkpoints.")
@click.argument("paths", metavar="DIR...", nargs=-1, required=True, type=click.Path())
@click.option("--truncate", is_flag=True, help="Cut logs at damaged batches. What is cut off is kept beside them.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per action, and per finding that is left.")
def repair(paths: tuple[str, ...], truncate: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Mend log directories, of Moldau or of Apache Kafka, that no server is running on.

    Makes indexes, producer snapshots and leader epochs anew from the batches, corrects checkpoints and topic ids, and
    removes leftovers. No batch is touched, unless --truncate is given: then a log ends before its first damaged batch,
    and what followed lies beside it, in files with .cut- in their names, which nothing reads.

    It says what it will do and asks. What was done is written into the log directory, as moldau-repair-<time>.json.
    The exit code is 0 when nothing is wrong afterwards, 1 when something is left, 2 when nothing could be done.

    \b
    Examples:
      moldau log repair --dry-run /var/lib/moldau
      moldau log repair --truncate --yes /var/lib/moldau
    """
    from ..log.files import RealFileSystem
    from ..server.inspection import CannotInspectError
    from ..server.repair import Repair

    try:
        with Repair(RealFileSystem(), paths, truncate=truncate) as work:
            with progress_bar("Checking") as watcher:
                actions = work.look(watcher)
            if dry_run:
                _show(actions, as_json=as_json)
            elif actions:
                _work(work, actions, yes=yes, as_json=as_json)
            _finish(work, as_json=as_json)
    except CannotInspectError as error:
        raise CannotLook(str(error)) from error
    except OSError as error:
        raise CannotLook(f"cannot go on at {error.filename}: {error.strerror or error}") from error


def _work(work: "Repair", actions: "list[Action]", *, yes: bool, as_json: bool) -> None:
    if not yes:
        _show(actions, as_json=False, to_error=True)
        if not click.confirm("Do that?", err=True):
            raise Failure("nothing was done")
    with progress_bar("Checking") as watcher:
        reports = work.run(actions, now_ms=time.time_ns() // 1_000_000, watcher=watcher)
    _show(work.done, as_json=as_json)
    if not as_json:
        for path in reports:
            print(f"what was done is in {path}")
        print()


def _show(actions: "Sequence[Action]", *, as_json: bool, to_error: bool = False) -> None:
    for action in actions:
        if as_json:
            print_json(action.as_json())
        else:
            click.echo(action.text, err=to_error)


def _finish(work: "Repair", *, as_json: bool) -> None:
    """What is left."""
    report = work.report
    if as_json:
        for finding in report.findings:
            print_json(finding.as_json())
    else:
        print_findings(report.findings)
        print(summary(report))
    if not report.is_clean:
        raise SystemExit(1)

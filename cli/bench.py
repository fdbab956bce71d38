"""``moldau bench``: the comparison with Apache Kafka, from the command line."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .failure import Failure
from .output import print_json, print_table

if TYPE_CHECKING:
    from ..benchmarks.results import Results
    from ..benchmarks.row import Row


@click.command("bench", short_help="Benchmark Moldau, optionally against Apache Kafka.")
@click.option("--compare", type=click.Choice(["apache"]), help="Also measure Apache Kafka (requires Java and Maven).")
@click.option("--only", metavar="ROW", multiple=True, help="Measure only this row or group of rows; repeatable.")
@click.option("--list", "list_rows", is_flag=True, help="List the rows and exit.")
@click.option("--quick", is_flag=True, help="Run one round with 1/50 of the work, as a smoke test.")
@click.option("--rounds", type=click.IntRange(1), help="Rounds per row; default 3.")
@click.option("--resume", is_flag=True, help="Resume the newest results, or those in --output.")
@click.option("--again", is_flag=True, help="With --resume and --only: measure these rows again.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the results to this file.")
@click.option(
    "--report",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Write these results to docs/performance.md and exit; repeatable.",
)
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="Broker setting for Moldau only; repeatable."
)
@click.option("--work-dir", type=click.Path(file_okay=False, path_type=Path), help="Directory for the servers' data.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(
    compare: str | None,
    only: tuple[str, ...],
    list_rows: bool,
    quick: bool,
    rounds: int | None,
    resume: bool,
    again: bool,
    output: Path | None,
    report: tuple[Path, ...],
    settings: tuple[str, ...],
    work_dir: Path | None,
    as_json: bool,
) -> int:
    """Benchmark Moldau, optionally against Apache Kafka: the same work on each server in turn, for several rounds.

    \b
    Examples:
      moldau bench --compare apache
      moldau bench --compare apache --only producer-defaults --rounds 5
      moldau bench --quick
      moldau bench --compare apache --resume
      moldau bench --only fetch-1m --set socket.send.buffer.bytes=102400
    """
    from ..benchmarks import session
    from ..benchmarks.progress import TerminalProgress

    if again and not (resume and only):
        raise click.UsageError("--again requires --resume and --only")
    moldau_config = dict(setting.partition("=")[::2] for setting in settings)
    try:
        if list_rows:
            _list(session.rows_of(only), as_json)
            return 0
        if report:
            session.write_report([(session.load(path), path) for path in report], _print)
            return 0
        request = session.Request(
            only, compare == "apache", rounds, quick, resume, again, output, work_dir, moldau_config
        )
        with TerminalProgress(session.earlier_durations()) as progress:
            found, path = session.measure(request, progress)
        if session.is_whole(request) and request.apache:
            session.write_report([(found, path)], _print)
    except session.SessionError as error:
        raise Failure(str(error)) from error
    if as_json:
        print(path.read_text(encoding="utf-8"), end="")
    else:
        _show(found)
    failed = found.errors()
    if failed:
        _print(f"{len(failed)} measurements failed; run again with --resume to retry them")
    return 1 if failed else 0


def _show(found: "Results") -> None:
    from ..benchmarks import registry, report

    print_table(report.COLUMNS, report.terminal_table(found, registry.all_rows()))


def _print(text: str) -> None:
    print(text, file=sys.stderr)


def _list(rows: "Sequence[Row]", as_json: bool) -> None:
    if as_json:
        print_json([{"name": row.name, "group": row.group, "title": row.title, "needs": row.needs} for row in rows])
    else:
        print_table(("row", "group", "work"), [(row.name, row.group, row.title) for row in rows])

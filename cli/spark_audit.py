"""``moldau spark audit``: compare the record counts of producers, server, consumers and archives per window."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .client import address_option
from .failure import Failure
from .output import print_json, print_table
from .parsed_options import datetime_ms, duration_ms
from .spark_session import client_option, explained, spark_options, spark_session

if TYPE_CHECKING:
    from ..spark_integration.audit.report import Report, Window
    from ..spark_integration.audit.request import AuditRequest

EXIT_FINDINGS: Final = 1
EXIT_FAILURE: Final = 2


class _AuditFailure(Failure):
    """1 means that the counts do not balance; 2 means that the audit failed."""

    exit_code = EXIT_FAILURE


@click.command("audit", short_help="Compare the record counts of producers, server, consumers and archives.")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--audit-topic", metavar="TOPIC", default="_audit", show_default=True, help="Topic that contains the counts."
)
@click.option(
    "--window",
    "window_ms",
    metavar="DURATION",
    callback=duration_ms,
    help="Window length: 90s, 10m, 1h; default: the longest window of all counts.",
)
@click.option(
    "--watermark",
    "watermark_ms",
    metavar="DURATION",
    default="10m",
    show_default=True,
    callback=duration_ms,
    help="Close a window this long after its end; later counts are late.",
)
@click.option(
    "--from",
    "from_ms",
    metavar="TIME",
    callback=datetime_ms,
    help="Only windows from this time on: milliseconds since 1970, or ISO 8601 (default UTC).",
)
@click.option("--until", "until_ms", metavar="TIME", callback=datetime_ms, help="Only windows that end by this time.")
@click.option("--archive", "archives", metavar="DIR", multiple=True, help="Also compare this archive; repeatable.")
@click.option("--follow", is_flag=True, help="Run until Ctrl-C: report each window when it closes, and late counts.")
@click.option(
    "--every",
    "every_ms",
    metavar="DURATION",
    default="30s",
    show_default=True,
    callback=duration_ms,
    help="With --follow: interval between comparisons.",
)
@click.option(
    "--keep",
    "keep_ms",
    metavar="DURATION",
    default="1h",
    show_default=True,
    callback=duration_ms,
    help="With --follow: how long to watch a closed window for late counts.",
)
@click.option("--plot", metavar="FILE", help="Plot counts and findings over time to an .svg or .png file.")
@client_option
@spark_options
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON; with --follow, one line for each round with changes."
)
@address_option
@click.pass_context
def audit(
    context: click.Context,
    topics: tuple[str, ...],
    audit_topic: str,
    window_ms: int | None,
    watermark_ms: int,
    from_ms: int | None,
    until_ms: int | None,
    archives: tuple[str, ...],
    follow: bool,
    every_ms: int,
    keep_ms: int,
    plot: str | None,
    client_configs: dict[str, str],
    master: str,
    spark_configs: dict[str, str],
    spark_log: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Audit TOPICs, or all counted topics: report missing, duplicate, uncounted and late records.

    Producers and consumers count with moldau.spark_integration.audit.Audit and send their counts to the audit topic.
    The server's counts are read from the topics themselves. Records are compared by partition and offset, so that a
    loss and a duplicate do not cancel out.

    The exit code is 0 if everything balances, 1 if there are findings, and 2 if the audit failed.

    \b
    Examples:
      moldau spark audit
      moldau spark audit orders --from 2026-11-20 --until 2026-11-21 --plot orders.svg
      moldau spark audit orders --archive /archive/orders --window 10m --json
      moldau spark audit --follow --every 60s --watermark 5m
    """
    if follow and plot is not None:
        raise click.UsageError("--plot and --follow are mutually exclusive")
    with _explained():
        from ..spark_integration.audit.request import AuditRequest

        request = AuditRequest(
            bootstrap_servers=bootstrap_server,
            topics=topics,
            audit_topic=audit_topic,
            window_ms=window_ms,
            watermark_ms=watermark_ms,
            from_ms=from_ms,
            until_ms=until_ms,
            archives=archives,
            client=client_configs,
        )
        _check_early(request, plot)
        show = _show_json if as_json else _show
        with spark_session("moldau audit", master, spark_configs, log=spark_log) as spark:
            if follow:
                from ..spark_integration.audit.follow import follow as rounds

                with _until_signal() as wait:
                    has_findings = False
                    every_s = every_ms / 1000
                    for report in rounds(spark, request, every_s=every_s, keep_ms=keep_ms, wait=wait):
                        has_findings |= bool(report.findings)
                        if report.windows:
                            show(report)
            else:
                from ..spark_integration.audit.balance import audit as balance

                report = balance(spark, request)
                has_findings = bool(report.findings)
                show(report)
                if plot is not None:
                    from ..spark_integration.audit.plot import draw

                    draw(report, Path(plot))
    if has_findings:
        context.exit(EXIT_FINDINGS)


def _check_early(request: "AuditRequest", plot: str | None) -> None:
    """Check the options before a JVM is started."""
    from ..spark_integration.archive_layout import Layout, local_folder
    from ..spark_integration.archive_manifest import check_files, load_existing
    from ..spark_integration.audit.cluster import AuditCluster
    from ..spark_integration.audit.plan import check_counts

    if plot is not None:
        from ..spark_integration.audit.plot import check_plot

        check_plot(Path(plot))
    for folder in request.archives:
        layout = Layout(local_folder(folder))
        check_files(layout, load_existing(layout))
    check_counts(AuditCluster(request.bootstrap_servers, request.client), request)


@contextmanager
def _explained() -> Iterator[None]:
    """Any error that prevents the audit ends the command with its own exit code."""
    from ..spark_integration.audit.request import AuditError

    try:
        with explained():
            yield
    except AuditError as error:
        raise _AuditFailure(str(error)) from error
    except Failure as failure:
        raise _AuditFailure(failure.message) from failure
    except (click.ClickException, click.exceptions.Exit):
        raise
    except Exception as error:
        if os.environ.get("MOLDAU_TRACEBACK"):
            raise
        # The exit code must differ from that of findings.
        raise _AuditFailure(_error_text(error)) from error


def _error_text(error: Exception) -> str:
    if not _is_spark_failure(error):
        return f"{type(error).__name__}: {error}"
    from ..spark_integration.archive_failures import error_summary

    return f"Spark failed: {error_summary(error)}\nRun with --spark-log for details."


def _is_spark_failure(error: Exception) -> bool:
    """Whether the error is one of Spark's, whose classes exist only if Spark is installed."""
    if "pyspark" not in sys.modules:
        return False
    from ..spark_integration.archive_failures import spark_failures

    return isinstance(error, spark_failures())


@contextmanager
def _until_signal() -> Iterator[Callable[[float], bool]]:
    """``wait(seconds)``, which returns False after Ctrl-C or SIGTERM. A running round is completed first."""
    stopped = threading.Event()

    def stop(_number: int, _frame: object) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda seconds: not stopped.wait(seconds)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_json(report: "Report") -> None:
    print_json(report.as_json())
    sys.stdout.flush()


def _show(report: "Report") -> None:
    from ..spark_integration.audit.report import Kind

    tiers = report.tiers
    columns = ("topic", "window (UTC)", *tiers, *(kind.value for kind in Kind), "state")
    print_table(columns, [_row(window, tiers) for window in report.windows])
    findings = report.findings
    for finding in findings:
        print(finding.sentence())
    open_count = sum(window.state.value == "open" for window in report.windows)
    over = f"{_count(len(report.windows) - open_count, 'window')} closed, {_count(open_count, 'window')} still open"
    print(f"{over}: " + (f"{_count(len(findings), 'finding')}." if findings else "everything balances."))
    for note in report.notes:
        print(f"Note: {note}.", file=sys.stderr)
    sys.stdout.flush()


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _row(window: "Window", tiers: list[str]) -> tuple[Any, ...]:
    from ..spark_integration.audit.report import Kind, window_text

    counts = window.counts
    return (
        window.books.topic,
        window_text(window.books.window_start),
        *(counts.get(tier, "-") for tier in tiers),
        *(window.total(kind) or "-" for kind in Kind),
        window.state.value,
    )

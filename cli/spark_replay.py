"""``moldau spark replay``: send an archive to a topic."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from .client import address_option
from .failure import Failure
from .output import print_json, print_table
from .parsed_options import datetime_ms
from .spark_session import client_option, explained, spark_options, spark_session

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command("replay", short_help="Replay an archive into a topic.")
@click.argument("folder", metavar="DIR")
@click.option("--to", "topic", metavar="TOPIC", required=True, help="Target topic; created if it does not exist.")
@click.option(
    "--from",
    "from_ms",
    metavar="TIME",
    callback=datetime_ms,
    help="Only records from this time on: milliseconds since 1970, or ISO 8601 (default UTC).",
)
@click.option("--until", "until_ms", metavar="TIME", callback=datetime_ms, help="Only records before this time.")
@click.option("--append", is_flag=True, help="Allow a topic that already has records.")
@click.option("--resume", is_flag=True, help="Resume an interrupted replay.")
@click.option(
    "--compression",
    "-z",
    type=click.Choice(_CODECS),
    default="lz4",
    show_default=True,
    help="Compression codec of the records.",
)
@client_option
@spark_options
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@address_option
def replay(
    folder: str,
    topic: str,
    from_ms: int | None,
    until_ms: int | None,
    append: bool,
    resume: bool,
    compression: str,
    client_configs: dict[str, str],
    master: str,
    spark_configs: dict[str, str],
    spark_log: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Replay the archive in DIR into a topic, with keys, values, headers, timestamps, partitions and record order.

    A new topic gets the archived number of partitions and keeps all records (retention.ms=-1). An existing topic is
    rejected if it would drop or change records, or is not empty.

    \b
    Examples:
      moldau spark replay /archive/events --to events-again
      moldau spark replay /archive/events --to tuesday --from 2026-11-17T00:00:00Z --until 2026-11-18T00:00:00Z
      moldau spark replay /archive/events --to events-again --resume
    """
    if append and resume:
        raise click.UsageError("--append and --resume are mutually exclusive")
    with explained():
        from ..spark_integration.replay import ReplayRequest, open_replay

        request = ReplayRequest(
            folder=folder,
            topic=topic,
            bootstrap_servers=bootstrap_server,
            from_ms=from_ms,
            until_ms=until_ms,
            append=append,
            resume=resume,
            compression=compression,
            client=client_configs,
        )
        with open_replay(request) as job:
            try:
                with (
                    spark_session("moldau replay", master, spark_configs, log=spark_log) as spark,
                    _progress(f"sending to {topic}") as on_progress,
                ):
                    done = job.run(spark, on_progress)
            except KeyboardInterrupt:
                raise Failure(
                    f"interrupted; {topic} may contain some of the records. Run again with --resume to send the rest"
                ) from None
    if as_json:
        print_json(
            {
                "topic": topic,
                "folder": folder,
                "records": sum(done.records.values()),
                "found": sum(done.found.values()),
                "partitions": [
                    {"partition": partition, "records": records, "found": done.found[partition]}
                    for partition, records in sorted(done.records.items())
                ],
            }
        )
        return
    found = sum(done.found.values())
    resumed = f"; {found} already existed" if found else ""
    print(f"{topic}: {sum(done.records.values())} records of {folder} sent{resumed}.")
    print_table(("partition", "records"), sorted(done.records.items()))


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar of the stored records, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda stored, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda stored, total: progress.update(task, completed=stored, total=total)

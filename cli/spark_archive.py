"""``moldau spark archive`` and ``moldau spark compact``: archive a topic as Parquet files, merge small files."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from .client import address_option
from .output import print_json, print_table
from .spark_session import client_option, explained, spark_options, spark_session

if TYPE_CHECKING:
    from ..spark_integration.archive import ArchiveJob, BatchDone
    from ..spark_integration.archive_manifest import Manifest
    from ..spark_integration.archive_values import ValueSchema

_MEGABYTE: Final = 1024 * 1024


@click.command("archive", short_help="Archive a topic as Parquet files, exactly once.")
@click.argument("topic")
@click.option(
    "--to",
    "folder",
    metavar="DIR",
    required=True,
    help="Archive folder: a new one, or an existing archive to continue.",
)
@click.option("--once", is_flag=True, help="Archive the existing records and exit. Without it, run until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Without --once: interval between batches.",
)
@click.option(
    "--starting-offsets",
    default="earliest",
    show_default=True,
    metavar="OFFSETS",
    help='Start of a new archive: earliest, latest, or offsets by partition, \'{"0": 12, "1": -2}\'.',
)
@click.option("--checkpoint", metavar="DIR", help="Spark checkpoint directory; default: in the archive.")
@click.option(
    "--json-schema",
    metavar="SCHEMA|@FILE",
    help="Parse values as JSON: SQL columns, 'id INT NOT NULL, name STRING', or the JSON of a Spark struct.",
)
@click.option("--avro-schema", metavar="SCHEMA|@FILE", help="Parse values as Avro with this record schema.")
@click.option("--registry-header", is_flag=True, help="Skip the 5-byte schema registry header of each value.")
@click.option("--strict", is_flag=True, help="Stop at a value that does not match the schema, instead of counting it.")
@click.option(
    "--batch-records",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Maximum number of records per batch.",
)
@click.option("--accept-data-loss", is_flag=True, help="Continue if records were deleted before they were archived.")
@client_option
@spark_options
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@address_option
def archive(
    topic: str,
    folder: str,
    once: bool,
    interval: float,
    starting_offsets: str,
    checkpoint: str | None,
    json_schema: str | None,
    avro_schema: str | None,
    registry_header: bool,
    strict: bool,
    batch_records: int,
    accept_data_loss: bool,
    client_configs: dict[str, str],
    master: str,
    spark_configs: dict[str, str],
    spark_log: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Archive TOPIC as Parquet files by date and partition, with key, value, headers, timestamp and offset.

    Every record is archived exactly once, even if the job is killed and restarted. With a schema, values are also
    parsed into the column `parsed`; a value that does not match has a null there and is counted.

    \b
    Examples:
      moldau spark archive events --to /archive/events --once
      moldau spark archive events --to /archive/events --interval 60
      moldau spark archive orders --to orders.archive --once --json-schema 'id INT NOT NULL, city STRING'
      moldau spark archive orders --to orders.archive --once --avro-schema @order.avsc --registry-header
    """
    with explained():
        from ..spark_integration.archive import ArchiveRequest, open_archive, parse_starting_offsets
        from ..spark_integration.archive_values import avro_packages

        request = ArchiveRequest(
            topic=topic,
            folder=folder,
            bootstrap_servers=bootstrap_server,
            checkpoint=checkpoint,
            starting_offsets=parse_starting_offsets(starting_offsets),
            value_schema=_value_schema(json_schema, avro_schema, registry_header),
            strict=strict,
            once=once,
            interval_s=interval,
            batch_records=batch_records,
            accept_data_loss=accept_data_loss,
            client=client_configs,
        )
        with open_archive(request) as job:
            if strict and job.value_schema is None:
                raise click.UsageError("--strict requires --json-schema or --avro-schema")
            before = job.manifest.records
            left = job.records_left() if once else None
            is_avro = job.value_schema is not None and job.value_schema.format == "avro"
            packages = avro_packages(spark_configs) if is_avro else {}
            with (
                spark_session("moldau archive", master, spark_configs, log=spark_log, packages=packages) as spark,
                _stopped_by_signals(job),
                _batches_shown(topic, left) as on_batch,
            ):
                manifest = job.run(spark, on_batch)
    summary = _summary(folder, manifest, manifest.records - before)
    if as_json:
        print_json(summary)
    else:
        _print_summary(summary)


@click.command("compact", short_help="Merge the small files of an archive.")
@click.argument("folder", metavar="DIR")
@click.option(
    "--file-size",
    type=click.IntRange(1),
    default=128,
    show_default=True,
    metavar="MEGABYTES",
    help="Target size of the merged files. Pieces whose average file size is below half of it are merged.",
)
@spark_options
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def compact(
    folder: str, file_size: int, master: str, spark_configs: dict[str, str], spark_log: bool, as_json: bool
) -> None:
    """Merge the small files of the archive in DIR. Stop `moldau spark archive` first.

    Readers of the manifest see either the old or the new files, and each record once. The job can be interrupted.

    \b
    Examples:
      moldau spark compact /archive/events
      moldau spark compact /archive/events --file-size 512 --master 'local[4]'
    """
    with explained():
        from ..spark_integration.archive_compact import MergeDone, open_compaction

        with open_compaction(folder, file_size * _MEGABYTE) as job:
            files_before = job.manifest.files
            if job.runs:
                pieces = sum(len(run) for run in job.runs)
                with (
                    spark_session("moldau compact", master, spark_configs, log=spark_log) as spark,
                    bar("merging", pieces) as advance,
                ):

                    def on_merge(done: MergeDone) -> None:
                        advance(
                            done.pieces,
                            f"{done.pieces} pieces: {done.files_before} files merged into {done.files_after}",
                        )

                    job.run(spark, on_merge)
            manifest = job.manifest
    summary = {**_summary(folder, manifest, 0), "files_before": files_before}
    del summary["new_records"]
    if as_json:
        print_json(summary)
    else:
        print(f"{folder}: {manifest.records} records in {manifest.files} files, previously {files_before}.")


def _value_schema(json_schema: str | None, avro_schema: str | None, registry_header: bool) -> "ValueSchema | None":
    from ..spark_integration.archive_values import ValueSchema, read_schema_text

    if json_schema is not None and avro_schema is not None:
        raise click.UsageError("--json-schema and --avro-schema are mutually exclusive")
    if json_schema is not None:
        return ValueSchema("json", read_schema_text(json_schema), registry_header)
    if avro_schema is not None:
        return ValueSchema("avro", read_schema_text(avro_schema), registry_header)
    if registry_header:
        raise click.UsageError("--registry-header requires --json-schema or --avro-schema")
    return None


@contextmanager
def _stopped_by_signals(job: "ArchiveJob") -> Iterator[None]:
    """Make Ctrl-C and SIGTERM stop the job after the current batch, as they stop a server."""

    def stop(_number: int, _frame: object) -> None:
        job.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _batches_shown(topic: str, left: int | None) -> "Iterator[Callable[[BatchDone], None]]":
    with bar(f"archiving {topic}", left) as advance:

        def show(done: "BatchDone") -> None:
            unfit = f", {done.unfit} that do not match the schema" if done.unfit else ""
            advance(
                done.records,
                f"batch {done.batch}: {done.records} records{unfit}, {done.bytes / _MEGABYTE:.1f} MB in {done.files} "
                f"files, {done.seconds:.1f} s",
            )

        yield show


@contextmanager
def bar(what: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    """``advance(steps, text)``: a progress bar on a terminal, otherwise one line per step, on standard error."""
    if not sys.stderr.isatty():
        yield lambda steps, text: print(text, file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns.append(TimeElapsedColumn() if total is None else TimeRemainingColumn())
    columns.append(TextColumn("{task.fields[text]}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total, text="")
        yield lambda steps, text: progress.update(task, advance=steps, text=text)


def _summary(folder: str, manifest: "Manifest", new_records: int) -> dict[str, Any]:
    return {
        "topic": manifest.topic,
        "folder": folder,
        "records": manifest.records,
        "new_records": new_records,
        "unfit": manifest.unfit,
        "files": manifest.files,
        "bytes": manifest.bytes,
        "partitions": [
            {
                "partition": partition,
                "records": found.records,
                "first_offset": found.first_offset,
                "last_offset": found.last_offset,
            }
            for partition, found in manifest.partitions.items()
        ],
    }


def _print_summary(summary: dict[str, Any]) -> None:
    print(
        f"{summary['folder']}: {summary['records']} records of {summary['topic']}, {summary['new_records']} of them "
        f"new; {summary['files']} files, {summary['bytes'] / _MEGABYTE:.1f} MB."
    )
    if summary["unfit"]:
        print(f"{summary['unfit']} values do not match the schema; their column `parsed` is null.")
    if summary["partitions"]:
        rows = [tuple(entry.values()) for entry in summary["partitions"]]
        print_table(("partition", "records", "first offset", "last offset"), rows)

"""``moldau log``: dump, verify, repair and compact the files of a log directory, of Moldau or of Apache Kafka."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import log_compact, log_dirs, log_repair, log_verify
from .failure import Failure
from .output import print_json
from .suggestions import CommandGroup

if TYPE_CHECKING:
    from .segment_dump import Fact


@click.group("log", cls=CommandGroup, short_help="Dump, verify, repair and compact log files.")
def command() -> None:
    """Dump, verify, repair and compact the files of a log directory, of Moldau or of Apache Kafka.

    \b
    Examples:
      moldau log dump events-0/00000000000000000000.log --records
      moldau log verify /var/lib/moldau
    """


command.add_command(log_verify.verify)
command.add_command(log_repair.repair)
command.add_command(log_compact.compact)
command.add_command(log_dirs.dirs)


@command.command("dump", short_help="Print batches, index entries, producers, checkpoints.")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--records", "-r", is_flag=True, help="Also print the records of every batch.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def dump_files(files: tuple[Path, ...], records: bool, as_json: bool) -> None:
    """Print the contents of FILES. The file name determines the format.

    Segments (.log), indexes (.index, .timeindex, .txnindex), producer snapshots (.snapshot), the metadata log and its
    snapshots (.checkpoint), leader-epoch-checkpoint, partition.metadata, meta.properties and the offset checkpoints.
    Checksums are verified, and entries of an .index are compared with the .log next to it. The exit code is 1 if
    a file is damaged.

    \b
    Examples:
      moldau log dump events-0/00000000000000000000.log
      moldau log dump --records __cluster_metadata-0/00000000000000000000.log
      moldau log dump --json events-0/*.index events-0/*.snapshot
    """
    from .segment_dump import NotDumpableError, dump

    problems = 0
    for path in files:
        if len(files) > 1 and not as_json:
            print(f"{path}:")
        try:
            for fact in dump(path, records=records):
                problems += "problem" in fact
                if as_json:
                    shown = {name: value for name, value in fact.items() if name != "text"}
                    print_json({"file": str(path), **shown})
                else:
                    print(_as_text(fact))
        except NotDumpableError as error:
            raise Failure(str(error)) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Failure(f"cannot read {path}: {error.strerror}") from error
    if problems:
        raise Failure(f"found damage in {problems} place{'' if problems == 1 else 's'}")


def _as_text(fact: "Fact") -> str:
    kind = fact["kind"]
    if kind == "batch":
        words = _batch_text(fact)
    elif kind == "record":
        words = _record_text(fact)
    elif kind == "metadata":
        words = f"  {fact['offset']}  {fact['text']}"
    elif kind in ("group", "transaction"):
        words = f"  {fact['offset']}  {_time(fact['timestamp'])}  {fact['text']}"
    else:
        fields = "  ".join(f"{name} {_shown(name, value)}" for name, value in fact.items() if name not in _HIDDEN)
        words = f"{kind}: {fields}" if kind in ("damage", "unused", "properties") else fields
    return f"{words}  DAMAGED: {fact['problem']}" if "problem" in fact else words


_HIDDEN = frozenset({"kind", "problem"})


def _batch_text(fact: "Fact") -> str:
    words = [
        f"offsets {fact['base_offset']}-{fact['last_offset']}",
        f"position {fact['position']}",
        f"{fact['bytes']} bytes",
        f"{fact['records']} record{'' if fact['records'] == 1 else 's'}",
        f"codec {fact['codec']}",
        f"{fact['timestamp_type']} {_time(fact['max_timestamp'])}",
        f"leader epoch {fact['leader_epoch']}",
    ]
    if fact["producer_id"] is not None:
        words.append(f"producer {fact['producer_id']} epoch {fact['producer_epoch']}")
        if fact["base_sequence"] >= 0:
            words.append(f"sequences {fact['base_sequence']}-{fact['last_sequence']}")
    words += [name for name in ("transactional", "control") if fact[name]]
    return "  ".join(words)


def _record_text(fact: "Fact") -> str:
    words = [f"  {fact['offset']}", _time(fact["timestamp"])]
    if "marker" in fact:
        words.append(f"{fact['marker']} coordinator epoch {fact['coordinator_epoch']}")
        return "  ".join(words)
    words += [_binary_text("key", fact), _binary_text("value", fact)]
    if fact["headers"]:
        headers = ", ".join(f"{header['name']}: {_binary_text('value', header)}" for header in fact["headers"])
        words.append(f"headers {{{headers}}}")
    return "  ".join(words)


def _binary_text(name: str, fact: "Fact") -> str:
    if f"{name}_base64" in fact:
        return f"{name} base64:{fact[f'{name}_base64']}"
    return f"{name} null" if fact[name] is None else f"{name} {fact[name]!r}"


def _shown(name: str, value: object) -> str:
    if name in ("timestamp", "last_timestamp") and isinstance(value, int):
        return _time(value)
    return "-" if value is None else str(value)


def _time(timestamp_ms: int) -> str:
    """The timestamp, followed by the date and time if it has one."""
    if timestamp_ms < 0:
        return str(timestamp_ms)
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{timestamp_ms} ({moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03} UTC)"

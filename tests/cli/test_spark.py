"""``moldau spark`` without Spark: invalid arguments are reported before a JVM is started.

``moldau.spark_integration.tests.test_archive_command`` runs the commands with it.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.cli.spark_session import session_settings

from .conftest import Run


def test_help_lists_the_commands(run: Run) -> None:
    result = run("spark", "--help")

    assert result.code == 0
    for name in ("archive", "compact", "replay"):
        assert name in result.text


@pytest.mark.parametrize("name", ["archive", "compact", "replay"])
def test_every_command_has_examples(run: Run, name: str) -> None:
    assert f"\n    moldau spark {name} " in run("spark", name, "--help").text


def test_help_does_not_import_the_libraries_of_the_jobs() -> None:
    program = (
        "import sys\nfrom moldau.cli.main import main\n"
        "try:\n    main(['spark', 'archive', '--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'pyspark', 'py4j', 'confluent_kafka', 'rich', 'kafka'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("archive", "events"), "Missing option '--to'"),
        (("archive", "events", "--to", "a", "--starting-offsets", "first"), "is not earliest, latest or offsets"),
        (("archive", "events", "--to", "a", "--json-schema", "a INT", "--avro-schema", "{}"), "mutually exclusive"),
        (("archive", "events", "--to", "a", "--registry-header"), "--registry-header requires"),
        (("archive", "events", "--to", "a", "--client-config", "x"), "'x' is not KEY=VALUE"),
        (("archive", "events", "--to", "a", "--json-schema", "@nowhere.ddl"), "the schema cannot be read"),
        (("archive", "events", "--to", "a", "--avro-schema", '"int"'), "the Avro schema must describe a record"),
        (("archive", "events", "--to", "hdfs://host/a"), "is not a folder of this machine"),
        (("replay", "a"), "Missing option '--to'"),
        (("replay", "a", "--to", "t", "--append", "--resume"), "mutually exclusive"),
        (("replay", "a", "--to", "t", "--from", "yesterday"), "is neither milliseconds since 1970 nor a time"),
        (("replay", "nowhere", "--to", "t"), "there is no folder"),
        (("compact", "nowhere"), "there is no folder"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_invalid_arguments_are_reported(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    result = run("spark", *arguments)

    assert result.code in (1, 2)
    assert reason in result.err
    assert "Traceback" not in result.err


def test_an_unknown_topic_is_not_archived(ask: Run, tmp_path: Path) -> None:
    result = ask("spark", "archive", "nowhere", "--to", str(tmp_path / "a"))

    assert result.code == 1
    assert result.err.startswith("moldau: there is no topic nowhere at ")
    assert list(tmp_path.iterdir()) == []


def test_strict_requires_a_schema(ask: Run, new_topic: Callable[..., str], tmp_path: Path) -> None:
    result = ask("spark", "archive", new_topic(), "--to", str(tmp_path / "a"), "--strict")

    assert result.code == 2
    assert "--strict requires --json-schema or --avro-schema" in result.err
    assert not (tmp_path / "a" / "manifest.json").exists(), "an archive was begun"


def test_jars_of_a_job_are_added_to_those_of_the_user() -> None:
    given = {"spark.jars.packages": "their:own:1", "spark.log.level": "INFO"}

    settings = session_settings(
        "local[2]", given, log=False, packages={"spark.jars.packages": "their:own:1,our:avro:1"}
    )

    assert settings["spark.jars.packages"] == "their:own:1,our:avro:1"
    assert (settings["spark.master"], settings["spark.log.level"]) == ("local[2]", "INFO")


def test_an_unreachable_server_is_reported(run: Run, unused_port: int, tmp_path: Path) -> None:
    result = run("spark", "archive", "events", "--to", str(tmp_path / "a"), "-b", f"127.0.0.1:{unused_port}")

    assert result.code == 1
    assert result.err.startswith(f"moldau: no Kafka server responds at 127.0.0.1:{unused_port}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["compact", "replay"])
@pytest.mark.parametrize(
    ("text", "reason"), [(None, "is not an archive"), ("{", "cannot be read"), ("{}", "cannot be read")]
)
def test_an_unreadable_archive_is_reported(
    run: Run, tmp_path: Path, command: str, text: str | None, reason: str
) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    result = run("spark", command, str(tmp_path), *(("--to", "t") if command == "replay" else ()))

    assert result.code == 1
    assert reason in result.err


def test_an_archive_with_missing_files_is_neither_replayed_nor_audited(run: Run, tmp_path: Path) -> None:
    """Reported before a connection to a server."""
    piece = {
        "name": "batch=0",
        "first_batch": 0,
        "last_batch": 0,
        "records": 1,
        "unfit": 0,
        "oldest_ms": 1,
        "newest_ms": 1,
        "largest_record_bytes": 100,
        "partitions": {"0": {"records": 1, "first_offset": 0, "last_offset": 0}},
        "files": {"date=1970-01-01/partition=0/part.parquet": 4},
    }
    manifest = {
        "format": "moldau archive",
        "version": 1,
        "topic": "events",
        "topic_id": "4L62bhGPQdq5XnRu5HxZ6w",
        "partition_count": 1,
        "value_schema": None,
        "query_id": "q",
        "last_batch": 0,
        "row_schema": {},
        "pieces": [piece],
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))

    replayed = run("spark", "replay", str(tmp_path), "--to", "t")
    audited = run("spark", "audit", "--archive", str(tmp_path))

    assert (replayed.code, audited.code) == (1, 2)
    for result in (replayed, audited):
        assert "is damaged: data/batch=0/date=1970-01-01/partition=0/part.parquet: No such file" in result.err


def test_an_empty_archive_is_compacted_without_spark(run: Run, tmp_path: Path) -> None:
    manifest = {
        "format": "moldau archive",
        "version": 1,
        "topic": "events",
        "topic_id": "4L62bhGPQdq5XnRu5HxZ6w",
        "partition_count": 1,
        "value_schema": None,
        "pieces": [],
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))

    result = run("spark", "compact", str(tmp_path), "--json")

    assert (result.code, result.json()["files"], result.json()["files_before"]) == (0, 0, 0)
    assert "has no records" in run("spark", "replay", str(tmp_path), "--to", "t").err

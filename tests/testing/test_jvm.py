"""The archive of classes that Java programs of the tests start with."""

from __future__ import annotations

import subprocess
from pathlib import Path

from moldau.testing import jvm, requirements

TOOL = "org.apache.kafka.tools.DumpLogSegments"


def test_classes_come_from_the_archive(tmp_path: Path) -> None:
    requirements.require_kafka_jars()
    if jvm.class_archive() is None:
        requirements.missing("the archive of Apache Kafka's classes", "run `python -m moldau.testing.kafka_jars`")
    (tmp_path / "Program.class").write_bytes(b"")  # a class path may end with a folder that holds files
    command = jvm.command(TOOL, "--version", options=["-Xlog:class+load"], classes=tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    (loaded,) = (line for line in done.stdout.splitlines() if f" {TOOL} " in line)
    assert loaded.endswith("source: shared objects file"), done.stderr

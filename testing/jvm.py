"""The command line of a JVM with Apache Kafka's jars: quick to start, not fast.

The JVM is small: the serial collector, and only the first compiler tier. Its classes are mapped from a shared archive
(AppCDS) instead of being read from the jars, parsed and verified: Apache Kafka starts with half the CPU time.

``python -m moldau.testing.kafka_jars`` builds the archive into the cache folder next to the jars. The name of its file
depends on the version of Java and on the jars, so an archive that does not fit is never used. Without an archive the
JVM reads the jars.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from unittest.mock import patch

from moldau.testing import kafka_jars, requirements

OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def command(
    main_class: str,
    *arguments: str,
    options: Sequence[str] = (),
    classes: Path | None = None,
    older_client: Path | None = None,
) -> list[str]:
    """The command line that runs a class of Apache Kafka's jars, or of the folder ``classes``.

    ``older_client`` is a jar that hides the Java client of ``kafka_jars.KAFKA_VERSION``. An archive is of no use then:
    it requires that the class path begins as it did when the archive was built.
    """
    libs, java = requirements.require_kafka_jars(), requirements.require_program("java")
    archive = None if older_client is not None else class_archive()
    if archive is not None:
        # The JVM's warnings go to standard error: on standard output programs answer.
        options = [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable", "-Xlog:all=warning:stderr", *options]
    class_path = [older_client, f"{libs}/*", classes]
    joined = os.pathsep.join(str(path) for path in class_path if path is not None)
    return [java, *OPTIONS, *options, "-cp", joined, main_class, *arguments]


def class_archive() -> Path | None:
    """The archive for this Java and these jars, or None if it has not been built."""
    libs = kafka_jars.jars_dir()
    archive = None if libs is None else _archive_path(libs)
    return archive if archive is not None and archive.is_file() else None


def build_class_archive() -> Path:
    """Build the archive unless it exists, and return its path. Takes half a minute, and 60 MB.

    It holds what Apache Kafka, its storage tool, its dump tool and the Java client load in a short run. Raises
    RuntimeError if the JVM does not write it.
    """
    found = class_archive()
    if found is not None:
        return found
    libs, java = requirements.require_kafka_jars(), requirements.require_program("java")
    archive = _archive_path(libs)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="archiving-") as work:
        classes = Path(work) / "classes"
        classes.write_text("\n".join(_loaded_classes(Path(work))))
        unfinished = Path(work) / archive.name
        dump = ["-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={unfinished}"]
        done = subprocess.run(
            [java, *OPTIONS, *dump, "-cp", f"{libs}/*"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0 or not unfinished.is_file():
            raise RuntimeError(f"the JVM did not write {archive}:\n{done.stdout[-4000:]}")
        unfinished.rename(archive)
    return archive


def _loaded_classes(work: Path) -> Iterable[str]:
    """The lines of the JVM's lists of loaded classes."""
    # Here, because these modules start their JVMs with this one.
    from moldau.testing.apache_kafka import ApacheKafka
    from moldau.testing.client import Record
    from moldau.testing.clients.java import JavaClient
    from moldau.testing.clients.program import close_programs

    loaded = {"JDK_JAVA_OPTIONS": f"-XX:DumpLoadedClassList={work}/%p.list"}
    with patch.dict(os.environ, loaded), ApacheKafka() as kafka, JavaClient(kafka.bootstrap_servers) as client:
        client.create_topic("topic", 1)
        client.produce("topic", [Record(value=b"value")], idempotent=True)
        client.read("topic", 0)
        segment = kafka.data_dir / "topic-0" / f"{0:020}.log"
        client.tool("org.apache.kafka.tools.DumpLogSegments", ["--deep-iteration", "--files", str(segment)])
        close_programs()  # a JVM writes its list when it exits
    lists = [path.read_text().splitlines() for path in work.glob("*.list")]
    return dict.fromkeys(line for each in lists for line in each)


@cache
def _archive_path(libs: Path) -> Path:
    """The archive's file for the installed Java and the jars as they are."""
    java = requirements.require_program("java")
    version = subprocess.run([java, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True).stdout
    digest = hashlib.sha256(version)
    for jar in sorted(libs.glob("*.jar")):
        status = jar.stat()
        digest.update(f"{jar} {status.st_size} {status.st_mtime_ns}\n".encode())
    return kafka_jars.cache_dir() / f"kafka-{kafka_jars.KAFKA_VERSION}" / f"classes-{digest.hexdigest()[:16]}.jsa"

"""Apache Kafka's own jars: the reference server, its tools and its Java client, fetched with Maven into a cache folder.

``java/pom.xml`` lists the artifacts; ``python -m moldau.testing.kafka_jars`` lets Maven copy them and their
dependencies into one flat folder, about 130 MB, which is a class path: ``java -cp 'FOLDER/*' kafka.Kafka ...``.

Older releases of the server alone, for the conformance suite, are ``java/older-server-pom.xml``: ``python -m
moldau.testing.kafka_jars --version 3.9.1``.

- ``MOLDAU_KAFKA_JARS`` names an existing folder (not for older releases);
- otherwise it is ``$XDG_CACHE_HOME/moldau/kafka-<version>/libs``, by default under ``~/.cache``.

The cache folder is created with one rename after Maven has succeeded, so an existing one is complete, and two fetches
at the same time do not disturb each other.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

KAFKA_VERSION = "4.3.1"

OLDER_CLIENTS = ("3.4.1", "2.8.2")
"""Versions of the Java client alone: one before transactions v2 (KIP-890), and one that does not use all error codes of
KIP-588."""

OLDER_SERVERS = ("3.9.1",)
"""Versions of the server alone: the last release before 4.0, whose clients and tools many clusters still have."""

POM = Path(__file__).parent / "java" / "pom.xml"
OLDER_SERVER_POM = Path(__file__).parent / "java" / "older-server-pom.xml"


def _expected(version: str) -> tuple[str, ...]:
    """One jar of each started program: a folder without one of them is not complete."""
    server = (f"kafka-clients-{version}.jar", f"kafka_2.13-{version}.jar")
    return (*server, f"kafka-tools-{version}.jar") if version == KAFKA_VERSION else server


class JarsUnavailableError(Exception):
    """The jars could not be fetched; the text is the reason."""


def cache_dir() -> Path:
    """The folder for files that this project has fetched or built: ``~/.cache/moldau``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "moldau"


def jars_dir(version: str = KAFKA_VERSION) -> Path | None:
    """The folder with the jars, or None if they have not been fetched."""
    folder = _named_folder(version) or _cached_libs(version)
    return folder if all((folder / jar).is_file() for jar in _expected(version)) else None


def fetch(version: str = KAFKA_VERSION) -> Path:
    """Fetch the jars unless they exist, and return their folder. Raises JarsUnavailableError."""
    found = jars_dir(version)
    if found is not None:
        return found
    expected = ", ".join(_expected(version))
    named = _named_folder(version)
    if named is not None:
        raise JarsUnavailableError(f"MOLDAU_KAFKA_JARS={named} does not contain {expected}")
    libs = _cached_libs(version)
    libs.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=libs.parent, prefix="fetching-") as work:
        incoming = Path(work) / "libs"
        _run_maven(
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-Dkafka.version={version}",
            f"-DoutputDirectory={incoming}",
            pom=POM if version == KAFKA_VERSION else OLDER_SERVER_POM,
        )
        try:
            incoming.rename(libs)
        except OSError:
            if jars_dir(version) is None:  # otherwise another process was faster
                raise
    found = jars_dir(version)
    if found is None:
        raise JarsUnavailableError(f"Maven succeeded, but {libs} does not contain {expected}")
    return found


def older_client(version: str) -> Path | None:
    """The jar of an older Java client, or None if it has not been fetched. Its dependencies come from ``fetch``."""
    jar = _older_clients() / f"kafka-clients-{version}.jar"
    return jar if jar.is_file() else None


def fetch_older_client(version: str) -> Path:
    """Fetch the jar of an older Java client unless it exists. Raises JarsUnavailableError."""
    found = older_client(version)
    if found is not None:
        return found
    artifact = f"-Dartifact=org.apache.kafka:kafka-clients:{version}"
    folder = _older_clients()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="fetching-") as work:
        _run_maven("dependency:copy", artifact, f"-DoutputDirectory={work}")
        jar = f"kafka-clients-{version}.jar"
        return (Path(work) / jar).rename(folder / jar)


def _older_clients() -> Path:
    return cache_dir() / "kafka-clients"


def _named_folder(version: str) -> Path | None:
    named = os.environ.get("MOLDAU_KAFKA_JARS") if version == KAFKA_VERSION else None
    return Path(named) if named else None


def _cached_libs(version: str) -> Path:
    return cache_dir() / f"kafka-{version}" / "libs"


def _run_maven(*arguments: str, pom: Path = POM) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailableError("mvn is not installed (Debian: apt-get install maven)")
    output = ""
    # Offline first: artifacts in Maven's local repository need no network and take two seconds.
    for mode in (["--offline"], []):
        done = subprocess.run(
            [maven, "--batch-mode", "--quiet", *mode, "--file", str(pom), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
        output = done.stdout
        if done.returncode == 0:
            return
    raise JarsUnavailableError(f"Maven failed:\n{output}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch, build the archive of classes, and print the paths of all of it. ``--version`` fetches an older server."""
    from moldau.testing.jvm import build_class_archive

    parser = argparse.ArgumentParser(prog="python -m moldau.testing.kafka_jars", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--version", choices=OLDER_SERVERS, help="only this older release of the server, for the conformance suite"
    )
    wanted = parser.parse_args(arguments).version
    try:
        print(fetch(wanted or KAFKA_VERSION))
        for version in () if wanted else OLDER_CLIENTS:
            print(fetch_older_client(version))
    except JarsUnavailableError as error:
        print(f"Apache Kafka {wanted or KAFKA_VERSION}: {error}", file=sys.stderr)
        return 1
    if wanted or shutil.which("java") is None:
        return 0
    try:
        print(build_class_archive())
    except RuntimeError as error:
        print(f"Java programs start slower without an archive of classes: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

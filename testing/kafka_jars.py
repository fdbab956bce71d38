"""Apache Kafka's own jars: the reference server, its tools and its Java client, fetched with Maven into a cache folder.

``java/pom.xml`` lists the artifacts; ``python -m moldau.testing.kafka_jars`` lets Maven copy them and their
dependencies into one flat folder, about 130 MB, which is a class path: ``java -cp 'FOLDER/*' kafka.Kafka ...``.

- ``MOLDAU_KAFKA_JARS`` names an existing folder;
- otherwise it is ``$XDG_CACHE_HOME/moldau/kafka-<version>/libs``, by default under ``~/.cache``.

The cache folder is created with one rename after Maven has succeeded, so an existing one is complete, and two fetches
at the same time do not disturb each other.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KAFKA_VERSION = "4.3.1"

OLDER_CLIENTS = ("3.4.1", "2.8.2")
"""Versions of the Java client alone: one before transactions v2 (KIP-890), and one that does not use all error codes of
KIP-588."""

POM = Path(__file__).parent / "java" / "pom.xml"

# One jar of each started program: a folder without one of them is not complete.
_EXPECTED = (
    f"kafka-clients-{KAFKA_VERSION}.jar",
    f"kafka_2.13-{KAFKA_VERSION}.jar",
    f"kafka-tools-{KAFKA_VERSION}.jar",
)


class JarsUnavailableError(Exception):
    """The jars could not be fetched; the text is the reason."""


def cache_dir() -> Path:
    """The folder for files that this project has fetched or built: ``~/.cache/moldau``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "moldau"


def jars_dir() -> Path | None:
    """The folder with the jars, or None if they have not been fetched."""
    named = os.environ.get("MOLDAU_KAFKA_JARS")
    folder = Path(named) if named else _cached_libs()
    return folder if all((folder / jar).is_file() for jar in _EXPECTED) else None


def fetch() -> Path:
    """Fetch the jars unless they exist, and return their folder. Raises JarsUnavailableError."""
    found = jars_dir()
    if found is not None:
        return found
    if os.environ.get("MOLDAU_KAFKA_JARS"):
        raise JarsUnavailableError(
            f"MOLDAU_KAFKA_JARS={os.environ['MOLDAU_KAFKA_JARS']} does not contain {', '.join(_EXPECTED)}"
        )
    libs = _cached_libs()
    libs.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=libs.parent, prefix="fetching-") as work:
        incoming = Path(work) / "libs"
        _run_maven("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={incoming}")
        try:
            incoming.rename(libs)
        except OSError:
            if jars_dir() is None:  # otherwise another process was faster
                raise
    found = jars_dir()
    if found is None:
        raise JarsUnavailableError(f"Maven succeeded, but {libs} does not contain {', '.join(_EXPECTED)}")
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


def _cached_libs() -> Path:
    return cache_dir() / f"kafka-{KAFKA_VERSION}" / "libs"


def _run_maven(*arguments: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailableError("mvn is not installed (Debian: apt-get install maven)")
    output = ""
    # Offline first: artifacts in Maven's local repository need no network and take two seconds.
    for mode in (["--offline"], []):
        done = subprocess.run(
            [maven, "--batch-mode", "--quiet", *mode, "--file", str(POM), *arguments],
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


def main() -> int:
    """Fetch, build the archive of classes, and print the paths of all of it."""
    from moldau.testing.jvm import build_class_archive

    try:
        print(fetch())
        for version in OLDER_CLIENTS:
            print(fetch_older_client(version))
    except JarsUnavailableError as error:
        print(f"Apache Kafka {KAFKA_VERSION}: {error}", file=sys.stderr)
        return 1
    if shutil.which("java") is None:
        return 0
    try:
        print(build_class_archive())
    except RuntimeError as error:
        print(f"Java programs start slower without an archive of classes: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

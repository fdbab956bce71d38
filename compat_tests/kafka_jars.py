"""Apache Kafka's own jars: the reference server, its tools and its Java client, fetched with Maven into a cache folder.

``java/pom.xml`` names what is wanted; ``python -m moldau.compat_tests.kafka_jars`` has Maven copy it and everything it
depends on into one flat folder, about 130 MB, which is then a class path: ``java -cp 'FOLDER/*' kafka.Kafka ...``.

- ``MOLDAU_KAFKA_JARS`` names a folder to use as it is;
- otherwise it is ``$XDG_CACHE_HOME/moldau/kafka-<version>/libs``, by default under ``~/.cache``.

The cache folder appears in one rename after Maven has succeeded, so if it is there it is complete, and two fetches at
the same time do not spoil each other.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KAFKA_VERSION = "4.3.1"

OLDER_CLIENTS = ("3.4.1", "2.8.2")
"""Versions of the Java client alone: one before transactions v2 (KIP-890), and one before KIP-588's error codes were
everywhere."""

POM = Path(__file__).parent / "java" / "pom.xml"

# One jar of each thing we start: a folder without one of them is not the one that we need.
_EXPECTED = (
    f"kafka-clients-{KAFKA_VERSION}.jar",
    f"kafka_2.13-{KAFKA_VERSION}.jar",
    f"kafka-tools-{KAFKA_VERSION}.jar",
)


class JarsUnavailableError(Exception):
    """The jars could not be fetched; the text says why."""


def cache_dir() -> Path:
    """Where this project keeps what it has fetched or built: ``~/.cache/moldau``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "moldau"


def jars_dir() -> Path | None:
    """The folder with the jars, or None when they have not been fetched."""
    named = os.environ.get("MOLDAU_KAFKA_JARS")
    folder = Path(named) if named else _cached_libs()
    return folder if all((folder / jar).is_file() for jar in _EXPECTED) else None


def fetch() -> Path:
    """Fetch the jars unless they are there, and return their folder. Raises JarsUnavailableError."""
    found = jars_dir()
    if found is not None:
        return found
    if os.environ.get("MOLDAU_KAFKA_JARS"):
        raise JarsUnavailableError(
            f"MOLDAU_KAFKA_JARS={os.environ['MOLDAU_KAFKA_JARS']} does not hold {', '.join(_EXPECTED)}"
        )
    libs = _cached_libs()
    libs.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=libs.parent, prefix="fetching-") as work:
        incoming = Path(work) / "libs"
        _run_maven("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={incoming}")
        try:
            incoming.rename(libs)
        except OSError:
            if jars_dir() is None:  # otherwise somebody else was faster, and theirs is as good
                raise
    found = jars_dir()
    if found is None:
        raise JarsUnavailableError(f"Maven succeeded, but {libs} does not hold {', '.join(_EXPECTED)}")
    return found


def older_client(version: str) -> Path | None:
    """The jar of an older Java client, or None when it has not been fetched. Its dependencies come from ``fetch``."""
    jar = _older_clients() / f"kafka-clients-{version}.jar"
    return jar if jar.is_file() else None


def fetch_older_client(version: str) -> Path:
    """Fetch the jar of an older Java client unless it is there. Raises JarsUnavailableError."""
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
    # Offline first: what Maven has in its own repository needs no registry and takes two seconds.
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
    """Fetch, and print the folder and the jars beside it."""
    try:
        print(fetch())
        for version in OLDER_CLIENTS:
            print(fetch_older_client(version))
    except JarsUnavailableError as error:
        print(f"Apache Kafka {KAFKA_VERSION}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

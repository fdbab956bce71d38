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
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailableError("mvn is not installed (Debian: apt-get install maven)")
    libs = _cached_libs()
    libs.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=libs.parent, prefix="fetching-") as work:
        incoming = Path(work) / "libs"
        # Offline first: what Maven has in its own repository needs no registry and takes two seconds.
        output = ""
        for mode in (["--offline"], []):
            done = _copy_dependencies(maven, mode, incoming)
            output = done.stdout
            if done.returncode == 0:
                break
        else:
            raise JarsUnavailableError(f"Maven failed:\n{output}")
        try:
            incoming.rename(libs)
        except OSError:
            if jars_dir() is None:  # otherwise somebody else was faster, and theirs is as good
                raise
    found = jars_dir()
    if found is None:
        raise JarsUnavailableError(f"Maven succeeded, but {libs} does not hold {', '.join(_EXPECTED)}")
    return found


def _cached_libs() -> Path:
    return cache_dir() / f"kafka-{KAFKA_VERSION}" / "libs"


def _copy_dependencies(maven: str, mode: list[str], into: Path) -> "subprocess.CompletedProcess[str]":
    command = [
        *(maven, "--batch-mode", "--quiet", *mode, "--file", str(POM)),
        *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into}"),
    ]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900, check=False
    )


def main() -> int:
    """Fetch, and print the folder."""
    try:
        print(fetch())
    except JarsUnavailableError as error:
        print(f"Apache Kafka {KAFKA_VERSION}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

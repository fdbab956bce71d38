"""The programs that do the work: the requirements of a row, whether they are installed, and the commands.

The benchmark's own programs are sources next to this module, compiled once into the cache folder under a hash of their
inputs: `load.c` and the like with ``cc -O2``, the classes of ``java/`` with ``javac`` and Kafka's jars. Kafka's own
programs are classes in its jars, run with the options that its scripts use for tools.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..testing import kafka_jars, requirements

SOURCES = Path(__file__).parent

# bin/kafka-run-class.sh of Apache Kafka 4.3, with the heap of bin/kafka-producer-perf-test.sh.
_TOOL_JVM_OPTIONS = (
    "-Xmx512M",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

_C_OPTIONS = ("-O2", "-Wall", "-Wextra")
_C_LIBRARIES = ("-lm", "-pthread")

_PROGRAMS = {**requirements.HOW_TO_GET, "cc": "a C compiler (Debian: apt-get install gcc libc6-dev)"}

# Packages whose modules have a different name.
_MODULES = {"kafka-python": "kafka", "confluent-kafka": "confluent_kafka"}

# Packages that the extra "bench" does not install.
_EXTRAS = {"pyspark": "spark"}

# Java alone is not sufficient: the programs are in Kafka's jars, or compiled against them.
JAVA = ("java", "javac")


class ProgramError(Exception):
    """A program could not be compiled; the text states the reason."""


def missing(needs: Iterable[str]) -> dict[str, str]:
    """The missing ones of ``needs`` (programs, Python packages), and how to install them."""
    return {name: _how_to_get(name) for name in needs if not _is_there(name)}


def needs_jars(needs: Iterable[str]) -> bool:
    return not set(JAVA).isdisjoint(needs)


@cache
def _is_there(name: str) -> bool:
    if name in _PROGRAMS:
        return shutil.which(name) is not None
    return importlib.util.find_spec(_MODULES.get(name, name)) is not None


def _how_to_get(name: str) -> str:
    if name in _PROGRAMS:
        return _PROGRAMS[name]
    extra = _EXTRAS.get(name, "bench")
    return f"the Python package {name} ({Path(sys.executable).name} -m pip install 'moldau[{extra}]')"


def fetch_jars(say: Callable[[str], None]) -> str | None:
    """Download Kafka's jars into the cache folder; returns the reason if that fails."""
    if kafka_jars.jars_dir() is None:
        say(f"downloading Apache Kafka {kafka_jars.KAFKA_VERSION} with Maven, about 130 MB")
    try:
        kafka_jars.fetch()
    except kafka_jars.JarsUnavailableError as error:
        return str(error)
    return None


def command(name: str) -> list[str]:
    """The command of a program: a C source or Java class of the benchmarks, or a class of Kafka by its full name."""
    if (SOURCES / f"{name}.c").exists():
        return [str(_compiled_c(SOURCES / f"{name}.c"))]
    if (SOURCES / "java" / f"{name}.java").exists():
        return [*_java(_compiled_java(SOURCES / "java"), _libs()), name]
    if "." in name:
        return [*_java(_libs()), name]
    raise ProgramError(f"unknown program {name}")


def run_for_json(what: str, command: Sequence[str], *, timeout_s: float, given: bytes = b"") -> dict[str, Any]:
    """Run a program of the benchmarks to its end, with ``given`` on standard input; returns the printed numbers, some
    of
    which are integers. RuntimeError states why ``what`` failed."""
    done = subprocess.run(command, input=given, capture_output=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{what} failed:\n{done.stderr.decode(errors='replace')[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _java(*class_path: Path | str) -> list[str]:
    return ["java", *_TOOL_JVM_OPTIONS, "-cp", os.pathsep.join(str(path) for path in class_path)]


def _libs() -> str:
    try:
        return f"{kafka_jars.fetch()}/*"
    except kafka_jars.JarsUnavailableError as error:
        raise ProgramError(f"Kafka's jars: {error}") from error


@cache
def _compiled_c(source: Path) -> Path:
    def compile_into(folder: Path) -> list[str]:
        return ["cc", *_C_OPTIONS, "-o", str(folder / source.stem), str(source), *_C_LIBRARIES]

    return _made([source, *sorted(source.parent.glob("*.h"))], _C_OPTIONS, compile_into) / source.stem


@cache
def _compiled_java(folder_of_sources: Path) -> Path:
    sources = sorted(folder_of_sources.glob("*.java"))

    def compile_into(folder: Path) -> list[str]:
        return ["javac", "-cp", _libs(), "-d", str(folder), *(str(source) for source in sources)]

    return _made(sources, (kafka_jars.KAFKA_VERSION,), compile_into)


def _made(sources: Sequence[Path], options: Sequence[str], command_into: Callable[[Path], list[str]]) -> Path:
    """The folder with a compiler's output for ``sources``; it is created with one rename, and kept."""
    content = hashlib.sha256("\0".join(options).encode())
    for source in sources:
        content.update(f"\0{source.name}\0".encode() + source.read_bytes())
    programs = kafka_jars.cache_dir() / "bench" / "programs"
    made = programs / f"{sources[0].stem}-{content.hexdigest()[:16]}"
    if made.is_dir():
        return made
    programs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=programs, prefix="compiling-") as work:
        incoming = Path(work) / "out"
        incoming.mkdir()
        compiler = command_into(incoming)
        done = subprocess.run(
            compiler, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False
        )
        if done.returncode != 0:
            raise ProgramError(f"{' '.join(compiler)}:\n{done.stdout}")
        try:
            incoming.rename(made)
        except OSError:
            if not made.is_dir():  # otherwise another process has created it first
                raise
    return made

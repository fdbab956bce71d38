"""What a run was made on and with: the machine, the versions, the commit."""

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from .. import __version__
from ..compat_tests.kafka_jars import KAFKA_VERSION

ROOT = Path(__file__).parents[1]

_CLIENTS = ("aiokafka", "confluent-kafka", "kafka-python", "pyspark")

# A run writes these itself, and they change no number.
_NOT_MEASURED = (":!benchmarks/results", ":!docs")


def checkout() -> Path | None:
    """The root of the repository, when this is the code in it and not a wheel's."""
    return ROOT if (ROOT / "pyproject.toml").exists() else None


def describe(directory: Path) -> dict[str, str]:
    """The machine; ``directory`` is where the servers keep their data."""
    return {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.1f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(directory),
        "congestion control": _congestion_control(),
    }


def _congestion_control() -> str:
    """What TCP connections have by default: BBR paces them, also those on one machine."""
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    except FileNotFoundError:
        return "unknown"


def versions() -> dict[str, str]:
    """Of everything whose version can matter; what is not installed is left out."""
    found = {
        "moldau": __version__,
        "python": platform.python_version(),
        "kafka": KAFKA_VERSION,
        "java": _java_version(),
    }
    for package in _CLIENTS:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {name: version for name, version in found.items() if version}


def commit() -> str:
    """The commit, with a word when the tree differs from it; "unknown" outside of a checkout."""
    root = checkout()
    if root is None or shutil.which("git") is None:
        return "unknown"
    head = _output("git", "-C", str(root), "rev-parse", "--short=12", "HEAD")
    changed = _output("git", "-C", str(root), "status", "--porcelain", "--", ".", *_NOT_MEASURED)
    return f"{head or 'unknown'}{' with changes' if changed else ''}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """Of the mount that has ``directory``: the longest mount point that leads to it."""
    directory = directory.resolve()
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _device, point, type_name, *_ = line.split()
        if directory.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, type_name
    return kind


def _java_version() -> str:
    if shutil.which("java") is None:
        return ""
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "([^"]+)"', done.stderr)
    return found.group(1) if found else ""


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""

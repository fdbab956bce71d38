"""The environment of a run: the machine, the versions, the commit."""

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from .. import __version__
from ..testing.kafka_jars import KAFKA_VERSION

ROOT = Path(__file__).parents[1]

_CLIENTS = ("aiokafka", "confluent-kafka", "kafka-python", "pyspark")

# A run writes these files itself, and they do not affect any number.
_NOT_MEASURED = (":!benchmarks/results", ":!docs")


def checkout() -> Path | None:
    """The root of the repository, if this code is in a checkout and not in an installed wheel."""
    return ROOT if (ROOT / "pyproject.toml").exists() else None


def describe(directory: Path) -> dict[str, str]:
    """The machine; ``directory`` contains the data of the servers."""
    return {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.1f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(directory),
        "congestion control": _congestion_control(),
    }


def _congestion_control() -> str:
    """The default of TCP connections: BBR paces them, also on one machine."""
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    except FileNotFoundError:
        return "unknown"


def versions() -> dict[str, str]:
    """The versions of all relevant components; missing ones are omitted."""
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
    """The commit, with a note if the tree differs from it; "unknown" outside of a checkout."""
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
    """The type of the mount that contains ``directory``: the longest matching mount point."""
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

"""Programs that the Go toolchain builds from the folders below ``go/``, kept as long as their sources do not change."""

import hashlib
import os
import subprocess
from pathlib import Path

from moldau.testing import kafka_jars, requirements

SOURCES = Path(__file__).parent / "go"


def built(sources: Path, kind: str, command: str, *arguments: str) -> Path:
    """The program that ``go`` builds in the folder ``sources``; ``kind`` begins the name of its file."""
    digest = hashlib.sha256()
    for source in sorted(each for each in sources.glob("*") if each.is_file()):
        digest.update(source.read_bytes())
    binary = kafka_jars.cache_dir() / "franz-go" / f"{kind}-{digest.hexdigest()[:16]}"
    if not binary.exists():
        go = requirements.require_program("go")
        binary.parent.mkdir(parents=True, exist_ok=True)
        unfinished = binary.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [go, command, "-o", str(unfinished), *arguments],
            cwd=sources,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        unfinished.rename(binary)
    return binary

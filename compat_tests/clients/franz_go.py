"""franz-go, the Go client, in a program around it: ``go/main.go``."""

import hashlib
import os
import subprocess
from pathlib import Path

from moldau.compat_tests import kafka_jars, requirements
from moldau.compat_tests.clients.program import ProgramClient

SOURCES = Path(__file__).parent.parent / "go"


class FranzGoClient(ProgramClient):
    """kgo and kadm."""

    name = "franz-go"

    @classmethod
    def command(cls) -> list[str]:
        return [str(_build())]


def _build() -> Path:
    """The program, which is kept as long as its sources do not change."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.glob("*")):
        digest.update(source.read_bytes())
    binary = kafka_jars.cache_dir() / "franz-go" / f"driver-{digest.hexdigest()[:16]}"
    if not binary.exists():
        go = requirements.require_program("go")
        binary.parent.mkdir(parents=True, exist_ok=True)
        unfinished = binary.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [go, "build", "-o", str(unfinished), "."],
            cwd=SOURCES,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        unfinished.rename(binary)
    return binary

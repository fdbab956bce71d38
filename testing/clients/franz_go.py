"""franz-go, the Go client, in the program ``go/main.go``; and the compiled tests of its module."""

import hashlib
import os
import subprocess
from pathlib import Path

from moldau.testing import kafka_jars, requirements
from moldau.testing.clients.program import ProgramClient

SOURCES = Path(__file__).parent.parent / "go"

_KGO = "github.com/twmb/franz-go/pkg/kgo"


class FranzGoClient(ProgramClient):
    """kgo and kadm."""

    name = "franz-go"

    @classmethod
    def command(cls) -> list[str]:
        return [str(_built("driver", "build", "."))]


def own_tests() -> Path:
    """franz-go's tests of its package ``kgo``, in the version of ``go.mod``; the module's zip contains them."""
    return _built("tests", "test", "-c", _KGO)


def own_sources() -> Path:
    """The folder of that package's sources, where its tests must run."""
    command = [requirements.require_program("go"), "list", "-f", "{{.Dir}}", _KGO]
    return Path(subprocess.run(command, cwd=SOURCES, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())


def _built(kind: str, command: str, *arguments: str) -> Path:
    """A program that ``go`` has built; it is kept as long as the sources here do not change."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.glob("*")):
        digest.update(source.read_bytes())
    binary = kafka_jars.cache_dir() / "franz-go" / f"{kind}-{digest.hexdigest()[:16]}"
    if not binary.exists():
        go = requirements.require_program("go")
        binary.parent.mkdir(parents=True, exist_ok=True)
        unfinished = binary.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [go, command, "-o", str(unfinished), *arguments],
            cwd=SOURCES,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        unfinished.rename(binary)
    return binary

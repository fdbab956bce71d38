"""franz-go, the Go client, in the program ``go/main.go``; and the compiled tests of its module."""

import subprocess
from pathlib import Path

from moldau.testing import requirements
from moldau.testing.clients.program import ProgramClient
from moldau.testing.go_programs import SOURCES, built

_KGO = "github.com/twmb/franz-go/pkg/kgo"


class FranzGoClient(ProgramClient):
    """kgo and kadm."""

    name = "franz-go"

    @classmethod
    def command(cls) -> list[str]:
        return [str(built(SOURCES, "driver", "build", "."))]


class FranzGoWithKerberos(FranzGoClient):
    """The same with Kerberos, whose packages no other test needs."""

    @classmethod
    def command(cls) -> list[str]:
        return [str(built(SOURCES, "driver-kerberos", "build", "-tags", "kerberos", "."))]


def own_tests() -> Path:
    """franz-go's tests of its package ``kgo``, in the version of ``go.mod``; the module's zip contains them."""
    return built(SOURCES, "tests", "test", "-c", _KGO)


def own_sources() -> Path:
    """The folder of that package's sources, where its tests must run."""
    command = [requirements.require_program("go"), "list", "-f", "{{.Dir}}", _KGO]
    return Path(subprocess.run(command, cwd=SOURCES, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())

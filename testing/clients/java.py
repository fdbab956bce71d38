"""The Java client, kafka-clients 4.3.1, and Kafka's command-line tools, in one JVM around
``java/CompatDriver.java``; and the other programs of ``java/``, each in its own JVM."""

import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moldau.testing import jvm, kafka_jars, requirements
from moldau.testing.clients.program import ProgramClient

SOURCES = Path(__file__).parent.parent / "java"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The exit code and the output of a command-line tool."""

    exit_code: int
    stdout: str
    stderr: str


class JavaClient(ProgramClient):
    """KafkaProducer, KafkaConsumer and Admin of Apache Kafka."""

    name = "java"

    @classmethod
    def command(cls) -> list[str]:
        return java_command("CompatDriver")

    def tool(self, main_class: str, arguments: Sequence[str], standard_input: str = "") -> ToolResult:
        """Run a command-line tool of Kafka, as its shell script would, but in this JVM."""
        answer = self.call("tool", main_class=main_class, arguments=list(arguments), stdin=standard_input)
        return ToolResult(answer["exit_code"], answer["stdout"], answer["stderr"])


def java_command(
    main_class: str, client_version: str = kafka_jars.KAFKA_VERSION, *, options: Sequence[str] = ()
) -> list[str]:
    """The command line of a program of ``java/``, which is compiled if necessary. ``options``: more of the JVM.

    An older client comes before the one that everything is compiled with, and hides it.
    """
    older_client = None
    if client_version != kafka_jars.KAFKA_VERSION:
        older_client = requirements.require_older_client(client_version)
    return jvm.command(
        main_class,
        options=["-Xmx256M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *options],
        classes=_build(requirements.require_kafka_jars()),
        older_client=older_client,
    )


def _build(libs: Path) -> Path:
    """The folder of the compiled programs; it is kept as long as their sources do not change."""
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    classes = kafka_jars.cache_dir() / f"kafka-{kafka_jars.KAFKA_VERSION}" / f"programs-{digest.hexdigest()[:16]}"
    if not classes.is_dir():
        javac = requirements.require_program("javac")
        classes.parent.mkdir(parents=True, exist_ok=True)
        # One rename makes it visible when it is complete. If another process was faster, its result is used.
        with tempfile.TemporaryDirectory(dir=classes.parent, prefix="compiling-") as work:
            out = Path(work) / "out"
            command = [javac, "--release", "17", "-cp", f"{libs}/*", "-d", str(out), *map(str, sources)]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            assert done.returncode == 0, done.stdout
            try:
                out.rename(classes)
            except OSError:
                if not classes.is_dir():
                    raise
    return classes

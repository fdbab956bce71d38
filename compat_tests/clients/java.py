"""The Java client, kafka-clients 4.3.1, and Kafka's command-line tools, in one JVM around
``java/CompatDriver.java``."""

import hashlib
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moldau.compat_tests import kafka_jars, requirements
from moldau.compat_tests.clients.program import ProgramClient

SOURCE = Path(__file__).parent.parent / "java" / "CompatDriver.java"

_JVM_OPTIONS = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a command-line tool left: its exit code and what it wrote."""

    exit_code: int
    stdout: str
    stderr: str


class JavaClient(ProgramClient):
    """KafkaProducer, KafkaConsumer and Admin of Apache Kafka."""

    name = "java"

    @classmethod
    def command(cls) -> list[str]:
        libs = requirements.require_kafka_jars()
        java = requirements.require_program("java")
        return [java, *_JVM_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{_build(libs)}:{libs}/*",
                "CompatDriver"]  # fmt: skip

    def tool(self, main_class: str, arguments: Sequence[str], standard_input: str = "") -> ToolResult:
        """Run a command-line tool of Kafka, as its shell script would, but in this JVM."""
        answer = self.call("tool", main_class=main_class, arguments=list(arguments), stdin=standard_input)
        return ToolResult(answer["exit_code"], answer["stdout"], answer["stderr"])


def _build(libs: Path) -> Path:
    """The folder of the compiled driver, which is kept as long as its source does not change."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    classes = kafka_jars.cache_dir() / f"kafka-{kafka_jars.KAFKA_VERSION}" / f"driver-{digest}"
    if not (classes / "built").exists():
        javac = requirements.require_program("javac")
        classes.mkdir(parents=True, exist_ok=True)
        command = [javac, "--release", "17", "-cp", f"{libs}/*", "-d", str(classes), str(SOURCE)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 0, done.stdout
        (classes / "built").touch()
    return classes

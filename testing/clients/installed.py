"""Which real clients can run on this machine, in which version, and what the others need."""

import importlib.util
import shutil
import subprocess
from importlib import metadata

from moldau.testing import kafka_jars
from moldau.testing.requirements import HOW_TO_GET

_MODULES = {"kafka-python": "kafka", "confluent-kafka": "confluent_kafka", "aiokafka": "aiokafka"}


def what_is_missing(client: str) -> str | None:
    """What the client needs and is not installed, with how to install it; None if nothing is missing."""
    if client in _MODULES:
        if importlib.util.find_spec(_MODULES[client]) is None:
            return f"the package {client} (pip install {client})"
        return None
    if client == "java":
        for program in ("java", "javac"):
            if shutil.which(program) is None:
                return HOW_TO_GET[program]
        if kafka_jars.jars_dir() is None:
            return "the jars of Apache Kafka (run `python -m moldau.testing.kafka_jars`, or set MOLDAU_KAFKA_JARS)"
        return None
    program = {"kcat": "kcat", "franz-go": "go"}[client]
    return None if shutil.which(program) else HOW_TO_GET[program]


def build(client: str) -> None:
    """Build the program around a client in another language, unless it exists. Raises RuntimeError with the reason."""
    from moldau.testing.clients.commands import program_command

    if client in ("java", "franz-go"):
        try:
            program_command(client)
        except AssertionError as error:
            raise RuntimeError(f"the program around {client} cannot be built: {str(error).strip()[-500:]}") from error


def version_of(client: str) -> str:
    """The version of a client that can run here."""
    if client == "java":
        return kafka_jars.KAFKA_VERSION
    if client == "franz-go":
        from moldau.testing.go_programs import SOURCES

        (line,) = (each for each in (SOURCES / "go.mod").read_text().splitlines() if "twmb/franz-go v" in each)
        return line.split()[1].removeprefix("v")
    if client == "kcat":
        done = subprocess.run(["kcat", "-V"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        words = done.stdout.replace("(", " ").replace(",", " ").split()
        return words[words.index("Version") + 1] if "Version" in words[:-1] else "of unknown version"
    return metadata.version(client)

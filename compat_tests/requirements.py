"""What a compatibility test needs from the machine, and what happens when it is not there.

The suite drives programs that pip cannot install: a JVM with Apache Kafka's jars, a Go toolchain, kcat. On a
developer's machine a missing one skips the tests that need it and says how to get it; with ``CI=true`` in the
environment it is a failure, because a suite that quietly runs nothing is green for the wrong reason.
"""

import os
import shutil
from pathlib import Path
from typing import NoReturn

HOW_TO_GET = {
    "java": "a Java runtime, 17 or newer (Debian: apt-get install openjdk-17-jre-headless)",
    "javac": "a Java compiler, 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)",
    "mvn": "Maven (Debian: apt-get install maven)",
    "go": "Go 1.26 or newer (https://go.dev/dl)",
    "kcat": "kcat (Debian: apt-get install kcat; macOS: brew install kcat)",
}


def missing(what: str, how_to_get_it: str) -> NoReturn:
    """End the running test: skipped on a person's machine, failed where ``CI=true``."""
    import pytest  # here, because the benchmarks start Apache Kafka too, where pytest need not be installed

    reason = f"needs {what}: {how_to_get_it}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def require_program(name: str) -> str:
    """The path of a program of ``HOW_TO_GET``; without it the test ends as ``missing`` says."""
    path = shutil.which(name)
    if path is None:
        missing(name, HOW_TO_GET[name])
    return path


def require_kafka_jars() -> Path:
    """The folder of Apache Kafka's jars, with a JVM to run them."""
    from moldau.compat_tests import kafka_jars

    require_program("java")
    folder = kafka_jars.jars_dir()
    if folder is None:
        missing(
            f"the jars of Apache Kafka {kafka_jars.KAFKA_VERSION}",
            "run `python -m moldau.compat_tests.kafka_jars`, or name a folder in MOLDAU_KAFKA_JARS",
        )
    return folder


def require_older_client(version: str) -> Path:
    """The jar of an older Java client."""
    from moldau.compat_tests import kafka_jars

    jar = kafka_jars.older_client(version)
    if jar is None:
        missing(f"kafka-clients {version}", "run `python -m moldau.compat_tests.kafka_jars`")
    return jar

"""Programs that a compatibility test needs, and what happens if one is missing.

The suite drives programs that pip cannot install: a JVM with Apache Kafka's jars, a Go toolchain, kcat. If
one is missing, the tests that need it are skipped with a reason that says how to install it. With ``CI=true`` in the
environment they fail, because a suite that silently skips everything must not pass.
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
    "chromium": "Chromium (Debian: apt-get install chromium)",
    "krb5kdc": "MIT Kerberos (Debian: apt-get install krb5-kdc krb5-admin-server krb5-user)",
    "kdb5_util": "MIT Kerberos (Debian: apt-get install krb5-kdc)",
    "kadmin.local": "MIT Kerberos (Debian: apt-get install krb5-admin-server)",
    "kinit": "MIT Kerberos (Debian: apt-get install krb5-user)",
    "prometheus": "Prometheus (Debian: apt-get install prometheus; macOS: brew install prometheus)",
    "openssl": "OpenSSL (Debian: apt-get install openssl)",
}


def missing(what: str, how_to_get_it: str) -> NoReturn:
    """End the running test: it is skipped, or it fails if ``CI=true``."""
    import pytest  # here, because the benchmarks use this module without pytest

    reason = f"needs {what}: {how_to_get_it}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def require_program(name: str) -> str:
    """The path of a program of ``HOW_TO_GET``; if it is missing, the test ends as in ``missing``."""
    # Servers of a system are in sbin, which is not in the path of all users.
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin:/opt/homebrew/opt/krb5/sbin")
    if path is None:
        missing(name, HOW_TO_GET[name])
    return path


def require_gssapi() -> None:
    """The package gssapi; if it is missing, the test ends as in ``missing``."""
    try:
        import gssapi  # noqa: F401
    except ImportError:
        missing("the package gssapi", "pip install gssapi (Debian: apt-get install gcc python3-dev libkrb5-dev)")


def require_kafka_jars(version: str | None = None) -> Path:
    """The folder of Apache Kafka's jars, with a JVM to run them; of an older server if ``version`` names one."""
    from moldau.testing import kafka_jars

    require_program("java")
    version = version or kafka_jars.KAFKA_VERSION
    folder = kafka_jars.jars_dir(version)
    if folder is None:
        how = "run `python -m moldau.testing.kafka_jars`, or set MOLDAU_KAFKA_JARS to a folder"
        if version != kafka_jars.KAFKA_VERSION:
            how = f"run `python -m moldau.testing.kafka_jars --version {version}`"
        missing(f"the jars of Apache Kafka {version}", how)
    return folder


def require_older_client(version: str) -> Path:
    """The jar of an older Java client."""
    from moldau.testing import kafka_jars

    jar = kafka_jars.older_client(version)
    if jar is None:
        missing(f"kafka-clients {version}", "run `python -m moldau.testing.kafka_jars`")
    return jar

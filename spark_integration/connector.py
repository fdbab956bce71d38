"""Which Kafka connector matches the installed Spark, and whether this machine can run it.

Spark does not contain its Kafka source. The source is a separate artifact that must match the versions of Spark and
Scala exactly. A wrong one fails late and obscurely (``NoClassDefFoundError``, ``scala/$less$colon$less``). The versions
are part of the names of Spark's jars, so they are known before a JVM is started:

    spark-sql_2.13-4.0.0.jar  ->  org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0

A connector that is named by the user (in the settings, in ``PYSPARK_SUBMIT_ARGS``, among Spark's own jars) is checked
against that. This module reads folders, environment variables and ``java -version``, and does not use sessions.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

CONNECTOR = "spark-sql-kafka-0-10"

# The newest version that is tested and whose connector is on Maven: pyspark 4.3.0 was released before its connector.
NEWEST_PYSPARK = "4.2.0"

# The settings that add jars, and the equivalent options of spark-submit, which take precedence.
PACKAGES, JARS = "spark.jars.packages", "spark.jars"
SUBMIT_OPTIONS = {"--packages": PACKAGES, "--jars": JARS}

# The connector's Scala and Spark versions, in Maven's notation and in the name of its jar.
_CONNECTOR_NAME = re.compile(re.escape(CONNECTOR) + r"_(\d+\.\d+)[:-]([^:/]+?)(?:\.jar)?$")

# Spark 4 needs Java 17 (its jars are compiled for Java 17); Spark 3 runs on Java 8.
MINIMUM_JAVA = {3: 8, 4: 17}


class SparkUnavailableError(Exception):
    """Spark with Kafka cannot be started here; the text states what does not match and what to do."""


@dataclass(frozen=True, slots=True)
class SparkInstallation:
    """A Spark whose jars are in ``home/jars``: its version (``4.0.0``) and the Scala version it uses (``2.13``)."""

    home: Path
    spark_version: str
    scala_version: str

    @property
    def jars(self) -> Path:
        return self.home / "jars"

    @property
    def connector_coordinates(self) -> str:
        """The connector in Maven's notation, for ``spark.jars.packages``."""
        return f"org.apache.spark:{CONNECTOR}_{self.scala_version}:{self.spark_version}"

    @property
    def connector_jars(self) -> tuple[str, ...]:
        """File name patterns of the connector's jar and of its dependencies that Spark does not contain."""
        suffix = f"_{self.scala_version}-{self.spark_version}.jar"
        return (
            f"*{CONNECTOR}{suffix}",
            f"*spark-token-provider-kafka-0-10{suffix}",
            "*kafka-clients-*.jar",
            "*commons-pool2-*.jar",
        )

    @property
    def has_connector(self) -> bool:
        """Whether the connector is in Spark's own folder of jars, so that no download is needed."""
        return all(any(self.jars.glob(pattern)) for pattern in self.connector_jars)


def find_spark(environment: Mapping[str, str] = os.environ) -> SparkInstallation:
    """The Spark that pyspark will start: that of ``SPARK_HOME`` if set, otherwise the one inside the package.

    Raises :class:`SparkUnavailableError` if there is none, or if ``SPARK_HOME`` has another version than pyspark.
    """
    package = _pyspark_folder()
    home = Path(environment.get("SPARK_HOME") or package)
    spark_version, scala_version = _read_versions(home)
    pyspark_version = importlib.metadata.version("pyspark")
    if pyspark_version != spark_version:
        raise SparkUnavailableError(
            f"pyspark is {pyspark_version}, but SPARK_HOME={home} holds Spark {spark_version}.\n"
            f"Run `pip install pyspark=={spark_version}`, or unset SPARK_HOME."
        )
    return SparkInstallation(home, spark_version, scala_version)


def _pyspark_folder() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkUnavailableError(f"pyspark is not installed.\nRun `pip install pyspark=={NEWEST_PYSPARK}`.")
    return Path(spec.origin).parent


def _read_versions(home: Path) -> tuple[str, str]:
    """(Spark's version, Scala's version) of the Spark in ``home``."""
    for jar in (home / "jars").glob("spark-sql_*.jar"):
        found = re.fullmatch(r"spark-sql_(\d+\.\d+)-(.+)\.jar", jar.name)
        if found is not None:
            return found[2], found[1]
    raise SparkUnavailableError(
        f"there is no Spark in {home} (no jars/spark-sql_*.jar); the Spark Connect client does not include one.\n"
        "Put the connector on the Connect server, or, for a session in this process, run "
        f"`pip install pyspark=={NEWEST_PYSPARK}`."
    )


def check_java(spark: SparkInstallation, environment: Mapping[str, str] = os.environ) -> None:
    """Raise :class:`SparkUnavailableError` unless a Java that is new enough for ``spark`` is installed."""
    major = int(spark.spark_version.split(".")[0])
    minimum = MINIMUM_JAVA.get(major, max(MINIMUM_JAVA.values()))
    java = find_java(environment)
    found = java_version(java)
    if found < minimum:
        raise SparkUnavailableError(
            f"Spark {spark.spark_version} needs Java {minimum} or newer, and {java} is Java {found}: install one and "
            "point JAVA_HOME at it"
        )


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """The ``java`` that Spark's launcher uses: that of ``JAVA_HOME`` if set, otherwise the one on the ``PATH``."""
    java_home = environment.get("JAVA_HOME")
    if java_home:
        java = Path(java_home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise SparkUnavailableError(f"JAVA_HOME={java_home} has no bin/java: correct it, or unset it")
        return java
    found = shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise SparkUnavailableError(
            "Spark needs Java, and there is none on the PATH: install a JRE of version 17 or newer "
            "(Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17), or set JAVA_HOME"
        )
    return Path(found)


def java_version(java: Path) -> int:
    """The feature release of a ``java``: 17 for "17.0.15", 8 for "1.8.0_442"."""
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    text = answer.stderr + answer.stdout
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    if answer.returncode != 0 or found is None:
        # macOS ships a /usr/bin/java that only prints where to get one.
        raise SparkUnavailableError(f"{java} -version does not print a Java version: {text.strip() or 'no output'}")
    return int(found[1])


def offline_jars(spark: SparkInstallation, folder: Path) -> list[Path]:
    """The connector's jars in ``folder``, for machines without access to Maven; the error names all missing jars."""
    if not folder.is_dir():
        raise SparkUnavailableError(f"{folder} must contain the jars of Spark's Kafka connector, but is not a folder")
    found = {pattern: sorted(folder.glob(pattern)) for pattern in spark.connector_jars}
    missing = [pattern for pattern, jars in found.items() if not jars]
    if missing:
        others = [jar.name for jar in sorted(folder.glob(f"*{CONNECTOR}_*.jar")) if jar not in found[missing[0]]]
        raise SparkUnavailableError(
            f"{folder} must contain the Kafka connector of Spark {spark.spark_version} for Scala {spark.scala_version};"
            f" it has no {', no '.join(missing)}" + (f" (only {', '.join(others)})" if others else "")
        )
    return [jars[-1] for jars in found.values()]


def names_connector(spark: SparkInstallation, setting: str, items: str) -> bool:
    """Whether the comma-separated packages or jars name the connector. Raises if they name that of another Spark."""
    found = [_belongs(spark, item, setting) for item in items.split(",")]
    return any(found)


def check_own_jars(spark: SparkInstallation) -> None:
    """Raise if Spark's own folder of jars has the connector of a different Spark, which breaks the right one."""
    for jar in spark.jars.glob(f"*{CONNECTOR}_*.jar"):
        _belongs(spark, jar.name, str(spark.jars))


def _belongs(spark: SparkInstallation, item: str, where: str) -> bool:
    """Whether ``item`` is the connector of ``spark``; False for other items. Raises for a different connector."""
    found = _CONNECTOR_NAME.search(item.strip())
    if found is None:
        return False
    scala_version, spark_version = found.groups()
    if scala_version != spark.scala_version:
        raise SparkUnavailableError(
            f"{where} has {item.strip()}, a Kafka connector for Scala {scala_version}, but the Spark in {spark.home} "
            f"is built for Scala {spark.scala_version}.\n"
            f"Remove it; session() uses {spark.connector_coordinates}."
        )
    if spark_version != spark.spark_version:
        raise SparkUnavailableError(
            f"{where} has {item.strip()}, the Kafka connector of Spark {spark_version}, but pyspark is "
            f"{spark.spark_version}.\n"
            f"Remove it; session() uses {spark.connector_coordinates}. "
            f"Or run `pip install pyspark=={spark_version}`."
        )
    return True


def submit_arguments(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The packages and jars of ``PYSPARK_SUBMIT_ARGS``, by setting: Spark uses them instead of the settings."""
    return dict(_jar_arguments(shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))))


def _jar_arguments(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Parse ``--packages X``, ``--packages=X`` and ``--conf spark.jars.packages=X``, and the same for jars."""
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in (*SUBMIT_OPTIONS, "--conf", "-c"):
            value = value if equals else next(rest, "")
            if option not in SUBMIT_OPTIONS:
                option, _, value = value.partition("=")
            setting = SUBMIT_OPTIONS.get(option, option)
            if setting in SUBMIT_OPTIONS.values():
                yield setting, value

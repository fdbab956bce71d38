"""Which Kafka connector belongs to the Spark that is installed, and whether this machine can run it.

Spark does not contain its Kafka source. It is a separate artifact that must match Spark's version and Scala's to the
letter; the wrong one fails late and obscurely (``NoClassDefFoundError``, ``scala/$less$colon$less``). Both versions
can be read off the names of the jars that Spark is made of, before a JVM is started:

    spark-sql_2.13-4.0.0.jar  ->  org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0

A connector that somebody names (in the settings, in ``PYSPARK_SUBMIT_ARGS``, among Spark's own jars) is held against
that. This module looks at folders, environment variables and ``java -version``, and knows nothing of sessions.
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

# The newest one whose connector is on Maven and that is tested. pyspark 4.3.0 was released before its connector.
NEWEST_PYSPARK = "4.2.0"

# The settings that bring jars, and the words of spark-submit that say the same and come before them.
PACKAGES, JARS = "spark.jars.packages", "spark.jars"
SUBMIT_OPTIONS = {"--packages": PACKAGES, "--jars": JARS}

# Its Scala and Spark, both in Maven's notation and in the name of its jar.
_CONNECTOR_NAME = re.compile(re.escape(CONNECTOR) + r"_(\d+\.\d+)[:-]([^:/]+?)(?:\.jar)?$")

# Spark 4 needs Java 17 (its jars are compiled for it); Spark 3 runs on Java 8.
MINIMUM_JAVA = {3: 8, 4: 17}


class SparkUnavailableError(Exception):
    """Spark with Kafka cannot be started here; the text says what does not fit and what to do about it."""


@dataclass(frozen=True, slots=True)
class SparkInstallation:
    """A Spark whose jars are in ``home/jars``: its version (``4.0.0``) and the Scala it is built for (``2.13``)."""

    home: Path
    spark_version: str
    scala_version: str

    @property
    def jars(self) -> Path:
        return self.home / "jars"

    @property
    def connector_coordinates(self) -> str:
        """The connector in Maven's notation, as ``spark.jars.packages`` takes it."""
        return f"org.apache.spark:{CONNECTOR}_{self.scala_version}:{self.spark_version}"

    @property
    def connector_jars(self) -> tuple[str, ...]:
        """File name patterns of the connector and of what it needs beyond Spark's own jars."""
        suffix = f"_{self.scala_version}-{self.spark_version}.jar"
        return (
            f"*{CONNECTOR}{suffix}",
            f"*spark-token-provider-kafka-0-10{suffix}",
            "*kafka-clients-*.jar",
            "*commons-pool2-*.jar",
        )

    @property
    def has_connector(self) -> bool:
        """The connector was put into Spark's own folder, so nothing has to be fetched."""
        return all(any(self.jars.glob(pattern)) for pattern in self.connector_jars)


def find_spark(environment: Mapping[str, str] = os.environ) -> SparkInstallation:
    """The Spark that pyspark will start: ``SPARK_HOME`` where it is set, otherwise the one inside the package.

    Raises :class:`SparkUnavailableError` when there is none, or when ``SPARK_HOME`` is another version than pyspark.
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
        f"there is no Spark in {home} (no jars/spark-sql_*.jar); the Spark Connect client has none.\n"
        "Put the connector on the Connect server, or, for a session in this process, run "
        f"`pip install pyspark=={NEWEST_PYSPARK}`."
    )


def check_java(spark: SparkInstallation, environment: Mapping[str, str] = os.environ) -> None:
    """Raise :class:`SparkUnavailableError` unless there is a Java that is new enough for ``spark``."""
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
    """The ``java`` that Spark's launcher would take: of ``JAVA_HOME`` where it is set, otherwise from ``PATH``."""
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
        # macOS ships a /usr/bin/java that only says where to get one.
        raise SparkUnavailableError(f"{java} -version does not answer as Java does: {text.strip() or 'no output'}")
    return int(found[1])


def offline_jars(spark: SparkInstallation, folder: Path) -> list[Path]:
    """The connector's jars in ``folder``, for machines that cannot fetch; names every one that is missing."""
    if not folder.is_dir():
        raise SparkUnavailableError(f"{folder} is to hold the jars of Spark's Kafka connector, and is not a folder")
    found = {pattern: sorted(folder.glob(pattern)) for pattern in spark.connector_jars}
    missing = [pattern for pattern, jars in found.items() if not jars]
    if missing:
        others = [jar.name for jar in sorted(folder.glob(f"*{CONNECTOR}_*.jar")) if jar not in found[missing[0]]]
        raise SparkUnavailableError(
            f"{folder} is to hold the Kafka connector of Spark {spark.spark_version} for Scala {spark.scala_version}; "
            f"there is no {', no '.join(missing)}" + (f" (but {', '.join(others)})" if others else "")
        )
    return [jars[-1] for jars in found.values()]


def names_connector(spark: SparkInstallation, setting: str, items: str) -> bool:
    """Whether the comma-separated packages or jars name the connector. Raises if they name that of another Spark."""
    found = [_belongs(spark, item, setting) for item in items.split(",")]
    return any(found)


def check_own_jars(spark: SparkInstallation) -> None:
    """A connector of another Spark in the folder of Spark's own jars spoils the right one, wherever that comes from."""
    for jar in spark.jars.glob(f"*{CONNECTOR}_*.jar"):
        _belongs(spark, jar.name, str(spark.jars))


def _belongs(spark: SparkInstallation, item: str, where: str) -> bool:
    """Whether ``item`` is the connector of ``spark``; False for something else, and raises for another connector."""
    found = _CONNECTOR_NAME.search(item.strip())
    if found is None:
        return False
    scala_version, spark_version = found.groups()
    if scala_version != spark.scala_version:
        raise SparkUnavailableError(
            f"{where} has {item.strip()}, a Kafka connector for Scala {scala_version}, but the Spark in {spark.home} "
            f"is built for Scala {spark.scala_version}.\n"
            f"Leave it out; session() takes {spark.connector_coordinates}."
        )
    if spark_version != spark.spark_version:
        raise SparkUnavailableError(
            f"{where} has {item.strip()}, the Kafka connector of Spark {spark_version}, but pyspark is "
            f"{spark.spark_version}.\n"
            f"Leave it out; session() takes {spark.connector_coordinates}. "
            f"Or run `pip install pyspark=={spark_version}`."
        )
    return True


def submit_arguments(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What ``PYSPARK_SUBMIT_ARGS`` says of packages and jars, by setting: Spark takes it instead of the settings."""
    return dict(_jar_arguments(shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))))


def _jar_arguments(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """``--packages X``, ``--packages=X`` and ``--conf spark.jars.packages=X``, and the same of jars."""
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

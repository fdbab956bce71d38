"""``session()``: a Spark session that can read and write Kafka.

The connector can only be given to Spark when its JVM starts, and a process starts one JVM for all its sessions. So
what can be checked is checked before that (pyspark, Java, versions), and a JVM that is already running without the
connector is an error with a name instead of "Failed to find data source: kafka" later.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .connector import CONNECTOR, SparkInstallation, SparkUnavailableError, check_java, find_spark, offline_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    app_name: str, conf: Mapping[str, str] | None = None, *, jars_dir: str | os.PathLike[str] | None = None
) -> SparkSession:
    """The process's Spark session, with the Kafka connector that belongs to the installed pyspark.

    ``conf``: any of Spark's own settings (``{"spark.master": "local[2]"}``); packages and jars named there are kept.
    ``jars_dir``: a folder that holds the connector's jars, for machines without access to a Maven repository; by
    default
    ``MOLDAU_SPARK_JARS`` if that is set. Without one, Spark fetches the connector on first use and caches it
    (``spark.jars.ivy``).

    Raises :class:`SparkUnavailableError` when pyspark, Java or the connector is missing or does not match.
    """
    spark = find_spark()
    check_java(spark)
    folder = jars_dir if jars_dir is not None else os.environ.get("MOLDAU_SPARK_JARS")
    settings = connector_settings(spark, conf or {}, Path(folder) if folder else None)

    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        running = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if "JAVA_GATEWAY_EXITED" not in str(error):
            raise
        raise SparkUnavailableError(_gateway_exited(spark, settings)) from error
    _check_connector_is_loaded(running, spark)
    return running


def connector_settings(spark: SparkInstallation, conf: Mapping[str, str], jars_dir: Path | None) -> dict[str, str]:
    """``conf`` with the connector added: as files of ``jars_dir``, or as a package for Spark to fetch."""
    if jars_dir is not None:
        jars = ",".join(str(jar.resolve()) for jar in offline_jars(spark, jars_dir))
        return _with_item(conf, "spark.jars", jars)
    if spark.has_connector:
        return dict(conf)
    return _with_item(conf, "spark.jars.packages", spark.connector_coordinates)


def _with_item(conf: Mapping[str, str], name: str, item: str) -> dict[str, str]:
    """``conf`` with ``item`` added to the comma-separated list ``name``."""
    return {**conf, name: ",".join(filter(None, (conf.get(name), item)))}


def _gateway_exited(spark: SparkInstallation, settings: Mapping[str, str]) -> str:
    text = "Spark's JVM ended before it was ready; its own words are on standard error, above."
    if "spark.jars.packages" not in settings:
        return text
    return (
        f"{text} If they say that {spark.connector_coordinates} could not be resolved or downloaded: without access to "
        f"a Maven repository, give jars_dir= a folder with {', '.join(spark.connector_jars)}; and where the lines name "
        "~/.m2, an artifact there has its pom but not its jar: remove its folder."
    )


def _check_connector_is_loaded(running: SparkSession, spark: SparkInstallation) -> None:
    """A session or a JVM that somebody else started in this process does not take our jars any more."""
    if spark.has_connector or CONNECTOR in running.sparkContext.getConf().get("spark.jars", ""):
        return
    raise SparkUnavailableError(
        "this process already has a Spark JVM, started without the Kafka connector, and jars cannot be added to it: "
        "call moldau.spark_integration.session() first, or start the other session with "
        f"spark.jars.packages={spark.connector_coordinates}"
    )

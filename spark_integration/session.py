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

from .connector import (
    CONNECTOR,
    JARS,
    NEWEST_PYSPARK,
    PACKAGES,
    SparkInstallation,
    SparkUnavailableError,
    check_java,
    check_own_jars,
    find_java,
    find_spark,
    java_version,
    names_connector,
    offline_jars,
    submit_arguments,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# It has no security manager any more, which the Hadoop inside Spark 3.5 and 4.0 asks for.
REFUSING_JAVA = 24


def session(
    app_name: str,
    conf: Mapping[str, str] | None = None,
    *,
    jars_dir: str | os.PathLike[str] | None = None,
    **more_conf: str,
) -> SparkSession:
    """The process's Spark session, with the Kafka connector that belongs to the installed pyspark.

    ``conf``: any of Spark's own settings (``{"spark.master": "local[2]"}``), also as keywords
    (``**{"spark.master": "local[2]"}``); packages and jars named there are kept.
    ``jars_dir``: a folder that holds the connector's jars, for machines without access to a Maven repository; by
    default ``MOLDAU_SPARK_JARS`` if that is set. Without one, Spark fetches the connector on first use and caches it
    (``spark.jars.ivy``).

    Raises :class:`SparkUnavailableError` when pyspark, Java or the connector is missing or does not match.
    """
    spark = find_spark()
    check_java(spark)
    check_own_jars(spark)
    folder = jars_dir if jars_dir is not None else os.environ.get("MOLDAU_SPARK_JARS")
    settings = connector_settings(spark, {**(conf or {}), **more_conf}, Path(folder) if folder else None)
    check_submit_arguments(spark, settings, submit_arguments())

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
        raise SparkUnavailableError(gateway_exited(spark, settings, java_version(find_java()))) from error
    _check_connector_is_loaded(running, spark)
    return running


def connector_settings(spark: SparkInstallation, conf: Mapping[str, str], jars_dir: Path | None) -> dict[str, str]:
    """``conf`` with the connector added: as files of ``jars_dir``, or as a package for Spark to fetch.

    Nothing is added where ``conf`` or Spark's own folder has it. Raises where ``conf`` names that of another Spark.
    """
    named = [names_connector(spark, name, conf.get(name, "")) for name in (PACKAGES, JARS)]
    if any(named):
        return dict(conf)
    if jars_dir is not None:
        jars = ",".join(str(jar.resolve()) for jar in offline_jars(spark, jars_dir))
        return _with_item(conf, JARS, jars)
    if spark.has_connector:
        return dict(conf)
    return _with_item(conf, PACKAGES, spark.connector_coordinates)


def check_submit_arguments(spark: SparkInstallation, settings: Mapping[str, str], arguments: Mapping[str, str]) -> None:
    """``PYSPARK_SUBMIT_ARGS`` must not put other packages or jars in the place of those that bring the connector."""
    named = {name: names_connector(spark, "PYSPARK_SUBMIT_ARGS", items) for name, items in arguments.items()}
    if any(named.values()):
        return
    for name in named:
        if CONNECTOR in settings.get(name, ""):
            raise SparkUnavailableError(
                f"PYSPARK_SUBMIT_ARGS sets {name} to {arguments[name]}, and Spark would take that instead of the Kafka "
                f"connector: unset it and give session() those in conf, or add {settings[name]} to it"
            )


def _with_item(conf: Mapping[str, str], name: str, item: str) -> dict[str, str]:
    """``conf`` with ``item`` added to the comma-separated list ``name``."""
    return {**conf, name: ",".join(filter(None, (conf.get(name), item)))}


def gateway_exited(spark: SparkInstallation, settings: Mapping[str, str], java: int) -> str:
    """What may have ended the JVM, and what to do, in two lines: its own words are on a stream that cannot be read
    here."""
    ended = (
        f"The JVM of Spark {spark.spark_version} ended before it was ready; its output on standard error says why "
        "(`moldau spark` shows it with --spark-log)."
    )
    if java >= REFUSING_JAVA:
        return f"{ended}\nIf it says that getSubject is not supported, point JAVA_HOME at Java 17 or 21, not {java}."
    if PACKAGES not in settings:
        return ended
    newest = "" if spark.spark_version == NEWEST_PYSPARK else f"run `pip install pyspark=={NEWEST_PYSPARK}`; or "
    return (
        f"{ended}\nIf Maven does not have {spark.connector_coordinates}, {newest}put {', '.join(spark.connector_jars)} "
        "into a folder and name it in MOLDAU_SPARK_JARS. If it names ~/.m2, remove the folder of that artifact."
    )


def _check_connector_is_loaded(running: SparkSession, spark: SparkInstallation) -> None:
    """A session or a JVM that somebody else started in this process does not take our jars any more."""
    if spark.has_connector or CONNECTOR in running.sparkContext.getConf().get(JARS, ""):
        return
    raise SparkUnavailableError(
        "this process already has a Spark JVM, started without the Kafka connector, and jars cannot be added to it: "
        "call moldau.spark_integration.session() first, or start the other session with "
        f"{PACKAGES}={spark.connector_coordinates}"
    )

"""``session()``: a Spark session that can read and write Kafka.

The connector can only be passed to Spark when its JVM starts, and a process has one JVM for all its sessions. So all
possible checks (pyspark, Java, versions) run before that. If a JVM without the connector is already running, the error
says so, instead of a later "Failed to find data source: kafka".
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
from .ivy_lock import ivy_lock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Java 24 removed the security manager, which the Hadoop inside Spark 3.5 and 4.0 needs.
REFUSING_JAVA = 24


def session(
    app_name: str,
    conf: Mapping[str, str] | None = None,
    *,
    jars_dir: str | os.PathLike[str] | None = None,
    **more_conf: str,
) -> SparkSession:
    """The process's Spark session, with the Kafka connector that matches the installed pyspark.

    ``conf``: Spark settings (``{"spark.master": "local[2]"}``), which can also be keywords
    (``**{"spark.master": "local[2]"}``). Packages and jars in the settings are kept.
    ``jars_dir``: a folder that contains the connector's jars, for machines without access to a Maven repository. The
    default is ``MOLDAU_SPARK_JARS``. If neither is set, Spark downloads the connector on first use and caches it
    (``spark.jars.ivy``); other processes that start at the same time wait for the download.

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
        with ivy_lock(settings):
            running = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if "JAVA_GATEWAY_EXITED" not in str(error):
            raise
        raise SparkUnavailableError(gateway_exited(spark, settings, java_version(find_java()))) from error
    _check_connector_is_loaded(running, spark)
    return running


def connector_settings(spark: SparkInstallation, conf: Mapping[str, str], jars_dir: Path | None) -> dict[str, str]:
    """``conf`` with the connector added: as files of ``jars_dir``, or as a package for Spark to fetch.

    Nothing is added if ``conf`` or Spark's own folder has it. Raises if ``conf`` names that of a different Spark.
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
    """Raise if packages or jars in ``PYSPARK_SUBMIT_ARGS`` would replace those that contain the connector."""
    named = {name: names_connector(spark, "PYSPARK_SUBMIT_ARGS", items) for name, items in arguments.items()}
    if any(named.values()):
        return
    for name in named:
        if CONNECTOR in settings.get(name, ""):
            raise SparkUnavailableError(
                f"PYSPARK_SUBMIT_ARGS sets {name} to {arguments[name]}, which Spark would use instead of the Kafka "
                f"connector: unset it and pass the value to session() in conf, or add {settings[name]} to it"
            )


def _with_item(conf: Mapping[str, str], name: str, item: str) -> dict[str, str]:
    """``conf`` with ``item`` added to the comma-separated list ``name``."""
    return {**conf, name: ",".join(filter(None, (conf.get(name), item)))}


def gateway_exited(spark: SparkInstallation, settings: Mapping[str, str], java: int) -> str:
    """The likely reason why the JVM exited, and what to do, in two lines. The JVM's own output is on a stream that
    cannot be read here."""
    ended = (
        f"The JVM of Spark {spark.spark_version} exited before it was ready; see its output on standard error "
        "(`moldau spark` shows it with --spark-log)."
    )
    if java >= REFUSING_JAVA:
        return f"{ended}\nIf it says that getSubject is not supported, point JAVA_HOME at Java 17 or 21, not {java}."
    if PACKAGES not in settings:
        return ended
    newest = "" if spark.spark_version == NEWEST_PYSPARK else f"run `pip install pyspark=={NEWEST_PYSPARK}`; or "
    return (
        f"{ended}\nIf Maven does not have {spark.connector_coordinates}, {newest}put {', '.join(spark.connector_jars)} "
        "into a folder and set MOLDAU_SPARK_JARS to it. If it names ~/.m2, remove the folder of that artifact."
    )


def _check_connector_is_loaded(running: SparkSession, spark: SparkInstallation) -> None:
    """Raise if a session or JVM that was started elsewhere in this process does not have the connector."""
    if spark.has_connector or CONNECTOR in running.sparkContext.getConf().get(JARS, ""):
        return
    raise SparkUnavailableError(
        "this process already has a Spark JVM, started without the Kafka connector, and jars cannot be added to it: "
        "call moldau.spark_integration.session() first, or start the other session with "
        f"{PACKAGES}={spark.connector_coordinates}"
    )

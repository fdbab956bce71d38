"""Finding the connector, and rejecting mismatches before a JVM starts; folders and scripts act as Spark and Java."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from moldau.spark_integration.connector import (
    NEWEST_PYSPARK,
    SparkInstallation,
    SparkUnavailableError,
    check_java,
    check_own_jars,
    find_java,
    find_spark,
    java_version,
    offline_jars,
    submit_arguments,
)
from moldau.spark_integration.options import Topics, kafka_options
from moldau.spark_integration.session import check_submit_arguments, connector_settings, gateway_exited, session

ROOT = Path(__file__).parents[2]


def make_spark(home: Path, spark_version: str, scala_version: str) -> SparkInstallation:
    (home / "jars").mkdir(parents=True)
    for name in ("core", "sql", "sql-api"):
        (home / "jars" / f"spark-{name}_{scala_version}-{spark_version}.jar").touch()
    return SparkInstallation(home, spark_version, scala_version)


def make_java(home: Path, says: str, exit_code: int = 0) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {exit_code}\n")
    java.chmod(0o755)
    return java


OPENJDK_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)'
OPENJDK_8 = 'openjdk version "1.8.0_442"'


@pytest.fixture
def pyspark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An installed pyspark 4.0.0, in a folder without Spark."""
    package = tmp_path / "site-packages" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    information = package.with_name("pyspark-4.0.0.dist-info")
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 4.0.0\n")
    monkeypatch.setattr("sys.path", [str(package.parent)])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    return package


@pytest.mark.parametrize(
    ("spark_version", "scala_version", "coordinates"),
    [
        ("4.0.0", "2.13", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"),
        ("3.5.7", "2.12", "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7"),
        ("4.1.0-SNAPSHOT", "2.13", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.0-SNAPSHOT"),
    ],
)
def test_the_connector_matches_spark_and_scala(
    tmp_path: Path, spark_version: str, scala_version: str, coordinates: str
) -> None:
    assert make_spark(tmp_path, spark_version, scala_version).connector_coordinates == coordinates


def test_spark_is_the_one_inside_pyspark(pyspark: Path) -> None:
    expected = make_spark(pyspark, "4.0.0", "2.13")

    assert find_spark({}) == expected


def test_spark_home_takes_precedence_over_pyspark(pyspark: Path, tmp_path: Path) -> None:
    make_spark(pyspark, "4.0.0", "2.13")
    elsewhere = make_spark(tmp_path / "opt", "4.0.0", "2.13")

    assert find_spark({"SPARK_HOME": str(elsewhere.home)}) == elsewhere


def test_spark_home_with_another_version_is_rejected(pyspark: Path, tmp_path: Path) -> None:
    elsewhere = make_spark(tmp_path / "opt", "3.5.7", "2.12")

    with pytest.raises(
        SparkUnavailableError,
        match=r"but SPARK_HOME=.* holds Spark 3\.5\.7\.\nRun `pip install pyspark==3\.5\.7`",
    ):
        find_spark({"SPARK_HOME": str(elsewhere.home)})


def test_a_pyspark_without_spark_is_rejected(pyspark: Path) -> None:
    with pytest.raises(SparkUnavailableError, match="Spark Connect client"):
        find_spark({})


def test_a_missing_pyspark_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)

    with pytest.raises(SparkUnavailableError, match=r"pip install pyspark==4\.2\.0"):
        find_spark({})


@pytest.mark.parametrize(("says", "version"), [(OPENJDK_17, 17), (OPENJDK_8, 8), ('java version "21" 2023-09-19', 21)])
def test_the_version_of_java_is_parsed(tmp_path: Path, says: str, version: int) -> None:
    assert java_version(make_java(tmp_path, says)) == version


def test_a_java_stub_is_rejected(tmp_path: Path) -> None:
    java = make_java(tmp_path, "Unable to locate a Java Runtime.", exit_code=1)

    with pytest.raises(SparkUnavailableError, match="Unable to locate a Java Runtime"):
        java_version(java)


def test_spark_4_rejects_java_8_and_spark_3_accepts_it(tmp_path: Path) -> None:
    make_java(tmp_path / "jdk8", OPENJDK_8)
    environment = {"JAVA_HOME": str(tmp_path / "jdk8")}

    check_java(make_spark(tmp_path / "3", "3.5.7", "2.12"), environment)
    with pytest.raises(SparkUnavailableError, match=r"Spark 4\.0\.0 needs Java 17 or newer, and .* is Java 8"):
        check_java(make_spark(tmp_path / "4", "4.0.0", "2.13"), environment)


def test_java_home_takes_precedence_over_the_path(tmp_path: Path) -> None:
    at_home, on_path = make_java(tmp_path / "home", OPENJDK_17), make_java(tmp_path / "path", OPENJDK_8)

    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}) == at_home
    assert find_java({"PATH": str(on_path.parent)}) == on_path


def test_a_missing_java_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailableError, match="there is none on the PATH"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(SparkUnavailableError, match=r"JAVA_HOME=.* has no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path)})


def make_connector(folder: Path, prefix: str = "") -> set[Path]:
    """The four jars of Spark 4.0.0's connector, with or without the prefixes that Spark's cache adds."""
    folder.mkdir(exist_ok=True)
    names = (
        "spark-sql-kafka-0-10_2.13-4.0.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
        "kafka-clients-3.9.0.jar",
        "commons-pool2-2.12.0.jar",
    )
    for name in names:
        (folder / f"{prefix}{name}").touch()
    return {folder / f"{prefix}{name}" for name in names}


@pytest.mark.parametrize("prefix", ["", "org.apache_"])
def test_offline_jars_are_found(tmp_path: Path, prefix: str) -> None:
    spark = make_spark(tmp_path / "spark", "4.0.0", "2.13")

    jars = make_connector(tmp_path / "jars", prefix)

    assert set(offline_jars(spark, tmp_path / "jars")) == jars


def test_offline_jars_of_another_spark_are_rejected_by_name(tmp_path: Path) -> None:
    spark = make_spark(tmp_path / "spark", "4.0.1", "2.13")
    make_connector(tmp_path / "jars")

    with pytest.raises(SparkUnavailableError) as refusal:
        offline_jars(spark, tmp_path / "jars")

    assert "no *spark-sql-kafka-0-10_2.13-4.0.1.jar" in str(refusal.value)
    assert "kafka-clients" not in str(refusal.value)
    assert str(refusal.value).endswith("(only spark-sql-kafka-0-10_2.13-4.0.0.jar)")


def test_settings_name_the_package_and_the_users_packages(tmp_path: Path) -> None:
    spark = make_spark(tmp_path, "4.0.0", "2.13")

    settings = connector_settings(spark, {"spark.jars.packages": "a:b:1", "spark.master": "local[2]"}, None)

    assert settings == {
        "spark.master": "local[2]",
        "spark.jars.packages": f"a:b:1,{spark.connector_coordinates}",
    }


def test_settings_name_offline_jars_and_the_users_jars(tmp_path: Path) -> None:
    spark = make_spark(tmp_path / "spark", "4.0.0", "2.13")
    jars = make_connector(tmp_path / "jars")

    settings = connector_settings(spark, {"spark.jars": "/mine.jar"}, tmp_path / "jars")

    assert "spark.jars.packages" not in settings
    assert set(settings["spark.jars"].split(",")) == {"/mine.jar", *map(str, jars)}


def test_a_connector_in_sparks_own_folder_needs_no_setting(tmp_path: Path) -> None:
    spark = make_spark(tmp_path, "4.0.0", "2.13")
    make_connector(spark.jars)

    assert connector_settings(spark, {"spark.master": "local[2]"}, None) == {"spark.master": "local[2]"}


def test_a_connector_that_the_user_names_is_not_added_again(tmp_path: Path) -> None:
    spark = make_spark(tmp_path, "4.0.0", "2.13")
    conf = {"spark.jars.packages": f"a:b:1, {spark.connector_coordinates}"}

    assert connector_settings(spark, conf, None) == conf


@pytest.mark.parametrize(
    ("setting", "named", "refusal"),
    [
        (
            "spark.jars.packages",
            "org.apache.spark:spark-sql-kafka-0-10_2.12:4.0.0",
            r"for Scala 2\.12, but the Spark in .* is built for Scala 2\.13\.\nRemove it; session\(\) uses "
            r"org\.apache\.spark:spark-sql-kafka-0-10_2\.13:4\.0\.0",
        ),
        (
            "spark.jars.packages",
            "a:b:1,org.apache.spark:spark-sql-kafka-0-10_2.13:3.5.7",
            r"connector of Spark 3\.5\.7, but pyspark is 4\.0\.0",
        ),
        ("spark.jars", "/opt/jars/org.apache.spark_spark-sql-kafka-0-10_2.12-4.0.0.jar", r"for Scala 2\.12"),
    ],
)
def test_the_connector_of_another_spark_is_rejected(tmp_path: Path, setting: str, named: str, refusal: str) -> None:
    spark = make_spark(tmp_path, "4.0.0", "2.13")

    with pytest.raises(SparkUnavailableError, match=refusal):
        connector_settings(spark, {setting: named}, None)


def test_the_connector_of_another_spark_in_sparks_own_folder_is_rejected(tmp_path: Path) -> None:
    spark = make_spark(tmp_path, "4.0.0", "2.13")
    (spark.jars / "spark-sql-kafka-0-10_2.12-4.0.0.jar").touch()

    with pytest.raises(SparkUnavailableError, match=r"jars has spark-sql-kafka-0-10_2\.12-4\.0\.0\.jar"):
        check_own_jars(spark)


@pytest.mark.parametrize(
    "words",
    [
        "--master local[2] --packages a:b:1 pyspark-shell",
        "--packages=a:b:1",
        "--conf spark.jars.packages=a:b:1 --conf spark.ui.enabled=false",
        "-c 'spark.jars.packages=a:b:1'",
    ],
)
def test_arguments_of_spark_submit_are_parsed(words: str) -> None:
    assert submit_arguments({"PYSPARK_SUBMIT_ARGS": words}) == {"spark.jars.packages": "a:b:1"}


def test_arguments_of_spark_submit_that_would_replace_the_connector_are_rejected(tmp_path: Path) -> None:
    spark = make_spark(tmp_path, "4.0.0", "2.13")
    settings = connector_settings(spark, {}, None)

    with pytest.raises(SparkUnavailableError, match=r"PYSPARK_SUBMIT_ARGS sets spark\.jars\.packages to a:b:1"):
        check_submit_arguments(spark, settings, {"spark.jars.packages": "a:b:1"})
    check_submit_arguments(spark, settings, {"spark.jars": "/mine.jar"})
    check_submit_arguments(spark, settings, {"spark.jars.packages": f"a:b:1,{spark.connector_coordinates}"})


def test_if_the_jvm_does_not_start_the_likely_reason_is_reported(tmp_path: Path) -> None:
    spark = make_spark(tmp_path, "4.0.0", "2.13")

    cannot_fetch = gateway_exited(spark, {"spark.jars.packages": spark.connector_coordinates}, java=17)
    too_new = gateway_exited(spark, {"spark.jars": "/connector.jar"}, java=25)

    assert f"If Maven does not have {spark.connector_coordinates}, run `pip install pyspark==4.2.0`" in cannot_fetch
    assert "MOLDAU_SPARK_JARS" in cannot_fetch
    assert "getSubject" not in cannot_fetch
    assert "point JAVA_HOME at Java 17 or 21, not 25" in too_new
    assert "MOLDAU_SPARK_JARS" not in too_new
    assert [len(text.splitlines()) for text in (cannot_fetch, too_new)] == [2, 2]


def test_the_error_about_a_missing_connector_names_the_version_to_install(tmp_path: Path) -> None:
    newer = make_spark(tmp_path / "newer", "4.3.0", "2.13")
    newest = make_spark(tmp_path / "newest", NEWEST_PYSPARK, "2.13")

    said = gateway_exited(newer, {"spark.jars.packages": newer.connector_coordinates}, java=17).splitlines()
    assert said[0].startswith("The JVM of Spark 4.3.0 exited before it was ready")
    assert "spark-sql-kafka-0-10_2.13:4.3.0, run `pip install pyspark==4.2.0`" in said[1]
    assert "pip install" not in gateway_exited(newest, {"spark.jars.packages": newest.connector_coordinates}, java=17)


def test_the_extra_installs_a_pyspark_that_has_a_connector() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (requirement,) = (each for each in project["optional-dependencies"]["spark"] if each.startswith("pyspark"))
    assert requirement == "pyspark>=3.5,<4.3"
    assert NEWEST_PYSPARK.startswith("4.2.")


def test_a_session_is_rejected_before_a_jvm_starts(
    pyspark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This pyspark is an empty package: creating a session with it would be an ImportError."""
    make_spark(pyspark, "4.0.0", "2.13")
    make_java(tmp_path / "8", OPENJDK_8)
    make_java(tmp_path / "17", OPENJDK_17)
    for name in ("SPARK_HOME", "JAVA_HOME", "PYSPARK_SUBMIT_ARGS", "MOLDAU_SPARK_JARS"):
        monkeypatch.delenv(name, raising=False)

    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(SparkUnavailableError, match="has no bin/java"):
        session("test")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "8"))
    with pytest.raises(SparkUnavailableError, match="is Java 8"):
        session("test")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "17"))
    with pytest.raises(SparkUnavailableError, match=r"for Scala 2\.12"):
        session("test", {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.12:4.0.0"})
    with pytest.raises(SparkUnavailableError, match=r"for Scala 2\.12"):
        session("test", None, **{"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.12:4.0.0"})
    with pytest.raises(SparkUnavailableError, match="is not a folder"):
        session("test", jars_dir=tmp_path / "none")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages a:b:1 pyspark-shell")
    with pytest.raises(SparkUnavailableError, match="PYSPARK_SUBMIT_ARGS sets"):
        session("test")


def test_options_have_sparks_names() -> None:
    assert kafka_options(
        "h:1",
        "t",
        starting_offsets={1: -2, 0: 7},
        ending_timestamp_ms=99,
        include_headers=True,
        fail_on_data_loss=False,
        client={"max.request.size": "5"},
    ) == {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t",
        "topic": "t",
        "startingOffsets": '{"t": {"0": 7, "1": -2}}',
        "endingTimestamp": "99",
        "includeHeaders": "true",
        "failOnDataLoss": "false",
        "kafka.max.request.size": "5",
    }


@pytest.mark.parametrize(
    ("topic", "options"),
    [
        (["a", "b"], {"subscribe": "a,b"}),
        (re.compile("a-.*"), {"subscribePattern": "a-.*"}),
        ({"a": [0, 2], "b": range(2)}, {"assign": '{"a": [0, 2], "b": [0, 1]}'}),
    ],
)
def test_options_to_read_several_topics(topic: Topics, options: dict[str, str]) -> None:
    assert kafka_options("h:1", topic) == {"kafka.bootstrap.servers": "h:1", **options}


def test_numbers_of_several_topics_are_given_by_topic() -> None:
    options = kafka_options(
        "h:1",
        ["a", "b"],
        starting_timestamp_ms={"a": {1: 5, 0: 6}, "b": {0: 7}},
        ending_offsets={"a": {0: -1, 1: 9}, "b": {0: 3}},
        no_record_since_timestamp="latest",
    )

    assert options == {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "a,b",
        "startingOffsetsByTimestamp": '{"a": {"0": 6, "1": 5}, "b": {"0": 7}}',
        "endingOffsets": '{"a": {"0": -1, "1": 9}, "b": {"0": 3}}',
        "startingOffsetsByTimestampStrategy": "latest",
    }
    with pytest.raises(ValueError, match="give the numbers by topic"):
        kafka_options("h:1", ["a", "b"], starting_offsets={0: 5})


def test_numbers_of_assigned_partitions_of_one_topic_need_no_topic() -> None:
    assert kafka_options("h:1", {"a": [1]}, ending_timestamp_ms={1: 5})["endingOffsetsByTimestamp"] == '{"a": {"1": 5}}'


def test_options_accept_any_object_with_an_address() -> None:
    class Broker:
        bootstrap_servers = "h:2"

    assert kafka_options(Broker(), "t") == {"kafka.bootstrap.servers": "h:2", "subscribe": "t", "topic": "t"}


def test_two_starts_and_two_ends_are_rejected() -> None:
    with pytest.raises(ValueError, match="starting_offsets and starting_timestamp_ms"):
        kafka_options("h:1", "t", starting_offsets="earliest", starting_timestamp_ms=1)
    with pytest.raises(ValueError, match="ending_offsets and ending_timestamp_ms"):
        kafka_options("h:1", "t", ending_offsets="latest", ending_timestamp_ms=1)

"""The sources of settings, and their precedence."""

from pathlib import Path

import pytest

from moldau.config.broker_config import StaticValue
from moldau.config.checks import check_broker_config
from moldau.config.definition import ConfigError
from moldau.config.sources import load, read_environment, read_file, read_overrides, setting_of_variable


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LISTENERS", "listeners"),
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_MOLDAU_VALIDATE_RECORDS", "moldau.validate.records"),
        ("KAFKA_LISTENER_NAME_EXTERNAL_SSL_KEYSTORE_LOCATION", "listener.name.external.ssl.keystore.location"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_X", "listener.name.sasl_ssl.x"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_A____B", "a-.b"),
        ("KAFKA_LISTENER_NAME_DOCKER___HOST_SASL_JAAS_CONFIG", "listener.name.docker-host.sasl.jaas.config"),
        # The image replaces every KAFKA_, not only the first.
        ("KAFKA_KAFKA_METRICS_REPORTERS", "metrics.reporters"),
    ],
)
def test_variable_is_mapped_as_by_the_docker_image(variable: str, name: str) -> None:
    assert setting_of_variable(variable) == name


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ("-Djava.security.auth.login.config=/etc/jaas.conf", "/etc/jaas.conf"),
        ('-Xmx1g -Djava.security.auth.login.config="/etc/my kafka/jaas.conf" -Dx=y', "/etc/my kafka/jaas.conf"),
        ('-Dx=y "-Djava.security.auth.login.config=/my kafka/jaas.conf"', "/my kafka/jaas.conf"),
        ("-Djava.security.auth.login.config==/etc/jaas.conf", "/etc/jaas.conf"),
        ("-Dother.java.security.auth.login.config=/etc/jaas.conf", None),
    ],
)
def test_the_file_with_jaas_configurations_in_the_options_of_the_jvm(
    options: str, path: str | None, tmp_path: Path
) -> None:
    environment = {"KAFKA_OPTS": options}
    assert load(environment=environment).optional_str("moldau.jaas.file") == path
    file = tmp_path / "server.properties"
    file.write_text("moldau.jaas.file=/other")
    assert load(file=file, environment=environment).optional_str("moldau.jaas.file") == "/other"


def test_variables_of_kafkas_scripts_and_other_variables_are_not_settings() -> None:
    environment = {
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_OPTS": "-D",
        "KAFKA_LOG4J_OPTS": "x",
        "KAFKA_BOOTSTRAP_SERVERS": "localhost:9092",
        "KAFKA_DEBUG": "y",
        "KAFKA_JMX_PORT": "9999",
        "HOME": "/",
        "kafka_x": "1",
    }
    assert read_environment(environment) == {}


def test_value_of_a_variable_has_the_syntax_of_a_file() -> None:
    read = read_environment({"KAFKA_SSL_KEYSTORE_KEY": "a\\nb", "KAFKA_BROKER_RACK": "  r1"})
    assert read["ssl.keystore.key"] == StaticValue("a\nb", "environment variable KAFKA_SSL_KEYSTORE_KEY")
    assert read["broker.rack"].text == "r1"


def test_file_is_read_with_its_path_as_origin(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# mine\nnum.partitions=3\n", encoding="utf-8")
    assert read_file(file) == {"num.partitions": StaticValue("3", f"file {file}")}


def test_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3", encoding="utf-8-sig")
    assert read_file(file)["num.partitions"].text == "3"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_file_is_utf_8_or_else_latin_1(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.dirs=/home/jürgen", encoding=encoding)
    assert read_file(file)["log.dirs"].text == "/home/jürgen"


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.properties: No such file"):
        read_file(tmp_path / "absent.properties")


def test_broken_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("a=\\u1")
    with pytest.raises(ConfigError, match=r"server\.properties: .*four hexadecimal digits"):
        read_file(file)


def test_override_keeps_its_value_from_the_first_equals_sign_on() -> None:
    assert read_overrides(["log.dir=b=c", " broker.rack = e"]) == {
        "log.dir": StaticValue("b=c", "--set"),
        "broker.rack": StaticValue(" e", "--set"),
    }


@pytest.mark.parametrize("override", ["a", "", "=b"])
def test_override_without_key_and_value_is_rejected(override: str) -> None:
    with pytest.raises(ConfigError, match="key=value"):
        read_overrides([override])


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    names = ["num.partitions", "fetch.max.bytes", "message.max.bytes", "num.io.threads"]
    file.write_text("\n".join(f"{name}=2001" for name in names))
    config = load(
        file=file,
        environment={
            "KAFKA_NUM_PARTITIONS": "2002",
            "KAFKA_FETCH_MAX_BYTES": "2002",
            "KAFKA_MESSAGE_MAX_BYTES": "2002",
        },
        overrides=["num.partitions=2003", "fetch.max.bytes=2003"],
        command_line={"num.partitions": StaticValue("2004", "--partitions")},
    )
    assert [config.int(name) for name in names] == [2004, 2003, 2002, 2001]
    assert [config.origin(name) for name in names] == [
        "--partitions",
        "--set",
        "environment variable KAFKA_MESSAGE_MAX_BYTES",
        f"file {file}",
    ]
    assert config.origin("queued.max.requests") == "default"


@pytest.mark.parametrize("text", ["9" * 4301, "-" + "9" * 4301])
def test_numbers_of_thousands_of_digits_are_rejected_by_name(text: str) -> None:
    config = load(environment={"KAFKA_NUM_PARTITIONS": text}, overrides=["log.retention.ms=" + text])
    with pytest.raises(ConfigError) as refused:
        check_broker_config(config)
    message = str(refused.value)
    assert "for num.partitions: expected a whole number from 1 to 2147483647" in message
    assert "for log.retention.ms: expected a whole number" in message
    assert f"... ({len(text)} characters)" in message
    assert len(message) < 1000

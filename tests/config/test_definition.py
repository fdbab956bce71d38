"""Parsing a value: what is accepted, and the errors for all other values (which clients get with INVALID_CONFIG)."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.config import broker, topic
from moldau.config.definition import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LOW,
    PASSWORD,
    SHORT,
    STRING,
    ConfigError,
    ConfigType,
    Setting,
    Validator,
    abridged,
    at_least,
    between,
    format_value,
    one_of,
    parse_value,
)


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (BOOLEAN, "true", True),
        (BOOLEAN, "FALSE", False),
        (BOOLEAN, " True ", True),
        (INT, "2097152", 2097152),
        (INT, " +7\t", 7),
        (INT, "-2147483648", -(2**31)),
        (INT, "٤٢", 42),
        (INT, "0" * 5000 + "7", 7),
        (INT, "-" + "٠" * 5000 + "7", -7),
        (SHORT, "32767", 32767),
        (LONG, "9223372036854775807", 2**63 - 1),
        (DOUBLE, "0.5", 0.5),
        (DOUBLE, "1", 1.0),
        (DOUBLE, ".5", 0.5),
        (DOUBLE, "1e-1", 0.1),
        (DOUBLE, "0.5f", 0.5),
        (DOUBLE, "0x1p-1", 0.5),
        (DOUBLE, "0x1.8P1d", 3.0),
        (DOUBLE, "0x.8p1", 1.0),
        (DOUBLE, "5.", 5.0),
        (DOUBLE, "9" * 5000, float("inf")),
        (DOUBLE, "-0x1p99999", float("-inf")),
        (DOUBLE, "-Infinity", float("-inf")),
        (STRING, "  a b ", "a b"),
        (PASSWORD, " secret ", "secret"),
        (LIST, "", ()),
        (LIST, " compact , delete ", ("compact", "delete")),
        (LIST, "a,,b", ("a", "", "b")),
    ],
)
def test_value_is_parsed_as_by_kafka(type: ConfigType, text: str, value: object) -> None:
    assert parse_value("x", type, text) == value


@pytest.mark.parametrize(
    ("type", "text", "rule"),
    [
        (BOOLEAN, "yes", "Expected value to be either true or false"),
        (BOOLEAN, "", "Expected value to be either true or false"),
        (INT, "abc", "Not a number of type INT"),
        (INT, "", "Not a number of type INT"),
        (INT, "1_000", "Not a number of type INT"),
        (INT, "0x10", "Not a number of type INT"),
        (INT, "1.0", "Not a number of type INT"),
        (INT, "+ 1", "Not a number of type INT"),
        (INT, "--1", "Not a number of type INT"),
        (INT, "2147483648", "Not a number of type INT"),
        (INT, "9" * 4301, "Not a number of type INT"),
        (LONG, "-" + "1" * 32_000, "Not a number of type LONG"),
        (INT, "\U0001d7d7", "Not a number of type INT"),
        (INT, "²", "Not a number of type INT"),
        (SHORT, "40000", "Not a number of type SHORT"),
        (LONG, "9223372036854775808", "Not a number of type LONG"),
        (LONG, "10L", "Not a number of type LONG"),
        (DOUBLE, "x", "Not a number of type DOUBLE"),
        (DOUBLE, "", "Not a number of type DOUBLE"),
        (DOUBLE, "inf", "Not a number of type DOUBLE"),
        (DOUBLE, "nan", "Not a number of type DOUBLE"),
        (DOUBLE, "1_0.0", "Not a number of type DOUBLE"),
        (DOUBLE, "0x10", "Not a number of type DOUBLE"),
        (DOUBLE, "1.5ff", "Not a number of type DOUBLE"),
        (DOUBLE, "٣", "Not a number of type DOUBLE"),
        (DOUBLE, ".", "Not a number of type DOUBLE"),
    ],
)
def test_value_of_another_type_is_rejected(type: ConfigType, text: str, rule: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_value("some.key", type, text)
    assert str(refused.value) == f"Invalid value {abridged(text)} for configuration some.key: {rule}"
    assert refused.value.name == "some.key"


# Apache Kafka 4.3.1's errors for the same text.
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("segment.bytes", "abc", "Invalid value abc for configuration segment.bytes: Not a number of type INT"),
        ("segment.bytes", "1", "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        (
            "min.cleanable.dirty.ratio",
            "1.5",
            "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "compression.lz4.level",
            "18",
            "Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "compression.type",
            "gzipp",
            "Invalid value gzipp for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "cleanup.policy",
            "foo",
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ("cleanup.policy", ",", "Configuration 'cleanup.policy' values must not be empty."),
        ("cleanup.policy", "delete,", "Configuration 'cleanup.policy' values must not be empty."),
        (
            "leader.replication.throttled.replicas",
            "0:1,*",
            "Invalid value [0:1, *] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
            "format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        ("max.message.bytes", None, "Invalid value null for configuration max.message.bytes: Value must be non-null"),
        ("cleanup.policy", None, "Configuration 'cleanup.policy' values must not be null."),
        (
            "compression.type",
            None,
            "Invalid value null for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
    ],
)
def test_topic_value_out_of_range_is_rejected(name: str, text: str | None, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        topic.SETTINGS[name].parse(text)
    assert str(refused.value) == message


def test_duplicates_in_a_list_are_dropped() -> None:
    assert topic.SETTINGS["cleanup.policy"].parse("compact, delete,compact") == ("compact", "delete")
    assert broker.SETTINGS["log.dirs"].parse("/b,/a,/b") == ("/b", "/a")
    throttled = topic.SETTINGS["leader.replication.throttled.replicas"]
    assert throttled.parse("0:1,0:1") == ("0:1", "0:1"), "a list without this rule keeps them"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "process.roles",
            "",
            "Configuration 'process.roles' must not be empty. Valid values include: [broker, controller]",
        ),
        ("log.dirs", "", "Configuration 'log.dirs' must not be empty. Valid values include: any non-empty value"),
        (
            "group.consumer.migration.policy",
            "x",
            "Invalid value x for configuration group.consumer.migration.policy: "
            "String must be one of (case insensitive): DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL",
        ),
        (
            "remote.log.storage.manager.class.name",
            "",
            "Invalid value  for configuration remote.log.storage.manager.class.name: String must be non-empty",
        ),
        (
            "authorizer.class.name",
            None,
            "Invalid value null for configuration authorizer.class.name: entry must be non null",
        ),
    ],
)
def test_broker_value_out_of_range_is_rejected(name: str, text: str | None, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        broker.SETTINGS[name].parse(text)
    assert str(refused.value) == message


@pytest.mark.parametrize("entry", ["x", "1@a", "a@b:9", "1@:9", "1@a:x", "a:9"])
def test_quorum_voter_names_id_host_and_port(entry: str) -> None:
    broker.SETTINGS["controller.quorum.voters"].parse("1@a:9,2@[::1]:9")
    with pytest.raises(ConfigError):
        broker.SETTINGS["controller.quorum.voters"].parse(entry)


def test_migration_policy_is_case_insensitive() -> None:
    assert broker.SETTINGS["group.consumer.migration.policy"].parse("Upgrade") == "Upgrade"


@pytest.mark.parametrize("text", ["*", "", "0:1,1:2", " 0:1 , 1:2 ", "0:1,"])
def test_throttled_replicas_are_accepted(text: str) -> None:
    topic.SETTINGS["leader.replication.throttled.replicas"].parse(text)


# Written by Java's Double.toString.
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1234567.0, "1234567.0"),
        (12345678.0, "1.2345678E7"),
        (0.0001, "1.0E-4"),
        (1e22, "1.0E22"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "5.0E-324"),
        (0.0, "0.0"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_double_is_formatted_as_by_java(value: float, text: str) -> None:
    assert format_value(value) == text


@given(st.floats(allow_nan=False))
def test_double_survives_formatting_and_parsing(value: float) -> None:
    text = format_value(value)
    assert text is not None
    assert parse_value("x", DOUBLE, text) == value


@given(st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.lists(st.text("ab:*-.", min_size=1)).map(tuple))
def test_other_values_survive_formatting_and_parsing(value: int | bool | tuple[str, ...]) -> None:
    type = BOOLEAN if isinstance(value, bool) else LONG if isinstance(value, int) else LIST
    text = format_value(value)
    assert text is not None
    assert parse_value("x", type, text) == value


@given(st.text())
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    for type in ConfigType:
        with suppress(ConfigError):
            parse_value("x", type, text)


@pytest.mark.parametrize(
    ("type_", "validator", "expected"),
    [
        (INT, at_least(1), "a whole number from 1 to 2147483647"),
        (SHORT, None, "a whole number of 16 bits"),
        (LONG, between(-1, 5), "a whole number from -1 to 5"),
        (DOUBLE, None, "a number"),
        (DOUBLE, at_least(0), "a number of at least 0"),
        (DOUBLE, between(0, 1), "a number from 0 to 1"),
        (BOOLEAN, None, "true or false"),
        (STRING, one_of("a", "b"), "one of a, b"),
        (LIST, None, None),
        (STRING, None, None),
    ],
)
def test_expected_values_are_described(type_: ConfigType, validator: Validator | None, expected: str | None) -> None:
    assert Setting("name", type_, None, validator, LOW, "").expected == expected

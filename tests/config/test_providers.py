"""Values of settings from files and environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.config.definition import ConfigError, ConfigSource
from moldau.config.providers import resolved
from moldau.config.sources import load
from moldau.server.handlers.config_entries import broker_entries

PACKAGE = "org.apache.kafka.common.config.provider"
PROVIDERS = {
    "config.providers": "file, dir,env",
    "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}.DirectoryConfigProvider",
    "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
}


def resolve(settings: dict[str, str], environment: dict[str, str] | None = None) -> dict[str, StaticValue]:
    static = {name: StaticValue(text, "test") for name, text in (PROVIDERS | settings).items()}
    return resolved(static, environment or {})


def value_of(text: str, environment: dict[str, str] | None = None, **more: str) -> str:
    return resolve({"x": text} | more, environment)["x"].text


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "kafka.properties").write_text("password=a secret\\u0021\nother: ${env:NAME}\nempty=\n")
    (folder / "token").write_text("of a file\n")
    return folder


def test_each_provider(secrets: Path) -> None:
    file = secrets / "kafka.properties"
    assert value_of(f"${{file:{file}:password}}") == "a secret!"
    assert value_of(f"${{file:{file}:empty}}") == ""
    assert value_of(f"${{dir:{secrets}:token}}") == "of a file\n"
    assert value_of("${env:NAME}", {"NAME": "of a variable"}) == "of a variable"


def test_a_value_has_several_references_and_other_text(secrets: Path) -> None:
    file = secrets / "kafka.properties"
    text = f'required user_a="${{file:{file}:password}}" user_b="${{env:B}}" c="$d" e="{{f}}";'
    assert value_of(text, {"B": "b"}) == 'required user_a="a secret!" user_b="b" c="$d" e="{f}";'


def test_values_are_not_resolved_again(secrets: Path) -> None:
    assert value_of(f"${{file:{secrets / 'kafka.properties'}:other}}", {"NAME": "x"}) == "${env:NAME}"


def test_text_of_no_provider_stays() -> None:
    for text in ("${other:a}", "${other:/path:a}", "${nothing}", "$env:NAME", "${", "${env"):
        assert value_of(text) == text
    static = {"x": StaticValue("${env:NAME}", "test")}
    assert resolved(static, {"NAME": "y"}) == static


def test_settings_of_providers_have_no_references() -> None:
    assert (
        resolve({"config.providers.env.param.x": "${env:NAME}"})["config.providers.env.param.x"].text == "${env:NAME}"
    )


def test_the_reference_is_shown_instead_of_the_value() -> None:
    config = BrokerConfig(resolve({"broker.rack": "${env:RACK}", "num.partitions": "3"}, {"RACK": "a secret"}))
    assert config.str("broker.rack") == "a secret"
    assert config.written(ConfigSource.STATIC_BROKER_CONFIG)["broker.rack"] == "${env:RACK}"
    assert (config.reference("broker.rack"), config.reference("num.partitions")) == ("${env:RACK}", None)
    (described,) = broker_entries(config, ["broker.rack"])
    assert described.value == described.synonyms[0].value == "${env:RACK}"
    changed = config.with_dynamic(default={}, broker_specific={"num.partitions": "4"})
    assert (changed.reference("broker.rack"), changed.reference("num.partitions")) == ("${env:RACK}", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${env:MISSING}", "there is no such variable"),
        ("${env:/path:NAME}", "has no path"),
        ("${file:/no/such/file:key}", "cannot be read"),
        ("${file:{}/kafka.properties:missing}", "has no key missing"),
        ("${file:{}/binary:key}", "UTF-8"),
        ("${dir:{}:missing}", "cannot be read"),
        ("${dir:{}:../secrets/token}", "the name of a file"),
    ],
)
def test_values_that_are_missing(secrets: Path, text: str, words: str) -> None:
    (secrets / "binary").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=words) as raised:
        value_of(text.replace("{}", str(secrets)))
    assert raised.value.message.startswith("Invalid value ${")
    assert "for configuration x" in raised.value.message


def test_the_parameters_of_providers(secrets: Path, tmp_path: Path) -> None:
    file = secrets / "kafka.properties"
    (tmp_path / "link").symlink_to(file)
    allowed = {"config.providers.file.param.allowed.paths": f"/elsewhere, {secrets}"}
    assert value_of(f"${{file:{file}:password}}", None, **allowed) == "a secret!"
    refused = {"config.providers.file.param.allowed.paths": "/elsewhere"}
    for path in (file, tmp_path / "link"):
        with pytest.raises(ConfigError, match=r"allowed\.paths"):
            value_of(f"${{file:{path}:password}}", None, **refused)
    folders = {"config.providers.dir.param.allowed.paths": "/elsewhere"}
    with pytest.raises(ConfigError, match=r"allowed\.paths"):
        value_of(f"${{dir:{secrets}:token}}", None, **folders)
    pattern = {"config.providers.env.param.allowlist.pattern": "KAFKA_.*"}
    assert value_of("${env:KAFKA_A}", {"KAFKA_A": "a"}, **pattern) == "a"
    with pytest.raises(ConfigError, match="does not permit"):
        value_of("${env:X_KAFKA_A}", {"X_KAFKA_A": "a"}, **pattern)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"config.providers": "file,vault"}, r"config\.providers\.vault\.class is missing"),
        ({"config.providers.file.class": "com.example.Vault"}, "Java classes are not loaded"),
        ({"config.providers.env.param.allowlist.pattern": "("}, "no regular expression"),
    ],
)
def test_providers_that_are_not_valid(change: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve(change)


def test_references_in_all_sources(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    lines = [f"{name}={text}" for name, text in PROVIDERS.items()]
    file.write_text("\n".join([*lines, "broker.rack=${env:RACK}"]))
    config = load(
        file=file,
        environment={"RACK": "r", "KAFKA_NUM_PARTITIONS": "${env:COUNT}", "COUNT": "7", "SIZE": "9"},
        overrides=["message.max.bytes=${env:SIZE}"],
    )
    assert (config.str("broker.rack"), config.int("num.partitions"), config.int("message.max.bytes")) == ("r", 7, 9)


# -- dynamic settings --------------------------------------------------------------------------------------------------


def config_with(environment: dict[str, str]) -> BrokerConfig:
    return load(environment=environment, overrides=[f"{name}={text}" for name, text in PROVIDERS.items()])


def test_dynamic_settings_have_references_to_the_static_providers(secrets: Path) -> None:
    file = secrets / "kafka.properties"
    file.write_text("size=4000000\n")
    reference = f"${{file:{file}:size}}"
    config = config_with({}).with_dynamic(default={"message.max.bytes": reference}, broker_specific={})
    assert config.int("message.max.bytes") == 4_000_000
    assert config.texts(("message.max",)) == {"message.max.bytes": "4000000"}
    assert config.reference("message.max.bytes") == reference
    assert config.written(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG) == {"message.max.bytes": reference}
    (entry,) = broker_entries(config, ["message.max.bytes"])
    assert (entry.value, entry.synonyms[0].value) == (reference, reference)
    file.write_text("size=5000000\n")
    assert config.int("message.max.bytes") == 4_000_000
    config = config.with_dynamic(default={"message.max.bytes": reference}, broker_specific={"background.threads": "9"})
    assert config.int("message.max.bytes") == 5_000_000


def test_a_dynamic_setting_whose_value_cannot_be_used_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    config = config_with({"SECRET": "a-secret"})
    for text in ("${env:SECRET}", "${env:MISSING}"):
        changed = config.with_dynamic(default={}, broker_specific={"message.max.bytes": text})
        assert changed.int("message.max.bytes") == 1_048_588
    assert "The dynamic setting message.max.bytes is ignored: Invalid value ${env:SECRET} for" in caplog.text
    assert "there is no such variable" in caplog.text
    assert "a-secret" not in caplog.text


def test_without_providers_dynamic_settings_are_unchanged() -> None:
    text = "${env:NAME}"
    config = load().with_dynamic(default={}, broker_specific={"listener.name.x.sasl.jaas.config": text})
    assert config.text("listener.name.x.sasl.jaas.config") == text
    assert config.reference("listener.name.x.sasl.jaas.config") is None

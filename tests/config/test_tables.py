"""The tables are compared with facts of Apache Kafka 4.3.1 (``kafka_settings.json``), and the facts with Kafka."""

import json
import subprocess
from pathlib import Path

import pytest

from moldau.config import broker, group, topic
from moldau.config.definition import ConfigType, Setting, format_value
from moldau.config.reference import reference
from moldau.testing.requirements import require_kafka_jars

HERE = Path(__file__).parent
FACTS = json.loads((HERE / "kafka_settings.json").read_text())

BROKER = {name: setting for name, setting in broker.SETTINGS.items() if not name.startswith("moldau.")}
# Moldau's own defaults: one node, no JVM, and a memory limit. docs/configuration.md lists each with Kafka's.
OUR_DEFAULTS = {
    "broker.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dir": None,
    "node.id": "1",
    "offsets.topic.replication.factor": "1",
    "process.roles": "broker,controller",
    "queued.max.request.bytes": "134217728",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}


def facts(setting: Setting) -> list[object]:
    return [
        setting.type.name,
        format_value(setting.kafka_default),
        None if setting.validator is None else str(setting.validator),
        setting.importance.name,
        setting.update_mode.value,
        setting.internal,
    ]


def test_broker_table_matches_kafka() -> None:
    assert {name: facts(setting) for name, setting in BROKER.items()} == FACTS["broker"]


def test_topic_table_matches_kafka() -> None:
    assert {name: facts(setting) for name, setting in topic.SETTINGS.items()} == FACTS["topic"]


def test_group_table_matches_kafka() -> None:
    assert {name: facts(setting) for name, setting in group.SETTINGS.items()} == FACTS["group"]


def test_group_settings_fall_back_to_the_brokers_as_kafkas_do() -> None:
    ours = {name: next((behind for behind, _ in setting.synonyms), None) for name, setting in group.SETTINGS.items()}
    assert ours == FACTS["group_synonyms"]


def test_group_settings_have_the_brokers_defaults() -> None:
    for setting in group.SETTINGS.values():
        assert all(broker.SETTINGS[name].default == setting.default for name, _ in setting.synonyms), setting


def test_topic_settings_fall_back_to_the_brokers_as_kafkas_do() -> None:
    ours = {
        name: [[*pair] for pair in setting.synonyms] for name, setting in topic.SETTINGS.items() if setting.synonyms
    }
    assert ours == FACTS["synonyms"]


def test_defaults_differ_from_kafkas_only_where_intended() -> None:
    differing = {
        name: format_value(setting.default)
        for name, setting in BROKER.items()
        if setting.default != setting.kafka_default
    }
    assert differing == OUR_DEFAULTS
    assert all(setting.default == setting.kafka_default for setting in topic.SETTINGS.values())


@pytest.mark.parametrize(
    "table",
    [broker.SETTINGS, broker.DYNAMIC_ONLY, topic.SETTINGS, group.SETTINGS],
    ids=["broker", "dynamic", "topic", "group"],
)
def test_every_default_is_a_valid_value(table: dict[str, Setting]) -> None:
    for setting in table.values():
        text = format_value(setting.default)
        if text is not None and (text or setting.type is not ConfigType.LIST):
            assert setting.parse(text) == setting.default, setting


def test_every_setting_has_a_description() -> None:
    for setting in [*broker.SETTINGS.values(), *topic.SETTINGS.values(), *group.SETTINGS.values()]:
        assert setting.documentation.endswith("."), setting
        assert "<" not in setting.documentation, setting


def test_names_are_in_one_section_only() -> None:
    names = [setting.name for section in broker.SECTIONS for setting in section.settings]
    assert len(names) == len(set(names)) == len(broker.SETTINGS)


def test_documentation_is_up_to_date() -> None:
    page = HERE.parents[1] / "docs" / "configuration.md"
    assert page.read_text(encoding="utf-8") == reference(), (
        "run: python -m moldau.config.reference > docs/configuration.md"
    )


def test_facts_are_those_of_apache_kafka() -> None:
    jars = require_kafka_jars()
    dumped = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(HERE / "DumpSettings.java")],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(dumped.stdout) == FACTS

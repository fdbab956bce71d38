"""``acted_on`` is used by documentation and warnings; here it is compared with the code that reads the settings."""

import ast
from pathlib import Path

import moldau
from moldau.config import broker, group, topic
from moldau.log.config import LogConfig

# The installed location: the suite also runs against the wheel.
ROOT = Path(moldau.__file__).parent

# Settings that are not read by their name as a text in the code below.
READ_IN_CONFIG = {
    "advertised.listeners",
    "authorizer.class.name",
    "broker.id",
    "config.providers",
    "controller.listener.names",
    "controller.quorum.voters",
    "delegation.token.secret.key",
    "early.start.listeners",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "node.id",
    "process.roles",
    "sasl.jaas.config",  # with the names of a listener and a mechanism
}


def names_in_code(*packages: str) -> set[str]:
    """Every text in the code of these packages, by default all packages below the command line, which read settings."""
    texts = set()
    for package in packages or ("server", "replication", "metadata", "log"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.add(node.value)
    return texts


def acted_on_topic_settings() -> set[str]:
    return {setting.name for setting in topic.SETTINGS.values() if setting.acted_on}


def test_topic_settings_that_act_are_the_ones_that_are_read() -> None:
    fields = set(LogConfig._fields)
    of_the_log = {name for name in topic.SETTINGS if name.replace(".", "_") in fields}
    elsewhere = {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
    assert elsewhere <= names_in_code()
    in_config = {"internal.segment.bytes", "remote.storage.enable"}
    assert acted_on_topic_settings() == of_the_log | elsewhere | in_config


def test_group_settings_that_act_are_the_ones_that_are_read() -> None:
    read = {name for name in names_in_code("group_coordinator") if name in group.SETTINGS}
    assert {setting.name for setting in group.SETTINGS.values() if setting.acted_on} == read


def test_broker_settings_that_act_are_the_ones_that_are_read() -> None:
    behind_topics = {name for setting in acted_on_topic_settings() for name, _ in topic.SETTINGS[setting].synonyms}
    read = {name for name in names_in_code() if name in broker.SETTINGS}
    acting = {setting.name for setting in broker.SETTINGS.values() if setting.acted_on}
    assert acting == read | behind_topics | READ_IN_CONFIG, "set acted_on in config/broker*.py to match the code"

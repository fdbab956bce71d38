"""The documentation page of all settings: ``python -m moldau.config.reference > docs/configuration.md``.

Written from the tables, so that it cannot say anything else than the server; a test compares the page with the tables.
"""

from collections.abc import Iterator
from typing import Final

from . import broker, group, topic
from .definition import ConfigType, Setting, UpdateMode, format_value

_INTRODUCTION: Final = """\
<!-- Written by `python -m moldau.config.reference`; change the tables in config/, not this page. -->
# Configuration

Moldau takes Apache Kafka's settings under Apache Kafka's names, with the defaults of Kafka 4.3 unless the tables below
say otherwise. They are read from, later ones winning:

1. a file in the format of `server.properties`: `moldau serve --config FILE`;
2. environment variables, as Apache Kafka's own Docker image maps them: `KAFKA_`, then the name in capitals with `_` for
   `.`, `__` for `_` and `___` for `-`. `KAFKA_LOG_RETENTION_MS=60000` is `log.retention.ms=60000`. A value is read as
   it would be in a file. `KAFKA_OPTS`, `KAFKA_HEAP_OPTS` and the others that only Kafka's start scripts read are
   ignored, and so is `KAFKA_BOOTSTRAP_SERVERS`, which is for Moldau's client commands;
3. `moldau serve --set key=value`, any number of times;
4. the other options of `moldau serve`: `--listen` sets `listeners`, `--data-dir` sets `log.dirs`, `--durable` sets
   `log.flush.interval.messages=1`.

Without `--config`, a server that listens on loopback addresses only has two defaults of its own, so that the members of
a group on a developer's machine get their partitions at once: `group.initial.rebalance.delay.ms=0` and
`group.consumer.assignment.interval.ms=0` (or `group.consumer.min.assignment.interval.ms`, if that is higher). `--set`
and `KAFKA_...` variables override them.

Over these come the settings that clients change while the server runs (AlterConfigs, IncrementalAlterConfigs,
`moldau configs set`): those of all brokers, then those of one broker, then those of a topic or a group.

A value that is not of its type or out of its range refuses the start, with a line that names the key, the value, what
is expected and where the value came from. An unknown name refuses the start if `--set` has it, with a suggestion; in a
file or a variable it is ignored, with one warning. Settings that Apache Kafka has and Moldau does not act on are
accepted everywhere, and so are names that begin with `listener.name.`, `config.providers.`, `rlmm.config.` or
`rsm.config.`. `moldau serve --print-config` prints what is in force and where it comes from.

In the tables, *acts* says whether a setting does anything in Moldau today: the others are known, checked, stored and
described to clients, and nothing else. *changed* says whether a setting can be changed on a running server, for one
broker or for all of them. `null` is "not set".

Files are read as UTF-8, or as Latin-1 (which is what Kafka reads) where they are not valid UTF-8. `${...}` of
configuration providers is not replaced.
"""


def reference() -> str:
    """The page, as Markdown."""
    return "".join(f"{line}\n" for line in _lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## Topics\n"
    yield "Set when a topic is made or later; what it does not say comes from the broker setting named last.\n"
    yield "| setting | type | default | values | acts | what it is |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for setting in topic.SETTINGS.values():
        if not setting.internal:
            yield _row(setting, _sentence_with_broker(setting))
    yield "\n## Groups\n"
    yield "Set for the name of a group, whether there is one or not. The broker's settings with `.min.` and `.max.` in"
    yield "their names are the limits.\n"
    yield "| setting | type | default | values | acts | what it is |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for setting in group.SETTINGS.values():
        yield _row(setting, _sentence_with_broker(setting))
    yield "\n## Brokers\n"
    yield "Changed while the server runs: *per broker* for one broker, *cluster* for all of them or for one."
    for section in broker.SECTIONS:
        yield f"\n### {section.title}\n"
        yield "| setting | type | default | values | acts | changed | what it is |"
        yield "| --- | --- | --- | --- | --- | --- | --- |"
        for setting in section.settings:
            if not setting.internal:
                yield _row(setting, _CHANGED[setting.update_mode], _sentence(setting))


_CHANGED: Final = {
    UpdateMode.READ_ONLY: "",
    UpdateMode.PER_BROKER: "per broker",
    UpdateMode.CLUSTER_WIDE: "cluster",
}


def _row(setting: Setting, *more: str) -> str:
    values = "" if setting.validator is None else _escaped(str(setting.validator))
    if setting.type is ConfigType.BOOLEAN:
        values = "true, false"
    cells = [
        f"`{setting.name}`",
        setting.type.name.lower(),
        _default(setting),
        values,
        "yes" if setting.acted_on else "",
        *more,
    ]
    return "| " + " | ".join(cells) + " |"


def _default(setting: Setting) -> str:
    text = format_value(setting.default)
    return "null" if text is None else f"`{text}`" if text else '""'


def _sentence_with_broker(setting: Setting) -> str:
    behind = ", ".join(f"`{name}`" for name, _ in setting.synonyms)
    return f"{_sentence(setting)} Broker: {behind}." if behind else _sentence(setting)


def _sentence(setting: Setting) -> str:
    sentence = _escaped(setting.documentation)
    if setting.kafka_default != setting.default:
        kafka = format_value(setting.kafka_default)
        sentence += f" (Kafka's default: {'none' if kafka is None else f'`{kafka}`'}.)"
    return sentence


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")

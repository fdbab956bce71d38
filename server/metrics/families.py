"""Metric families, their names in each dialect, and the text format of Prometheus.

Most metrics are MBeans of Apache Kafka, such as `kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec`. The tools
that export those to Prometheus name them differently; a dialect is the naming of such a tool:

| dialect | tool | the example above |
| --- | --- | --- |
| `strimzi` | the JMX exporter with Strimzi's rules, the default | `kafka_server_brokertopicmetrics_bytesin_total` |
| `reporter` | the metrics reporter of Strimzi | `kafka_server_brokertopicmetrics_bytesinpersec_total` |
| `confluent` | the JMX exporter with lowercase names | `kafka_server_brokertopicmetrics_bytesinpersec` |

Metrics with a plain name have it in each dialect: those of kafka_exporter, and those of processes.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
DIALECTS: Final = ("strimzi", "reporter", "confluent")

_LINES_PER_PIECE: Final = 64
_LABEL: Final = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")

_RATE_SUFFIX: Final = "PerSec"
# Types of MBeans that the dialects spell differently.
_CONFLUENT_TYPES: Final = {"raftmetrics": "raft_metrics", "socket_server_metrics": "socketservermetrics"}


class Kind(enum.Enum):
    """The kind of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    TIMER = "timer"
    """Quantiles, which are gauges; a counter of the observations has the suffix `_count_total`."""


class Sample(NamedTuple):
    """A value with the text of its labels, as `labels` returns it."""

    labels: str
    value: float


class Family(NamedTuple):
    """A metric: its name, its samples."""

    name: str
    """`domain:type:name` of an MBean, with Kafka's spelling, or a plain name."""
    kind: Kind
    help: str
    samples: Iterable[Sample]
    suffix: str = ""
    """`_count` for the observations of a timer."""


def labels(**values: str | int) -> str:
    """The text of labels, such as `topic="orders",partition="0"`."""
    return ",".join(f'{name}="{_escaped(str(value))}"' for name, value in values.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labels_in(text: str) -> dict[str, str]:
    """The labels of a text as of `labels`."""
    return {name: _ESCAPE.sub(_unescaped, value) for name, value in _LABEL.findall(text)}


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def name_in(family: Family, dialect: str) -> str:
    """The name of a metric in a dialect."""
    domain, colon, rest = family.name.partition(":")
    if not colon:
        return domain
    bean_type, _, attribute = rest.partition(":")
    is_rate = attribute.endswith(_RATE_SUFFIX)
    suffix = ""
    if dialect == "confluent":
        bean_type = _CONFLUENT_TYPES.get(bean_type, bean_type)
        suffix = family.suffix
    else:
        if dialect == "strimzi":
            if is_rate:
                attribute = attribute.removesuffix(_RATE_SUFFIX)
            elif attribute.endswith("Percent"):
                attribute = attribute.removesuffix("Percent") + "_percent"
        suffix = family.suffix + ("_total" if family.kind is Kind.COUNTER else "")
    return f"{domain}_{bean_type}_{attribute}".lower().replace(".", "_").replace("-", "_") + suffix


def text_of(families: Iterable[Family | None], dialect: str) -> Iterator[str]:
    """The families in the text format, in pieces of few lines; for None, an empty piece.

    Families without samples are omitted.
    """
    written: set[str] = set()
    for family in families:
        name = "" if family is None else name_in(family, dialect)
        if family is None or name in written:  # a name that is extra in one dialect is the regular one in another
            yield ""
            continue
        written.add(name)
        type_name = "counter" if family.kind is Kind.COUNTER else "gauge"
        lines = [f"# HELP {name} {family.help}\n# TYPE {name} {type_name}\n"]
        head = True
        for text, value in family.samples:
            lines.append(f"{name}{{{text}}} {_number(value)}\n" if text else f"{name} {_number(value)}\n")
            if len(lines) >= _LINES_PER_PIECE:
                yield "".join(lines)
                lines.clear()
                head = False
        if len(lines) > (1 if head else 0):
            yield "".join(lines)


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def single(name: str, kind: Kind, text: str, value: float) -> Family:
    """A metric with one sample, without labels."""
    return Family(name, kind, text, [Sample("", value)])


def gauge(name: str, text: str, value: float) -> Family:
    """See `single`."""
    return single(name, Kind.GAUGE, text, value)


def counter(name: str, text: str, value: float) -> Family:
    """See `single`."""
    return single(name, Kind.COUNTER, text, value)

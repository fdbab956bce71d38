"""The destination topic of a replay: created for it, or rejected if it would not keep every record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .archive_cluster import KafkaCluster
from .archive_layout import ArchiveError

_NO_LIMIT: Final = -1
_LARGEST: Final = 2**63 - 1
_DEFAULT_MESSAGE_BYTES: Final = 1_048_588
# Settings whose broker defaults may differ, and that must have these values here.
_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(_LARGEST),
    "message.timestamp.after.max.ms": str(_LARGEST),
}


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the records to be sent require of a topic, at most."""

    partition_count: int
    oldest_ms: int
    newest_ms: int
    largest_record_bytes: int


def check_topic(
    cluster: KafkaCluster, name: str, requirements: Requirements, *, append: bool = False, resume: bool = False
) -> dict[int, int] | None:
    """The offset of each partition at which the replay begins, None for a topic that is to be created.

    ArchiveError for a topic that is not suitable.
    """
    topic = cluster.topic(name)
    if topic is None:
        if resume:
            raise ArchiveError(f"there is no topic {name}: without --resume it is created")
        return None
    problems = unfit_reasons(topic.partition_count, cluster.configs(name), requirements, int(time.time() * 1000))
    if problems:
        raise ArchiveError(
            f"{name} would not keep the records unchanged: {'; '.join(problems)}. Name a topic that does not exist "
            "yet: it is created with suitable settings"
        )
    partitions = range(topic.partition_count)
    ends = cluster.ends(name, partitions)
    if append:
        return ends
    beginnings = cluster.beginnings(name, partitions)
    filled = [partition for partition in partitions if ends[partition] > beginnings[partition]]
    if filled and not resume:
        raise ArchiveError(
            f"{name} is not empty (partition {filled[0]} has {ends[filled[0]] - beginnings[filled[0]]} records). "
            "--append sends to it anyway; --resume continues an interrupted replay"
        )
    return beginnings


def create_topic(cluster: KafkaCluster, name: str, requirements: Requirements) -> dict[int, int]:
    """Create a topic that keeps all records; returns the same as `check_topic`."""
    cluster.create(name, requirements.partition_count, new_topic_configs(requirements))
    return dict.fromkeys(range(requirements.partition_count), 0)


def new_topic_configs(requirements: Requirements) -> dict[str, str]:
    """The settings of a topic that keeps all records."""
    if requirements.largest_record_bytes <= _DEFAULT_MESSAGE_BYTES:
        return dict(_CONFIGS)
    return {**_CONFIGS, "max.message.bytes": str(requirements.largest_record_bytes)}


def unfit_reasons(
    partition_count: int, configs: Mapping[str, str | None], requirements: Requirements, now_ms: int
) -> list[str]:
    """Why a topic would drop, change or reject some of the records; empty if it would not."""

    def number(name: str, default: int) -> int:
        value = configs.get(name)
        return default if value in (None, "") else int(value)

    def limit(name: str) -> int | None:
        value = number(name, _NO_LIMIT)
        return None if value < 0 else value

    problems = []
    if partition_count < requirements.partition_count:
        problems.append(f"it has {partition_count} partitions, but the archive has {requirements.partition_count}")
    if "compact" in (configs.get("cleanup.policy") or "delete"):
        problems.append(f"cleanup.policy={configs['cleanup.policy']} keeps the last record of each key only")
    retention_ms = limit("retention.ms")
    if retention_ms is not None and now_ms - requirements.oldest_ms > retention_ms:
        problems.append(f"retention.ms={retention_ms} would delete the older ones (retention.ms=-1 keeps all)")
    if limit("retention.bytes") is not None:
        problems.append(f"retention.bytes={configs['retention.bytes']} may delete the first ones (-1 keeps all)")
    if configs.get("message.timestamp.type") == "LogAppendTime":
        problems.append("message.timestamp.type=LogAppendTime would replace the timestamps (CreateTime keeps them)")
    if now_ms - requirements.oldest_ms > number("message.timestamp.before.max.ms", _LARGEST):
        problems.append("message.timestamp.before.max.ms rejects timestamps as old as these")
    if requirements.newest_ms - now_ms > number("message.timestamp.after.max.ms", _LARGEST):
        problems.append("message.timestamp.after.max.ms rejects timestamps as far in the future as these")
    max_message_bytes = number("max.message.bytes", _DEFAULT_MESSAGE_BYTES)
    if requirements.largest_record_bytes > max_message_bytes:
        problems.append(
            f"max.message.bytes={max_message_bytes} may reject the largest (it takes up to "
            f"{requirements.largest_record_bytes})"
        )
    return problems

"""Every setting that is a duration may be as large as its type and validator allow. Its sum with a time causes no
error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moldau.config import topic as topic_settings
from moldau.config.broker import SETTINGS as BROKER_SETTINGS
from moldau.config.definition import LONG, ConfigError, ConfigType
from moldau.coordinator.runtime import State
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.records import Record, build_batch
from moldau.testing.builders import fetch, produce, values

from .conftest import RunningServer

LARGEST = {LONG: 2**63 - 1, ConfigType.INT: 2**31 - 1}
NOT_AT_ONCE = {
    "group.initial.rebalance.delay.ms",  # would delay the test
    "log.initial.task.delay.ms",
}


def largest(setting: Any) -> str | None:
    """The largest value that the setting accepts; None if it is not a duration."""
    if not setting.name.endswith(".ms") or setting.type not in LARGEST or setting.name in NOT_AT_ONCE:
        return None
    value = LARGEST[setting.type]
    while value:
        try:
            setting.parse(str(value))
        except ConfigError:
            value //= 2
        else:
            return str(value)
    return None


BROKER_VALUES = {
    setting.name: value
    for setting in BROKER_SETTINGS.values()
    if setting.acted_on and (value := largest(setting)) is not None
}
TOPIC_VALUES = {
    setting.name: value
    for setting in topic_settings.SETTINGS.values()
    if setting.acted_on and (value := largest(setting)) is not None
}


def work(server: RunningServer, name: str, **configs: Any) -> None:
    """The work that the settings affect: appends, lookups, retention, compaction, expiry of producers and offsets."""
    server.create_topic(name, **configs)
    now_ms = server.broker.now_ms()
    partition = server.partition(name, 0)
    with server.wire() as wire:
        for value in (b"1", None):
            batch = build_batch([Record(0, now_ms, b"key", value)])
            assert produce(wire, name, batch).error_code == 0
        request = ListOffsetsRequest(
            topics=[ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=now_ms)])]
        )
        assert wire.call(request, 7).topics[0].partitions[0].offset == 0
        offsets = OffsetCommitRequestTopic(
            name=name, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
        )
        commit = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            retention_time_ms=2**63 - 1,
            topics=[offsets],
        )
        wire.call(FindCoordinatorRequest(key="g"), 3)
        server.wait_until(lambda: all(runtime.state is State.ACTIVE for runtime in server.broker.groups.runtimes()))
        assert wire.call(commit, 4).topics[0].partitions[0].error_code == 0
        server.await_(lambda: server.broker.log_cleaner.compact_now([partition.log]))
        server.call(lambda: partition.log.find_old_segments(partition.high_watermark, server.broker.now_ms()))
        server.call(lambda: partition.log.expire_producers(server.broker.now_ms()))
        assert values(fetch(wire, name))[-1] is None


@pytest.mark.parametrize("setting", sorted(TOPIC_VALUES))
def test_a_topic_with_the_largest_duration_works(server: RunningServer, setting: Any) -> None:
    work(server, "t", **{"cleanup_policy": "compact", setting: TOPIC_VALUES[setting]})


def test_a_server_with_the_largest_durations_works(tmp_path: Path) -> None:
    server = RunningServer([tmp_path], BROKER_VALUES).start()
    try:
        work(server, "t", cleanup_policy="compact")
    finally:
        server.stop()

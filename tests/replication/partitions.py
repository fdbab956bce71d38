"""Partitions on the in-memory file system, for tests of `moldau.replication`. The local broker has the id 1."""

from __future__ import annotations

from typing import Any

from moldau.log.config import LogConfig
from moldau.log.descriptors import DescriptorCache
from moldau.log.memory_files import MemoryFileSystem
from moldau.log.partition_loading import load_log
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.records import Record, build_batch
from moldau.replication.partition import Partition

NOW = 1_700_000_000_000
TOPIC_ID = b"\1" * 16
DIRECTORY = "/data/t-0"


def new_partition(
    file_system: Any = None, *, clean: bool = True, request_flush: Any = None, **config: Any
) -> Partition:
    """A newly opened partition without a leader from the controller."""
    if file_system is None:
        file_system = MemoryFileSystem()
        file_system.make_directory(DIRECTORY)
    log = load_log(DescriptorCache(file_system, 8), DIRECTORY, "t", 0, LogConfig(**config), clean=clean, now_ms=NOW)
    return Partition("t", TOPIC_ID, 0, 1, log, request_flush)


def open_partition(file_system: Any = None, **options: Any) -> Partition:
    """A partition whose only replica leads in leader epoch 3."""
    partition = new_partition(file_system, **options)
    lead(partition)
    return partition


def lead(
    partition: Partition,
    leader_epoch: int = 3,
    partition_epoch: int = 0,
    replicas: tuple[int, ...] = (1,),
    isr: tuple[int, ...] = (1,),
) -> bool:
    """The controller makes broker 1 the leader."""
    return partition.become_leader(
        leader_epoch=leader_epoch, partition_epoch=partition_epoch, replicas=replicas, isr=isr, now_ms=NOW
    )


def follow(
    partition: Partition,
    leader_epoch: int = 4,
    partition_epoch: int = 1,
    *,
    leader_id: int = 2,
    replicas: tuple[int, ...] = (1, 2),
    isr: tuple[int, ...] = (1, 2),
) -> bool:
    """The controller makes another broker the leader; -1 means no leader."""
    return partition.become_follower(
        leader_id=leader_id, leader_epoch=leader_epoch, partition_epoch=partition_epoch, replicas=replicas, isr=isr
    )


def plain_batch(count: int = 1) -> bytes:
    return build_batch([Record(0, NOW, None, b"plain")] * count)


def append(partition: Partition, count: int = 1, acks: int = -1) -> Any:
    return partition.append(plain_batch(count), acks=acks, now_ms=NOW)


def refusal_of(function: Any, *arguments: Any, **options: Any) -> ErrorCode:
    """Return the error code of a call that must fail."""
    try:
        function(*arguments, **options)
    except KafkaError as error:
        return error.code
    raise AssertionError("nothing was refused")


class Waiter:
    """Counts its notifications."""

    def __init__(self) -> None:
        self.notified = 0
        self.changed = 0

    def enough(self) -> None:
        self.notified += 1

    def partition_changed(self) -> None:
        self.changed += 1

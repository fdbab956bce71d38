"""Timed starts, and the time until a partition is available again."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ..testing.builders import produce_request
from ..testing.wire import WireClient
from . import load
from .row import Server

_LATEST = -1
_LIST_OFFSETS_VERSION = 4
_SERVED_SECONDS = 300.0
_ASK_AGAIN_SECONDS = 0.002

# Errors of a server that does not know yet which partitions it leads.
_NOT_YET = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def seconds_to_answer(server: Server) -> float:
    """Start ``server``; returns the time from the creation of its process to its first response."""
    began = time.perf_counter()
    server.start()
    return time.perf_counter() - began


def seconds_to_serve(server: Server, topic: str, partition: int, records: int) -> float:
    """Wait until a running server serves a partition, and check that the partition has all of its ``records``."""
    offset, took = _first_offset(server, lambda wire: _end_offset(wire, topic, partition), f"{topic}-{partition}")
    if offset != records:
        raise RuntimeError(f"{topic}-{partition} had {records} records before the restart, and has {offset}")
    return took


def seconds_to_take_a_record(server: Server, topic: str, partition: int, records: int) -> float:
    """Wait until a running server accepts a record for a partition, and check that its offset follows the
    ``records``."""
    batch = load.batch_of(1, 100)
    offset, took = _first_offset(server, lambda wire: _produce(wire, topic, partition, batch), f"{topic}-{partition}")
    if offset != records:
        raise RuntimeError(f"{topic}-{partition} had {records} records before the restart, and {offset} after it")
    return took


def _first_offset(server: Server, ask: Callable[[WireClient], int | None], what: str) -> tuple[int, float]:
    """Query until there is an offset; also returns the elapsed seconds."""
    began = time.perf_counter()
    with WireClient(server.bootstrap_servers) as wire:
        while (offset := ask(wire)) is None:
            if time.perf_counter() - began > _SERVED_SECONDS:
                raise TimeoutError(f"{what} was not served within {_SERVED_SECONDS:g} s")
            time.sleep(_ASK_AGAIN_SECONDS)
        return offset, time.perf_counter() - began


def _produce(wire: WireClient, topic: str, partition: int, batch: bytes) -> int | None:
    """The record's offset; None while the partition has no leader."""
    answer = wire.call(produce_request(topic, batch, partition=partition), load.PRODUCE_VERSION)
    found = answer.responses[0].partition_responses[0]
    if found.error_code in _NOT_YET:
        return None
    if found.error_code:
        raise KafkaError(ErrorCode(found.error_code), f"producing to {topic}-{partition}")
    offset: int = found.base_offset
    return offset


def _end_offset(wire: WireClient, topic: str, partition: int) -> int | None:
    wanted = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=_LATEST)]
    )
    answer = wire.call(ListOffsetsRequest(topics=[wanted]), _LIST_OFFSETS_VERSION)
    found = answer.topics[0].partitions[0]
    if found.error_code in _NOT_YET:
        return None
    if found.error_code:
        raise KafkaError(ErrorCode(found.error_code), f"asking {topic}-{partition} for its end")
    offset: int = found.offset
    return offset

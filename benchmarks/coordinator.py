"""Auxiliary requests of rows to coordinators: availability, committed offsets, deletion of groups, producer ids."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.delete_groups import DeleteGroupsRequest
from ..protocol.messages.find_coordinator import FindCoordinatorRequest
from ..protocol.messages.init_producer_id import InitProducerIdRequest
from ..protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ..testing.waiting import wait_until
from ..testing.wire import WireClient
from .row import Server

_FIND_COORDINATOR_VERSION = 4
_OFFSET_FETCH_VERSION = 8
_DELETE_GROUPS_VERSION = 2
_INIT_PRODUCER_ID_VERSION = 4

_GROUP, _TRANSACTION = 0, 1
"""The key types of FindCoordinator."""

_TRANSACTION_TIMEOUT_MS = 60_000
_INITIALIZED_TOGETHER = 50

_PATIENCE_SECONDS = 120.0
_ASK_AGAIN_SECONDS = 0.01

# Errors of a server that is about to become the coordinator.
_NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def wait_coordinator(server: Server) -> None:
    """Return when the server coordinates groups. The request also creates the topic of the offsets."""
    with WireClient(server.bootstrap_servers) as wire:
        wait_until(
            lambda: _is_found(wire, _GROUP, "anybody") and committed_offsets(wire, "anybody") is not None,
            "a group coordinator is available",
            seconds=_PATIENCE_SECONDS,
            pause=_ASK_AGAIN_SECONDS,
        )


def committed_offsets(wire: WireClient, group_id: str) -> dict[tuple[str, int], int] | None:
    """All committed offsets of a group, by topic and partition; None while the coordinator is unavailable."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
    (group,) = wire.call(request, _OFFSET_FETCH_VERSION).groups
    if group.error_code in _NOT_YET:
        return None
    _check(group.error_code, f"fetching the offsets of {group_id}")
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in group.topics
        for partition in topic.partitions
    }


def delete_groups(server: Server, group_ids: Sequence[str]) -> None:
    """Delete groups that have no members."""
    with WireClient(server.bootstrap_servers) as wire:
        answer = wire.call(DeleteGroupsRequest(groups_names=list(group_ids)), _DELETE_GROUPS_VERSION)
    for result in answer.results:
        _check(result.error_code, f"deleting {result.group_id}")


def init_producer(server: Server, transactional_id: str) -> tuple[int, int]:
    """The producer id and epoch of a transactional id; earlier producers with it are fenced. The request for the
    coordinator also creates the topic of the transactions."""
    with WireClient(server.bootstrap_servers) as wire:
        wait_until(
            lambda: _is_found(wire, _TRANSACTION, transactional_id),
            "a transaction coordinator is available",
            seconds=_PATIENCE_SECONDS,
            pause=_ASK_AGAIN_SECONDS,
        )
    (producer,) = init_producers(server, [transactional_id])
    return producer


def init_producers(server: Server, transactional_ids: Sequence[str]) -> list[tuple[int, int]]:
    """The same for many ids, once a coordinator is available. A server may temporarily have no producer ids, or not yet
    coordinate all of them; these requests are retried."""
    producers: dict[str, tuple[int, int]] = {}
    missing = list(transactional_ids)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with WireClient(server.bootstrap_servers) as wire:
        while missing:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(missing)} transactional ids have no producer after {_PATIENCE_SECONDS:g} s")
            requested = missing[:_INITIALIZED_TOGETHER]
            for transactional_id in requested:
                request = InitProducerIdRequest(
                    transactional_id=transactional_id, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
                )
                wire.send(request, _INIT_PRODUCER_ID_VERSION)
            for transactional_id in requested:
                answer = wire.receive()
                if answer.error_code not in _NOT_YET:
                    _check(answer.error_code, f"a producer id for {transactional_id}")
                    producers[transactional_id] = answer.producer_id, answer.producer_epoch
            refused = [transactional_id for transactional_id in requested if transactional_id not in producers]
            missing[: len(requested)] = refused
            if refused:
                time.sleep(_ASK_AGAIN_SECONDS)
    return [producers[transactional_id] for transactional_id in transactional_ids]


def _is_found(wire: WireClient, kind: int, key: str) -> bool:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    (found,) = wire.call(request, _FIND_COORDINATOR_VERSION).coordinators
    if found.error_code in _NOT_YET:
        return False
    _check(found.error_code, "finding the coordinator")
    return True


def _check(error_code: int, what: str) -> None:
    if error_code:
        raise KafkaError(ErrorCode(error_code), what)

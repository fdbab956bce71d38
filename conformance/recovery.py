"""What the cases of the layer `crash` share: their declaration, and the wait for what a restarted server loads.

A server accepts connections before its partitions have leaders and before its coordinators have loaded their state.
Until then it responds with retriable errors, which clients retry, and so do these functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages.describe_groups import DescribeGroupsRequest
from ..protocol.messages.describe_transactions import DescribeTransactionsRequest
from ..protocol.messages.init_producer_id import InitProducerIdRequest
from ..protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ..protocol.records import Codec, iter_records
from . import partitions as p
from .case import Layer, case
from .check import Check, Topic
from .exchange import Connection
from .transactional_producer import Producer

crash_case: Final = partial(case, layer=Layer.CRASH, exclusive=True, seconds=60.0)
"""Declares a case that calls `Check.crash`."""

NOT_READY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


def ready(c: Check, *topics: Topic, partitions: int = 1) -> None:
    """Wait until the partitions of these topics have leaders again, and compare the topic IDs."""
    for topic in topics:
        found = c.topic_ready(topic.name, partitions)
        c.equal(found.topic_id, topic.topic_id, f"the ID of the topic {topic.name} after the restart")


def without_load(c: Check, call: Callable[[], Any], what: str) -> Any:
    """Repeat a call until its response has no error by which a coordinator says that it is not ready."""

    def loaded() -> Any:
        response = call()
        return None if response.error_code in NOT_READY else response

    return c.until(loaded, f"{what} without COORDINATOR_LOAD_IN_PROGRESS")


def group_coordinator(c: Check, group: str) -> Connection:
    """A connection to the coordinator of a group, which has loaded the group."""
    wire = c.coordinator(group)
    request = DescribeGroupsRequest(groups=[group])
    without_load(c, lambda: c.call(request, to=wire).groups[0], f"DescribeGroups of {group}")
    return wire


def new_group(c: Check) -> str:
    """A group whose coordinator is ready; a new server first has to create the topic of the offsets."""
    group = c.group()
    with c.setup(f"the coordinator of {group}"):
        group_coordinator(c, group)
    return group


def new_producer(c: Check, *, implicit: bool = False, timeout_ms: int = 600_000) -> Producer:
    """A producer with a transactional ID and a producer ID. Its transactions do not time out during a restart."""
    producer = Producer(c, implicit=implicit, timeout_ms=timeout_ms)
    with c.setup(f"the coordinator of {producer.transactional_id}"):
        _wait_for_transaction(c, producer)
    return producer.begin()


def reconnected(c: Check, producer: Producer) -> Producer:
    """The same producer, with a connection to its coordinator, which has loaded the transaction."""
    again = producer.duplicate()
    _wait_for_transaction(c, again)
    return again


def finish(c: Check, producer: Producer, *, committed: bool = True) -> None:
    """EndTxn without an error, and wait for the markers.

    Until they are written, the coordinator rejects a repeated EndTxn. The state in DescribeTransactions is not what
    these cases test.
    """
    retry = producer.duplicate()
    c.error(producer.end(committed=committed).error_code, ErrorCode.NONE, "EndTxn error_code")
    wait_for_end(c, retry, committed=committed)


def wait_for_end(c: Check, producer: Producer, *, committed: bool) -> None:
    """Repeat EndTxn, which has had a response, until the transaction is complete."""

    def ended() -> bool:
        return producer.duplicate().end(committed=committed).error_code not in NOT_READY

    c.until(ended, "EndTxn without CONCURRENT_TRANSACTIONS")


def _wait_for_transaction(c: Check, producer: Producer) -> None:
    request = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
    without_load(
        c,
        lambda: c.call(request, 0, to=producer.wire).transaction_states[0],
        f"DescribeTransactions of {producer.transactional_id}",
    )


def new_producer_id(c: Check) -> int:
    """The producer ID of a new idempotent producer, whose epoch is 0."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    response = without_load(c, lambda: c.call(request), "InitProducerId")
    c.error(response.error_code, ErrorCode.NONE, "InitProducerId error_code")
    c.equal(response.producer_epoch, 0, "InitProducerId producer_epoch of a new producer ID")
    return int(response.producer_id)


def leader_epoch(c: Check, topic: Topic, partition: int = 0) -> int:
    """The leader epoch of a partition in Metadata."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)])
    (found,) = c.call(request, c.version(ApiKey.METADATA, 12)).topics
    c.error(found.error_code, ErrorCode.NONE, f"Metadata error_code of {topic.name}")
    (epoch,) = [each.leader_epoch for each in found.partitions if each.partition_index == partition]
    return int(epoch)


class StoredRecord(NamedTuple):
    """A record as a consumer sees it, with what its batch says about it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    codec: Codec
    producer_id: int
    producer_epoch: int


def stored_records(c: Check, topic: Topic, *, partition: int = 0) -> list[StoredRecord]:
    """All records of a partition, without control records. Each batch has a valid CRC."""
    found: list[StoredRecord] = []
    for batch in p.read_batches(c, topic, partition=partition):
        c.true(
            batch.has_valid_crc(),
            f"the CRC of the batch at offset {batch.base_offset} of partition {partition}",
            expected="valid",
            actual="invalid",
        )
        if batch.is_control:
            continue
        found += [
            StoredRecord(
                each.offset,
                each.timestamp,
                each.key,
                each.value,
                tuple(each.headers),
                Codec(batch.codec),
                batch.producer_id,
                batch.producer_epoch,
            )
            for each in iter_records(batch)
        ]
    return found

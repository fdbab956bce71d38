"""Producers, as generators that yield requests and receive the responses.

A producer is initialized, writes transactions and ends them. It retries after retriable errors, and stops after others.
Its epoch is bumped with each transaction (KIP-890), or it is an older client.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moldau.protocol.errors import ErrorCode

from ..harness import NO_PRODUCER, Producer
from .calls import LOST, Add, End, Init, Pause, Verify, Write
from .partitions import Entry

if TYPE_CHECKING:
    from .world import World

RETRIED_ERRORS = (
    LOST,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)

FATAL = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
)

Steps = Generator[Any, Any, Any]


@dataclass
class History:
    """One transaction, as its producer knows it."""

    transactional_id: str
    number: int
    producer: Producer
    acked: list[Entry] = field(default_factory=list)
    requested_commit: bool = False
    outcome: bool | None = None
    """Whether the response said that it was committed; None without a response."""


class ProducerStoppedError(Exception):
    """The producer cannot continue."""


def run(world: World, transactional_id: str, *, bumps: bool) -> Steps:
    """The life of a producer."""
    producer = NO_PRODUCER
    try:
        producer = yield from begin(world, transactional_id, NO_PRODUCER, bumps=bumps)
        while world.has_faults and world.random.random() < 0.85:
            try:
                producer = yield from one_transaction(world, transactional_id, producer, bumps=bumps)
            except ProducerStoppedError:
                if world.random.random() < 0.5:
                    raise
                producer = yield from begin(world, transactional_id, producer, bumps=bumps)
    except ProducerStoppedError:
        world.note("{} stops as {}", transactional_id, producer)


def begin(world: World, transactional_id: str, expected: Producer, *, bumps: bool) -> Steps:
    response = yield from with_retries(
        lambda: Init(world, transactional_id, expected, may_be_late=bumps and world.has_faults)
    )
    return Producer(response.producer_id, response.producer_epoch)


def one_transaction(world: World, transactional_id: str, producer: Producer, *, bumps: bool) -> Steps:
    """Returns the producer ID and epoch afterwards."""
    history = world.new_transaction(transactional_id, producer)
    is_whole = True
    for number in range(world.random.randint(1, 5)):
        partition = world.random.choice(world.partitions)
        if not bumps:
            yield from with_retries(
                lambda where=partition: Add(world, transactional_id, producer, [where.name], bumps=False)
            )
        entry = Entry(history.number, number, producer)
        is_whole = yield from write(world, history, Write(partition, transactional_id, entry, bumps=bumps))
        if not is_whole or (world.has_faults and world.random.random() < 0.02):
            break
    if world.has_faults and world.random.random() < 0.05:
        raise ProducerStoppedError  # the process crashes and leaves its transaction open
    committed = is_whole and world.random.random() < 0.7
    history.requested_commit = committed
    response = yield from with_retries(lambda: End(world, transactional_id, producer, committed=committed, bumps=bumps))
    history.outcome = committed
    if bumps:
        return Producer(response.producer_id, response.producer_epoch)
    return producer if is_whole else (yield from begin(world, transactional_id, producer, bumps=False))


def write(world: World, history: History, call: Write) -> Steps:
    """Whether the write succeeded; if not, the transaction must be aborted."""
    while True:
        response = yield call
        if response is ErrorCode.NONE:
            history.acked.append(call.entry)
            return True
        if response in FATAL:
            raise ProducerStoppedError
        if response not in RETRIED_ERRORS or (world.has_faults and world.random.random() < 0.1):
            return False
        yield Pause()


def with_retries(make: Any) -> Steps:
    """Repeat a request until it succeeds. Raises ProducerStoppedError after a fatal error."""
    while True:
        response = yield make()
        if response in FATAL:
            raise ProducerStoppedError
        if not isinstance(response, str | ErrorCode) or response is ErrorCode.NONE:
            return response
        assert response in RETRIED_ERRORS, response
        yield Pause()


def serve_write(world: World, call: Write) -> Steps:
    """The leader of the partition processes a write; returns the error code."""
    partition, producer = call.partition, call.entry.producer
    if partition.is_fenced(producer):
        return ErrorCode.PRODUCER_FENCED
    guard = None
    if not partition.is_open(producer):
        if partition.has(call.entry):
            return ErrorCode.NONE if partition.outcomes[call.entry] else ErrorCode.PRODUCER_FENCED
        guard = partition.start_verification(producer)
        if call.bumps:
            response = yield Add(world, call.transactional_id, producer, [partition.name], bumps=True)
        else:
            response = yield Verify(world, call.transactional_id, producer, partition.name)
        if response not in (None, ErrorCode.NONE):
            return response
    if partition.has(call.entry):
        return ErrorCode.NONE
    if not partition.append(call.entry, guard):
        return ErrorCode.TRANSACTION_ABORTABLE
    world.written(call)
    return ErrorCode.NONE

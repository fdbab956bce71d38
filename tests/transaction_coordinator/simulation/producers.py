"""Producers, as generators that yield what they ask for and are sent what is answered.

One begins, writes transactions, and ends them; it tries again what may be tried again, and gives up what it has to. It
has its epoch bumped with every transaction (KIP-890) or is a client from before that.
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

COME_AGAIN = (
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
    """What a producer knows of one of its transactions."""

    transactional_id: str
    number: int
    producer: Producer
    acked: list[Entry] = field(default_factory=list)
    asked_to_commit: bool = False
    outcome: bool | None = None
    """Whether the response said that it was committed; None without a response."""


class GaveUpError(Exception):
    """There is nothing left to do for this producer."""


def run(world: World, transactional_id: str, *, bumps: bool) -> Steps:
    """The life of a producer."""
    producer = NO_PRODUCER
    try:
        producer = yield from begin(world, transactional_id, NO_PRODUCER, bumps=bumps)
        while world.is_broken and world.random.random() < 0.85:
            try:
                producer = yield from one_transaction(world, transactional_id, producer, bumps=bumps)
            except GaveUpError:
                if world.random.random() < 0.5:
                    raise
                producer = yield from begin(world, transactional_id, producer, bumps=bumps)
    except GaveUpError:
        world.note("{} gives up as {}", transactional_id, producer)


def begin(world: World, transactional_id: str, expected: Producer, *, bumps: bool) -> Steps:
    response = yield from again_and_again(
        lambda: Init(world, transactional_id, expected, may_come_late=bumps and world.is_broken)
    )
    return Producer(response.producer_id, response.producer_epoch)


def one_transaction(world: World, transactional_id: str, producer: Producer, *, bumps: bool) -> Steps:
    """Returns who the producer is afterwards."""
    history = world.new_transaction(transactional_id, producer)
    is_whole = True
    for number in range(world.random.randint(1, 5)):
        partition = world.random.choice(world.partitions)
        if not bumps:
            yield from again_and_again(
                lambda where=partition: Add(world, transactional_id, producer, [where.name], bumps=False)
            )
        entry = Entry(history.number, number, producer)
        is_whole = yield from write(world, history, Write(partition, transactional_id, entry, bumps=bumps))
        if not is_whole or (world.is_broken and world.random.random() < 0.02):
            break
    if world.is_broken and world.random.random() < 0.05:
        raise GaveUpError  # the process dies, and leaves its transaction open
    committed = is_whole and world.random.random() < 0.7
    history.asked_to_commit = committed
    response = yield from again_and_again(
        lambda: End(world, transactional_id, producer, committed=committed, bumps=bumps)
    )
    history.outcome = committed
    if bumps:
        return Producer(response.producer_id, response.producer_epoch)
    return producer if is_whole else (yield from begin(world, transactional_id, producer, bumps=False))


def write(world: World, history: History, call: Write) -> Steps:
    """Whether it is written; otherwise the transaction has to be aborted."""
    while True:
        answer = yield call
        if answer is ErrorCode.NONE:
            history.acked.append(call.entry)
            return True
        if answer in FATAL:
            raise GaveUpError
        if answer not in COME_AGAIN or (world.is_broken and world.random.random() < 0.1):
            return False
        yield Pause()


def again_and_again(make: Any) -> Steps:
    """Until there is an answer that says something."""
    while True:
        answer = yield make()
        if answer in FATAL:
            raise GaveUpError
        if not isinstance(answer, str | ErrorCode) or answer is ErrorCode.NONE:
            return answer
        assert answer in COME_AGAIN, answer
        yield Pause()


def serve_write(world: World, call: Write) -> Steps:
    """What the leader of the partition does with a write; returns the error code."""
    partition, producer = call.partition, call.entry.producer
    if partition.is_fenced(producer):
        return ErrorCode.PRODUCER_FENCED
    guard = None
    if not partition.is_open(producer):
        if partition.has(call.entry):
            return ErrorCode.NONE if partition.outcomes[call.entry] else ErrorCode.PRODUCER_FENCED
        guard = partition.start_verification(producer)
        if call.bumps:
            answer = yield Add(world, call.transactional_id, producer, [partition.name], bumps=True)
        else:
            answer = yield Verify(world, call.transactional_id, producer, partition.name)
        if answer not in (None, ErrorCode.NONE):
            return answer
    if partition.has(call.entry):
        return ErrorCode.NONE
    if not partition.append(call.entry, guard):
        return ErrorCode.TRANSACTION_ABORTABLE
    world.written(call)
    return ErrorCode.NONE

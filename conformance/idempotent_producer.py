"""An idempotent producer (KIP-98) that sends every sequence number itself."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..protocol.errors import ErrorCode
from ..protocol.messages.init_producer_id import InitProducerIdRequest
from . import partitions as p
from .check import Check, Topic
from .record_batches import batch


class Reply(NamedTuple):
    """What a producer looks at in the response to a batch."""

    error: str
    base_offset: int


class IdempotentProducer:
    """A new producer ID, and batches with it."""

    def __init__(self, c: Check, topic: Topic) -> None:
        self._c = c
        self._topic = topic
        self.producer_id, self.epoch = new_producer_id(c)

    def send(
        self, sequence: int, *, count: int = 1, epoch: int | None = None, partition: int = 0, version: int | None = None
    ) -> Reply:
        """A batch of `count` records, whose values are their sequence numbers."""
        data = batch(
            *[b"%d" % (sequence + number) for number in range(count)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
        )
        answer = p.produce(self._c, self._topic, data, partition=partition, version=version)
        # `produce.error-base-offset` tests the offset of an error; no client reads it.
        no_offset = answer.error_code and answer.base_offset in p.NO_OFFSETS
        return Reply(ErrorCode(answer.error_code).name, -1 if no_offset else answer.base_offset)


def new_producer_id(c: Check) -> tuple[int, int]:
    """A producer ID and its epoch, as a step of the setup."""

    def ask() -> Any:
        response = c.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
        if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return None  # the broker has no block of IDs yet
        c.error(response.error_code, ErrorCode.NONE, "InitProducerId error_code")
        return response

    with c.setup("obtaining a producer ID"):
        response = c.until(ask, "a producer ID")
    return response.producer_id, response.producer_epoch

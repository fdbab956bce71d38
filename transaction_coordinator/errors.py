"""The errors for a producer that was replaced by another one, and for one that this coordinator does not know yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ..coordinator.outcome import Caller


def fenced(caller: Caller, since_version: int) -> KafkaError:
    """PRODUCER_FENCED (KIP-588); before ``since_version`` of the API, INVALID_PRODUCER_EPOCH."""
    is_known = caller.api_version >= since_version
    return KafkaError(ErrorCode.PRODUCER_FENCED if is_known else ErrorCode.INVALID_PRODUCER_EPOCH)


def unknown_epoch(caller: Caller, since_version: int, *, known: int, given: int) -> KafkaError:
    """The error for another epoch than the known one of the producer.

    Only coordinators issue epochs. So a later one is from another coordinator, and this one does not know yet that it
    was replaced: NOT_COORDINATOR, and the request is repeated elsewhere. Apache Kafka responds with PRODUCER_FENCED,
    which ends a producer for no reason.
    """
    return KafkaError(ErrorCode.NOT_COORDINATOR) if given > known else fenced(caller, since_version)

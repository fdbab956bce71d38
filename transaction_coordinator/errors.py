"""The error for a producer that was replaced by another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ..coordinator.outcome import Caller


def fenced(caller: Caller, since_version: int) -> KafkaError:
    """PRODUCER_FENCED (KIP-588); before ``since_version`` of the API, INVALID_PRODUCER_EPOCH."""
    is_known = caller.api_version >= since_version
    return KafkaError(ErrorCode.PRODUCER_FENCED if is_known else ErrorCode.INVALID_PRODUCER_EPOCH)

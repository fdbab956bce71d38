"""Transaction verification by a coordinator on another broker: AddPartitionsToTxn, version 4 or 5 (KIP-890).

The questions of one iteration of the event loop that go to the same broker share a request. A transactional id occurs
in a request once, because the response identifies transactions by it; `Verifications` lets the requests of one id enter
one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...protocol.errors import ErrorCode, KafkaError, known_error
from ...protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ...protocol.schema import Versions
from ..network.links import LinkError

if TYPE_CHECKING:
    from ...coordinator.outcome import Producer
    from .broker_links import BrokerLinks

PURPOSE: Final = "add-partitions-to-txn"
VERSIONS: Final = Versions(4, AddPartitionsToTxnRequest.STABLE_VERSIONS.highest)
"""Earlier versions are for clients, and have one transaction."""

Codes = dict[tuple[str, int], ErrorCode]
Verified = Callable[[Codes | KafkaError], None]


class _Batch:
    """One request to one broker."""

    __slots__ = ("questions", "verified")

    def __init__(self) -> None:
        self.questions: list[AddPartitionsToTxnTransaction] = []
        self.verified: dict[str, Verified] = {}  # by transactional id


class RemoteVerification:
    """Asks the coordinators of other brokers."""

    def __init__(self, peers: BrokerLinks, run_soon: Callable[[Callable[[], None]], None]) -> None:
        """``run_soon`` calls back at the end of the iteration of the event loop."""
        self._peers = peers
        self._run_soon = run_soon
        self._batches: dict[int, list[_Batch]] = {}  # by node id

    def ask(
        self,
        node_id: int,
        transactional_id: str,
        producer: Producer,
        partitions: list[tuple[str, int]],
        *,
        verify_only: bool,
        verified: Verified,
    ) -> None:
        """Add partitions to a transaction or, with ``verify_only``, check whether they were added.

        ``verified`` is called once, later, with the error of each partition, or one error for all. Errors of the
        connection are NETWORK_EXCEPTION.
        """
        by_topic: dict[str, list[int]] = {}
        for topic, index in partitions:
            by_topic.setdefault(topic, []).append(index)
        question = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic.items()],
        )
        if not self._batches:
            self._run_soon(self._send)
        batches = self._batches.setdefault(node_id, [_Batch()])
        if transactional_id in batches[-1].verified:
            batches.append(_Batch())
        batches[-1].questions.append(question)
        batches[-1].verified[transactional_id] = verified

    def _send(self) -> None:
        all_batches, self._batches = self._batches, {}
        for node_id, batches in all_batches.items():
            link = self._peers.link(node_id, PURPOSE)
            for batch in batches:
                if link is None:
                    reason = f"Broker {node_id}, the transaction coordinator, is not registered."
                    _end_all(batch, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason))
                    continue
                link.send(
                    AddPartitionsToTxnRequest(transactions=batch.questions),
                    VERSIONS,
                    lambda response, error, batch=batch: _answered(batch, response, error),  # type: ignore[misc]
                    timeout_ms=self._peers.request_timeout_ms,
                )


def _answered(batch: _Batch, response: AddPartitionsToTxnResponse | None, error: Exception | None) -> None:
    if response is None:
        if isinstance(error, LinkError):
            error = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
        assert isinstance(error, KafkaError)
        _end_all(batch, error)
        return
    if response.error_code:
        code = known_error(response.error_code)
        # A producer would not know what the authorization of a broker means.
        _end_all(
            batch,
            KafkaError(ErrorCode.INVALID_TXN_STATE if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code),
        )
        return
    for result in response.results_by_transaction:
        verified = batch.verified.pop(result.transactional_id, None)
        if verified is not None:
            verified(
                {
                    (topic.name, partition.partition_index): known_error(partition.partition_error_code)
                    for topic in result.topic_results
                    for partition in topic.results_by_partition
                }
            )
    _end_all(batch, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The response does not contain the transaction."))


def _end_all(batch: _Batch, error: KafkaError) -> None:
    remaining, batch.verified = batch.verified, {}
    for verified in remaining.values():
        verified(error)

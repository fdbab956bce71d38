"""Transaction markers for partitions that other brokers lead: WriteTxnMarkers (KIP-98).

The markers of one iteration of the event loop that go to the same broker share a request. A request has one marker for
each producer, because the response identifies markers by producer id; a second one goes into another request.

Each marker is written once: the coordinator retries, with the leader of that time (`transactions`). A request whose
response was lost may have written its markers. A repetition does no harm: the partition accepts it (KAFKA-19999), or
rejects it with INVALID_PRODUCER_EPOCH if the producer has a newer epoch, which means that the marker is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ..network.links import LinkError

if TYPE_CHECKING:
    from .broker_links import BrokerLinks

PURPOSE: Final = "txn-marker-sender"

Written = Callable[[KafkaError | None], None]


class _Batch:
    """One request to one broker."""

    __slots__ = ("markers", "written")

    def __init__(self) -> None:
        self.markers: dict[int, WritableTxnMarker] = {}  # by producer id
        self.written: dict[tuple[int, str, int], Written] = {}  # by producer id, topic, partition

    def add(self, marker: WritableTxnMarker, topic: str, index: int, written: Written) -> bool:
        """Add the marker of one partition. Returns False if it needs another request."""
        same = self.markers.setdefault(marker.producer_id, marker)
        if _attributes(same) != _attributes(marker) or (marker.producer_id, topic, index) in self.written:
            return False
        for entry in same.topics:
            if entry.name == topic:
                break
        else:
            entry = WritableTxnMarkerTopic(name=topic)
            same.topics.append(entry)
        entry.partition_indexes.append(index)
        self.written[marker.producer_id, topic, index] = written
        return True


class RemoteMarkers:
    """Sends markers to other brokers."""

    def __init__(self, peers: BrokerLinks, run_soon: Callable[[Callable[[], None]], None]) -> None:
        """``run_soon`` calls back at the end of the iteration of the event loop."""
        self._peers = peers
        self._run_soon = run_soon
        self._batches: dict[int, list[_Batch]] = {}  # by node id

    def write(
        self,
        node_id: int,
        topic: str,
        index: int,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int,
        written: Written,
    ) -> None:
        """Write the marker of one transaction into one partition that this broker leads: see `MarkerWriter.write`.

        An error other than those of the partition means that it is unknown whether the marker was written.
        """
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=committed,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        if not self._batches:
            self._run_soon(self._send)
        batches = self._batches.setdefault(node_id, [_Batch()])
        if not batches[-1].add(marker, topic, index, written):
            batches.append(_Batch())
            batches[-1].add(marker, topic, index, written)

    def _send(self) -> None:
        all_batches, self._batches = self._batches, {}
        for node_id, batches in all_batches.items():
            link = self._peers.link(node_id, PURPOSE)
            for batch in batches:
                if link is None:
                    _end_all(batch, KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {node_id} is not registered."))
                    continue
                request = WriteTxnMarkersRequest(markers=list(batch.markers.values()))
                link.send(
                    request,
                    WriteTxnMarkersRequest.STABLE_VERSIONS,
                    lambda response, error, batch=batch: _answered(batch, response, error),  # type: ignore[misc]
                    timeout_ms=self._peers.request_timeout_ms,
                )


def _answered(batch: _Batch, response: WriteTxnMarkersResponse | None, error: Exception | None) -> None:
    if response is None:
        if isinstance(error, LinkError):
            error = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
        assert isinstance(error, KafkaError)
        _end_all(batch, error)
        return
    for result in response.markers:
        for topic in result.topics:
            for partition in topic.partitions:
                written = batch.written.pop((result.producer_id, topic.name, partition.partition_index), None)
                if written is not None:
                    written(_error_of(partition.error_code))
    _end_all(batch, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The response does not contain the partition."))


def _end_all(batch: _Batch, error: KafkaError) -> None:
    remaining, batch.written = batch.written, {}
    for written in remaining.values():
        written(error)


def _error_of(code: int) -> KafkaError | None:
    if not code:
        return None
    try:
        return KafkaError(ErrorCode(code))
    except ValueError:  # of a newer version
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"error code {code}")


def _attributes(marker: WritableTxnMarker) -> tuple[Any, ...]:
    return (
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
    )

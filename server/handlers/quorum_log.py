"""Fetch and FetchSnapshot (API keys 1, 59) on a controller listener: observers replicate the metadata log.

- Fetch 12 to 18 of the only partition, `__cluster_metadata-0`. There are no sessions. Records are sent from the file,
  up to the high watermark, which is the flushed offset.
- A fetch at the end of the log waits for the next change. Since version 18 it does not wait if the observer knows an
  older high watermark (KIP-1166).
- Every response names the leader, and since version 16 its address.
- FetchSnapshot 0 to 1: a piece of a snapshot file, which a thread reads.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...metadata.checkpoint import SnapshotId as StoredSnapshotId
from ...metadata.observer_reads import (
    Diverging,
    FromSnapshot,
    LeaderLog,
    Piece,
    check_leader_epoch,
    position_of,
    snapshot_piece,
)
from ...metadata.topic_names import CLUSTER_METADATA
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from ...protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    ResponsePartitionSnapshot,
    ResponseTopicSnapshot,
)
from ...protocol.messages.fetch_snapshot import LeaderIdAndEpoch as SnapshotLeader
from ...protocol.messages.fetch_snapshot import NodeEndpoint as SnapshotEndpoint
from ...protocol.messages.fetch_snapshot import SnapshotId as RequestedSnapshot
from ...protocol.uuid import ONE_UUID
from ..concurrency.slices import SlicedFuture
from ..context import DEFERRED, Deferred

if TYPE_CHECKING:
    from ..concurrency.slices import Sliced
    from ..context import RequestContext
    from ..controller_node import ControllerNode

_TOPIC_IDS_SINCE = 13
_REPLICA_STATE_SINCE = 15
_ENDPOINTS_SINCE = 16
_KNOWN_WATERMARK_SINCE = 18
_SNAPSHOT_ENDPOINTS_SINCE = 1


def handle_fetch(node: ControllerNode, context: RequestContext, request: FetchRequest) -> FetchResponse | Deferred:
    """Respond now, or when the log has grown."""
    requested = _checked(node, context.api_version, request)
    log = node.metadata.metadata_log
    error = check_leader_epoch(requested.current_leader_epoch, log.epoch)
    if error:
        return _response(node, context.api_version, PartitionData(error_code=error, high_watermark=-1, records=b""))
    latest = log.latest_snapshot
    leader = LeaderLog(
        log.start_offset, log.earliest_snapshot, latest, log.log.leader_epochs.latest, log.log.end_offset_for_epoch
    )
    position = position_of(requested.fetch_offset, requested.last_fetched_epoch, leader)
    if isinstance(position, Diverging | FromSnapshot):
        partition = _partition(node)
        if isinstance(position, Diverging):
            partition.diverging_epoch = EpochEndOffset(epoch=position.epoch, end_offset=position.end_offset)
        else:
            snapshot = position.snapshot
            partition.snapshot_id = SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
        return _response(node, context.api_version, partition)
    replica_id = request.replica_state.replica_id if context.api_version >= _REPLICA_STATE_SINCE else request.replica_id
    if replica_id >= 0:
        now_ms = node.now_ms()
        node.observers.fetched(
            replica_id, requested.replica_directory_id, requested.fetch_offset, log.flushed_offset, now_ms
        )
    knows_watermark = context.api_version < _KNOWN_WATERMARK_SINCE or requested.high_watermark >= log.flushed_offset
    if requested.fetch_offset >= log.flushed_offset and knows_watermark and request.max_wait_ms > 0:
        node.wait_for_change(
            context, request.max_wait_ms, partial(_read, node, context.api_version, request, requested)
        )
        return DEFERRED
    return _read(node, context.api_version, request, requested)


def failed_fetch(request: FetchRequest, error: KafkaError) -> FetchResponse:
    """The error for the whole request."""
    return FetchResponse(error_code=error.code)


def _checked(node: ControllerNode, version: int, request: FetchRequest) -> FetchPartition:
    """The only partition of the request. Raises for any other request."""
    if request.cluster_id is not None and request.cluster_id != node.cluster_id:
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    topic, requested = request.topics[0], request.topics[0].partitions[0]
    is_known = topic.topic_id == ONE_UUID if version >= _TOPIC_IDS_SINCE else topic.topic == CLUSTER_METADATA
    if not is_known or requested.partition != 0:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if request.max_wait_ms < 0 or requested.fetch_offset < 0 or requested.last_fetched_epoch < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return requested


def _read(node: ControllerNode, version: int, request: FetchRequest, requested: FetchPartition) -> FetchResponse:
    log = node.metadata.metadata_log
    partition = _partition(node)
    if requested.fetch_offset < log.flushed_offset:
        max_bytes = min(requested.partition_max_bytes or request.max_bytes, request.max_bytes, node.fetch_max_bytes)
        found = log.log.read(requested.fetch_offset, max_bytes, max_offset=log.flushed_offset, min_one_batch=True)
        partition.records = b"" if found.records is None else found.records
    return _response(node, version, partition)


def _partition(node: ControllerNode) -> PartitionData:
    log = node.metadata.metadata_log
    return PartitionData(high_watermark=log.flushed_offset, log_start_offset=log.start_offset, records=b"")


def _response(node: ControllerNode, version: int, partition: PartitionData) -> FetchResponse:
    partition.current_leader = LeaderIdAndEpoch(leader_id=node.node_id, leader_epoch=node.metadata.metadata_log.epoch)
    topic = FetchableTopicResponse(partitions=[partition])
    if version >= _TOPIC_IDS_SINCE:
        topic.topic_id = ONE_UUID
    else:
        topic.topic = CLUSTER_METADATA
    response = FetchResponse(responses=[topic])
    if version >= _ENDPOINTS_SINCE:
        endpoint = node.endpoint
        response.node_endpoints = [NodeEndpoint(node_id=node.node_id, host=endpoint.host, port=endpoint.port)]
    return response


def handle_fetch_snapshot(
    node: ControllerNode, context: RequestContext, request: FetchSnapshotRequest
) -> Sliced[FetchSnapshotResponse]:
    """A piece of the snapshot that a response to Fetch has named."""
    if request.cluster_id is not None and request.cluster_id != node.cluster_id:
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    topic, requested = request.topics[0], request.topics[0].partitions[0]
    if topic.name != CLUSTER_METADATA or requested.partition != 0:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    answer = yield from _snapshot_piece(node, request, requested)
    log = node.metadata.metadata_log
    answer.current_leader = SnapshotLeader(leader_id=node.node_id, leader_epoch=log.epoch)
    response = FetchSnapshotResponse(topics=[ResponseTopicSnapshot(name=CLUSTER_METADATA, partitions=[answer])])
    if context.api_version >= _SNAPSHOT_ENDPOINTS_SINCE:
        endpoint = node.endpoint
        response.node_endpoints = [SnapshotEndpoint(node_id=node.node_id, host=endpoint.host, port=endpoint.port)]
    return response


def failed_fetch_snapshot(request: FetchSnapshotRequest, error: KafkaError) -> FetchSnapshotResponse:
    """The error for the whole request."""
    return FetchSnapshotResponse(error_code=error.code)


def _snapshot_piece(
    node: ControllerNode, request: FetchSnapshotRequest, requested: PartitionSnapshot
) -> Sliced[ResponsePartitionSnapshot]:
    log = node.metadata.metadata_log
    wanted = StoredSnapshotId(requested.snapshot_id.end_offset, requested.snapshot_id.epoch)
    error = check_leader_epoch(requested.current_leader_epoch, log.epoch)
    path = log.snapshot_path(wanted)
    if not error and path is None:
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    if error or path is None:
        return _no_piece(wanted, error)
    max_bytes = min(request.max_bytes, node.snapshot_max_bytes)
    read: SlicedFuture[tuple[int, bytes] | ErrorCode] = SlicedFuture(node.slices)
    node.in_thread(partial(_read_piece, node, path, requested.position, max_bytes), read)
    found = yield from read.result()
    if isinstance(found, ErrorCode):
        return _no_piece(wanted, found)
    size, data = found
    return ResponsePartitionSnapshot(
        snapshot_id=RequestedSnapshot(end_offset=wanted.end_offset, epoch=wanted.epoch),
        size=size,
        position=requested.position,
        unaligned_records=data,
    )


def _no_piece(snapshot: StoredSnapshotId, error: ErrorCode) -> ResponsePartitionSnapshot:
    named = RequestedSnapshot(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
    return ResponsePartitionSnapshot(error_code=error, snapshot_id=named, unaligned_records=b"")


def _read_piece(node: ControllerNode, path: str, position: int, max_bytes: int) -> tuple[int, bytes] | ErrorCode:
    """Runs in a thread."""
    try:
        file = node.file_system.open(path, read_only=True)
    except FileNotFoundError:  # deleted in the meantime
        return ErrorCode.SNAPSHOT_NOT_FOUND
    try:
        size = file.size()
        piece = snapshot_piece(position, max_bytes, size)
        return (size, file.read_at(piece.position, piece.length)) if isinstance(piece, Piece) else piece
    finally:
        file.close()

"""Controllers in memory, for tests of a broker whose controllers are remote: no process, no socket, and a clock that
the test moves.

A `Quorum` has controllers that answer by their state: who leads, in which epoch, what is committed. Their metadata log
is that of a real controller of Moldau. A `Host` has the network, the clock and the slices of the broker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from moldau.config.sources import BrokerConfig, StaticValue
from moldau.log.memory_files import MemoryFileSystem
from moldau.metadata.checkpoint import SnapshotId
from moldau.metadata.followed import FollowedMetadata
from moldau.metadata.observer import Address
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import fetch as fetches
from moldau.protocol.messages import fetch_snapshot as snapshots
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from moldau.protocol.messages.headers import RequestHeader
from moldau.protocol.schema import Response
from moldau.server.cluster.link_peer import connect_by
from moldau.server.concurrency.slices import Slices
from moldau.server.network import dialing
from moldau.testing.memory_dialer import MemoryEnd

from ..metadata.test_followed import DIRECTORY, NOW
from ..metadata.test_followed import Controller as LeaderLog
from .test_links import ScriptedPeer, SteppedLinks, versions_of

APIS: tuple[tuple[int, int, int], ...] = (
    (ApiKey.API_VERSIONS, 0, 4),
    (ApiKey.FETCH, 4, 18),
    (ApiKey.FETCH_SNAPSHOT, 0, 1),
    (ApiKey.ENVELOPE, 0, 0),
    (ApiKey.BROKER_REGISTRATION, 0, 4),
    (ApiKey.BROKER_HEARTBEAT, 0, 2),
    (ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0),
    (ApiKey.CREATE_TOPICS, 2, 7),
    (ApiKey.DELETE_TOPICS, 1, 6),
)


class Host(SteppedLinks):
    """What a broker has in common with its connections: time, callbacks, files."""

    def __init__(self) -> None:
        super().__init__(capacity=16 << 20)
        self.connect = connect_by(self.links)
        self.slices = Slices(self._callbacks.append)
        self.files = MemoryFileSystem()
        self.jobs: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()
        self.holds_jobs = False
        """Whether jobs of threads wait until `run_job`."""
        self._futures = asyncio.new_event_loop()

    def run_in_thread(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = _ImmediateFuture(loop=self._futures)
        self.jobs.append((future, work))
        if not self.holds_jobs:
            self._callbacks.append(self.run_job)
        return future

    def run_job(self) -> None:
        future, work = self.jobs.popleft()
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised in the waiting caller, as from a thread
            future.set_exception(error)

    def close(self) -> None:
        self._futures.close()


class _ImmediateFuture(asyncio.Future[Any]):
    """A future that calls back without an event loop."""

    def add_done_callback(self, callback: Callable[..., Any], **_: Any) -> None:
        self._callback = callback

    def set_result(self, result: Any) -> None:
        super().set_result(result)
        self._callback(self)

    def set_exception(self, exception: Any) -> None:
        super().set_exception(exception)
        self._callback(self)


class Node:
    """One controller: answers by the state of its quorum, or keeps requests until the test answers them."""

    def __init__(self, quorum: Quorum, node_id: int) -> None:
        self.quorum = quorum
        self.node_id = node_id
        self.address = Address(f"c{node_id}", 9093)
        self.epoch = quorum.epoch
        """The latest epoch that this controller knows."""
        self.leader = quorum.leader
        self.apis = APIS
        self.is_silent = False
        """Whether requests are kept in `kept`."""
        self.kept: list[tuple[ScriptedPeer, RequestHeader, Any]] = []
        self.received: list[Any] = []
        """All requests except ApiVersions."""
        self.respond_to: Callable[[Any], Response | None] | None = None
        """Answers before the state of the quorum does; None lets the quorum answer."""
        self._waiting: list[tuple[ScriptedPeer, RequestHeader, FetchRequest]] = []
        self.start()

    @property
    def _listener(self) -> dialing.Address:
        return dialing.Address(*self.address)

    def start(self) -> None:
        self.quorum.host.network.listen(self._listener, self._accept)

    def kill(self) -> None:
        """Connections are reset, and new ones are refused."""
        self.quorum.host.network.stop_listening(self._listener)
        self.kept.clear()
        self._waiting.clear()

    def _accept(self, end: MemoryEnd) -> None:
        peer = ScriptedPeer(end)
        end.on_readable(lambda: self._read(peer))

    def _read(self, peer: ScriptedPeer) -> None:
        for header, request in peer.requests():
            if isinstance(request, ApiVersionsRequest):
                peer.respond(header, versions_of(*self.apis))
                continue
            self.received.append(request)
            if self.is_silent:
                self.kept.append((peer, header, request))
                continue
            response = self.response(request)
            if isinstance(response, FetchResponse) and self._is_without_news(request, response):
                self._waiting.append((peer, header, request))
                self.quorum.host.timers.call_after(request.max_wait_ms, self.wake)
            else:
                peer.respond(header, response)

    def wake(self) -> None:
        """Answer the fetches that wait for records."""
        waiting, self._waiting = self._waiting, []
        for peer, header, request in waiting:
            peer.respond(header, self.response(request))

    @staticmethod
    def _is_without_news(request: FetchRequest, response: FetchResponse) -> bool:
        if not response.responses:
            return False
        partition = response.responses[0].partitions[0]
        return (
            not partition.error_code
            and not partition.records
            and partition.diverging_epoch.epoch < 0
            and partition.snapshot_id.epoch < 0
            and partition.high_watermark <= request.topics[0].partitions[0].high_watermark
        )

    def answer(self, response: Response | None = None) -> None:
        """Answer the first kept request: with this response, or by the state of the quorum."""
        peer, header, request = self.kept.pop(0)
        peer.respond(header, response if response is not None else self.response(request))

    def response(self, request: Any) -> Response:
        if self.respond_to is not None:
            response = self.respond_to(request)
            if response is not None:
                return response
        if isinstance(request, FetchRequest):
            return self._fetch(request)
        assert isinstance(request, FetchSnapshotRequest), request
        return self._fetch_snapshot(request)

    def _error(self, epoch: int) -> ErrorCode:
        """The error of a request of this leader epoch."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self.leader != self.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        asked = request.topics[0].partitions[0]
        partition = fetches.PartitionData(
            error_code=self._error(asked.current_leader_epoch),
            current_leader=fetches.LeaderIdAndEpoch(leader_id=self.leader, leader_epoch=self.epoch),
            high_watermark=-1,
        )
        if not partition.error_code:
            self.quorum.serve(asked, partition)
        return FetchResponse(
            responses=[fetches.FetchableTopicResponse(partitions=[partition])],
            node_endpoints=self._endpoints(fetches.NodeEndpoint),
            session_id=0,
        )

    def _fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        asked = request.topics[0].partitions[0]
        error = self._error(asked.current_leader_epoch)
        partition = snapshots.ResponsePartitionSnapshot(error_code=error, unaligned_records=b"")
        if error:
            partition.current_leader = snapshots.LeaderIdAndEpoch(leader_id=self.leader, leader_epoch=self.epoch)
        else:
            self.quorum.serve_snapshot(asked, request.max_bytes, partition)
        return FetchSnapshotResponse(
            topics=[snapshots.ResponseTopicSnapshot(partitions=[partition])],
            node_endpoints=self._endpoints(snapshots.NodeEndpoint),
        )

    def _endpoints(self, kind: Any) -> list[Any]:
        if self.leader < 0:
            return []
        address = self.quorum.nodes[self.leader].address
        return [kind(node_id=self.leader, host=address.host, port=address.port)]


class Quorum:
    """Controllers with one log, that of a real controller."""

    def __init__(self, host: Host, *node_ids: int) -> None:
        self.host = host
        self.log = LeaderLog()
        self.leader = node_ids[0]
        self.epoch = self.log.metadata.log.latest_epoch
        self.high_watermark: int | None = None
        """None: everything is committed."""
        self.snapshot: tuple[SnapshotId, bytes] | None = None
        """What observers with less than this must fetch."""
        self.diverging: tuple[int, int] | None = None
        """What the next Fetch returns instead of records."""
        self.nodes = {node_id: Node(self, node_id) for node_id in node_ids}

    @property
    def end_offset(self) -> int:
        return self.log.metadata.log.log_end_offset

    def elect(self, leader: int, *, known_by: tuple[int, ...] | None = None) -> None:
        """A new epoch with this leader (-1: not decided yet), which these controllers know about."""
        self.leader = leader
        self.epoch += 1
        self.inform(*(self.nodes if known_by is None else known_by))

    def lose(self, offset: int) -> None:
        """The leader dies, and the records from `offset` on are lost with it: another controller leads a new epoch."""
        log = self.log.metadata.log
        log.truncate_to(offset, NOW)
        log.close(NOW)
        self.log.reopen()
        self.epoch = self.log.metadata.log.latest_epoch - 1
        self.elect(next(node_id for node_id in self.nodes if node_id != self.leader))

    def inform(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.nodes[node_id].leader, self.nodes[node_id].epoch = self.leader, self.epoch
            self.nodes[node_id].wake()

    def wake(self) -> None:
        """The log or the high watermark has changed."""
        for node in self.nodes.values():
            node.wake()

    def serve(self, asked: fetches.FetchPartition, partition: fetches.PartitionData) -> None:
        if self.diverging is not None:
            epoch, end_offset = self.diverging
            partition.diverging_epoch = fetches.EpochEndOffset(epoch=epoch, end_offset=end_offset)
            self.diverging = None
            return
        if self.snapshot is not None and asked.fetch_offset < self.snapshot[0].end_offset:
            end_offset, epoch = self.snapshot[0]
            partition.snapshot_id = fetches.SnapshotId(end_offset=end_offset, epoch=epoch)
            return
        partition.high_watermark = self.end_offset if self.high_watermark is None else self.high_watermark
        if asked.fetch_offset < self.end_offset:
            partition.records = self.log.records(asked.fetch_offset)

    def serve_snapshot(
        self, asked: snapshots.PartitionSnapshot, max_bytes: int, partition: snapshots.ResponsePartitionSnapshot
    ) -> None:
        wanted = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        if self.snapshot is None or wanted != self.snapshot[0]:
            partition.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
            return
        data = self.snapshot[1]
        partition.size = len(data)
        partition.position = asked.position
        partition.unaligned_records = data[asked.position : asked.position + max_bytes]


def open_metadata(quorum: Quorum) -> FollowedMetadata:
    """The metadata of the broker 1, on the files of the host."""
    return FollowedMetadata.open(
        quorum.host.files,
        "/b",
        BrokerConfig({"controller.quorum.fetch.snapshot.max.bytes": StaticValue("400", "test")}),
        node_id=1,
        cluster_id="cluster",
        directory_id=DIRECTORY,
        bootstrap=[node.address for node in quorum.nodes.values()],
        now_ms=NOW,
    )

"""An observer of the metadata log (KIP-595, KIP-630): copies the log from the active controller, and votes for none.

    observer = Observer(identity, bootstrap, log, epoch=state.leader_epoch)
    send observer.request() to observer.destination
    for effect in observer.handle(response): ...     apply them to the copy, in order
    observer.failed("...")                           instead of `handle`, if there was no response
    wait observer.pause_ms, and repeat

One request is in flight at a time. The observer decides what to send next, and what a response means. It does not write
the log. It reads the end of the copy through `ObservedLog` when it needs it, so all effects of a response must have
been applied before the next `request`.

**The leader.** At first the observer tries the bootstrap servers in turn. Each of them names the leader and its
endpoint, in most cases with an error. An epoch never falls: a response of an older epoch is ignored as a whole. After a
failure of the leader the bootstrap servers are tried again.

**Committed records.** A leader sends records before they are committed. Only records below the high watermark may be
applied (`Committed`). A new leader responds with the high watermark -1 until a record of its own epoch is committed,
and a response that reports a divergence has a high watermark that does not describe this log: both are ignored. The
known high watermark never falls, and a log is never truncated below it.

**Snapshots.** If the leader no longer has the records that follow the copy, it names a snapshot, which is fetched in
pieces and replaces the whole copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ..protocol.errors import ErrorCode, error_name
from ..protocol.messages import fetch as fetch_messages
from ..protocol.messages import fetch_snapshot as snapshot_messages
from ..protocol.messages.fetch import FetchRequest, FetchResponse
from ..protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ..protocol.uuid import ONE_UUID
from .checkpoint import SnapshotId
from .topic_names import CLUSTER_METADATA

NO_LEADER: Final = -1
UNKNOWN_HIGH_WATERMARK: Final = -1

_MAX_BACKOFF_FACTOR: Final = 16
"""The pause after failures doubles up to this multiple of the configured one."""

_LEADER_ERRORS: Final = frozenset(
    {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH}
)
"""Errors of a server that is not the leader of the epoch of the request. They are part of every election."""

_SNAPSHOT_GONE: Final = frozenset({ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE})
"""The leader has deleted the snapshot in the meantime; the next Fetch names another one."""


class ObserverError(Exception):
    """The observer cannot continue with this quorum. The message is for the user."""


class Identity(NamedTuple):
    """This node, as requests to the quorum name it."""

    node_id: int
    cluster_id: str
    directory_id: bytes
    """The id of the directory with the copy of the metadata log."""


class Address(NamedTuple):
    """Host and port of a controller's listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ObservedLog(Protocol):
    """What an observer reads of its copy."""

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot before the first one; 0 for an empty copy."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch`, and its end offset; (-1, -1) if there is none."""


class ObserverSettings(NamedTuple):
    """The settings `controller.quorum.*` of an observer."""

    fetch_max_wait_ms: int = 500
    fetch_idle_wait_ms: int = 7700
    """The longest wait while the log does not change. Apache Kafka's controllers write a record every 500 ms. It is a
    little shorter than four intervals of heartbeats, so that a heartbeat and the next fetch need one wake-up. A
    controller that does not respond is noticed by the heartbeats."""
    fetch_max_bytes: int = 1_048_576
    snapshot_max_bytes: int = 1_048_576
    retry_backoff_ms: int = 20


# Effects


class LeaderKnown(NamedTuple):
    """The leader of an epoch, which must be stored before the next request. `leader_id` -1: an election is going on."""

    leader_id: int
    epoch: int


class Truncate(NamedTuple):
    """Remove all records from `offset` on: the log has diverged from the leader's."""

    offset: int


class Append(NamedTuple):
    """Append these batches of the leader, except batches of an epoch after `epoch`."""

    records: Any
    epoch: int


class Committed(NamedTuple):
    """The records before this offset are committed. The copy may end before it."""

    high_watermark: int


class SnapshotPiece(NamedTuple):
    """Write these bytes of a snapshot at `position`. The first piece has position 0."""

    id: SnapshotId
    position: int
    data: Any


class SnapshotComplete(NamedTuple):
    """The snapshot is complete and replaces the copy, which continues at its end offset."""

    id: SnapshotId


Effect = LeaderKnown | Truncate | Append | Committed | SnapshotPiece | SnapshotComplete


class _FetchingSnapshot(NamedTuple):
    id: SnapshotId
    position: int


class Observer:
    """See the module docstring."""

    def __init__(
        self,
        identity: Identity,
        bootstrap: Sequence[Address],
        log: ObservedLog,
        *,
        voters: Mapping[int, Address] | None = None,
        epoch: int = 0,
        high_watermark: int = UNKNOWN_HIGH_WATERMARK,
        first: int = 0,
        settings: ObserverSettings | None = None,
    ) -> None:
        """`voters` are the endpoints of static voters (kraft.version 0), for leaders that send none. `epoch` and
        `high_watermark` are the latest known ones; `first` selects the first bootstrap server."""
        assert bootstrap, "an observer needs bootstrap servers"
        self._identity = identity
        self._bootstrap = tuple(bootstrap)
        self._log = log
        self._voters = voters or {}
        self._settings = settings or ObserverSettings()
        self._next_bootstrap = first % len(bootstrap)
        self._snapshot: _FetchingSnapshot | None = None
        self._failures = 0
        self.epoch = epoch
        """The latest epoch that this node has seen."""
        self.leader_id = NO_LEADER
        """The leader of the epoch; -1 if it is unknown."""
        self.leader_address: Address | None = None
        """The endpoint of the leader; None if it is unknown."""
        self.high_watermark = high_watermark
        """All records before it are committed; -1 if it is unknown."""
        self.problem: str | None = None
        """Why the latest request has failed, for the log; None if it succeeded, or if there is an election."""
        self._ask_leader = False
        self._max_wait_ms = self._settings.fetch_max_wait_ms

    @property
    def destination(self) -> Address:
        """Where to send the next request."""
        if self._ask_leader and self.leader_address is not None:
            return self.leader_address
        return self._bootstrap[self._next_bootstrap]

    @property
    def pause_ms(self) -> int:
        """How long to wait before the next request."""
        if not self._failures:
            return 0
        return self._settings.retry_backoff_ms * min(1 << (self._failures - 1), _MAX_BACKOFF_FACTOR)

    @property
    def extra_wait_ms(self) -> int:
        """How much longer the leader may take for the next response than after a change of the log."""
        return self._max_wait_ms - self._settings.fetch_max_wait_ms

    # Requests

    def request(self) -> FetchRequest | FetchSnapshotRequest:
        """The next request. Its response belongs to `handle`."""
        return self._fetch() if self._snapshot is None else self._fetch_snapshot(self._snapshot)

    def _fetch(self) -> FetchRequest:
        identity, settings = self._identity, self._settings
        partition = fetch_messages.FetchPartition(
            partition=0,
            current_leader_epoch=self.epoch,
            fetch_offset=self._log.end_offset,
            last_fetched_epoch=self._log.latest_epoch,
            partition_max_bytes=0,
            replica_directory_id=identity.directory_id,
            high_watermark=self.high_watermark,
        )
        return FetchRequest(
            cluster_id=identity.cluster_id,
            replica_state=fetch_messages.ReplicaState(replica_id=identity.node_id, replica_epoch=-1),
            max_wait_ms=self._max_wait_ms,
            min_bytes=0,
            max_bytes=settings.fetch_max_bytes,
            topics=[fetch_messages.FetchTopic(topic=CLUSTER_METADATA, topic_id=ONE_UUID, partitions=[partition])],
        )

    def _fetch_snapshot(self, snapshot: _FetchingSnapshot) -> FetchSnapshotRequest:
        identity = self._identity
        partition = snapshot_messages.PartitionSnapshot(
            partition=0,
            current_leader_epoch=self.epoch,
            snapshot_id=snapshot_messages.SnapshotId(end_offset=snapshot.id.end_offset, epoch=snapshot.id.epoch),
            position=snapshot.position,
            replica_directory_id=identity.directory_id,
        )
        return FetchSnapshotRequest(
            cluster_id=identity.cluster_id,
            replica_id=identity.node_id,
            max_bytes=self._settings.snapshot_max_bytes,
            topics=[snapshot_messages.TopicSnapshot(name=CLUSTER_METADATA, partitions=[partition])],
        )

    # Responses

    def failed(self, problem: str) -> None:
        """There was no response from `destination`: no connection, or a timeout."""
        self._snapshot = None
        self._max_wait_ms = self._settings.fetch_max_wait_ms
        self._retry_elsewhere(problem)

    def handle(self, response: FetchResponse | FetchSnapshotResponse) -> list[Effect]:
        """The effects of a response to the latest `request`. Raises ObserverError."""
        if isinstance(response, FetchResponse):
            return self._handle_fetch(response)
        return self._handle_fetch_snapshot(response)

    def _handle_fetch(self, response: FetchResponse) -> list[Effect]:
        waited_ms, self._max_wait_ms = self._max_wait_ms, self._settings.fetch_max_wait_ms
        self._check_cluster(response.error_code)
        partition = response.responses[0].partitions[0] if response.error_code == 0 and response.responses else None
        if partition is None:
            self._refused(response.error_code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return []
        self._check_cluster(partition.error_code)
        endpoints = {each.node_id: Address(each.host, each.port) for each in response.node_endpoints}
        leader = partition.current_leader
        effects = self._learn_leader(leader.leader_id, leader.leader_epoch, endpoints)
        if effects is None:
            self._retry_elsewhere(None)
            return []
        if partition.error_code:
            self._refused(partition.error_code, learned=bool(effects))
            return effects
        self._succeeded()
        if self.leader_address is None:
            self.leader_address = self.destination  # only the leader responds without an error
            self._ask_leader = True
        if partition.diverging_epoch.epoch >= 0:
            diverging = partition.diverging_epoch
            effects.append(self._truncate(diverging.epoch, diverging.end_offset))
            return effects
        if partition.snapshot_id.epoch >= 0:
            self._snapshot = _FetchingSnapshot(
                SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch), 0
            )
            return effects
        if not partition.records and partition.high_watermark == self.high_watermark and not effects:
            self._max_wait_ms = min(waited_ms * 2, self._settings.fetch_idle_wait_ms)
        if partition.records:
            effects.append(Append(partition.records, self.epoch))
        if partition.high_watermark > self.high_watermark:
            self.high_watermark = partition.high_watermark
            effects.append(Committed(self.high_watermark))
        elif partition.records and self.high_watermark > self._log.end_offset:
            effects.append(Committed(self.high_watermark))  # the copy ended before it
        return effects

    def _handle_fetch_snapshot(self, response: FetchSnapshotResponse) -> list[Effect]:
        fetching, self._snapshot = self._snapshot, None
        assert fetching is not None, "no snapshot was requested"
        self._check_cluster(response.error_code)
        partition = response.topics[0].partitions[0] if response.error_code == 0 and response.topics else None
        if partition is None:
            self._refused(response.error_code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return []
        endpoints = {each.node_id: Address(each.host, each.port) for each in response.node_endpoints}
        before = self.epoch
        # The field is absent, which means 0, if the leader of the request's epoch has responded.
        effects: list[Effect] | None = []
        leader = partition.current_leader
        if leader.leader_epoch:
            effects = self._learn_leader(leader.leader_id, leader.leader_epoch, endpoints)
        if effects is None:
            self._retry_elsewhere(None)
            return []
        if partition.error_code in _SNAPSHOT_GONE:
            self._succeeded()
            return effects
        if partition.error_code:
            self._refused(partition.error_code, learned=bool(effects))
            return effects
        if self.epoch != before:
            return effects
        if partition.position != fetching.position:
            self._retry_elsewhere(
                f"{self.destination}: FetchSnapshot returned position {partition.position}, not {fetching.position}"
            )
            return effects
        data = partition.unaligned_records
        size = len(data) if data else 0
        position = fetching.position + size
        if (not size and position < partition.size) or position > partition.size:
            self._retry_elsewhere(f"{self.destination}: FetchSnapshot returned {size} bytes at {fetching.position}")
            return effects
        self._succeeded()
        effects.append(SnapshotPiece(fetching.id, fetching.position, data or b""))
        if position < partition.size:
            self._snapshot = _FetchingSnapshot(fetching.id, position)
            return effects
        effects.append(SnapshotComplete(fetching.id))
        self.high_watermark = max(self.high_watermark, fetching.id.end_offset)
        return effects

    def _truncate(self, epoch: int, end_offset: int) -> Truncate:
        """The leader's log ends at `end_offset` in `epoch`, which is the latest one that both may have."""
        own_epoch, own_end_offset = self._log.end_offset_for_epoch(epoch)
        # Without the leader's epoch, the records of an older epoch here end before all that differs.
        offset = min(own_end_offset, end_offset) if own_epoch == epoch else max(own_end_offset, 0)
        if offset < self.high_watermark:
            raise ObserverError(
                f"The metadata log of the controllers ends at offset {end_offset} in epoch {epoch}, but records up to "
                f"{self.high_watermark} were committed before. The quorum has lost metadata: restore its directories."
            )
        return Truncate(offset)

    # The leader

    def _learn_leader(self, leader_id: int, epoch: int, endpoints: dict[int, Address]) -> list[Effect] | None:
        """Take the leader that a response names. None: the response is of an older epoch, and must be ignored."""
        if epoch < self.epoch:
            # A response with an error may name no leader at all.
            return [] if epoch < 0 else None
        address = endpoints.get(leader_id) or self._voters.get(leader_id)
        if epoch == self.epoch and leader_id in (NO_LEADER, self.leader_id):
            if address is not None and leader_id == self.leader_id:
                self.leader_address = address
            return []
        self.epoch = epoch
        self.leader_id = leader_id
        self.leader_address = address
        self._snapshot = None
        self._ask_leader = address is not None
        return [LeaderKnown(leader_id, epoch)]

    def _succeeded(self) -> None:
        self._failures = 0
        self.problem = None

    def _refused(self, code: int, *, learned: bool = False) -> None:
        """An error response. Errors of an election are no problem, and neither is one that names a new leader."""
        if code in _LEADER_ERRORS:
            if learned and self.leader_address is not None:
                self._succeeded()
            else:
                self._retry_elsewhere(None)
            return
        name = error_name(code)
        hint = ""
        if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            hint = ", so it is not a listener of a controller"
        self._retry_elsewhere(f"{self.destination}: the request for the metadata log returned {name}{hint}")

    def _retry_elsewhere(self, problem: str | None) -> None:
        self._failures += 1
        self.problem = problem
        if self._ask_leader:
            self._ask_leader = False
            if self._bootstrap[self._next_bootstrap] == self.leader_address:  # which has just failed
                self._next_bootstrap = (self._next_bootstrap + 1) % len(self._bootstrap)
        else:
            self._next_bootstrap = (self._next_bootstrap + 1) % len(self._bootstrap)
            # The leader is tried again in turn with the bootstrap servers: perhaps only its connection was lost.
            self._ask_leader = self.leader_address is not None

    def _check_cluster(self, code: int) -> None:
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise ObserverError(
                f"The controller at {self.destination} belongs to another cluster than this directory, whose "
                f"cluster.id is {self._identity.cluster_id}. Check controller.quorum.bootstrap.servers and log.dirs."
            )

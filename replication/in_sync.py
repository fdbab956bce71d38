"""The in-sync replicas of a partition, and the offset up to which all of them have the leader's records.

The leader has an `InSyncReplicas` for each of its leader epochs if there are other replicas. A follower acknowledges
records by fetching from the offset after them, so its fetch offset is its position.

The in-sync replicas (ISR) change in two steps (KIP-497): the leader proposes, and the controller commits. Until the
outcome is known, the *maximal* ISR counts: the committed ISR and the replicas to be added. A replica to be removed
still counts. So whichever ISR the next leader is elected from, each member has the committed records. A replica that
could join while another proposal is in progress counts as well; otherwise a busy leader would move away from it, and it
could never join.

Times are milliseconds of one arbitrary clock. The leader's log is not accessed: its offsets are parameters.
"""

from __future__ import annotations

from collections.abc import Callable

UNKNOWN_OFFSET = -1
NO_BROKER_EPOCH = -1
_NEVER = -(1 << 63)


class Follower:
    """The leader's knowledge of one follower."""

    __slots__ = (
        "_fetched_ms",
        "_leader_end_offset",
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "log_start_offset",
        "may_join",
    )

    def __init__(self, caught_up_ms: int = _NEVER) -> None:
        self.end_offset = UNKNOWN_OFFSET
        """The follower has all records before this offset. Unknown until its first fetch in this leader epoch."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.caught_up_ms = caught_up_ms
        """The last time when the follower had all records of the leader."""
        self.broker_epoch = NO_BROKER_EPOCH
        """The broker epoch of its latest fetch (KIP-903). Unknown for old versions of the protocol."""
        self.may_join = False
        """Whether the follower is outside the ISR and meets the conditions to join it."""
        self._fetched_ms = _NEVER
        self._leader_end_offset = UNKNOWN_OFFSET  # at the last fetch

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int, log_start_offset: int = UNKNOWN_OFFSET) -> None:
        """The follower fetches from ``offset`` on. Its log begins at ``log_start_offset``."""
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self._leader_end_offset:
            # Under constant load a follower never reaches the end. It has reached the end at its last fetch.
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self._fetched_ms = now_ms
        self._leader_end_offset = leader_end_offset

    def repeated(self, now_ms: int) -> None:
        """The follower has fetched from the same offset again, when the leader had the same log end as at its latest
        fetch that was noted."""
        if self._leader_end_offset != UNKNOWN_OFFSET:
            self.fetched(self.end_offset, self._leader_end_offset, now_ms, self.log_start_offset)

    def lags(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether the follower has not been caught up for longer than ``max_lag_ms``."""
        return self.end_offset != leader_end_offset and now_ms - self.caught_up_ms > max_lag_ms


class InSyncReplicas:
    """The replicas of a partition in one leader epoch, as the leader sees them."""

    __slots__ = ("_counted", "_followers", "_local_id", "epoch_start", "isr", "proposed")

    def __init__(
        self, local_id: int, replicas: tuple[int, ...], isr: tuple[int, ...], *, epoch_start: int, now_ms: int
    ) -> None:
        """``epoch_start``: the leader's log end offset at the start of the epoch. The members of the ISR count as
        caught up now; their positions are unknown."""
        self._local_id = local_id
        self.epoch_start = epoch_start
        """The leader's log end offset at the start of the epoch."""
        self._followers: dict[int, Follower] = {}
        self.isr = isr
        """The ISR that the controller has committed, including the leader."""
        self.proposed: tuple[int, ...] | None = None
        """The ISR that the leader has proposed, until the outcome is known."""
        self._counted: tuple[Follower, ...] = ()
        self.update(replicas, isr)
        for replica_id in isr:
            if replica_id in self._followers:
                self._followers[replica_id].caught_up_ms = now_ms

    # -- changes -------------------------------------------------------------------------------------------------------

    def update(self, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
        """The controller has changed the replicas or the ISR in this leader epoch. This settles a proposal."""
        self._followers = {
            replica_id: self._followers.get(replica_id) or Follower()
            for replica_id in replicas
            if replica_id != self._local_id
        }
        self.isr = isr
        self.proposed = None
        self._recount()

    def fetched(
        self,
        replica_id: int,
        offset: int,
        *,
        leader_end_offset: int,
        high_watermark: int,
        now_ms: int,
        eligible: bool,
        broker_epoch: int = NO_BROKER_EPOCH,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> None:
        """A follower fetches from ``offset`` on. ``eligible``: the controller would permit it to join, because its
        broker is registered with this ``broker_epoch``, and is neither fenced nor shutting down. ``log_start_offset``:
        that of the follower.

        Raises:
            KeyError: this broker has no replica.
        """
        follower = self._followers[replica_id]
        follower.fetched(offset, leader_end_offset, now_ms, log_start_offset)
        follower.broker_epoch = broker_epoch
        # A replica without the first records of the epoch may not have truncated its log yet.
        may_join = (
            eligible
            and offset >= high_watermark
            and offset >= self.epoch_start
            and replica_id not in self.isr
            and (self.proposed is None or replica_id not in self.proposed)
        )
        if may_join != follower.may_join:
            follower.may_join = may_join
            self._recount()

    def exclude(self, replica_id: int) -> None:
        """The controller would no longer permit this replica to join: do not wait for it."""
        follower = self._followers.get(replica_id)
        if follower is not None and follower.may_join:
            follower.may_join = False
            self._recount()

    def propose(self, isr: tuple[int, ...]) -> None:
        """The leader proposes this ISR. Only one proposal may be in progress."""
        assert self.proposed is None, "a proposal is pending"
        self.proposed = isr
        self._recount()

    def withdraw(self) -> None:
        """The controller has rejected the proposal, and it is certain that the proposal was not committed."""
        self.proposed = None
        self._recount()

    def review(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> list[int]:
        """Return the members of the ISR to remove because they lag (``replica.lag.time.max.ms``); none while a proposal
        is in progress. Lagging replicas outside the ISR no longer count."""
        lagging = [
            replica_id
            for replica_id, follower in self._followers.items()
            if follower.lags(leader_end_offset, now_ms, max_lag_ms)
        ]
        for replica_id in lagging:
            self.exclude(replica_id)
        return [] if self.proposed is not None else [replica_id for replica_id in self.isr if replica_id in lagging]

    def _recount(self) -> None:
        maximal = self.maximal_isr
        for replica_id in maximal & self._followers.keys():
            self._followers[replica_id].may_join = False
        self._counted = tuple(
            [follower for replica_id, follower in self._followers.items() if follower.may_join or replica_id in maximal]
        )

    # -- questions -----------------------------------------------------------------------------------------------------

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Every replica that is in sync, or that the current proposal may add."""
        return frozenset(self.isr).union(self.proposed or ())

    @property
    def candidates(self) -> list[int]:
        """The replicas that may join the ISR."""
        return [replica_id for replica_id, follower in self._followers.items() if follower.may_join]

    @property
    def may_expand(self) -> bool:
        """Whether a replica may join the ISR, and no proposal is in progress."""
        return self.proposed is None and any(follower.may_join for follower in self._followers.values())

    @property
    def is_alone(self) -> bool:
        """Whether the leader waits for no other replicas."""
        return not self._counted

    def committed_offset(self, leader_offset: int) -> int:
        """The offset up to which all replicas that count have the records. The leader has them up to
        ``leader_offset``. `UNKNOWN_OFFSET` while a position is unknown."""
        return min([leader_offset, *[follower.end_offset for follower in self._counted]])

    def low_watermark(self, log_start_offset: int, is_live: Callable[[int], bool]) -> int:
        """The offset before which no live replica has records. The leader's log begins at ``log_start_offset``."""
        starts = [follower.log_start_offset for replica_id, follower in self._followers.items() if is_live(replica_id)]
        return min([log_start_offset, *starts])

    @property
    def in_sync_followers(self) -> dict[int, Follower]:
        """The followers in the committed ISR."""
        return {replica_id: follower for replica_id, follower in self._followers.items() if replica_id in self.isr}

    def follower(self, replica_id: int) -> Follower | None:
        """The state of a follower; None if this broker has no replica."""
        return self._followers.get(replica_id)

"""The positions of replicas, the ISR, and the committed offset with several replicas. The leader has the id 1."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moldau.replication.in_sync import UNKNOWN_OFFSET, Follower, InSyncReplicas

MAX_LAG_MS = 30_000


class Leader:
    """A leader's log end offset, high watermark and replicas."""

    def __init__(
        self, *, replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] = (1, 2, 3), end_offset: int = 10
    ) -> None:
        self.now_ms = 1_000_000
        self.end_offset = end_offset
        self.high_watermark = 0
        self.in_sync = InSyncReplicas(1, replicas, isr, epoch_start=end_offset, now_ms=self.now_ms)

    def append(self, count: int = 1) -> None:
        self.end_offset += count

    def fetched(self, replica_id: int, offset: int | None = None, *, eligible: bool = True) -> None:
        """A follower fetches, from the log end offset by default."""
        self.in_sync.fetched(
            replica_id,
            self.end_offset if offset is None else offset,
            leader_end_offset=self.end_offset,
            high_watermark=self.high_watermark,
            now_ms=self.now_ms,
            eligible=eligible,
        )
        self.advance()

    def advance(self) -> int:
        """Advance the high watermark."""
        self.high_watermark = max(self.high_watermark, self.committed)
        return self.high_watermark

    def lagging(self) -> list[int]:
        return self.in_sync.review(self.end_offset, self.now_ms, MAX_LAG_MS)

    @property
    def committed(self) -> int:
        return self.in_sync.committed_offset(self.end_offset)


# -- the committed offset ----------------------------------------------------------------------------------------------


def test_the_slowest_member_of_the_isr_determines_the_committed_offset() -> None:
    leader = Leader()
    leader.fetched(2, 9)
    leader.fetched(3, 4)
    assert leader.committed == 4
    leader.fetched(3, 10)
    assert leader.committed == 9
    leader.fetched(2)
    leader.append()
    assert leader.committed == 10


def test_the_committed_offset_is_unknown_until_every_member_has_fetched() -> None:
    leader = Leader()
    leader.fetched(2)
    assert leader.committed == UNKNOWN_OFFSET
    leader.fetched(3)
    assert leader.committed == 10


def test_the_leader_counts_with_its_given_offset() -> None:
    leader = Leader()
    leader.fetched(2)
    leader.fetched(3)
    assert leader.in_sync.committed_offset(7) == 7


def test_a_replica_outside_the_isr_does_not_count() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetched(2)
    leader.fetched(3, 0)
    assert leader.committed == 10
    assert leader.in_sync.candidates == []


def test_a_leader_without_followers_does_not_wait() -> None:
    leader = Leader(isr=(1,))
    assert leader.in_sync.is_alone
    assert leader.committed == 10
    leader.fetched(2)
    assert not leader.in_sync.is_alone


# -- joining -----------------------------------------------------------------------------------------------------------


def test_a_replica_joins_at_the_committed_offset_and_the_start_of_the_epoch() -> None:
    leader = Leader(isr=(1, 2))
    leader.append(2)
    leader.fetched(2, 11)
    assert leader.high_watermark == 11
    leader.fetched(3, 10)  # the start of the epoch, but not the committed offset
    assert leader.in_sync.candidates == []
    leader.fetched(3, 11)
    assert leader.in_sync.candidates == [3]


def test_the_start_of_the_epoch_is_required_above_the_committed_offset() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetched(3, 9)
    assert (leader.high_watermark, leader.in_sync.candidates) == (0, [])
    leader.fetched(3, 10)
    assert leader.in_sync.candidates == [3]


def test_a_replica_that_may_join_counts_before_it_is_proposed() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetched(2)
    leader.fetched(3)
    leader.append()
    leader.fetched(2)
    assert leader.committed == 10
    leader.fetched(3)
    assert leader.committed == 11


def test_a_replica_that_the_controller_would_reject_delays_no_commit() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetched(2)
    leader.fetched(3, eligible=False)
    leader.append()
    leader.fetched(2)
    assert (leader.committed, leader.in_sync.candidates) == (11, [])


def test_a_fenced_candidate_delays_no_commit() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetched(2)
    leader.fetched(3)
    leader.append()
    leader.fetched(2)
    leader.in_sync.exclude(3)
    assert (leader.committed, leader.in_sync.candidates) == (11, [])
    leader.in_sync.exclude(2)  # a member stays in the ISR until the controller removes it
    leader.append()
    assert leader.committed == 11
    leader.in_sync.exclude(99)


def test_an_added_replica_counts_from_its_proposal_on() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetched(2)
    leader.fetched(3)
    leader.in_sync.propose((1, 2, 3))
    assert leader.in_sync.maximal_isr == {1, 2, 3}
    assert leader.in_sync.candidates == []
    leader.append()
    leader.fetched(2)
    assert leader.committed == 10
    leader.in_sync.update((1, 2, 3), (1, 2, 3))
    assert leader.in_sync.proposed is None
    assert leader.committed == 10
    leader.fetched(3)
    assert leader.committed == 11


def test_a_rejected_proposal_restores_the_committed_isr() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetched(2)
    leader.fetched(3)
    leader.in_sync.propose((1, 2, 3))
    leader.append()
    leader.fetched(2)
    leader.in_sync.withdraw()
    assert (leader.in_sync.maximal_isr, leader.committed) == ({1, 2}, 11)  # type: ignore[comparison-overlap]
    leader.fetched(3)
    assert leader.in_sync.candidates == [3]


def test_another_replica_may_join_during_a_proposal() -> None:
    leader = Leader(isr=(1,))
    leader.fetched(2)
    leader.in_sync.propose((1, 2))
    leader.fetched(3)
    assert leader.in_sync.candidates == [3]
    leader.append()
    leader.fetched(2)
    assert leader.committed == 10
    leader.in_sync.update((1, 2, 3), (1, 2))
    assert (leader.in_sync.candidates, leader.committed) == ([3], 10)


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_a_member_that_stops_fetching_lags_after_the_maximum_time() -> None:
    leader = Leader()
    leader.fetched(2)
    leader.fetched(3)
    leader.append()
    leader.now_ms += MAX_LAG_MS
    leader.fetched(2)
    assert leader.lagging() == []
    leader.now_ms += 1
    assert leader.lagging() == [3]


def test_without_new_records_no_member_lags() -> None:
    leader = Leader()
    leader.fetched(2)
    leader.fetched(3)
    leader.now_ms += 10 * MAX_LAG_MS
    assert leader.lagging() == []


def test_a_member_that_never_fetches_lags_from_the_start_of_the_epoch() -> None:
    leader = Leader()
    leader.fetched(2)
    leader.now_ms += MAX_LAG_MS
    assert leader.lagging() == []
    leader.now_ms += 1
    assert leader.lagging() == [3]


def test_under_constant_load_a_member_that_reaches_the_end_of_its_last_fetch_does_not_lag() -> None:
    leader = Leader(replicas=(1, 2), isr=(1, 2))
    for _ in range(100):
        offset = leader.end_offset
        leader.append(5)
        leader.now_ms += MAX_LAG_MS // 2
        leader.fetched(2, offset)
        assert leader.lagging() == []
    follower = leader.in_sync.follower(2)
    assert follower is not None
    assert follower.caught_up_ms == leader.now_ms - MAX_LAG_MS // 2


def test_a_member_that_falls_further_behind_lags() -> None:
    leader = Leader(replicas=(1, 2), isr=(1, 2))
    leader.fetched(2)
    offset = leader.end_offset
    for _ in range(5):
        leader.append(5)
        offset += 1
        leader.now_ms += MAX_LAG_MS // 2
        leader.fetched(2, offset)
    assert leader.lagging() == [2]


def test_a_removed_member_counts_until_the_change_is_committed() -> None:
    leader = Leader(replicas=(1, 2), isr=(1, 2))
    leader.fetched(2)
    leader.append()
    leader.in_sync.propose((1,))
    assert leader.in_sync.maximal_isr == {1, 2}
    assert leader.committed == 10
    leader.now_ms += MAX_LAG_MS + 1
    assert leader.lagging() == []  # one proposal at a time
    leader.in_sync.update((1, 2), (1,))
    assert leader.advance() == 11
    leader.fetched(2, 10)  # below the committed offset: it may not join
    assert leader.in_sync.candidates == []
    leader.fetched(2)
    assert leader.in_sync.candidates == [2]


def test_a_lagging_candidate_no_longer_delays_commits() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetched(3)
    leader.append()
    leader.now_ms += MAX_LAG_MS + 1
    leader.fetched(2)
    assert leader.committed == 10
    assert leader.lagging() == []
    assert (leader.committed, leader.in_sync.candidates) == (11, [])


def test_later_replicas_are_added_and_unassigned_ones_are_removed() -> None:
    leader = Leader(replicas=(1, 2), isr=(1, 2))
    leader.fetched(2)
    leader.in_sync.update((1, 3), (1,))
    assert leader.in_sync.follower(2) is None
    assert leader.committed == 10
    leader.fetched(3)
    assert leader.in_sync.candidates == [3]


def test_the_position_of_a_replica_may_decrease() -> None:
    follower = Follower()
    follower.fetched(10, 10, 1_000)
    follower.fetched(4, 10, 2_000)
    assert (follower.end_offset, follower.caught_up_ms) == (4, 1_000)


# -- the invariant -----------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("fetch"), st.sampled_from([2, 3])),
        st.tuples(st.just("propose"), st.sets(st.sampled_from([2, 3]))),
        st.tuples(st.just("outcome"), st.sampled_from(["committed", "refused"])),
        st.tuples(st.just("wait"), st.integers(0, 2 * MAX_LAG_MS)),
    ),
    max_size=60,
)


@given(st.sampled_from([(1,), (1, 2), (1, 2, 3)]), STEPS)
def test_every_possible_next_leader_has_all_committed_records(isr: Any, steps: Any) -> None:
    leader = Leader(isr=isr)
    in_sync, end_offsets = leader.in_sync, {2: 0, 3: 0}
    for step, value in steps:
        if step == "append":
            leader.append(value)
        elif step == "fetch":
            leader.fetched(value, end_offsets[value])
            end_offsets[value] = leader.end_offset  # the end of the response; the next fetch acknowledges it
        elif step == "wait":
            leader.now_ms += value
            leader.lagging()
        elif step == "propose" and in_sync.proposed is None:
            # Members may be removed at any time, and candidates may be added.
            in_sync.propose((1, *sorted(value & {*in_sync.isr, *in_sync.candidates})))
        elif step == "outcome" and in_sync.proposed is not None:
            if value == "committed":
                in_sync.update((1, 2, 3), in_sync.proposed)
            else:
                in_sync.withdraw()
        leader.advance()
        for replica_id in in_sync.maximal_isr - {1}:
            assert end_offsets[replica_id] >= leader.high_watermark
        assert not in_sync.maximal_isr & set(in_sync.candidates)

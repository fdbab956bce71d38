"""Which follower a consumer should read from (KIP-392)."""

from __future__ import annotations

from moldau.replication.in_sync import Follower
from moldau.replication.read_replica import THIS_BROKER, preferred_read_replica

RACKS = {2: "a", 3: "b", 4: "b"}


def follower(end_offset: int, *, start: int = 0, caught_up_ms: int = 0) -> Follower:
    made = Follower(caught_up_ms)
    made.end_offset, made.log_start_offset = end_offset, start
    return made


def preferred(followers: dict[int, Follower], offset: int, rack: str) -> int:
    return preferred_read_replica(followers, offset, rack, RACKS.get)


def test_a_follower_in_the_rack_of_the_consumer_is_preferred() -> None:
    followers = {2: follower(10), 3: follower(10)}
    assert preferred(followers, 5, "a") == 2
    assert preferred(followers, 5, "b") == 3
    assert preferred(followers, 5, "c") == THIS_BROKER


def test_the_follower_must_have_the_offset() -> None:
    followers = {2: follower(10, start=4)}
    assert [preferred(followers, offset, "a") for offset in (3, 4, 10, 11)] == [THIS_BROKER, 2, 2, THIS_BROKER]


def test_the_log_of_a_follower_that_has_not_fetched_yet_is_unknown() -> None:
    assert preferred({2: Follower()}, 0, "a") == THIS_BROKER


def test_the_follower_with_the_most_records_is_preferred_then_the_one_that_was_caught_up_last() -> None:
    assert preferred({3: follower(11), 4: follower(10, caught_up_ms=9)}, 5, "b") == 3
    assert preferred({3: follower(10), 4: follower(10, caught_up_ms=9)}, 5, "b") == 4

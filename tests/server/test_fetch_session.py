from __future__ import annotations

from random import Random
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from moldau.server.records.fetch_session import FetchSessionCache

VERSION = 12  # by name


def request(
    session_id: int = 0, epoch: int = -1, topics: Any = None, forgotten: Any = None, replica_id: int = -1
) -> Any:
    return FetchRequest(
        replica_id=replica_id,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic=name, partitions=[FetchPartition(partition=p, fetch_offset=o) for p, o in partitions.items()]
            )
            for name, partitions in (topics or {}).items()
        ],
        forgotten_topics_data=[ForgottenTopic(topic=n, partitions=p) for n, p in (forgotten or {}).items()],
    )


@pytest.fixture
def cache() -> Any:
    return FetchSessionCache(slots=3, rng=Random(0))


def keys(context: Any) -> list[Any]:
    return [(partition.topic, partition.index) for partition in context.partitions]


def refused(cache: Any, *args: Any) -> Any:
    with pytest.raises(KafkaError) as info:
        cache.open(*args)
    return info.value.code


def test_the_final_epoch_creates_no_session(cache: Any) -> None:
    context = cache.open(request(topics={"t": {0: 5}}), VERSION, 0)
    assert context.session_id == 0
    assert [p.fetch_offset for p in context.partitions] == [5]
    assert len(cache) == 0


def test_epoch_zero_creates_a_session_and_later_requests_name_only_changes(cache: Any) -> None:
    first = cache.open(request(epoch=0, topics={"t": {0: 5, 1: 7}}), VERSION, 0)
    assert first.session_id > 0
    assert not first.incremental
    second = cache.open(request(first.session_id, 1, topics={"t": {1: 8}, "u": {0: 1}}), VERSION, 1)
    assert second.incremental
    assert {(p.topic, p.index): p.fetch_offset for p in second.partitions} == {("t", 0): 5, ("t", 1): 8, ("u", 0): 1}
    third = cache.open(request(first.session_id, 2, forgotten={"t": [0]}), VERSION, 2)
    assert keys(third) == [("t", 1), ("u", 0)]


def test_a_wrong_epoch_is_rejected_and_the_right_one_still_works(cache: Any) -> None:
    session_id = cache.open(request(epoch=0, topics={"t": {0: 5}}), VERSION, 0).session_id
    assert refused(cache, request(session_id, 2), VERSION, 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    cache.open(request(session_id, 1), VERSION, 0)
    assert refused(cache, request(session_id, 1), VERSION, 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_unknown_session_is_rejected(cache: Any) -> None:
    assert refused(cache, request(4711, 1), VERSION, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_topic_names_and_ids_cannot_be_mixed_in_a_session(cache: Any) -> None:
    session_id = cache.open(request(epoch=0, topics={"t": {0: 5}}), VERSION, 0).session_id
    assert refused(cache, request(session_id, 1), 13, 0) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_closes_the_named_session(cache: Any) -> None:
    session_id = cache.open(request(epoch=0, topics={"t": {0: 5}}), VERSION, 0).session_id
    context = cache.open(request(session_id, -1), VERSION, 0)
    assert context.session_id == 0
    assert not context.partitions
    assert refused(cache, request(session_id, 1), VERSION, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_without_partitions_is_closed(cache: Any) -> None:
    session_id = cache.open(request(epoch=0, topics={"t": {0: 5}}), VERSION, 0).session_id
    context = cache.open(request(session_id, 1, forgotten={"t": [0]}), VERSION, 0)
    assert context.session_id == 0
    assert len(cache) == 0


def test_partitions_with_records_move_to_the_end(cache: Any) -> None:
    context = cache.open(request(epoch=0, topics={"t": {0: 0, 1: 0, 2: 0}}), VERSION, 0)
    context.session.move_to_end([("t", 0), ("t", 1)])
    again = cache.open(request(context.session_id, 1), VERSION, 0)
    assert keys(again) == [("t", 2), ("t", 0), ("t", 1)]


def test_a_full_cache_creates_no_new_session(cache: Any) -> None:
    for _ in range(3):
        cache.open(request(epoch=0, topics={"t": {0: 0}}), VERSION, 0)
    assert cache.open(request(epoch=0, topics={"t": {0: 0}}), VERSION, 1000).session_id == 0


def test_a_stale_least_recently_used_session_is_evicted(cache: Any) -> None:
    ids = [cache.open(request(epoch=0, topics={"t": {0: 0}}), VERSION, 0).session_id for _ in range(3)]
    cache.open(request(ids[0], 1), VERSION, 100_000)
    later = FetchSessionCache.EVICTION_MS + 1
    assert cache.open(request(epoch=0, topics={"t": {0: 0}}), VERSION, later).session_id > 0
    cache.open(request(ids[0], 2), VERSION, later)
    assert refused(cache, request(ids[1], 1), VERSION, later) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_larger_session_evicts_an_old_small_one(cache: Any) -> None:
    ids = [cache.open(request(epoch=0, topics={"t": {0: 0}}), VERSION, 0).session_id for _ in range(3)]
    later = FetchSessionCache.EVICTION_MS + 1
    for session_id in ids:
        cache.open(request(session_id, 1), VERSION, later)
    assert cache.open(request(epoch=0, topics={"t": {0: 0}}), VERSION, later).session_id == 0
    assert cache.open(request(epoch=0, topics={"t": {0: 0, 1: 0}}), VERSION, later).session_id > 0


def test_a_follower_evicts_a_new_and_larger_session_of_a_consumer(cache: Any) -> None:
    sizes = (3, 2, 3)
    ids = [
        cache.open(request(epoch=0, topics={"t": dict.fromkeys(range(size), 0)}), VERSION, 0).session_id
        for size in sizes
    ]
    assert cache.open(request(epoch=0, topics={"t": {0: 0}}, replica_id=2), VERSION, 1).session_id > 0
    assert refused(cache, request(ids[1], 1), VERSION, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.get(ids[0]) is not None
    assert cache.get(ids[2]) is not None


def test_consumers_do_not_evict_followers_in_use(cache: Any) -> None:
    ids = [cache.open(request(epoch=0, topics={"t": {0: 0}}, replica_id=2), VERSION, 0).session_id for _ in range(3)]
    later = FetchSessionCache.EVICTION_MS + 1
    for session_id in ids:
        cache.open(request(session_id, 1, replica_id=2), VERSION, later)
    assert cache.open(request(epoch=0, topics={"t": {0: 0, 1: 0}}), VERSION, later).session_id == 0
    # Among each other, followers have the same rules as consumers.
    assert cache.open(request(epoch=0, topics={"t": {0: 0}}, replica_id=3), VERSION, later).session_id == 0
    assert cache.open(request(epoch=0, topics={"t": {0: 0, 1: 0}}, replica_id=3), VERSION, later).session_id > 0


def test_consumers_evict_the_session_of_a_follower_that_has_gone(cache: Any) -> None:
    for _ in range(3):
        cache.open(request(epoch=0, topics={"t": {0: 0}}, replica_id=2), VERSION, 0)
    assert cache.open(request(epoch=0, topics={"t": {0: 0}}), VERSION, FetchSessionCache.EVICTION_MS + 1).session_id > 0


def test_the_epoch_wraps_around_to_one(cache: Any) -> None:
    context = cache.open(request(epoch=0, topics={"t": {0: 5}}), VERSION, 0)
    context.session.epoch = 0x7FFFFFFF
    cache.open(request(context.session_id, 0x7FFFFFFF), VERSION, 0)
    cache.open(request(context.session_id, 1), VERSION, 0)

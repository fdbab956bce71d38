"""The committed offsets of a shard, and those of open transactions."""

from __future__ import annotations

import random

from moldau.group_coordinator.offsets.store import CommittedOffset, OffsetStore

TOPIC_ID = b"\x07" * 16


def test_a_committed_offset_is_returned_unchanged() -> None:
    store = OffsetStore()
    committed = CommittedOffset(2**62, 7, "größer \U0001f600", 1_700_000_000_000, 1_700_000_600_000, TOPIC_ID)

    store.put("group", "topic", 3, committed.packed())

    assert store.get("group", "topic", 3) == committed
    assert store.get("group", "topic", 4) is None
    assert store.get("group", "other", 3) is None
    assert store.get("other", "topic", 3) is None
    assert store.has("group", "topic", 3)
    assert not store.has("group", "topic", 4)


def test_the_last_commit_wins() -> None:
    store = OffsetStore()
    store.put("group", "topic", 0, CommittedOffset(10, metadata="first").packed())
    store.put("group", "topic", 0, CommittedOffset(5).packed())

    assert store.get("group", "topic", 0) == CommittedOffset(5)
    assert (len(store), store.count("group")) == (1, 1)


def test_offsets_are_counted_by_group_and_found_by_topic() -> None:
    store = OffsetStore()
    for partition in range(3):
        store.put("a", "x", partition, CommittedOffset(partition).packed())
    store.put("a", "y", 0, CommittedOffset(9).packed())
    store.put("b", "x", 0, CommittedOffset(8).packed())

    assert (len(store), store.count("a"), store.count("b"), store.count("c")) == (5, 4, 1, 0)
    assert store.topics("a") == ["x", "y"]
    assert store.topics("c") == []
    assert list(store.partitions("a", "x")) == [(n, CommittedOffset(n)) for n in range(3)]
    assert list(store.partitions("c", "x")) == []


def test_a_group_without_offsets_takes_no_memory() -> None:
    store = OffsetStore()
    store.put("group", "topic", 0, CommittedOffset(1).packed())
    store.put("group", "topic", 1, CommittedOffset(1).packed())

    store.remove("group", "topic", 0)
    store.remove("group", "topic", 0)
    store.remove("group", "unknown", 0)
    store.remove("unknown", "topic", 0)
    assert (len(store), store.count("group"), store.topics("group")) == (1, 1, ["topic"])

    store.remove("group", "topic", 1)
    assert (len(store), store.count("group"), store.topics("group")) == (0, 0, [])


def test_a_pending_offset_takes_effect_when_its_transaction_is_committed() -> None:
    store = OffsetStore()
    store.put("group", "topic", 0, CommittedOffset(1).packed())
    store.put_pending(5, "group", "topic", 0, CommittedOffset(2).packed())

    assert store.get("group", "topic", 0) == CommittedOffset(1)
    assert store.is_pending("group", "topic", 0)
    assert not store.is_pending("group", "topic", 1)
    assert not store.is_pending("other", "topic", 0)
    assert store.has_pending("group")
    assert store.pending("group") == [("topic", 0)]
    assert store.pending_of_topic("group", "topic") == [(0, CommittedOffset(2))]
    assert store.pending_of_topic("group", "other") == []

    store.end_transaction(5, committed=True)
    assert store.get("group", "topic", 0) == CommittedOffset(2)
    assert not store.is_pending("group", "topic", 0)
    assert not store.has_pending("group")
    assert len(store) == 1


def test_a_pending_offset_is_forgotten_when_its_transaction_is_aborted() -> None:
    store = OffsetStore()
    store.put_pending(5, "group", "topic", 0, CommittedOffset(2).packed())

    store.end_transaction(5, committed=False)
    store.end_transaction(6, committed=True)

    assert store.get("group", "topic", 0) is None
    assert not store.has_pending("group")
    assert len(store) == 0


def test_a_later_commit_outside_of_the_transaction_is_kept_when_the_transaction_ends() -> None:
    store = OffsetStore()
    store.put_pending(5, "group", "topic", 0, CommittedOffset(2).packed())
    store.put("group", "topic", 0, CommittedOffset(3).packed())
    assert store.is_pending("group", "topic", 0)

    store.end_transaction(5, committed=True)

    assert store.get("group", "topic", 0) == CommittedOffset(3)


def test_of_two_transactions_the_later_record_wins_in_whatever_order_they_end() -> None:
    for order in ((5, 6), (6, 5)):
        store = OffsetStore()
        store.put_pending(5, "group", "topic", 0, CommittedOffset(1).packed())
        store.put_pending(6, "group", "topic", 0, CommittedOffset(2).packed())

        for producer_id in order:
            assert store.is_pending("group", "topic", 0)
            store.end_transaction(producer_id, committed=True)

        assert store.get("group", "topic", 0) == CommittedOffset(2)
        assert not store.has_pending("group")


def test_the_last_offset_of_a_transaction_wins() -> None:
    store = OffsetStore()
    store.put_pending(5, "group", "topic", 0, CommittedOffset(1).packed())
    store.put("group", "topic", 0, CommittedOffset(2).packed())
    store.put_pending(5, "group", "topic", 0, CommittedOffset(3).packed())

    store.end_transaction(5, committed=True)

    assert store.get("group", "topic", 0) == CommittedOffset(3)


def test_deleting_an_offset_deletes_its_pending_offsets() -> None:
    store = OffsetStore()
    store.put("group", "topic", 0, CommittedOffset(1).packed())
    store.put_pending(5, "group", "topic", 0, CommittedOffset(2).packed())
    store.put_pending(6, "group", "topic", 0, CommittedOffset(3).packed())
    store.put_pending(6, "group", "topic", 1, CommittedOffset(4).packed())

    store.remove("group", "topic", 0)
    assert store.pending("group") == [("topic", 1)]
    store.end_transaction(5, committed=True)
    store.end_transaction(6, committed=True)

    assert store.get("group", "topic", 0) is None
    assert store.get("group", "topic", 1) == CommittedOffset(4)


def test_random_histories_match_a_simple_model() -> None:
    """The model keeps every record with its place in the log, as Apache Kafka does."""
    for seed in range(200):
        draw = random.Random(seed)
        store = OffsetStore()
        committed: dict[tuple[str, str, int], tuple[int, int]] = {}  # key -> (place in the log, offset)
        pending: dict[int, dict[tuple[str, str, int], tuple[int, int]]] = {}
        for place in range(60):
            key = (draw.choice("gh"), draw.choice("tu"), draw.randrange(2))
            producer_id = draw.randrange(3)
            match draw.randrange(5):
                case 0 | 1:
                    store.put(*key, CommittedOffset(place).packed())
                    committed[key] = (place, place)
                case 2:
                    store.put_pending(producer_id, *key, CommittedOffset(place).packed())
                    pending.setdefault(producer_id, {})[key] = (place, place)
                case 3:
                    store.remove(*key)
                    committed.pop(key, None)
                    for of_producer in pending.values():
                        of_producer.pop(key, None)
                case 4:
                    commits = draw.random() < 0.7
                    store.end_transaction(producer_id, committed=commits)
                    for ended, value in pending.pop(producer_id, {}).items():
                        if commits and value > committed.get(ended, (-1, -1)):
                            committed[ended] = value

            found = {
                (group, topic, partition): offset.offset
                for group in "gh"
                for topic in store.topics(group)
                for partition, offset in store.partitions(group, topic)
            }
            assert found == {key: offset for key, (_, offset) in committed.items()}, seed
            assert len(store) == len(committed)
            open_keys = {key for of_producer in pending.values() for key in of_producer}
            assert {(group, *name) for group in "gh" for name in store.pending(group)} == open_keys
            assert all(store.count(group) == sum(key[0] == group for key in committed) for group in "gh")


def test_the_groups_of_a_topic_are_those_that_have_offsets_of_it() -> None:
    choose = random.Random(11)
    store = OffsetStore()
    groups, topics, producers = ["a", "b", "c"], ["x", "y"], [1, 2]
    for _ in range(3000):
        group, topic, partition = choose.choice(groups), choose.choice(topics), choose.randrange(2)
        match choose.randrange(4):
            case 0:
                store.put(group, topic, partition, CommittedOffset(1).packed())
            case 1:
                store.put_pending(choose.choice(producers), group, topic, partition, CommittedOffset(2).packed())
            case 2:
                store.remove(group, topic, partition)
            case 3:
                store.end_transaction(choose.choice(producers), committed=choose.random() < 0.5)
        for name in topics:
            expected = {
                each
                for each in groups
                if any(store.has(each, name, index) or store.is_pending(each, name, index) for index in (0, 1))
            }
            assert set(store.groups(name)) == expected
            assert store.has_topic(name) == bool(expected)

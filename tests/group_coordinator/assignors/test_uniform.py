"""The uniform assignor."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings

from moldau.group_coordinator.assignors import ASSIGNORS
from moldau.group_coordinator.assignors.spec import Assignment, GroupSpec, MemberSpec
from moldau.group_coordinator.assignors.uniform import assign_uniformly

from .strategies import again, assert_every_partition_once, count, groups, topic

T, U = topic(0), topic(1)


def group_of(
    members: dict[str, dict[bytes, set[int]]], partitions: dict[bytes, int], topics: dict[str, set[bytes]] | None = None
) -> GroupSpec:
    """``members`` with their former partitions."""
    return GroupSpec(
        {
            member_id: MemberSpec(
                frozenset(topics[member_id] if topics else partitions),
                {topic_id: frozenset(numbers) for topic_id, numbers in had.items()},
            )
            for member_id, had in members.items()
        },
        partitions,
        homogeneous=topics is None,
    )


@given(groups(homogeneous=True))
@settings(max_examples=300, deadline=None)
def test_members_differ_by_one_at_most(group: GroupSpec) -> None:
    assigned = assign_uniformly(group)
    assert_every_partition_once(group, assigned)
    sizes = [count(assignment) for assignment in assigned.values()]
    assert max(sizes) - min(sizes) <= 1


@given(groups(homogeneous=True))
@settings(max_examples=300, deadline=None)
def test_members_keep_partitions_up_to_their_share(group: GroupSpec) -> None:
    assigned = assign_uniformly(group)
    share = sum(group.partitions.values()) // len(group.members)
    for member_id, member in group.members.items():
        valid = {
            (topic_id, partition)
            for topic_id, partitions in member.assigned.items()
            for partition in partitions
            if topic_id in member.topics and partition < group.partitions[topic_id]
        }
        kept = {(topic_id, p) for topic_id, partitions in assigned[member_id].items() for p in partitions} & valid
        assert len(kept) >= min(len(valid), share)


@given(groups(homogeneous=True))
@settings(max_examples=100, deadline=None)
def test_an_even_assignment_is_unchanged(group: GroupSpec) -> None:
    assigned = assign_uniformly(group)
    assert assign_uniformly(again(group, assigned)) == assigned


@given(groups(homogeneous=False))
@settings(max_examples=400, deadline=None)
def test_no_single_move_improves_the_balance(group: GroupSpec) -> None:
    assigned = assign_uniformly(group)
    assert_every_partition_once(group, assigned)
    for has in assigned.values():
        for taker, member in group.members.items():
            if any(topic_id in member.topics for topic_id in has):
                assert count(has) - count(assigned[taker]) <= 1
    assert assign_uniformly(again(group, assigned)) == assigned


def test_a_new_member_takes_as_few_partitions_as_needed() -> None:
    group = group_of({"a": {T: {0, 1, 2}}, "b": {T: {3, 4, 5}}, "c": {}}, {T: 6})
    assert assign_uniformly(group) == {"a": {T: {0, 1}}, "b": {T: {3, 4}}, "c": {T: {2, 5}}}


def test_the_partitions_of_a_leaving_member_are_distributed() -> None:
    group = group_of({"a": {T: {0, 1}}, "c": {T: {2, 5}}}, {T: 6})
    assert assign_uniformly(group) == {"a": {T: {0, 1, 3}}, "c": {T: {2, 4, 5}}}


def test_members_with_one_more_keep_it() -> None:
    group = group_of({"a": {T: {0}}, "b": {T: {1, 2}}}, {T: 3})
    assert assign_uniformly(group) == {"a": {T: {0}}, "b": {T: {1, 2}}}


def test_more_members_than_partitions() -> None:
    group = group_of({"a": {}, "b": {}, "c": {}}, {T: 2})
    assert assign_uniformly(group) == {"a": {T: {0}}, "b": {T: {1}}, "c": {}}


def test_a_member_with_one_topic_keeps_its_partitions() -> None:
    group = group_of({"a": {}, "b": {}}, {T: 4, U: 4}, {"a": {T, U}, "b": {U}})
    assert assign_uniformly(group) == {"a": {T: {0, 1, 2, 3}}, "b": {U: {0, 1, 2, 3}}}


def test_an_uneven_start_is_evened_out_with_few_moves() -> None:
    group = group_of({"a": {T: {0, 1, 2, 3}, U: {0, 1}}, "b": {}}, {T: 4, U: 2}, {"a": {T, U}, "b": {U}})
    assert assign_uniformly(group) == {"a": {T: {0, 1, 2, 3}}, "b": {U: {0, 1}}}


def test_a_group_without_members() -> None:
    assert assign_uniformly(GroupSpec({}, {}, homogeneous=True)) == {}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@pytest.mark.parametrize("homogeneous", [True, False])
def test_a_large_group(name: str, homogeneous: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """1,000 members and 1,000 partitions. The time is only printed, because it depends on the machine."""
    partitions = {topic(n): 100 for n in range(10)}
    topics = sorted(partitions)
    members = {
        f"member-{n:04}": MemberSpec(frozenset(topics if homogeneous else topics[n % 3 :]), {}) for n in range(1000)
    }
    began = time.perf_counter()
    group = GroupSpec(members, partitions, homogeneous)
    assigned = ASSIGNORS[name](group)
    first = time.perf_counter()
    gone = dict(list(members.items())[1:])
    former: dict[str, Assignment] = {member_id: assigned[member_id] for member_id in gone}
    fewer = again(GroupSpec(gone, partitions, homogeneous), former)
    next_assigned = ASSIGNORS[name](fewer)
    second = time.perf_counter()
    assert_every_partition_once(group, assigned)
    assert_every_partition_once(fewer, next_assigned)
    with capsys.disabled():
        kind = "the same topics" if homogeneous else "different topics"
        print(
            f"\n{name}, 1,000 members of {kind}, 1,000 partitions: {(first - began) * 1000:.0f} ms, "
            f"{(second - first) * 1000:.0f} ms when one has left"
        )


def test_a_chain_of_members_that_share_topics_with_their_neighbors_is_fast() -> None:
    members, partitions = 40, 1000
    counts = {topic(n): partitions * (members if n == 0 else 1) for n in range(members - 1)}
    subscribed = {f"m{n:02}": {one for one in (topic(n - 1), topic(n)) if one in counts} for n in range(1, members)}
    subscribed["m00"] = {topic(0)}
    had = {f"m{n:02}": {topic(n): set(range(counts[topic(n)]))} for n in range(members - 1)}
    group = group_of({**had, "m39": {}}, counts, subscribed)

    started = time.process_time()
    assigned = assign_uniformly(group)
    assert time.process_time() - started < 5

    assert_every_partition_once(group, assigned)
    assert count(assigned["m00"]) < 40_000

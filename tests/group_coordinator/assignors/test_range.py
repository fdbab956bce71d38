"""The range assignor."""

from __future__ import annotations

from hypothesis import given, settings

from moldau.group_coordinator.assignors.range import assign_range
from moldau.group_coordinator.assignors.spec import GroupSpec, MemberSpec

from .strategies import assert_every_partition_once, groups, topic

T, U, V = topic(0), topic(1), topic(2)


def group_of(members: dict[str, set[bytes]], partitions: dict[bytes, int], **instance_ids: str) -> GroupSpec:
    return GroupSpec(
        {name: MemberSpec(frozenset(topics), {}, instance_ids.get(name)) for name, topics in members.items()},
        partitions,
        homogeneous=len({frozenset(topics) for topics in members.values()}) == 1,
    )


@given(groups(homogeneous=False))
@settings(max_examples=300, deadline=None)
def test_each_topic_is_divided_into_ranges_of_the_same_size(group: GroupSpec) -> None:
    assigned = assign_range(group)
    assert_every_partition_once(group, assigned)
    for topic_id in group.partitions:
        parts = [
            assigned[one].get(topic_id, frozenset()) for one in group.members if topic_id in group.members[one].topics
        ]
        assert all(part == frozenset(range(min(part), max(part) + 1)) for part in parts if part)
        sizes = [len(part) for part in parts]
        assert not sizes or max(sizes) - min(sizes) <= 1


@given(groups(homogeneous=True))
@settings(max_examples=200, deadline=None)
def test_topics_of_the_same_size_are_co_partitioned(group: GroupSpec) -> None:
    same = GroupSpec(group.members, dict.fromkeys(group.partitions, 5), homogeneous=True)
    for assignment in assign_range(same).values():
        assert len(set(assignment.values())) <= 1


@given(groups(homogeneous=True))
@settings(max_examples=100, deadline=None)
def test_it_ignores_the_current_assignment(group: GroupSpec) -> None:
    fresh = {one: MemberSpec(member.topics, {}, member.instance_id) for one, member in group.members.items()}
    assert assign_range(group) == assign_range(GroupSpec(fresh, group.partitions, homogeneous=True))


def test_the_first_have_one_more() -> None:
    group = group_of({"b": {T, U}, "a": {T, U}}, {T: 3, U: 3})
    assert assign_range(group) == {"a": {T: {0, 1}, U: {0, 1}}, "b": {T: {2}, U: {2}}}


def test_static_members_come_first_by_their_instance_ids() -> None:
    group = group_of({"a": {T}, "b": {T}, "c": {T}}, {T: 3}, c="1", b="2")
    assert assign_range(group) == {"c": {T: {0}}, "b": {T: {1}}, "a": {T: {2}}}


def test_each_topic_has_its_own_members() -> None:
    group = group_of({"a": {T, U}, "b": {U, V}}, {T: 2, U: 2, V: 1})
    assert assign_range(group) == {"a": {T: {0, 1}, U: {0}}, "b": {U: {1}, V: {0}}}


def test_more_members_than_partitions() -> None:
    assert assign_range(group_of({"a": {T}, "b": {T}}, {T: 1})) == {"a": {T: {0}}, "b": {}}

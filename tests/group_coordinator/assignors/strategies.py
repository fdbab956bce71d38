"""Groups for the tests of assignors: any members, any topics, any former assignment."""

from __future__ import annotations

from hypothesis import strategies as st

from moldau.group_coordinator.assignors.spec import Assignment, GroupSpec, MemberSpec


def topic(number: int) -> bytes:
    return number.to_bytes(16, "big")


@st.composite
def groups(draw: st.DrawFn, *, homogeneous: bool, former: bool = True) -> GroupSpec:
    """Former assignments may contain deleted topics and partitions, but no partition twice."""
    partitions = {topic(n): draw(st.integers(1, 9)) for n in range(draw(st.integers(1, 4)))}
    member_ids = [f"m{n}" for n in range(draw(st.integers(1, 6)))]
    former_of: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in member_ids}
    if former:
        for topic_id in [*partitions, topic(99)]:
            for partition in range(11):
                owner = draw(st.sampled_from([None, *member_ids]))
                if owner is not None:
                    former_of[owner].setdefault(topic_id, set()).add(partition)
    all_topics = frozenset(partitions)
    members = {}
    for member_id in member_ids:
        topics = all_topics if homogeneous else frozenset(draw(st.sets(st.sampled_from(sorted(all_topics)))))
        assigned: Assignment = {one: frozenset(numbers) for one, numbers in former_of[member_id].items()}
        instance_id = draw(st.sampled_from([None, f"i{member_id}"]))
        members[member_id] = MemberSpec(topics, assigned, instance_id)
    return GroupSpec(members, partitions, homogeneous)


def again(group: GroupSpec, assigned: dict[str, Assignment]) -> GroupSpec:
    """The same group, with this as its former assignment."""
    members = {
        member_id: MemberSpec(member.topics, assigned[member_id], member.instance_id)
        for member_id, member in group.members.items()
    }
    return GroupSpec(members, group.partitions, group.homogeneous)


def count(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def assert_every_partition_once(group: GroupSpec, assigned: dict[str, Assignment]) -> None:
    """All members have assignments, of subscribed topics; every partition is assigned exactly once."""
    assert set(assigned) == set(group.members)
    seen = []
    for member_id, assignment in assigned.items():
        for topic_id, partitions in assignment.items():
            assert partitions, "a topic without partitions"
            assert topic_id in group.members[member_id].topics
            seen += [(topic_id, partition) for partition in partitions]
    read = {topic_id for member in group.members.values() for topic_id in member.topics}
    assert sorted(seen) == sorted((one, p) for one in read for p in range(group.partitions[one]))

"""Groups of all real clients, with each of their protocols: see `group_driver` for the checks.

A member is added, one leaves, one is killed; a static member returns within its session without a rebalance; the server
is killed and restarted while they run.
"""

from collections.abc import Callable, Iterator, Sequence

import pytest

from moldau.compat_tests.group_driver import Event, Group, Kind, concurrent_owners, kinds, owners_of_generations
from moldau.testing.full_run import in_full_run
from moldau.testing.group_requests import committed, wait_for_coordinator
from moldau.testing.routed_wire import RoutedWire
from moldau.testing.servers import Server

SHORT_SESSION_MS, LONG_SESSION_MS = 2_500, 30_000

NewGroup = Callable[..., Group]


KINDS = kinds()
# Each client with the newest protocol that it has.
NEWEST = list({kind.client: kind for kind in KINDS}.values())


def of_kinds(first: Sequence[Kind]) -> pytest.MarkDecorator:
    """These run in `make test`; the others run in the full run."""
    others = [kind for kind in KINDS if kind not in first]
    return pytest.mark.parametrize("kind", [*first, *in_full_run(*others)], ids=str)


@pytest.fixture
def new_group(kind: Kind, restartable_group_server: Server, topic_name: Callable[[], str]) -> Iterator[NewGroup]:
    """``new_group(session_timeout_ms)``: a group with its own topic, on a server that may be killed."""
    made: list[Group] = []

    def make(session_timeout_ms: int) -> Group:
        name = topic_name()
        group = Group(kind, restartable_group_server.bootstrap_servers, name, name, session_timeout_ms)
        made.append(group.__enter__())
        return group

    yield make
    for group in made:
        group.__exit__(None, None, None)


@pytest.mark.slow
@of_kinds(NEWEST)
def test_members_join_leave_and_crash(kind: Kind, new_group: NewGroup) -> None:
    group = new_group(SHORT_SESSION_MS)
    group.produce(50)
    members = group.start_all(f"member-{number}" for number in range(4 if kind.is_lightweight else 2))
    group.wait_stable(*members)
    group.wait_consumed()

    added = group.start("added")
    group.wait_stable(*members, added)
    group.produce(50)
    group.wait_consumed()

    victim, *rest = members
    group.produce(50)  # some of which it may be reading now
    victim.kill()
    group.wait_stable(*rest, added)
    group.wait_consumed()

    added.leave()
    group.wait_stable(*rest)
    group.produce(50)
    group.wait_consumed()
    group.check()


@pytest.mark.slow
@of_kinds([kind for kind in NEWEST if kind.client == "confluent-kafka"])
def test_a_static_member_returns_without_a_rebalance(kind: Kind, new_group: NewGroup) -> None:
    if kind.without_static is not None:
        pytest.skip(kind.without_static)
    group = new_group(LONG_SESSION_MS)
    group.produce(20)
    # Not the first member, the leader of a classic group: some clients request a rebalance when the leader returns.
    others = group.start_all([f"other-{number}" for number in range(2)], ["instance-1", "instance-2"])
    group.wait_stable(*others)
    static = group.start("static", instance_id="instance-0")
    group.wait_stable(static, *others)
    # A member whose partitions do not change may report that rebalance after the others, but before the next records.
    group.produce(20)
    group.wait_consumed()

    mark, had = group.mark(), set(static.owned)
    if kind.protocol == "consumer":
        static.leave()  # leaves temporarily: for one that dies the place is kept until its session expires (KIP-848)
    else:
        static.kill()
    group.produce(20)
    back = group.start("static", instance_id="instance-0")
    group.wait_stable(back, *others)
    group.wait_consumed()
    assert back.owned == had
    assert group.changes_since(mark, *others) == [], group.event_log()
    group.check()


@pytest.mark.slow
@of_kinds([kind for kind in NEWEST if kind.client == "confluent-kafka"])
def test_the_server_is_killed_and_restarted(kind: Kind, new_group: NewGroup, restartable_group_server: Server) -> None:
    group = new_group(LONG_SESSION_MS if kind.survives_server else SHORT_SESSION_MS)
    group.produce(50)
    names = [f"member-{number}" for number in range(3 if kind.is_lightweight else 2)]
    members = group.start_all(names)
    group.wait_stable(*members)
    group.wait_consumed()
    before = dict(group.ends)

    group.produce(50)  # which they are reading and committing now
    restartable_group_server.kill()
    if not kind.survives_server:
        for member in members:
            member.wait_end()
    restartable_group_server.start()
    wait_for_coordinator(restartable_group_server.bootstrap_servers, group.group_id)
    with RoutedWire(restartable_group_server.bootstrap_servers) as wire:
        kept = committed(wire, group.group_id, group.topic, group.ends)
    assert all(kept[partition] >= offset for partition, offset in before.items()), kept

    if not kind.survives_server:
        members = group.start_all(names)
        group.wait_stable(*members)
    group.wait_consumed()
    group.produce(50)
    group.wait_consumed()
    group.wait_stable(*members)
    group.check()


# -- the checks of a story --


def event(member: str, kind: str, at: int, *partitions: int, generation: int | None = None) -> Event:
    fields: dict[str, object] = {"partitions": list(partitions)} if kind != "ended" else {}
    return Event(member, kind, at, fields | ({"generation": generation} if generation is not None else {}))


def test_the_check_finds_two_owners_in_one_generation() -> None:
    story = [
        event("a", "assigned", 1, 0, 1, generation=1),
        event("a", "revoked", 2, 1),
        event("b", "assigned", 3, 1, generation=2),
        event("a", "assigned", 4, generation=2),
    ]
    assert owners_of_generations(story) == {}
    story.append(event("c", "assigned", 5, 0, generation=2))
    assert owners_of_generations(story) == {(2, 0): {"a", "c"}}


def test_the_check_finds_two_owners_at_the_same_time() -> None:
    story = [
        event("a", "assigned", 1, 0),
        event("a", "revoked", 2, 0),
        event("b", "assigned", 3, 0),
        event("b", "ended", 4),
        event("a", "assigned", 5, 0),
    ]
    assert concurrent_owners(story) == []
    story[1] = event("a", "revoked", 4, 0)
    assert len(concurrent_owners(story)) == 1

"""Applications of real consumers that move to the consumer protocol (KIP-848) and back, one member after the other.

See `group_driver` for the checks: no partition has two owners, and every record is read. The same holds for static
members, which leave temporarily.

Not tested: the cooperative assignor of librdkafka adds its own data to the assignments. Such groups are not upgraded,
because no server can create that data.
"""

from collections.abc import Callable

import pytest

from moldau.compat_tests.group_driver import Group, Member, kinds
from moldau.testing.group_requests import list_groups
from moldau.testing.routed_wire import RoutedWire

SESSION_TIMEOUT_MS = 30_000

KINDS = {str(kind): kind for kind in kinds()}


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize(
    ("client", "protocol"),
    [
        ("java", "cooperative"),
        ("confluent-kafka", "range"),
        ("franz-go", "range"),
        pytest.param("java", "range", marks=pytest.mark.full),
        pytest.param("java", "sticky", marks=pytest.mark.full),
        pytest.param("franz-go", "cooperative", marks=pytest.mark.full),
    ],
)
def test_members_move_one_by_one_and_back(
    group_servers: str, topic_name: Callable[[], str], client: str, protocol: str, *, static: bool
) -> None:
    name = topic_name()
    with (
        Group(KINDS[f"{client}-{protocol}"], group_servers, name, name, SESSION_TIMEOUT_MS) as group,
        RoutedWire(group_servers) as wire,
    ):

        def start(member: str) -> Member:
            return group.start(member, instance_id=member if static else None)

        members = {member: start(member) for member in ("a", "b")}
        group.produce(50)
        group.wait_stable(*members.values())
        types = [list_groups(wire)[name].group_type]
        for step in ("consumer", protocol):
            group.kind = KINDS[f"{client}-{step}"]
            for member in ("a", "b"):
                members[member].leave()
                members[member] = start(member)
                group.produce(50)
                group.wait_stable(*members.values())
                types.append(list_groups(wire)[name].group_type)
        assert types == ["classic", "consumer", "consumer", "consumer", "classic"]
        group.wait_consumed()
        group.check()

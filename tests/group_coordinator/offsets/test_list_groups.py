"""ListGroups of one shard."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.protocol.messages.list_groups import ListedGroup

SIMPLE = ListedGroup(group_id="simple", group_state="Empty", group_type="classic")
EMPTY = ListedGroup(group_id="empty", protocol_type="consumer", group_state="Empty", group_type="classic")
CONNECT = ListedGroup(group_id="connect", protocol_type="connect", group_state="Stable", group_type="classic")
NEW = ListedGroup(group_id="new", protocol_type="consumer", group_state="Stable", group_type="consumer")
GONE = ListedGroup(group_id="gone", protocol_type="consumer", group_state="Empty", group_type="consumer")
ALL = [SIMPLE, EMPTY, CONNECT, NEW, GONE]


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ([], [], ALL),
        (["Stable"], [], [CONNECT, NEW]),
        (["sTABLE", " Empty "], [], ALL),
        (["PreparingRebalance"], [], []),
        (["Nonsense"], [], []),
        (["Nonsense", "stable"], [], [CONNECT, NEW]),
        ([], ["classic"], [SIMPLE, EMPTY, CONNECT]),
        ([], ["CONSUMER"], [NEW, GONE]),
        ([], ["consumer", "classic"], ALL),
        ([], ["share"], []),
        ([], ["nonsense"], []),
        (["empty"], ["consumer"], [GONE]),
    ],
)
def test_filters(coordinator: Any, states: list[str], types: list[str], expected: list[ListedGroup]) -> None:
    coordinator.commit("simple", {"a": {0: 1}})
    coordinator.classic_group("empty")
    coordinator.classic_group("connect", members={"m": []}, protocol_type="connect")
    coordinator.consumer_group("new", members={"m": ["a"]})
    coordinator.consumer_group("gone")

    assert [one for some in coordinator.shard.list_groups(states, types) for one in some] == expected

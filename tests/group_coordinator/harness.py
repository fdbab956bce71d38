"""A group coordinator in a test: its shard in its runtime, on a log in memory and under a clock that the test moves.

    coordinator = Coordinator()
    caller = coordinator.send(HeartbeatRequest(group_id="g", ...), api_version=4)
    assert caller.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID

`send` is one iteration of the loop: decide, append, replay, respond. `advance` moves the clock from deadline to
deadline. `restart` discards the state and loads it from the log, byte for byte. It does not sleep, and uses no random
numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Set
from typing import Any

from moldau.coordinator.outcome import Outcome
from moldau.group_coordinator.classic.kind import CLASSIC
from moldau.group_coordinator.config import GroupConfig
from moldau.group_coordinator.consumer.regexes import compiled
from moldau.group_coordinator.shard import GroupShard
from moldau.group_coordinator.states import GroupStates
from moldau.protocol.messages.describe_groups import DescribedGroup
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

from ..coordinator.harness import FakeCaller, Harness

HANDLERS: dict[type, str] = {
    # All others are those of members.
    OffsetCommitRequest: "commit_offsets",
    TxnOffsetCommitRequest: "commit_transactional_offsets",
    OffsetDeleteRequest: "delete_offsets",
}


class FakeTopics:
    """Topics with their partitions; every change is another version."""

    def __init__(self) -> None:
        self._partitions: dict[str, int] = {}
        self._ids: dict[str, bytes] = {}
        self._made = itertools.count(1)
        self.version = 0

    def create(self, name: str, partitions: int = 1) -> bytes:
        """Create a topic, or add partitions."""
        self._ids.setdefault(name, b"\x01" + next(self._made).to_bytes(15, "big"))
        self._partitions[name] = partitions
        self.version += 1
        return self._ids[name]

    def delete(self, name: str) -> None:
        del self._partitions[name], self._ids[name]
        self.version += 1

    def id_of(self, name: str) -> bytes | None:
        return self._ids.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, known in self._ids.items() if known == topic_id), None)

    def partition_count(self, name: str) -> int:
        return self._partitions.get(name, 0)

    def names(self) -> Set[str]:
        return self._partitions.keys()

    def matching(self, regex: str) -> frozenset[str]:
        return compiled(regex).matching(self.names())


class Coordinator(Harness[GroupShard]):
    """One shard, which serves. Settings are those of `GroupConfig`."""

    def __init__(self, *, overrides: Mapping[str, Mapping[str, str]] | None = None, **settings: Any) -> None:
        super().__init__()
        self.config = GroupConfig(**settings)
        self.topics = FakeTopics()
        self.overrides: Mapping[str, Mapping[str, str]] = overrides or {}
        """Configs of GROUP resources, by group."""
        self._uuids = itertools.count(1)
        self.restart()

    def new_shard(self) -> GroupShard:
        self.states = GroupStates(
            self.config,
            self.topics,
            overrides=lambda group_id: self.overrides.get(group_id, {}),
            new_uuid=lambda: f"uuid-{next(self._uuids)}",
        )
        return GroupShard(self.states)

    # -- requests ------------------------------------------------------------------------------------------------------

    def send(self, request: Any, api_version: int | None = None, **caller: str) -> FakeCaller:
        """Send a request, by default in its latest version, and end the iteration of the loop."""
        sent = self.send_in_turn(request, api_version, **caller)
        self.settle()
        return sent

    def send_in_turn(self, request: Any, api_version: int | None = None, **caller: str) -> FakeCaller:
        """Send one of several requests of an iteration; `settle` ends the iteration."""
        version = type(request).VERSIONS.highest if api_version is None else api_version
        sent = FakeCaller(version, **caller)
        handle: Callable[..., Outcome] = getattr(self.shard, HANDLERS.get(type(request), "serve"))
        self.runtime.run(request.group_id, sent, lambda shard, now: handle(sent, request, now))
        return sent

    def delete_group(self, group_id: str) -> FakeCaller:
        """DeleteGroups of one group."""
        sent = FakeCaller(2)
        self.runtime.run(group_id, sent, lambda shard, now: shard.delete_group(sent, group_id, now))
        self.settle()
        return sent

    def describe(self, group_id: str, api_version: int = 6) -> DescribedGroup:
        """DescribeGroups of one group."""
        return self.runtime.read(group_id).describe(CLASSIC, group_id, api_version=api_version)

    def group(self, group_id: str = "group") -> Any:
        """The state of a group, with all decisions."""
        return self.runtime.read(group_id).states.groups[group_id]

    def has_group(self, group_id: str = "group") -> bool:
        return group_id in self.runtime.read(group_id).states.groups

"""Clients without membership: a consumer with manual assignment that commits, and an admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .client import Client

if TYPE_CHECKING:
    from .calls import Call


class Outsider(Client):
    """It sends the given requests."""

    def next_act_ms(self) -> int | None:
        return None

    def act(self) -> None:
        pass

    def commit(self) -> None:
        """Commit from outside of the membership; only groups without members take that."""
        topics = self.world.topics
        partitions = [(name, index) for name in sorted(topics.names()) for index in range(topics.partition_count(name))]
        if partitions:
            request = self.commit_request(self.world.some_of(partitions))
            if request is not None:
                self.ask(request, 9)

    def ask(self, request: Any, api_version: int) -> None:
        """Unless it waits for something already."""
        if "question" not in self.waiting:
            self.send("question", request, api_version)

    def answered(self, slot: str, call: Call, response: Any) -> None:
        pass

    def lost(self, slot: str, call: Call) -> None:
        pass

"""A client that is not a member: a consumer with manual assignment that commits, and an administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .client import Client

if TYPE_CHECKING:
    from .calls import Call


class Outsider(Client):
    """Sends the given requests, one at a time."""

    def next_act_ms(self) -> int | None:
        return None

    def act(self) -> None:
        pass

    def commit(self) -> None:
        """Commit without a member ID; only groups without members accept this."""
        topics = self.world.topics
        partitions = [(name, index) for name in sorted(topics.names()) for index in range(topics.partition_count(name))]
        if partitions:
            request = self.commit_request(self.world.some_of(partitions))
            if request is not None:
                self.send_request(request, 9)

    def send_request(self, request: Any, api_version: int) -> None:
        """Send a request, unless one is pending."""
        if "request" not in self.waiting:
            self.send("request", request, api_version)

    def on_response(self, slot: str, call: Call, response: Any) -> None:
        pass

    def lost(self, slot: str, call: Call) -> None:
        pass

"""A server that was paused for longer than the sessions of members reads their requests before it expires sessions."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.server.concurrency.event_loop import MAX_EVENTS
from moldau.testing import Broker
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

NONE, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID = 0, 27, 25
SESSION_MS = 6_000
PAUSE_S = 7.0


class Member:
    """The only member of a group."""

    def __init__(self, broker: Any, group_id: str) -> None:
        self.wire = WireClient(broker.bootstrap_servers)
        self.group_id = group_id
        self.member_id = ""

    def send_join(self) -> None:
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            group_instance_id="only",
            protocol_type="opaque",
            protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
        )
        self.wire.send(request, 5)

    def receive_join(self) -> None:
        answer = self.wire.receive()
        assert answer.error_code == NONE
        self.member_id = answer.member_id

    def send_heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=self.group_id, generation_id=1, member_id=self.member_id)
        self.wire.send(request, 4)

    def is_known(self) -> Any:
        code = self.wire.receive().error_code
        assert code in (NONE, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID)
        return code != UNKNOWN_MEMBER_ID


def test_members_keep_their_sessions_with_heartbeats_during_the_pause() -> None:
    with Broker(config={"group.min.session.timeout.ms": 100}) as broker:
        with WireClient(broker.bootstrap_servers) as wire:
            wire.call(FindCoordinatorRequest(coordinator_keys=["g"]))
        # More connections than one iteration of the event loop serves.
        members = [Member(broker, f"g{number}") for number in range(MAX_EVENTS + 20)]
        silent = Member(broker, "silent")
        # All requests of a kind are in flight together: a round of single ones may take longer than a session.
        for member in [*members, silent]:
            member.send_join()
        for member in [*members, silent]:
            member.receive_join()
        for member in members:
            member.send_heartbeat()
        assert [member.group_id for member in members if not member.is_known()] == []
        os.kill(broker.pid, signal.SIGSTOP)
        for member in members:
            member.send_heartbeat()
        time.sleep(PAUSE_S)  # the pause is the subject of this test
        os.kill(broker.pid, signal.SIGCONT)
        assert [member.group_id for member in members if not member.is_known()] == []
        # Deadlines wait for requests that have arrived, for a limited number of iterations of the event loop.
        with WireClient(broker.bootstrap_servers) as wire:
            request = DescribeGroupsRequest(groups=["silent"])
            wait_until(lambda: not wire.call(request, 5).groups[0].members, "the end of the session")
        silent.send_heartbeat()
        assert not silent.is_known()
        for member in [*members, silent]:
            member.wire.close()

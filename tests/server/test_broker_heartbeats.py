"""Registration and heartbeats with controllers in memory: failovers, failed directories, lost registrations."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from moldau.metadata.lifecycle import BrokerDescription, BrokerLifecycle, LifecycleSettings, State
from moldau.metadata.observer import Address
from moldau.metadata.registrations import Endpoint, VersionRange
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from moldau.protocol.schema import Response
from moldau.server.cluster.broker_heartbeats import BrokerHeartbeats
from moldau.server.cluster.controller_channel import ControllerChannel

from .remote_controllers import Host, Quorum

if TYPE_CHECKING:
    from moldau.metadata.followed import FollowedMetadata

OURS, OTHER = b"o" * 16, b"x" * 16
FIRST, SECOND = b"1" * 16, b"2" * 16
INTERVAL_MS = 2000


class Joined:
    """A broker with two log directories, and two controllers, which grant all requests unless a test changes that."""

    def __init__(self) -> None:
        self.host = Host()
        self.quorum = Quorum(self.host, 101, 102)
        self.controller: Address | None = self.quorum.nodes[101].address
        self.epoch = 50
        self.registers_with: Response | None = None
        """Instead of a broker epoch."""
        self.heartbeat_with: Response | None = None
        """Until the next registration."""
        self.requests: list[Any] = []
        for node in self.quorum.nodes.values():
            node.respond_to = self._respond
        description = BrokerDescription(
            1,
            "cluster",
            OURS,
            (Endpoint("PLAINTEXT", "localhost", 9092),),
            {"metadata.version": VersionRange(7, 30)},
            (FIRST, SECOND),
        )
        self.lifecycle = BrokerLifecycle(description, LifecycleSettings(INTERVAL_MS, 60_000), self.host.timers.now_ms())
        self.channel = ControllerChannel(
            self.host.connect, lambda: self.controller, self.host.timers, client_id="1", request_timeout_ms=1000
        )
        self.image = SimpleNamespace(brokers={}, features={}, offset=100, metadata_version=30)
        self.cordoned: list[bytes] = []
        self.metadata = SimpleNamespace(node_id=1, image=self.image, applied_offset=100, registered=lambda epoch: None)
        self.ends: list[str] = []
        self.heartbeats = BrokerHeartbeats(
            self.lifecycle,
            cast("FollowedMetadata", self.metadata),
            self.channel,
            self.host.timers,
            request_timeout_ms=2000,
            cordoned=lambda: self.cordoned,
            on_end=self.ends.append,
        )

    def _respond(self, request: Any) -> Response:
        self.requests.append(request)
        if isinstance(request, BrokerRegistrationRequest):
            self.heartbeat_with = None
            return self.registers_with or BrokerRegistrationResponse(broker_epoch=self.epoch)
        assert isinstance(request, BrokerHeartbeatRequest)
        if self.heartbeat_with is not None:
            return self.heartbeat_with
        return BrokerHeartbeatResponse(
            is_caught_up=True, is_fenced=request.want_fence, should_shut_down=request.want_shut_down
        )

    def state(self) -> State:
        return self.lifecycle.state

    def run(self) -> None:
        """The broker registers, and is unfenced."""
        self.heartbeats.start()
        self.host.advance(50)
        assert self.state() is State.RECOVERY
        self.heartbeats.ready()
        self.host.advance(50)
        assert self.state() is State.RUNNING
        self.requests.clear()

    def replay(self, *, epoch: int, incarnation_id: bytes = OURS) -> None:
        """The committed metadata has this registration."""
        self.image.brokers = {1: SimpleNamespace(epoch=epoch, incarnation_id=incarnation_id)}
        self.heartbeats.replayed()
        self.host.run()


@pytest.fixture
def joined() -> Iterator[Joined]:
    made = Joined()
    yield made
    made.heartbeats.close()
    made.channel.close()
    made.host.close()


def test_heartbeats_are_regular_and_have_the_applied_offset(joined: Joined) -> None:
    joined.run()
    joined.metadata.applied_offset = 123
    joined.host.advance(3 * INTERVAL_MS + 100)
    assert [request.current_metadata_offset for request in joined.requests] == [123] * 3


def test_a_failed_directory_is_reported_immediately_and_in_every_later_heartbeat(joined: Joined) -> None:
    joined.run()
    joined.heartbeats.directory_failed(SECOND)
    joined.host.advance(10)
    assert [request.offline_log_dirs for request in joined.requests] == [[SECOND]]
    joined.host.advance(INTERVAL_MS + 100)
    joined.heartbeats.directory_failed(SECOND)
    joined.host.advance(10)
    assert [request.offline_log_dirs for request in joined.requests] == [[SECOND]] * 2


def test_cordoned_directories_are_reported_immediately_and_in_every_heartbeat(joined: Joined) -> None:
    joined.heartbeats.start()
    joined.host.advance(50)
    heartbeats = [request for request in joined.requests if isinstance(request, BrokerHeartbeatRequest)]
    assert {request.cordoned_log_dirs for request in heartbeats} == {None}  # dynamic settings are not in effect yet
    joined.heartbeats.ready()
    joined.host.advance(50)
    assert joined.requests[-1].cordoned_log_dirs == []
    joined.requests.clear()
    joined.cordoned = [SECOND]
    joined.heartbeats.directories_cordoned()
    joined.host.advance(10)
    assert [request.cordoned_log_dirs for request in joined.requests] == [[SECOND]]
    joined.host.advance(INTERVAL_MS)
    assert [request.cordoned_log_dirs for request in joined.requests] == [[SECOND]] * 2


def test_a_cluster_that_does_not_know_cordoned_directories_gets_no_reports_of_them(joined: Joined) -> None:
    joined.image.metadata_version = 29
    joined.cordoned = [SECOND]
    joined.run()
    joined.host.advance(INTERVAL_MS)
    assert [request.cordoned_log_dirs for request in joined.requests] == [None]


def test_a_directory_that_fails_while_no_controller_is_active_is_reported_to_the_next_one(joined: Joined) -> None:
    joined.run()
    joined.quorum.nodes[101].kill()
    joined.controller = None
    joined.heartbeats.directory_failed(FIRST)
    joined.host.advance(1500)
    assert not joined.requests
    joined.controller = joined.quorum.nodes[102].address
    joined.channel.controller_changed()
    joined.host.advance(500)
    assert [request.offline_log_dirs for request in joined.requests] == [[FIRST]]


def test_a_new_controller_gets_heartbeats_with_the_same_epoch(joined: Joined) -> None:
    """Its sessions begin with it; nothing is registered again."""
    joined.run()
    joined.quorum.nodes[101].kill()
    joined.controller = joined.quorum.nodes[102].address
    joined.channel.controller_changed()
    joined.host.advance(INTERVAL_MS + 1000)
    assert joined.requests
    assert {request.broker_epoch for request in joined.requests} == {50}
    assert joined.state() is State.RUNNING


def test_a_registration_that_is_gone_is_made_again_without_the_failed_directory(joined: Joined) -> None:
    joined.run()
    joined.heartbeats.directory_failed(SECOND)
    joined.host.advance(10)
    joined.heartbeat_with = BrokerHeartbeatResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    joined.epoch = 200
    joined.host.advance(INTERVAL_MS + 100)
    (registration,) = [request for request in joined.requests if isinstance(request, BrokerRegistrationRequest)]
    assert (registration.incarnation_id, registration.log_dirs) == (OURS, [FIRST])
    assert registration.previous_broker_epoch == -1
    assert joined.requests[-1].broker_epoch == 200
    assert joined.state() is State.RUNNING


def test_another_process_with_the_same_node_id_ends_the_broker(joined: Joined) -> None:
    joined.run()
    joined.replay(epoch=90, incarnation_id=OTHER)
    (end,) = joined.ends
    assert "Another process has registered as broker 1" in end
    joined.host.advance(10 * INTERVAL_MS)
    assert not joined.requests


def test_a_registration_whose_response_was_lost_is_found_in_the_metadata(joined: Joined) -> None:
    joined.run()
    joined.replay(epoch=90)
    joined.host.advance(10)
    assert joined.requests[-1].broker_epoch == 90
    assert not joined.ends


def test_a_controller_that_rejects_the_registration_is_asked_until_the_timeout(
    joined: Joined, caplog: pytest.LogCaptureFixture
) -> None:
    joined.registers_with = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    joined.heartbeats.start()
    joined.host.advance(30_000)
    assert caplog.text.count("DUPLICATE_BROKER_REGISTRATION") == 1
    assert len(joined.requests) > 10
    joined.registers_with = None
    joined.host.advance(INTERVAL_MS + 100)
    assert joined.state() is State.RECOVERY
    assert not joined.ends


def test_a_shutdown_is_granted_by_the_next_controller_if_the_first_one_dies(joined: Joined) -> None:
    joined.run()
    joined.heartbeat_with = BrokerHeartbeatResponse(is_caught_up=True)
    joined.heartbeats.begin_shutdown()
    joined.host.advance(200)
    assert joined.requests[-1].want_shut_down
    assert joined.state() is State.PENDING_CONTROLLED_SHUTDOWN
    joined.quorum.nodes[101].kill()
    joined.heartbeat_with = None
    joined.controller = joined.quorum.nodes[102].address
    joined.channel.controller_changed()
    joined.host.advance(1000)
    assert joined.state() is State.SHUTTING_DOWN

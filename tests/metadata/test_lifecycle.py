"""The life cycle of a broker: its requests, their times, and the effects of responses."""

import itertools
from collections.abc import Callable

import pytest

from moldau.metadata.lifecycle import BrokerDescription, BrokerLifecycle, LifecycleSettings, State
from moldau.metadata.registrations import BrokerRegistration, Endpoint, VersionRange
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

OURS, THEIRS, DIRECTORY = bytes(15) + b"1", bytes(15) + b"2", bytes(15) + b"d"


def lifecycle() -> BrokerLifecycle:
    description = BrokerDescription(
        1,
        "cluster",
        OURS,
        (Endpoint("PLAINTEXT", "localhost", 9092),),
        {"metadata.version": VersionRange(7, 30)},
        (DIRECTORY,),
    )
    return BrokerLifecycle(description, LifecycleSettings(2000, 60_000), 0, previous_broker_epoch=7)


def exchange(life: BrokerLifecycle, now_ms: int, response: object) -> object:
    request = life.request(40)
    assert life.next_ms is None
    life.handle(response, now_ms)  # type: ignore[arg-type]
    return request


def heard(**fields: bool) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(**fields)  # type: ignore[arg-type]


def registered() -> BrokerLifecycle:
    life = lifecycle()
    exchange(life, 0, BrokerRegistrationResponse(broker_epoch=50))
    return life


def running() -> BrokerLifecycle:
    life = registered()
    exchange(life, 0, heard(is_caught_up=True))
    life.ready(0)
    exchange(life, 0, heard(is_caught_up=True, is_fenced=False))
    assert life.state is State.RUNNING
    return life


def test_a_heartbeat_is_early_when_the_broker_is_awake_shortly_before_it() -> None:
    life = running()
    registration = BrokerRegistration(1, 50, OURS, {}, {})
    assert life.next_ms == 2000
    life.replayed(registration, 60, 1700)
    assert life.next_ms == 2000
    life.replayed(registration, 60, 1900)
    assert life.next_ms == 1900
    exchange(life, 1901, heard(is_caught_up=True, is_fenced=False))
    assert life.next_ms == 3901


def test_a_repetition_after_a_failure_is_not_early() -> None:
    life = running()
    life.request(40)
    life.failed("no response", 2000)
    assert life.next_ms == 2100
    life.replayed(BrokerRegistration(1, 50, OURS, {}, {}), 60, 2010)
    assert life.next_ms == 2100


def test_from_registration_to_running() -> None:
    life = lifecycle()
    request = exchange(life, 5, BrokerRegistrationResponse(broker_epoch=50))
    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.previous_broker_epoch, request.log_dirs) == (7, [DIRECTORY])
    assert life.next_ms == 5
    request = exchange(life, 10, heard(is_caught_up=False))
    assert isinstance(request, BrokerHeartbeatRequest)
    assert (request.broker_epoch, request.want_fence, request.current_metadata_offset) == (50, True, 40)
    assert (life.state, life.next_ms) == (State.STARTING, 20)
    exchange(life, 20, heard(is_caught_up=True))
    assert (life.state, life.next_ms) == (State.RECOVERY, 20)
    exchange(life, 20, heard(is_caught_up=True))
    assert (life.state, life.next_ms) == (State.RECOVERY, 2020)
    life.ready(30)
    assert life.next_ms == 30
    request = exchange(life, 31, heard(is_caught_up=True, is_fenced=False))
    assert isinstance(request, BrokerHeartbeatRequest)
    assert not request.want_fence
    assert (life.state, life.next_ms) == (State.RUNNING, 2031)


def test_a_controlled_shutdown_waits_until_it_is_granted() -> None:
    life = running()
    life.begin_shutdown(100)
    assert (life.state, life.next_ms) == (State.PENDING_CONTROLLED_SHUTDOWN, 100)
    request = exchange(life, 100, heard(is_caught_up=True, is_fenced=False))
    assert isinstance(request, BrokerHeartbeatRequest)
    assert request.want_shut_down
    assert life.next_ms == 150
    exchange(life, 150, heard(is_caught_up=True, should_shut_down=True))
    assert life.state is State.SHUTTING_DOWN
    assert life.next_ms is None


def test_an_event_during_a_request_is_sent_right_after_it() -> None:
    life = running()
    life.request(40)
    life.directory_failed(DIRECTORY, 10)
    life.handle(heard(is_caught_up=True, is_fenced=False), 11)
    assert life.next_ms == 11
    request = life.request(40)
    assert isinstance(request, BrokerHeartbeatRequest)
    assert request.offline_log_dirs == [DIRECTORY]


def test_a_removed_registration_is_repeated() -> None:
    life = running()
    life.replayed(None, 49, 100)
    assert life.state is State.RUNNING  # the image is older than the registration
    life.replayed(None, 60, 100)
    assert (life.state, life.next_ms) == (State.STARTING, 100)
    request = exchange(life, 100, BrokerRegistrationResponse(broker_epoch=61))
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.incarnation_id == OURS
    exchange(life, 100, heard(is_caught_up=True, is_fenced=False))
    assert life.state is State.RUNNING  # the partitions still exist


def test_another_process_with_the_same_id_ends_the_broker() -> None:
    life = running()
    life.replayed(BrokerRegistration(1, 70, THEIRS, {}, {}), 70, 100)
    assert (life.state, life.next_ms) == (State.FAILED, None)
    assert "Another process has registered as broker 1" in (life.error or "")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.DUPLICATE_BROKER_REGISTRATION, "node.id"),
        (ErrorCode.INVALID_REGISTRATION, "directory.id"),
        (ErrorCode.UNSUPPORTED_VERSION, "kafka-features.sh downgrade"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "CLUSTER_AUTHORIZATION_FAILED"),
    ],
)
def test_a_rejected_registration_is_repeated_until_the_timeout(code: ErrorCode, words: str) -> None:
    life = lifecycle()
    exchange(life, 1000, BrokerRegistrationResponse(error_code=code))
    assert (life.state, life.next_ms) == (State.STARTING, 1100)
    assert words in (life.problem or "")
    exchange(life, 60_000, BrokerRegistrationResponse(error_code=code))
    assert life.state is State.FAILED
    assert words in (life.error or "")


def test_pauses_after_failures_double_up_to_the_interval_of_heartbeats() -> None:
    life = lifecycle()
    pauses = []
    for _ in range(6):
        life.request(40)
        life.failed("no connection", 0)
        pauses.append(life.next_ms)
    assert pauses == [100, 200, 400, 800, 1600, 2000]
    exchange(life, 0, BrokerRegistrationResponse(broker_epoch=50))
    life.request(40)
    life.failed("no connection", 0)
    assert life.next_ms == 100


def test_a_broker_that_has_caught_up_sends_a_heartbeat_immediately() -> None:
    life = registered()
    exchange(life, 1, heard(is_caught_up=False))
    life.replayed(BrokerRegistration(1, 50, OURS, {}, {}), 49, 2)
    assert life.next_ms == 11
    life.replayed(BrokerRegistration(1, 50, OURS, {}, {}), 50, 3)
    assert life.next_ms == 3


def test_features_that_this_software_does_not_support_are_named() -> None:
    life = lifecycle()
    life.finalized_features = {"metadata.version": 31, "unknown.version": 2, "unused.version": 0}
    exchange(life, 1000, BrokerRegistrationResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    assert "metadata.version=31, unknown.version=2" in (life.problem or "")


def test_another_cluster_fails_immediately() -> None:
    life = lifecycle()
    exchange(life, 0, BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert life.state is State.FAILED


def test_a_broker_that_is_not_registered_shuts_down_immediately() -> None:
    life = lifecycle()
    life.begin_shutdown(0)
    assert life.state is State.SHUTTING_DOWN


EVENTS: dict[str, Callable[[BrokerLifecycle], object]] = {
    "ready": lambda life: life.ready(10),
    "shutdown": lambda life: life.begin_shutdown(10),
    "end": lambda life: life.end(),
    "directory": lambda life: life.directory_failed(DIRECTORY, 10),
    "gone": lambda life: life.replayed(None, 1000, 10),
    "unanswered": lambda life: _answer(life, None),
    "caught up": lambda life: _answer(life, heard(is_caught_up=True)),
    "unfenced": lambda life: _answer(life, heard(is_caught_up=True, is_fenced=False)),
    "granted": lambda life: _answer(life, heard(is_caught_up=True, should_shut_down=True)),
    "stale": lambda life: _answer(life, BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)),
    "unknown": lambda life: _answer(life, BrokerHeartbeatResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)),
}


def _answer(life: BrokerLifecycle, response: BrokerHeartbeatResponse | None) -> None:
    if life.next_ms is None:
        return
    request = life.request(40)
    if response is None:
        life.failed("timeout", 10)
    elif isinstance(request, BrokerRegistrationRequest):
        life.handle(BrokerRegistrationResponse(broker_epoch=50), 10)
    else:
        life.handle(response, 10)


def test_every_sequence_of_four_events_keeps_the_invariants() -> None:
    for events in itertools.product(EVENTS, repeat=4):
        _check_invariants(events)


def _check_invariants(events: tuple[str, ...]) -> None:
    life = lifecycle()
    ready = False
    for event in events:
        before = life.state
        ready = ready or event == "ready"
        EVENTS[event](life)
        if before in (State.SHUTTING_DOWN, State.FAILED):
            assert life.state is before
        if life.state is State.RUNNING and before is not State.RUNNING:
            assert ready
            assert life.is_registered
            assert not life.is_fenced
        assert (life.next_ms is None) is (life.state in (State.SHUTTING_DOWN, State.FAILED))
        assert (life.error is not None) is (life.state is State.FAILED)

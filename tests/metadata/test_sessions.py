"""The sessions of brokers: when they expire, and when a broker in controlled shutdown may stop."""

import itertools

import pytest

from moldau.metadata.registrations import BrokerRegistration
from moldau.metadata.sessions import BrokerSessions


def broker(broker_id: int, *, epoch: int = 10, fenced: bool = False, stopping: bool = False) -> BrokerRegistration:
    return BrokerRegistration(broker_id, epoch, b"", {}, {}, fenced=fenced, in_controlled_shutdown=stopping)


def test_a_session_lasts_until_the_timeout() -> None:
    sessions = BrokerSessions(9000)
    sessions.contact(1, 10, 500)
    assert sessions.is_valid(1, 10, 9499)
    assert sessions.expired(9499) is None
    assert not sessions.is_valid(1, 10, 9500)
    assert sessions.expired(9500) == (1, 10)


def test_a_session_belongs_to_one_registration() -> None:
    sessions = BrokerSessions(9000)
    sessions.contact(1, 10, 0)
    assert not sessions.is_valid(1, 11, 0)
    assert not sessions.is_valid(2, 10, 0)


def test_one_session_expires_at_a_look_the_oldest_first() -> None:
    """For each order in which three brokers send their last heartbeats."""
    for order in itertools.permutations((1, 2, 3)):
        sessions = BrokerSessions(9000)
        for broker_id in (1, 2, 3):
            sessions.contact(broker_id, 10, 0)
        for at, broker_id in enumerate(order, 1):
            sessions.contact(broker_id, 10, at)
        fenced = []
        while (found := sessions.expired(20_000)) is not None:
            assert sessions.expired(20_000) == found  # until it has ended
            fenced.append(found[0])
            sessions.end(*found)
        assert tuple(fenced) == order


def test_a_heartbeat_renews_an_expired_session_that_has_not_ended() -> None:
    sessions = BrokerSessions(9000)
    sessions.contact(1, 10, 0)
    assert sessions.expired(9000) == (1, 10)
    sessions.contact(1, 10, 9000)
    assert sessions.expired(9000) is None


def test_a_session_expires_when_its_connection_was_closed_for_a_third_of_the_timeout() -> None:
    sessions = BrokerSessions(9000)
    sessions.is_connected = lambda broker_id, epoch: (broker_id, epoch) != (2, 10)
    for broker_id in (1, 2):
        sessions.contact(broker_id, 10, 0)
    assert sessions.expired(3000) is None  # nobody has looked
    sessions.notice_disconnections(1000)
    sessions.notice_disconnections(2000)
    assert sessions.expired(3999) is None
    assert sessions.expired(4000) == (2, 10)
    sessions.end(2, 10)
    assert sessions.expired(4000) is None


def test_a_heartbeat_over_another_connection_ends_the_disconnection() -> None:
    sessions = BrokerSessions(9000)
    sessions.is_connected = lambda broker_id, epoch: False
    sessions.contact(1, 10, 0)
    sessions.notice_disconnections(0)
    sessions.contact(1, 10, 2000)
    assert sessions.expired(4000) is None
    sessions.notice_disconnections(4000)
    assert sessions.expired(7000) == (1, 10)


def test_a_session_without_a_heartbeat_yet_lasts_for_the_whole_timeout() -> None:
    sessions = BrokerSessions(9000)
    sessions.is_connected = lambda broker_id, epoch: None
    sessions.begin([broker(1)], 0)
    sessions.notice_disconnections(0)
    assert sessions.expired(8999) is None
    assert sessions.expired(9000) == (1, 10)


def test_a_new_controller_starts_a_full_session_for_every_active_broker() -> None:
    sessions = BrokerSessions(9000)
    sessions.begin([broker(1), broker(2, fenced=True), broker(3, stopping=True)], 1000)
    assert [sessions.is_valid(each, 10, 9999) for each in (1, 2, 3)] == [True, False, True]
    assert [sessions.is_valid(each, 10, 10_000) for each in (1, 2, 3)] == [False, False, False]


def test_the_required_offset_is_that_of_the_registration_or_of_the_fencing() -> None:
    sessions = BrokerSessions(9000)
    assert sessions.required_offset(1, 10) == 10
    sessions.require(1, 10, 25)
    assert sessions.required_offset(1, 10) == 25
    sessions.end(1, 10)
    assert sessions.required_offset(1, 10) == 10


@pytest.mark.parametrize("applied", list(itertools.product((None, 19, 20, 21), repeat=2)))
def test_a_broker_stops_when_all_active_brokers_have_applied_its_resignation(
    applied: tuple[int | None, int | None],
) -> None:
    sessions = BrokerSessions(9000)
    sessions.shutdown_begins(1, 10, 20)
    for broker_id, offset in enumerate(applied, 2):
        if offset is not None:
            sessions.applied(broker_id, 10, offset)
    others = [broker(2), broker(3)]
    idle = [broker(4, fenced=True), broker(5, stopping=True)]
    expected = all(offset is not None and offset >= 20 for offset in applied)
    assert sessions.may_stop(broker(1, stopping=True), [broker(1, stopping=True), *others, *idle]) is expected


def test_the_broker_in_the_process_of_the_controller_needs_no_heartbeats() -> None:
    sessions = BrokerSessions(9000, local_broker=1)
    sessions.begin([broker(1), broker(2)], 0)
    assert sessions.expired(9000) == (2, 10)
    sessions.end(2, 10)
    assert sessions.expired(100_000) is None
    assert sessions.is_valid(1, 10, 100_000)  # another process cannot register with its id
    sessions.shutdown_begins(2, 10, 20)
    assert sessions.may_stop(broker(2, stopping=True), [broker(1), broker(2, stopping=True)])

"""The requesting side of fetch sessions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.errors import ErrorCode
from moldau.replication.fetch_requests import Key, RequestSession, SessionRequest
from moldau.replication.following import Position

A, B = (b"a" * 16, 0), (b"b" * 16, 1)


def position(offset: int) -> Position:
    return Position(1, offset, 0, 0)


def request(session: RequestSession, wanted: dict[Key, Position]) -> SessionRequest:
    """The next request, for exactly these partitions."""
    for key in session.wanted.keys() - wanted.keys():
        session.drop(key)
    for key, each in wanted.items():
        if session.wanted.get(key) != each:
            session.want(key, each)
    return session.request()


def test_only_changes_are_named() -> None:
    session = RequestSession()
    wanted = {A: position(0), B: position(5)}
    assert request(session, wanted) == (0, 0, wanted, [])
    session.succeeded(77)
    assert request(session, wanted) == (77, 1, {}, [])
    session.succeeded(77)
    assert request(session, {A: position(1), B: position(5)}) == (77, 2, {A: position(1)}, [])
    session.succeeded(77)
    assert request(session, {A: position(1)}) == (77, 3, {}, [B])
    assert session.wanted == {A: position(1)}


def test_without_a_session_each_request_is_full() -> None:
    session = RequestSession()
    for offset in range(3):
        assert request(session, {A: position(offset)}) == (0, 0, {A: position(offset)}, [])
        session.succeeded(0)


def test_a_request_without_a_response_is_followed_by_a_full_one_that_ends_the_session() -> None:
    session = RequestSession()
    request(session, {A: position(0)})
    session.succeeded(77)
    request(session, {A: position(1)})
    session.failed()
    assert request(session, {A: position(1)}) == (77, 0, {A: position(1)}, [])
    session.succeeded(78)
    assert request(session, {A: position(1)}) == (78, 1, {}, [])


def test_a_session_that_the_leader_does_not_have_is_not_named_again() -> None:
    session = RequestSession()
    request(session, {A: position(0)})
    session.succeeded(77)
    session.failed(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert request(session, {A: position(0)}) == (0, 0, {A: position(0)}, [])


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from([A, B]), st.integers(0, 2)),
            st.sampled_from(["answered", "lost", "refused"]),
        )
    )
)
def test_the_leader_knows_what_is_wanted(history: list[tuple[dict[Key, int], str]]) -> None:
    session = RequestSession()
    leaders: dict[int, tuple[int, dict[Key, Position]]] = {}  # by session id: the expected epoch, and the partitions
    next_id = 1
    for offsets, outcome in history:
        wanted = {key: position(offset) for key, offset in offsets.items()}
        session_id, epoch, named, forgotten = request(session, wanted)
        if epoch == 0:
            leaders.pop(session_id, None)
            session_id, next_id = next_id, next_id + 1
            known = dict(named)
        else:
            expected, known = leaders[session_id]
            assert epoch == expected
            known.update(named)
            for key in forgotten:
                del known[key]
        assert known == wanted
        if outcome == "lost":
            leaders[session_id] = epoch + 1, known
            session.failed()
        elif outcome == "refused":
            session.succeeded(0)
        else:
            leaders[session_id] = epoch + 1, known
            session.succeeded(session_id)
    assert len(leaders) <= 1 + sum(outcome == "lost" or outcome == "refused" for _, outcome in history)

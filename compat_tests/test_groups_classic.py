"""Classic groups with limits that are not the defaults, and requests that only Moldau survives.

The cases of the conformance suite (areas `groups` and `offsets`) test the protocol. Some of them depend on limits of
the server; here they run with the short ones of `group_server`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from moldau.conformance import catalog
from moldau.conformance.outcome import Result, Verdict
from moldau.conformance.runner import Runner
from moldau.conformance.target import Target
from moldau.protocol.messages.join_group import JoinGroupRequestProtocol
from moldau.testing.group_requests import ClassicMember, code
from moldau.testing.wire import WireClient

NewMember = Callable[..., ClassicMember]

CASES = catalog.select(
    ids=[
        "groups.join.pending-member-expires",
        "groups.join.session-timeout-bounds",
        "groups.rebalance.full-group",
        "groups.timeouts",
        "offsets.commit.metadata-size",
        "offsets.members.extend-the-session",
    ]
)
PATIENCE = 4.0


@pytest.fixture(scope="module")
def results(group_servers: str) -> dict[str, Result]:
    target = Target(group_servers, patience=PATIENCE)
    target.describe()
    return {result.case.id: result for result in Runner(target).run(CASES)}


@pytest.mark.parametrize("identifier", [case.id for case in CASES])
def test_case_with_other_limits(results: dict[str, Result], identifier: str) -> None:
    assert results[identifier].verdict is Verdict.PASSED, results[identifier].reason


@pytest.fixture
def wire(group_servers: str) -> Iterator[WireClient]:
    with WireClient(group_servers) as client:
        yield client


@pytest.fixture
def new_member(group_servers: str, group_id: str) -> Iterator[NewMember]:
    """``new_member(**settings)``: a member of this test's group, not yet joined."""
    with ExitStack() as connections:

        def make(group_id: str = group_id, **settings: object) -> ClassicMember:
            return connections.enter_context(ClassicMember(group_servers, group_id, **settings))  # type: ignore[arg-type]

        yield make


@pytest.mark.parametrize("data", [b"\x00\x09garbage", b"\x00\x00\x7f\xff\xff\xff"], ids=["version", "length"])
def test_metadata_that_no_consumer_would_send(
    request: pytest.FixtureRequest, new_member: NewMember, data: bytes
) -> None:
    if request.config.getoption("apache"):
        pytest.skip("Apache Kafka fails to parse it when the join is complete, and never answers")
    member = new_member(protocols={"range": data})
    (listed,) = member.join().members
    assert listed.metadata == data
    answer = member.sync({member.member_id: data})
    assert (answer.error_code, answer.assignment) == (0, data)


def test_the_same_protocol_twice(request: pytest.FixtureRequest, new_member: NewMember, wire: WireClient) -> None:
    if request.config.getoption("apache"):
        pytest.skip("Apache Kafka counts it twice, finds no protocol that all members have, and never answers")
    member = new_member(protocol_type="opaque", protocols={"range": b"one"})
    twice = member.join_request()
    twice.protocols.append(JoinGroupRequestProtocol(name="range", metadata=b"two"))
    given = wire.call(twice, 9)
    assert code(given.error_code) == "MEMBER_ID_REQUIRED"
    twice.member_id = given.member_id
    answer = wire.call(twice, 9)
    assert (answer.error_code, answer.protocol_name) == (0, "range")

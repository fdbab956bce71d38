"""Scenarios of groups: each record is consumed, and what the client reports as committed is committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....protocol.api import ApiKey
from ....protocol.errors import ErrorCode
from ...case import Level
from ...outcome import MismatchError
from ..adapter import JobError
from ..scenario import scenario
from ..scene import Scene

GROUP = "group"
COUNT = 20
CLASSIC: dict[str, Any] = {"protocol": "classic"}
CONSUMER: dict[str, Any] = {"protocol": "consumer"}


def _names(*codes: ErrorCode) -> dict[str, tuple[ErrorCode]]:
    return {code.name.lower().replace("_", "-"): (code,) for code in codes}


def _topic(s: Scene, count: int = COUNT) -> str:
    topic = s.topic()
    s.fill(topic, [f"value-{number}" for number in range(count)])
    return topic


def _group(s: Scene, name: str = GROUP) -> str:
    """A group that no scenario before this one has used."""
    return f"{name}-{s.number}"


def _all_consumed(s: Scene, topic: str, group: str, consumed: list[tuple[int, int]], count: int = COUNT) -> None:
    """Each record at least once, and its offset committed. A record may be repeated after an error."""
    missing = [offset for offset in range(count) if (0, offset) not in consumed]
    s.equal(missing, [], "the records that were not consumed")
    s.equal(s.stored_offset(group, topic), count, "the committed offset that the broker has")


def _goes_on(s: Scene, api: ApiKey, error: ErrorCode, times: int = 1) -> None:
    """A member consumes and commits everything, although its first requests of an API fail."""
    topic, group = _topic(s), _group(s)
    fault = s.faults.error(api, error, group=group, times=times)
    consumed = s.consume_group(group, topic, COUNT, **CLASSIC)
    s.happened(fault, times)
    _all_consumed(s, topic, group, consumed)


def _consume_five_more(s: Scene, topic: str, group: str, event: Callable[[], object]) -> list[tuple[int, int]]:
    """What a member consumes that, after this event, gets five more records."""
    with s.during(lambda: s.consume_group(group, topic, COUNT + 5, **CLASSIC)) as result:
        event()
        s.fill(topic, [f"more-{number}" for number in range(5)])
        return result()


@scenario(
    "groups.normal",
    "a broker without faults",
    source="KIP-62, KIP-848",
    variants={"classic": (CLASSIC,), "consumer": (CONSUMER,)},
)
def normal(s: Scene, options: dict[str, Any]) -> None:
    """Broker: has no faults.

    Job: join a group, consume 20 records, commit and leave.

    Expects: each record is consumed once, in order, and the broker has the offset 20.
    """
    topic, group = _topic(s), _group(s)
    consumed = s.consume_group(group, topic, COUNT, **options)
    s.equal(consumed, [(0, offset) for offset in range(COUNT)], "the consumed records")
    s.equal(s.stored_offset(group, topic), COUNT, "the committed offset that the broker has")


@scenario("groups.resume", "a group continues at its committed offset", source="Protocol: OffsetFetch")
def resume(s: Scene) -> None:
    """Broker: the group has committed the offset 12.

    Job: join the group, and consume 8 records.

    Expects: the records from offset 12 on are consumed, and no others.
    """
    topic, group = _topic(s), _group(s)
    s.commit(group, topic, 12)
    consumed = s.consume_group(group, topic, COUNT - 12, **CLASSIC)
    s.equal(consumed, [(0, offset) for offset in range(12, COUNT)], "the consumed records")


@scenario(
    "groups.find-coordinator",
    "FindCoordinator fails at first",
    source="Protocol: FindCoordinator",
    variants=_names(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
)
def find_coordinator(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to the first two FindCoordinator requests with a retriable error.

    Job: join a group, consume 20 records, commit and leave.

    Expects: the client retries; each record is consumed and committed.
    """
    _goes_on(s, ApiKey.FIND_COORDINATOR, error, times=2)


@scenario(
    "groups.join",
    "JoinGroup fails at first",
    source="Protocol: JoinGroup",
    variants=_names(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
)
@scenario(
    "groups.join",
    "JoinGroup fails at first",
    source="Protocol: JoinGroup",
    level=Level.SHOULD,
    variants=_names(ErrorCode.REBALANCE_IN_PROGRESS),
)
def join(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to the first JoinGroup request with an error after which a client joins again.

    Job: join a group, consume 20 records, commit and leave.

    Expects: the client joins again; each record is consumed and committed.
    """
    _goes_on(s, ApiKey.JOIN_GROUP, error)


@scenario(
    "groups.sync",
    "SyncGroup fails at first",
    source="Protocol: SyncGroup",
    variants=_names(
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NOT_COORDINATOR,
    ),
)
def sync(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to the first SyncGroup request with an error after which a client joins again.

    Job: join a group, consume 20 records, commit and leave.

    Expects: the client joins again; each record is consumed and committed.
    """
    _goes_on(s, ApiKey.SYNC_GROUP, error)


@scenario(
    "groups.heartbeat",
    "a heartbeat fails",
    source="Protocol: Heartbeat",
    variants=_names(
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.NOT_COORDINATOR,
    ),
)
def heartbeat(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to the first heartbeat with an error after which a client joins again or finds its coordinator;
    then five more records are produced.

    Job: join a group, consume 25 records, commit and leave.

    Expects: the client continues; each record is consumed and committed.
    """
    topic, group = _topic(s), _group(s)
    fault = s.faults.error(ApiKey.HEARTBEAT, error, group=group, times=1)
    consumed = _consume_five_more(s, topic, group, lambda: s.wait_for(ApiKey.HEARTBEAT))
    s.happened(fault)
    _all_consumed(s, topic, group, consumed, COUNT + 5)


@scenario("groups.member-expired", "the session of a member expires", source="KIP-62")
def member_expired(s: Scene) -> None:
    """Broker: removes the member from its group after its first heartbeat, as after a long pause; then five more
    records are produced.

    Job: join a group, consume 25 records, commit and leave.

    Expects: the client joins again; each record is consumed and committed.
    """
    topic, group = _topic(s), _group(s)

    def expire() -> None:
        s.broker.expire_member(group, s.wait_for(ApiKey.HEARTBEAT).request.member_id)

    consumed = _consume_five_more(s, topic, group, expire)
    _all_consumed(s, topic, group, consumed, COUNT + 5)


@scenario(
    "groups.commit",
    "OffsetCommit fails at first",
    source="Protocol: OffsetCommit",
    variants=_names(
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REQUEST_TIMED_OUT,
    ),
)
def commit(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to the first OffsetCommit of a member with an error, and does not store the offset.

    Job: join a group, consume 20 records, commit and leave. A commit that the client rejects is repeated.

    Expects: what is reported as committed is stored; the records may be consumed twice.
    """
    _goes_on(s, ApiKey.OFFSET_COMMIT, error)


@scenario(
    "groups.commit-lost-response",
    "the response to OffsetCommit is lost",
    source="Protocol: OffsetCommit",
    variants={"disconnect": ("after",), "half": ("middle",)},
)
def commit_lost_response(s: Scene, when: str) -> None:
    """Broker: stores the first offset that is committed, and closes the connection before or in the middle of its
    response.

    Job: commit offset 7 without joining the group.

    Expects: the offset is committed, or the client reports an error.
    """
    topic, group = _topic(s), _group(s)
    fault = s.faults.disconnect(ApiKey.OFFSET_COMMIT, when=when, group=group, times=1)
    try:
        s.commit(group, topic, 7)
    except JobError:
        s.happened(fault)
        return
    s.happened(fault)
    s.equal(s.stored_offset(group, topic), 7, "the committed offset that the broker has")


@scenario(
    "groups.committed",
    "OffsetFetch fails at first",
    source="KIP-447",
    variants=_names(
        ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR
    ),
)
def committed(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to the first two OffsetFetch requests with a retriable error.

    Job: commit offset 7, and look up the committed offset.

    Expects: the client retries, and reports 7; or it reports an error. It does not report that there is no offset.
    """
    _look_up_committed(s, error)


@scenario(
    "groups.committed-error",
    "OffsetFetch fails at first, and the application sees why",
    source="KIP-447",
    level=Level.SHOULD,
    variants=_names(
        ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR
    ),
)
def committed_error(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to the first two OffsetFetch requests with a retriable error.

    Job: commit offset 7, and look up the committed offset.

    Expects: the client retries, and reports 7; or it reports this error by its name, so that the application knows
    that it can retry.
    """
    reported = _look_up_committed(s, error)
    if reported is not None:
        s.equal(reported.code, error.name, "the job's error")


def _look_up_committed(s: Scene, error: ErrorCode) -> JobError | None:
    """The error that the client reports for the lookup; None if it reports the right offset."""
    topic, group = _topic(s), _group(s)
    s.commit(group, topic, 7)
    fault = s.faults.error(ApiKey.OFFSET_FETCH, error, group=group, times=2)
    try:
        found = s.committed(group, topic)
    except JobError as reported:
        s.happened(fault)
        return reported
    s.happened(fault)
    s.equal(found, 7, "the committed offset")
    return None


@scenario("groups.coordinator-moves", "the coordinator moves to another broker", source="Protocol: FindCoordinator")
def coordinator_moves(s: Scene) -> None:
    """Broker: after the first heartbeat, it responds with NOT_COORDINATOR to all requests of the group, until the
    client looks up the coordinator again; then five more records are produced.

    Job: join a group, consume 25 records, commit and leave.

    Expects: the client finds the coordinator; each record is consumed and committed.
    """
    topic, group = _topic(s), _group(s)
    with s.during(lambda: s.consume_group(group, topic, COUNT + 5, **CLASSIC)) as result:
        s.wait_for(ApiKey.HEARTBEAT)
        fault = s.faults.move_coordinator(group)
        s.fill(topic, [f"more-{number}" for number in range(5)])
        consumed = result()
    s.happened(fault)
    _all_consumed(s, topic, group, consumed, COUNT + 5)


@scenario(
    "groups.fenced-instance",
    "another member has taken the instance ID",
    source="KIP-345",
    variants={"join": (ApiKey.JOIN_GROUP,), "sync": (ApiKey.SYNC_GROUP,)},
)
def fenced_instance(s: Scene, api: ApiKey) -> None:
    """Broker: responds with FENCED_INSTANCE_ID to the static member.

    Job: join a group as the static member `worker`, and consume 20 records.

    Expects: the client reports an error, and does not send the request again.
    """
    topic, group = _topic(s), _group(s)
    fault = s.faults.error(api, ErrorCode.FENCED_INSTANCE_ID, group=group)
    try:
        s.consume_group(group, topic, COUNT, instance_id="worker")
    except JobError:
        s.equal(fault.triggered, 1, f"the number of {api.message_name} requests")
    else:
        raise MismatchError("the job", "an error", "no error")


@scenario(
    "groups.rejected",
    "an error that no retry repairs",
    source="Protocol: Error Codes",
    level=Level.SHOULD,
    variants=_names(
        ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.FENCED_INSTANCE_ID
    ),
)
def rejected(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to all JoinGroup requests with an error that is not retriable.

    Job: join a group, as the static member `worker` if it is FENCED_INSTANCE_ID, and consume 20 records.

    Expects: the client reports this error by its name.
    """
    topic, group = _topic(s), _group(s)
    s.faults.error(ApiKey.JOIN_GROUP, error, group=group)
    static = {"instance_id": "worker"} if error is ErrorCode.FENCED_INSTANCE_ID else {}
    s.error_of("the job's error", [error.name], lambda: s.consume_group(group, topic, COUNT, **CLASSIC, **static))


@scenario("groups.truncated.while-away", "the log is truncated while the group has no members", source="KIP-320")
def truncated_while_away(s: Scene) -> None:
    """Broker: after the group has committed the offset 20 and its member has left, the records from offset 12 on are
    lost, as by an unclean leader election, and the next leader has 13 others, to offset 24.

    Job: join a group, consume 20 records, commit and leave; then join it again, and consume at least 5 records.

    Expects: the other records from offset 12 on are consumed, too, because the client notices the truncation, and its
    automatic reset is `earliest`; or the client reports an error. It does not continue at offset 20.
    """
    topic, group = _topic(s), _group(s)
    s.consume_group(group, topic, COUNT, **CLASSIC)
    s.replace_from(topic, 12, 13)
    try:
        consumed = s.consume_group(group, topic, 5, **CLASSIC)
    except JobError:
        return
    s.true(min(consumed) <= (0, 12), "the first offset that is consumed", "at most 12", min(consumed)[1])


@scenario("groups.truncated.while-consuming", "the log is truncated while a member consumes", source="KIP-320")
def truncated_while_consuming(s: Scene) -> None:
    """Broker: when the group has committed the offset 20, the records from offset 12 on are lost, as by an unclean
    leader election, and the next leader has 13 others, to offset 24. The broker is restarted in the meantime.

    Job: join a group, consume records with 25 different offsets, commit and leave.

    Expects: the other records from offset 12 on are consumed, too, because the client notices the truncation, and its
    automatic reset is `earliest`; or the client reports an error. It does not continue at offset 20.
    """
    topic, group = _topic(s), _group(s)
    try:
        with s.during(lambda: s.consume_group(group, topic, COUNT + 5, **CLASSIC)) as result:
            s.wait_until_committed(group, topic)
            s.replace_from(topic, 12, 13)
            consumed = result()
    except JobError:
        return
    twice = [offset for offset in range(12, COUNT) if consumed.count((0, offset)) > 1]
    s.equal(twice, list(range(12, COUNT)), "the offsets whose new records were consumed")


@scenario(
    "groups.consumer-heartbeat",
    "a heartbeat of the new protocol fails",
    source="KIP-848",
    variants=_names(
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
)
def consumer_heartbeat(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to the second ConsumerGroupHeartbeat with an error after which a member looks up the
    coordinator, or joins again.

    Job: join a group with the new protocol, consume 20 records, commit and leave.

    Expects: the client continues; each record is consumed and committed.
    """
    topic, group = _topic(s), _group(s)
    fault = s.faults.error(ApiKey.CONSUMER_GROUP_HEARTBEAT, error, group=group, on_call=2)
    consumed = s.consume_group(group, topic, COUNT, **CONSUMER)
    _all_consumed_if_affected(s, topic, group, consumed, fault.triggered)


def _all_consumed_if_affected(s: Scene, topic: str, group: str, consumed: list[tuple[int, int]], affected: int) -> None:
    """A client that is fast may leave with its second heartbeat, whose error it may ignore."""
    if not affected:
        raise MismatchError("the heartbeats", "at least two", "one")
    _all_consumed(s, topic, group, consumed)

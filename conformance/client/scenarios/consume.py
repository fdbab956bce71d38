"""Scenarios of a consumer: each stored record is reported once, in order, with its offset."""

from __future__ import annotations

from ....protocol.api import ApiKey
from ....protocol.errors import ErrorCode
from ...case import Level
from ..adapter import JobError
from ..scenario import scenario
from ..scene import Scene

FETCH, METADATA, LIST_OFFSETS, API_VERSIONS = ApiKey.FETCH, ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.API_VERSIONS

VALUES = [f"value-{number}" for number in range(20)]


def _names(*codes: ErrorCode) -> dict[str, tuple[ErrorCode]]:
    return {code.name.lower().replace("_", "-"): (code,) for code in codes}


def _topic(s: Scene) -> str:
    topic = s.topic()
    s.fill(topic, VALUES)
    return topic


@scenario(
    "consume.normal",
    "a broker without faults",
    source="Protocol: Fetch",
    variants={"from-the-beginning": (0,), "from-the-middle": (7,)},
)
def normal(s: Scene, start: int) -> None:
    """Broker: has no faults.

    Job: consume a partition of 20 records from the beginning, or from offset 7.

    Expects: each record from there on is reported once, in order, with its offset.
    """
    topic = _topic(s)
    s.all_consumed(topic, s.consume(topic, start=start), start=start)


@scenario(
    "consume.retriable",
    "a retriable error of Fetch",
    source="Protocol: Error Codes",
    variants=_names(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ),
)
def retriable(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to the first two fetches with an error after which a client refreshes its state.

    Job: consume a partition of 20 records.

    Expects: the client continues, and reports each record once, in order.
    """
    topic = _topic(s)
    fault = s.faults.error(FETCH, error, times=2)
    consumed = s.consume(topic)
    s.happened(fault)
    s.all_consumed(topic, consumed)


@scenario(
    "consume.disconnect",
    "a fetch ends with its connection",
    source="Protocol: Network",
    variants={
        "before": ("before", 1),
        "after": ("after", 1),
        "half-a-response": ("middle", 1),
        "three-times": ("middle", 3),
    },
)
def disconnect(s: Scene, when: str, times: int) -> None:
    """Broker: closes the connection instead of the response to a fetch, or after half of it.

    Job: consume a partition of 20 records.

    Expects: the client connects again, and reports each record once, in order; a part of a response is not used.
    """
    topic = _topic(s)
    fault = s.faults.disconnect(FETCH, when=when, times=times)
    consumed = s.consume(topic)
    s.happened(fault, times)
    s.all_consumed(topic, consumed)


@scenario("consume.corrupt", "a batch with a wrong CRC", source="Protocol: Record Batch")
def corrupt(s: Scene) -> None:
    """Broker: changes one byte of the records in the first response to Fetch.

    Job: consume a partition of 20 records.

    Expects: no changed record is reported: the client fetches again, or reports an error.
    """
    topic = _topic(s)
    fault = s.faults.corrupt_batch(times=1)
    try:
        consumed = s.consume(topic)
    except JobError:
        s.happened(fault)
        return
    s.happened(fault)
    s.all_consumed(topic, consumed)


@scenario("consume.throttled", "the broker throttles the client", source="KIP-219")
def throttled(s: Scene) -> None:
    """Broker: responds to the first fetches with a `throttle_time_ms` of 500.

    Job: consume a partition of 20 records.

    Expects: each record is reported once, in order; throttling is not an error.
    """
    topic = _topic(s)
    s.faults.throttle(FETCH, seconds=0.5, times=2)
    s.all_consumed(topic, s.consume(topic))


@scenario("consume.slow", "a slow broker", source="Protocol: Network")
def slow(s: Scene) -> None:
    """Broker: processes the first three fetches after a second.

    Job: consume a partition of 20 records.

    Expects: each record is reported once, in order.
    """
    topic = _topic(s)
    s.faults.delay(FETCH, seconds=1.0, times=3)
    s.all_consumed(topic, s.consume(topic))


@scenario(
    "consume.list-offsets",
    "ListOffsets fails at first",
    level=Level.SHOULD,
    source="Protocol: ListOffsets",
    variants=_names(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
)
def list_offsets(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to the first two ListOffsets requests with a retriable error.

    Job: consume a partition of 20 records.

    Expects: the client retries, and reports each record once, in order; or it reports this error.
    """
    topic = _topic(s)
    s.faults.error(LIST_OFFSETS, error, times=2)
    try:
        consumed = s.consume(topic)
    except JobError as reported:
        s.equal(reported.code, error.name, "the job's error")
        return
    s.all_consumed(topic, consumed)


@scenario(
    "consume.metadata",
    "Metadata fails at first",
    level=Level.SHOULD,
    source="Protocol: Metadata",
    variants={
        "leader-not-available": ("error",),
        "disconnect": ("before",),
        "half-a-response": ("middle",),
    },
)
def metadata(s: Scene, how: str) -> None:
    """Broker: the first two requests for the topic's Metadata fail: by LEADER_NOT_AVAILABLE, or by the end of the
    connection.

    Job: consume a partition of 20 records.

    Expects: the client retries, and reports each record once, in order.
    """
    topic = _topic(s)
    if how == "error":
        s.faults.error(METADATA, ErrorCode.LEADER_NOT_AVAILABLE, topic=topic, times=2)
    else:
        s.faults.disconnect(METADATA, when=how, topic=topic, times=2)
    s.all_consumed(topic, s.consume(topic))


@scenario(
    "consume.old-broker",
    "a broker that advertises old versions",
    source="KIP-35",
    variants={
        "fetch-11": ({ApiKey.FETCH: 11},),
        "fetch-12": ({ApiKey.FETCH: 12},),
        "list-offsets-5": ({ApiKey.LIST_OFFSETS: 5},),
        "as-kafka-2.8": ({ApiKey.FETCH: 12, ApiKey.METADATA: 11, ApiKey.LIST_OFFSETS: 6, ApiKey.API_VERSIONS: 3},),
    },
)
def old_broker(s: Scene, highest: dict[ApiKey, int]) -> None:
    """Broker: advertises lower versions of some APIs.

    Job: consume a partition of 20 records.

    Expects: the client uses no higher version than those, and reports each record once, in order.
    """
    topic = _topic(s)
    s.faults.cap_versions(highest)
    consumed = s.consume(topic)
    for api, version in highest.items():
        if api is not API_VERSIONS:
            used = max((each.version for each in s.requests(api)), default=0)
            s.true(used <= version, f"the version of {api.message_name}", f"at most {version}", used)
    s.all_consumed(topic, consumed)


@scenario("consume.trimmed", "the first records are deleted", source="KIP-107")
def trimmed(s: Scene) -> None:
    """Broker: the records before offset 12 are deleted.

    Job: consume from offset 3, with no automatic reset.

    Expects: OFFSET_OUT_OF_RANGE is reported, and no records.
    """
    topic = _topic(s)
    s.broker.trim(topic, 0, 12)
    s.error_of("the job's error", ["OFFSET_OUT_OF_RANGE"], lambda: s.consume(topic, start=3))


@scenario("consume.compacted", "offsets with gaps", source="Protocol: Record Batch")
def compacted(s: Scene) -> None:
    """Broker: the log has gaps between its offsets, as after compaction.

    Job: consume the partition.

    Expects: each record that is left is reported once, with its own offset; the client does not wait for the others.
    """
    topic = s.topic()
    s.fill(topic, VALUES[:5])
    s.gap(topic, 10)
    s.fill(topic, VALUES[5:])
    s.all_consumed(topic, s.consume(topic))


@scenario("consume.crash", "the broker is killed and restarted", source="Protocol: Network")
def crash(s: Scene) -> None:
    """Broker: is killed and restarted between two jobs.

    Job: consume a partition of 20 records, twice.

    Expects: each record is reported once by each job, in order.
    """
    topic = _topic(s)
    s.all_consumed(topic, s.consume(topic))
    s.broker.crash()
    s.all_consumed(topic, s.consume(topic))


@scenario("consume.large-records", "records that are larger than a fetch", source="KIP-74")
def large_records(s: Scene) -> None:
    """Broker: has records of 900 kB, which is more than a client usually fetches at once from a partition.

    Job: consume them.

    Expects: each record is reported once, in order.
    """
    topic = s.topic()
    s.fill(topic, [f"{number}" * 900_000 for number in range(5)])
    s.all_consumed(topic, s.consume(topic))


@scenario(
    "consume.time-index",
    "the lookup of an offset by time fails at first",
    level=Level.SHOULD,
    source="Protocol: ListOffsets",
)
def time_index(s: Scene) -> None:
    """Broker: responds to the first ListOffsets request with NOT_LEADER_OR_FOLLOWER.

    Job: look up the first offset with a timestamp of 0 or later.

    Expects: the client retries, and reports offset 0; or it reports this error.
    """
    topic = _topic(s)
    s.faults.error(LIST_OFFSETS, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1)
    try:
        offset = s.offset_for_time(topic, 1)
    except JobError as reported:
        s.equal(reported.code, "NOT_LEADER_OR_FOLLOWER", "the job's error")
        return
    s.equal(offset, 0, "the offset")

"""Scenarios of a producer: what was acknowledged is stored, and nothing twice if it is idempotent."""

from __future__ import annotations

from typing import Any

from ....protocol.api import ApiKey
from ....protocol.errors import ErrorCode
from ...case import Level
from ..scenario import scenario
from ..scene import Scene

PRODUCE, METADATA, API_VERSIONS = ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.API_VERSIONS
INIT_PRODUCER_ID = ApiKey.INIT_PRODUCER_ID

VALUES = [f"value-{number}" for number in range(10)]
IDEMPOTENT: dict[str, Any] = {"acks": "all", "idempotent": True}
PLAIN: dict[str, Any] = {"acks": "all", "idempotent": False}
BOTH = {"idempotent": (IDEMPOTENT,), "plain": (PLAIN,)}

_RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_FATAL = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.POLICY_VIOLATION,
)


def _names(codes: tuple[ErrorCode, ...]) -> dict[str, tuple[ErrorCode]]:
    return {code.name.lower().replace("_", "-"): (code,) for code in codes}


@scenario("produce.normal", "a broker without faults", source="Protocol: Produce", variants=BOTH)
def normal(s: Scene, options: dict[str, Any]) -> None:
    """Broker: has no faults.

    Job: produce ten records to one partition.

    Expects: all are acknowledged with their offsets, and stored once and in order.
    """
    topic = s.topic()
    s.once_in_order(topic, VALUES, s.produce(topic, VALUES, **options))


@scenario(
    "produce.retriable",
    "a retriable error",
    level=Level.SHOULD,
    source="Protocol: Error Codes",
    variants=_names(_RETRIABLE),
)
def retriable(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to the first two Produce requests with a retriable error, and does not append them.

    Job: produce ten records with an idempotent producer.

    Expects: the client tries again; all records are acknowledged and stored, once and in order.
    """
    topic = s.topic()
    fault = s.faults.error(PRODUCE, error, topic=topic, times=2)
    acknowledged = s.produce(topic, VALUES, **IDEMPOTENT)
    s.happened(fault, 2)
    s.once_in_order(topic, VALUES, acknowledged)


@scenario(
    "produce.retriable-plain",
    "a retriable error, without idempotence",
    level=Level.SHOULD,
    source="Protocol: Error Codes",
    variants=_names(_RETRIABLE),
)
def retriable_plain(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to the first Produce request with a retriable error, and does not append it.

    Job: produce ten records with a producer that is not idempotent.

    Expects: the client tries again, and all acknowledged records are stored.
    """
    topic = s.topic()
    fault = s.faults.error(PRODUCE, error, topic=topic, times=1)
    acknowledged = s.produce(topic, VALUES, **PLAIN)
    s.happened(fault)
    s.not_lost(topic, [each.value for each in acknowledged])


@scenario(
    "produce.corrupt-message", "a batch is damaged on its way", source="Protocol: Error Codes", level=Level.SHOULD
)
def corrupt_message(s: Scene) -> None:
    """Broker: responds to the first Produce request with CORRUPT_MESSAGE, and does not append it.

    Job: produce ten records with an idempotent producer.

    Expects: the client tries again, because the error is retriable; all records are stored, once and in order.
    """
    topic = s.topic()
    s.faults.error(PRODUCE, ErrorCode.CORRUPT_MESSAGE, topic=topic, times=1)
    s.once_in_order(topic, VALUES, s.produce(topic, VALUES, **IDEMPOTENT))


@scenario("produce.fatal", "an error that no retry repairs", source="Protocol: Error Codes", variants=_names(_FATAL))
def fatal(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to all Produce requests with an error that is not retriable.

    Job: produce one record.

    Expects: the client reports this error, and does not repeat the request many times.
    """
    topic = s.topic()
    s.faults.error(PRODUCE, error, topic=topic)
    s.error_of("the job's error", [error.name], lambda: s.produce(topic, ["value"], **PLAIN))
    sent = len(s.requests(PRODUCE))
    s.true(sent <= 20, "the number of Produce requests", "at most 20", sent)


@scenario(
    "produce.lost-response",
    "the response is lost after the append",
    source="KIP-98",
    variants={"timed-out": ("error",), "disconnect": ("after",), "half": ("middle",)},
)
def lost_response(s: Scene, how: str) -> None:
    """Broker: appends the first Produce request, and then responds with REQUEST_TIMED_OUT, or closes the connection
    before or in the middle of the response.

    Job: produce ten records with an idempotent producer.

    Expects: the client repeats the request with the same sequence numbers; nothing is lost or stored twice.
    """
    topic = s.topic()
    if how == "error":
        fault = s.faults.error(PRODUCE, ErrorCode.REQUEST_TIMED_OUT, after=True, topic=topic, times=1)
    else:
        fault = s.faults.disconnect(PRODUCE, when=how, topic=topic, times=1)
    acknowledged = s.produce(topic, VALUES, **IDEMPOTENT)
    s.happened(fault)
    stored = s.stored(topic)
    s.equal([each.value for each in stored], VALUES, "the stored records")
    # A duplicate that the broker recognizes may be acknowledged without its offset.
    known = [each for each in acknowledged if each.offset is not None and each.offset >= 0]
    s.true(all(each in stored for each in known), "the acknowledged offsets", str(stored), known)


@scenario("produce.lost-response-plain", "the response is lost, without idempotence", source="Protocol: Network")
def lost_response_plain(s: Scene) -> None:
    """Broker: appends the first Produce request, and closes the connection without a response.

    Job: produce ten records with a producer that is not idempotent.

    Expects: the client repeats the request or reports an error; no acknowledged record is lost.
    """
    topic = s.topic()
    fault = s.faults.disconnect(PRODUCE, when="after", topic=topic, times=1)
    acknowledged = s.produce(topic, VALUES, **PLAIN)
    s.happened(fault)
    s.not_lost(topic, [each.value for each in acknowledged])


@scenario(
    "produce.disconnect",
    "the connection is closed before the append",
    source="Protocol: Network",
    variants={"once": (1,), "three-times": (3,)},
)
def disconnect(s: Scene, times: int) -> None:
    """Broker: closes the connection when a Produce request arrives, once or three times.

    Job: produce ten records with an idempotent producer.

    Expects: the client reconnects and tries again; nothing is lost or stored twice.
    """
    topic = s.topic()
    fault = s.faults.disconnect(PRODUCE, topic=topic, times=times)
    acknowledged = s.produce(topic, VALUES, **IDEMPOTENT)
    s.happened(fault, times)
    s.once_in_order(topic, VALUES, acknowledged)


@scenario(
    "produce.slow",
    "a slow broker",
    source="Protocol: Network",
    variants={"half-a-second": (0.5,), "three-seconds": (3.0,)},
)
def slow(s: Scene, seconds: float) -> None:
    """Broker: processes the first three Produce requests after a pause.

    Job: produce ten records with an idempotent producer.

    Expects: the client waits; all records are stored, once and in order.
    """
    topic = s.topic()
    s.faults.delay(PRODUCE, seconds=seconds, topic=topic, times=3)
    s.once_in_order(topic, VALUES, s.produce(topic, VALUES, **IDEMPOTENT))


@scenario("produce.throttled", "the broker throttles the client", source="KIP-219")
def throttled(s: Scene) -> None:
    """Broker: responds to the first Produce requests with a `throttle_time_ms` of 500.

    Job: produce ten records.

    Expects: the records are acknowledged and stored; throttling is not an error.
    """
    topic = s.topic()
    fault = s.faults.throttle(PRODUCE, seconds=0.5, topic=topic, times=2)
    acknowledged = s.produce(topic, VALUES, **IDEMPOTENT)
    s.happened(fault)
    s.once_in_order(topic, VALUES, acknowledged)


@scenario(
    "produce.metadata",
    "Metadata fails at first",
    level=Level.SHOULD,
    source="Protocol: Metadata",
    variants={
        "leader-not-available": ("error", ErrorCode.LEADER_NOT_AVAILABLE),
        "unknown-topic": ("error", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        "disconnect": ("disconnect", ErrorCode.NONE),
        "half-a-response": ("middle", ErrorCode.NONE),
        "slow": ("delay", ErrorCode.NONE),
    },
)
def metadata(s: Scene, how: str, error: ErrorCode) -> None:
    """Broker: the first two requests for the topic's Metadata fail: by an error, by the end of the connection, by half
    a response, or by a pause of a second.

    Job: produce ten records.

    Expects: the client retries, and all records are stored, once and in order.
    """
    topic = s.topic()
    if how == "error":
        s.faults.error(METADATA, error, topic=topic, times=2)
    elif how == "delay":
        s.faults.delay(METADATA, seconds=1.0, topic=topic, times=2)
    else:
        s.faults.disconnect(METADATA, when="middle" if how == "middle" else "before", topic=topic, times=2)
    s.once_in_order(topic, VALUES, s.produce(topic, VALUES, **IDEMPOTENT))


@scenario("produce.init-producer-id", "InitProducerId fails at first", level=Level.SHOULD, source="KIP-98")
def init_producer_id(s: Scene) -> None:
    """Broker: responds to the first two InitProducerId requests with COORDINATOR_LOAD_IN_PROGRESS.

    Job: produce ten records with an idempotent producer.

    Expects: the client retries, and all records are stored, once and in order.
    """
    topic = s.topic()
    s.faults.error(INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2)
    s.once_in_order(topic, VALUES, s.produce(topic, VALUES, **IDEMPOTENT))


@scenario(
    "produce.api-versions",
    "ApiVersions fails at first",
    level=Level.SHOULD,
    source="KIP-511",
    variants={"disconnect": ("before",), "half-a-response": ("middle",)},
)
def api_versions(s: Scene, when: str) -> None:
    """Broker: closes the connection when the first ApiVersions request arrives, or in the middle of its response.

    Job: produce ten records.

    Expects: the client connects again, and all records are stored, once and in order.
    """
    topic = s.topic()
    s.faults.disconnect(API_VERSIONS, when=when, times=1)
    s.once_in_order(topic, VALUES, s.produce(topic, VALUES, **IDEMPOTENT))


@scenario(
    "produce.old-broker",
    "a broker that advertises old versions",
    source="KIP-35",
    variants={
        "produce-7": ({ApiKey.PRODUCE: 7},),
        "without-flexible-versions": (
            {ApiKey.PRODUCE: 8, ApiKey.METADATA: 8, ApiKey.API_VERSIONS: 2, ApiKey.INIT_PRODUCER_ID: 1},
        ),
        "as-kafka-2.8": ({ApiKey.PRODUCE: 9, ApiKey.METADATA: 11, ApiKey.API_VERSIONS: 3, ApiKey.INIT_PRODUCER_ID: 4},),
    },
)
def old_broker(s: Scene, highest: dict[ApiKey, int]) -> None:
    """Broker: advertises lower versions of some APIs.

    Job: produce ten records.

    Expects: the client uses no higher version than those, and all records are stored.
    """
    topic = s.topic()
    s.faults.cap_versions(highest)
    acknowledged = s.produce(topic, VALUES, **PLAIN)
    for api, version in highest.items():
        if api is not API_VERSIONS:
            used = max((each.version for each in s.requests(api)), default=0)
            s.true(used <= version, f"the version of {api.message_name}", f"at most {version}", used)
    s.once_in_order(topic, VALUES, acknowledged)


@scenario("produce.crash", "the broker is killed and restarted", source="KIP-98")
def crash(s: Scene) -> None:
    """Broker: is killed after the first job, and restarted.

    Job: produce ten records, and later ten more.

    Expects: both jobs succeed, and all twenty records are stored, once and in order.
    """
    topic = s.topic()
    first = s.produce(topic, VALUES, **IDEMPOTENT)
    s.broker.crash()
    more = [f"more-{number}" for number in range(10)]
    second = s.produce(topic, more, **IDEMPOTENT)
    s.once_in_order(topic, VALUES + more, first + second)


@scenario("produce.large-records", "records near the limit", source="Protocol: Produce", level=Level.SHOULD)
def large_records(s: Scene) -> None:
    """Broker: has no faults, and the default `max.message.bytes`.

    Job: produce five records of 900 kB.

    Expects: all are stored, once and in order.
    """
    topic = s.topic()
    values = [f"{number}" * 900_000 for number in range(5)]
    s.once_in_order(topic, values, s.produce(topic, values, **IDEMPOTENT))

"""Scenarios of addresses, metadata and versions that change: the client finds the broker, and loses nothing."""

from __future__ import annotations

import time
from typing import Any

from ....protocol.api import ApiKey
from ...case import Level
from ..adapter import JobError
from ..scenario import scenario
from ..scene import Scene

VALUES = [f"value-{number}" for number in range(20)]
IDEMPOTENT: dict[str, Any] = {"acks": "all", "idempotent": True}


def _topic(s: Scene) -> str:
    topic = s.topic()
    s.fill(topic, VALUES)
    return topic


@scenario(
    "cluster.dead-bootstrap",
    "no broker listens at the first address",
    source="Protocol: Network",
    level=Level.SHOULD,
    variants={"refused": ("127.0.0.1:1",), "unknown-host": ("broker.invalid:9092",)},
)
def dead_bootstrap(s: Scene, address: str) -> None:
    """Broker: is the second one of two bootstrap addresses; the first one refuses connections, or does not resolve.

    Job: consume a partition of 20 records.

    Expects: the client uses the second address, and reports each record once, in order.
    """
    topic = _topic(s)
    s.all_consumed(topic, s.consume(topic, bootstrap=f"{address},{s.broker.bootstrap_servers}"))


@scenario(
    "cluster.unknown-host",
    "the name of the broker does not resolve at first",
    source="KIP-899",
    level=Level.SHOULD,
    variants={"unknown-host": ("broker.invalid", 9092), "refused": ("127.0.0.1", 1)},
)
def unknown_host(s: Scene, host: str, port: int) -> None:
    """Broker: is named by an address that does not resolve, or that refuses connections, in the first two responses to
    Metadata.

    Job: produce 20 records with an idempotent producer.

    Expects: the client requests Metadata again, at its bootstrap address if necessary; all records are stored, once and
    in order.
    """
    topic = s.topic()
    fault = s.faults.advertise(host, port, times=2)
    acknowledged = s.produce(topic, VALUES, **IDEMPOTENT)
    s.happened(fault, 2)
    s.once_in_order(topic, VALUES, acknowledged)


@scenario(
    "cluster.tagged-fields",
    "responses have tagged fields that the client does not know",
    source="KIP-482",
    variants={"produce": ("produce",), "consume": ("consume",), "group": ("group",), "transaction": ("transaction",)},
)
def tagged_fields(s: Scene, job: str) -> None:
    """Broker: adds a tagged field to each struct of each response, as a later version of Kafka may.

    Job: produce, consume, consume in a group, or commit a transaction.

    Expects: the client ignores the fields.
    """
    topic = s.topic() if job in ("produce", "transaction") else _topic(s)
    s.faults.tagged_fields()
    if job == "produce":
        s.once_in_order(topic, VALUES, s.produce(topic, VALUES, **IDEMPOTENT))
    elif job == "consume":
        s.all_consumed(topic, s.consume(topic))
    elif job == "group":
        consumed = s.consume_group(f"group-{s.number}", topic, len(VALUES), protocol="classic")
        s.equal(consumed, [(0, offset) for offset in range(len(VALUES))], "the consumed records")
    else:
        transaction = {"topic": topic, "partition": 0, "values": VALUES, "commit": True}
        s.equal(s.transact(f"transactional-{s.number}", transaction), ["committed"], "the outcome")
        s.equal(s.committed_values(topic), VALUES, "the committed records")


@scenario(
    "cluster.release",
    "a broker that advertises the versions of an older release",
    source="KIP-35",
    variants={release: (release,) for release in ("2.8", "3.3", "3.9")},
)
def release(s: Scene, name: str) -> None:
    """Broker: advertises the versions and features of an older release of Apache Kafka.

    Job: produce 20 records, consume them, and consume them in a group.

    Expects: the client uses no newer version, and nothing is lost.
    """
    topic = s.topic()
    s.faults.cap_versions(name)
    acknowledged = s.produce(topic, VALUES, **IDEMPOTENT)
    consumed = s.consume(topic)
    in_group = s.consume_group(f"group-{s.number}", topic, len(VALUES), protocol="classic")
    s.only_versions_of(name)
    s.equal(in_group, [(0, offset) for offset in range(len(VALUES))], "the records consumed in the group")
    s.all_consumed(topic, consumed)
    s.once_in_order(topic, VALUES, acknowledged)


@scenario("cluster.recreated-topic", "a topic is deleted and created again", source="KIP-516")
def recreated_topic(s: Scene) -> None:
    """Broker: deletes the topic and creates it again; the first three responses to Metadata still have the old topic
    ID, so that requests with it get UNKNOWN_TOPIC_ID.

    Job: consume the new partition of 20 records.

    Expects: the client requests Metadata again, and reports each record once, in order; or it reports UNKNOWN_TOPIC_ID.
    """
    topic = s.topic()
    fault = s.faults.stale_metadata(topic=topic, times=3)
    s.recreate(topic)
    s.fill(topic, VALUES)
    try:
        consumed = s.consume(topic)
    except JobError as reported:
        s.happened(fault)
        s.equal(reported.code in ("UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC_OR_PARTITION"), True, f"the error {reported}")
        return
    s.happened(fault)
    s.all_consumed(topic, consumed)


@scenario(
    "cluster.late-response",
    "the response arrives after the client's timeout",
    source="KIP-98",
)
def late_response(s: Scene) -> None:
    """Broker: processes the first Produce request after 5 seconds.

    Job: produce 20 records with an idempotent producer whose request timeout is 2 seconds.

    Expects: the client repeats the request; nothing is lost or stored twice. It may report an error.
    """
    topic = s.topic()
    fault = s.faults.delay(ApiKey.PRODUCE, seconds=5.0, topic=topic, times=1)
    began = time.monotonic()
    try:
        acknowledged = s.produce(topic, VALUES, **IDEMPOTENT, request_timeout_ms=2_000)
    except JobError:
        s.happened(fault)
        s.after(began, 5.0)
        stored = [each.value for each in s.stored(topic)]
        s.equal(len(stored), len(set(stored)), "the number of stored records without duplicates")
        return
    s.happened(fault)
    s.after(began, 5.0)
    stored_now = s.stored(topic)
    s.equal([each.value for each in stored_now], VALUES, "the stored records")
    s.equal([each.value for each in acknowledged], VALUES, "the acknowledged records")


@scenario("cluster.jumping-clock", "the broker's clock jumps", source="KIP-32")
def jumping_clock(s: Scene) -> None:
    """Broker: its clock jumps a day ahead between two jobs, and back before the third one. The topic has LogAppendTime.

    Job: produce ten records each time, and consume all.

    Expects: all records are stored and consumed, once and in order.
    """
    topic = s.topic(message_timestamp_type="LogAppendTime")
    s.produce(topic, VALUES[:10], **IDEMPOTENT)
    s.broker.advance(24 * 3600)
    s.produce(topic, VALUES[10:], **IDEMPOTENT)
    s.broker.advance(-24 * 3600)
    more = [f"more-{number}" for number in range(10)]
    s.produce(topic, more, **IDEMPOTENT)
    s.equal([each.value for each in s.stored(topic)], VALUES + more, "the stored records")
    s.all_consumed(topic, s.consume(topic))

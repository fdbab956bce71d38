"""Throttling (KIP-13, KIP-124, KIP-219, KIP-599): what a client that exceeds its quota receives, and when.

The quotas are those of client IDs of the case, so other clients are not affected. A quota permits a burst: the rate is
that of ten seconds (`quota.window.num`, `quota.window.size.seconds`), so a case exceeds it in one or two requests.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.create_topics import CreateTopicsRequest
from ...protocol.messages.metadata import MetadataRequest
from ..case import case, needs
from ..check import Check
from ..exchange import Connection
from ..partitions import append, fetch_request, produce_request
from ..record_batches import batch
from ..topic_admin import TIMEOUT_MS, creatable
from .quotas import CLIENT, CONSUMED, PRODUCED, alter, entity, entry, until_quotas

QUOTAS = needs(ApiKey.ALTER_CLIENT_QUOTAS, 1, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1)
MUTATIONS = "controller_mutation_rate"
BYTES_PER_SECOND = 20_000.0
# More than ten seconds of the quota, and little enough to be throttled for a few seconds.
BURST_BYTES = 230_000
MUTATIONS_PER_SECOND = 1.0
# More than the burst of partitions, which is eleven seconds' worth by default.
MANY_PARTITIONS = 15
# The server measures the time from its own response, the case from when it has received it.
PART = 0.5


@contextlib.contextmanager
def limited(c: Check, key: str, value: float) -> Iterator[Connection]:
    """A connection with a client ID that has this quota."""
    client_id = c.name("client")
    limit = entity((CLIENT, client_id))
    try:
        with c.setup("AlterClientQuotas"):
            c.equal([each[1] for each in alter(c, entry(limit, {key: value}))], [0], "AlterClientQuotas error codes")
            until_quotas(c, {limit: {key: value}}, (CLIENT, 0, client_id))
        yield c.connect(client_id=client_id)
    finally:
        alter(c, entry(limit, {key: None}))


def muted(c: Check, connection: Connection, throttle_time_ms: int) -> None:
    """The next request of this connection is answered when the time is over; others are served meanwhile."""
    c.true(throttle_time_ms > 0, "throttle_time_ms", expected="more than 0", actual=throttle_time_ms)
    began = time.monotonic()
    request = MetadataRequest(topics=[])
    version = c.version(ApiKey.METADATA)
    connection.send(request, version)
    other = c.call(request, version)
    c.true(other.brokers, "brokers of Metadata of another client", expected="at least one", actual=other.brokers)
    metadata = connection.receive()
    elapsed_ms = (time.monotonic() - began) * 1000
    c.true(metadata.brokers, "brokers of Metadata", expected="at least one", actual=metadata.brokers)
    c.true(
        elapsed_ms >= throttle_time_ms * PART,
        "the milliseconds until the response to the next request",
        expected=f"about {throttle_time_ms}, the throttle time",
        actual=round(elapsed_ms),
    )


@case(
    "quotas.throttle.produce",
    "a producer that exceeds its quota is served, and must wait before the next request",
    source="KIP-13 and KIP-219",
    needs=(*QUOTAS, *needs(ApiKey.PRODUCE, 7)),
)
def produce_throttled(c: Check) -> None:
    """Sends: AlterClientQuotas with producer_byte_rate of a client ID; Produce above it as this client, and Metadata on
    the same connection; Metadata on another one.

    Expects: no error and a throttle time, immediately; the response to Metadata when that time is over; the other
    connection is not throttled.

    Why: a client learns that it is throttled, and does not mistake it for a broker that does not respond.
    """
    topic = c.topic()
    version = c.version(ApiKey.PRODUCE)
    with limited(c, PRODUCED, BYTES_PER_SECOND) as connection:
        request = produce_request(topic, {0: batch(bytes(BURST_BYTES))}, version=version)
        response = c.call(request, version, to=connection)
        codes = [part.error_code for each in response.responses for part in each.partition_responses]
        c.equal(codes, [int(ErrorCode.NONE)], "Produce error codes")
        muted(c, connection, response.throttle_time_ms)


@case(
    "quotas.throttle.fetch",
    "a consumer that exceeds its quota gets no records, and must wait before the next request",
    source="KIP-13 and KIP-219",
    needs=(*QUOTAS, *needs(ApiKey.FETCH, 8)),
)
def fetch_throttled(c: Check) -> None:
    """Sends: AlterClientQuotas with consumer_byte_rate of a client ID; Fetch as this client, again and again, and then
    Metadata on the same connection; Metadata on another one.

    Expects: first records, without a throttle time; then, after more bytes than the quota allows, no records and a
    throttle time; the response to Metadata when that time is over; the other connection is not throttled.

    Why: one consumer that reads a topic from its beginning must not take the network from others.
    """
    topic = c.topic()
    for _ in range(4):
        append(c, topic, batch(bytes(BURST_BYTES // 2)))
    version = c.version(ApiKey.FETCH)
    with limited(c, CONSUMED, BYTES_PER_SECOND) as connection:
        received = 0
        for offset in range(4):
            request = fetch_request(topic, {0: offset}, version=version, max_bytes=1, partition_max_bytes=1)
            response = c.call(request, version, to=connection)
            c.error(response.error_code, ErrorCode.NONE, "Fetch error_code")
            size = sum(len(part.records or b"") for each in response.responses for part in each.partitions)
            if response.throttle_time_ms:
                c.equal(size, 0, "bytes of records in the response with a throttle time")
                c.true(received, "bytes of records before", expected="some", actual=received)
                muted(c, connection, response.throttle_time_ms)
                return
            received += size
        c.true(False, "throttle_time_ms", expected=f"more than 0 before {received} bytes", actual=0)


@case(
    "quotas.throttle.mutations",
    "creations of partitions above the quota are rejected until the quota allows them",
    source="KIP-599",
    needs=(*QUOTAS, *needs(ApiKey.CREATE_TOPICS, 6)),
)
def mutations_throttled(c: Check) -> None:
    """Sends: AlterClientQuotas with controller_mutation_rate of a client ID; CreateTopics with more partitions than its
    burst, and CreateTopics with one more; the same without the quota of another client.

    Expects: no error for the first; THROTTLING_QUOTA_EXCEEDED and a throttle time for the second, whose topic does not
    exist; no error for the other client.

    Why: one tool that creates topics in a loop must not occupy the controller.
    """
    with limited(c, MUTATIONS, MUTATIONS_PER_SECOND) as connection:

        def create(name: str, partitions: int, to: Connection) -> Any:
            wanted = c.led_here(creatable(name, partitions))
            return c.call(CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS), to=to)

        first = create(c.topic_name(), MANY_PARTITIONS, connection)
        c.equal([each.error_code for each in first.topics], [int(ErrorCode.NONE)], "error codes of the first")
        refused = c.topic_name()
        # The connection is muted, and the quota is that of the client ID.
        again = c.connect(client_id=connection._client_id)
        second = create(refused, 1, again)
        c.equal(
            [each.error_code for each in second.topics],
            [int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)],
            "error codes of the second",
        )
        c.true(second.throttle_time_ms > 0, "throttle_time_ms", expected="> 0", actual=second.throttle_time_ms)
        other = create(refused, 1, c.wire)
        c.equal([each.error_code for each in other.topics], [int(ErrorCode.NONE)], "error codes of another client")

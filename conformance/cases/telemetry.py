"""GetTelemetrySubscriptions and PushTelemetry: metrics of clients (KIP-714).

A server advertises these APIs only if something receives the metrics; in Apache Kafka this is a plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ...protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ...protocol.messages.push_telemetry import PushTelemetryRequest
from ...protocol.uuid import ZERO_UUID
from ..case import Layer, case, needs, versions_of
from ..check import Check
from ..exchange import Connection

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = "KIP-714"
TELEMETRY = needs(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0)
CLIENT_METRICS = 16
SET, DELETE = 0, 1
REPETITIONS = 4
"""The subscriptions may change twice meanwhile."""
UNCOMPRESSED = 0


def subscribe(c: Check, instance: bytes = ZERO_UUID, *, to: Connection | None = None) -> Any:
    """GetTelemetrySubscriptions of an instance, or of a new one."""
    answer = c.call(GetTelemetrySubscriptionsRequest(client_instance_id=instance), 0, to=to)
    c.error(answer.error_code, ErrorCode.NONE, "GetTelemetrySubscriptions error_code")
    return answer


def push(c: Check, subscription: Any, *, to: Connection | None = None, **changes: Any) -> int:
    """PushTelemetry without metrics, and its error code."""
    fields: dict[str, Any] = {
        "client_instance_id": subscription.client_instance_id,
        "subscription_id": subscription.subscription_id,
        "compression_type": UNCOMPRESSED,
    }
    return int(c.call(PushTelemetryRequest(**(fields | changes)), 0, to=to).error_code)


def refuse_repetition(c: Check, repeat: Callable[[], int], what: str = "error_code") -> None:
    """The repetition of a request is too early. When the subscriptions of the server change, as by another case, it
    knows nothing of earlier requests: then a further repetition is too early."""
    code = next((code for code in (repeat() for _ in range(REPETITIONS)) if code), int(ErrorCode.NONE))
    c.error(code, ErrorCode.THROTTLING_QUOTA_EXCEEDED, what)


@case(
    "telemetry.subscriptions.exchange",
    "a client gets an instance ID and a subscription",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS),
)
def subscriptions_exchange(c: Check, version: int) -> None:
    """Sends: GetTelemetrySubscriptions without an instance ID, and on another connection again.

    Expects: no errors; two different IDs; an interval, a limit of bytes, and compression types that exist.

    Why: the ID connects the metrics of one client instance; a shared one would mix them.
    """
    first, second = subscribe(c), subscribe(c, to=c.connect())
    ids = {bytes(each.client_instance_id) for each in (first, second)}
    c.equal((len(ids), ZERO_UUID in ids), (2, False), "client_instance_id (number of IDs, and whether one is zero)")
    c.true(first.push_interval_ms > 0, "push_interval_ms", expected="more than 0", actual=first.push_interval_ms)
    c.true(
        first.telemetry_max_bytes > 0, "telemetry_max_bytes", expected="more than 0", actual=first.telemetry_max_bytes
    )
    types = first.accepted_compression_types
    c.true(set(types) <= {0, 1, 2, 3, 4}, "accepted_compression_types", expected="some of 0 to 4", actual=types)


@case(
    "telemetry.subscriptions.too-early",
    "a client that repeats the request too early is throttled",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS),
)
def subscriptions_too_early(c: Check, version: int) -> None:
    """Sends: GetTelemetrySubscriptions, and immediately again with the ID from the response.

    Expects: THROTTLING_QUOTA_EXCEEDED.

    Why: a broken client must not burden the server with metrics.
    """
    request = GetTelemetrySubscriptionsRequest(client_instance_id=subscribe(c).client_instance_id)
    refuse_repetition(c, lambda: int(c.call(request, version).error_code))


@case(
    "telemetry.push.exchange",
    "metrics of a subscription are accepted",
    source=SOURCE,
    layer=Layer.WIRE,
    needs=TELEMETRY,
    versions=versions_of(ApiKey.PUSH_TELEMETRY),
)
def push_exchange(c: Check, version: int) -> None:
    """Sends: GetTelemetrySubscriptions; PushTelemetry without metrics; another one that says that the client ends.

    Expects: no errors.

    Why: a client sends its last metrics when it is closed, even if the interval is not over.
    """
    subscription = subscribe(c)
    c.error(push(c, subscription), ErrorCode.NONE)
    c.error(push(c, subscription, terminating=True), ErrorCode.NONE, "error_code of the last PushTelemetry")


@case(
    "telemetry.push.invalid",
    "metrics that the client should not have sent are rejected",
    source=SOURCE,
    layer=Layer.WIRE,
    needs=TELEMETRY,
    versions=versions_of(ApiKey.PUSH_TELEMETRY),
    variants={
        "no-instance": ({"client_instance_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        "subscription": ({"subscription_id": -77}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        "compression": ({"compression_type": 99}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    },
)
def push_invalid(c: Check, version: int, changes: dict[str, Any], expected: ErrorCode) -> None:
    """Sends: GetTelemetrySubscriptions, and PushTelemetry without instance ID, with another subscription or with a
    compression type that does not exist.

    Expects: INVALID_REQUEST, UNKNOWN_SUBSCRIPTION_ID or UNSUPPORTED_COMPRESSION_TYPE.

    Why: after UNKNOWN_SUBSCRIPTION_ID a client fetches its subscription again; after the others it stops.
    """
    c.error(push(c, subscribe(c), **changes), expected)


@case(
    "telemetry.push.limits",
    "metrics that are too large or too early are rejected",
    source=SOURCE,
    needs=(*TELEMETRY, *needs(ApiKey.PUSH_TELEMETRY, 0)),
)
def push_limits(c: Check) -> None:
    """Sends: PushTelemetry with one byte more than `telemetry_max_bytes`; with another instance, two of them without a
    pause.

    Expects: TELEMETRY_TOO_LARGE; no error and THROTTLING_QUOTA_EXCEEDED.

    Why: the metrics of many clients must not burden the server.
    """
    subscription = subscribe(c)
    too_large = bytes(subscription.telemetry_max_bytes + 1)
    c.error(push(c, subscription, metrics=too_large), ErrorCode.TELEMETRY_TOO_LARGE)
    subscription = subscribe(c)
    c.error(push(c, subscription), ErrorCode.NONE, "error_code of the first PushTelemetry")
    refuse_repetition(c, lambda: push(c, subscription), "error_code of the second PushTelemetry")


@case(
    "telemetry.subscriptions.configured",
    "a client gets the metrics and the interval that are configured for it",
    source=SOURCE,
    needs=(*TELEMETRY, *needs(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0)),
    alters_configs=True,
)
def configured(c: Check) -> None:
    """Sends: IncrementalAlterConfigs of a new client-metrics resource for one client ID, and GetTelemetrySubscriptions
    with this client ID and with another.

    Expects: for the one the metrics and the interval of the resource, for the other no metrics.

    Why: an operator enables metrics of single clients while they run.
    """
    resource, client = c.name("subscription"), c.name("client")
    values = {"metrics": "org.apache.kafka.consumer.", "interval.ms": "12345", "match": f"client_id={client}"}

    def alter(operation: int) -> None:
        configs = [
            AlterableConfig(name=name, config_operation=operation, value=value if operation == SET else None)
            for name, value in values.items()
        ]
        altered = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=resource, configs=configs)
        (result,) = c.call(IncrementalAlterConfigsRequest(resources=[altered])).responses
        c.error(result.error_code, ErrorCode.NONE, "IncrementalAlterConfigs error_code")

    try:
        with c.setup("IncrementalAlterConfigs"):
            alter(SET)
        matching = c.connect(client_id=client)

        def found() -> bool:
            answer = subscribe(c, to=matching)
            return (list(answer.requested_metrics), answer.push_interval_ms) == (["org.apache.kafka.consumer."], 12_345)

        c.until(found, "the configured metrics and interval")
        other = subscribe(c, to=c.connect(client_id=f"{client}-2"))
        c.equal(list(other.requested_metrics), [], "requested_metrics of another client")
    finally:
        alter(DELETE)

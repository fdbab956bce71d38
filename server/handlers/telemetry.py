"""GetTelemetrySubscriptions and PushTelemetry (API keys 71, 72): metrics that clients push (KIP-714).

- Version 0 of both. They are advertised if there is a listener for metrics, which shows what clients push; Apache Kafka
  advertises them if it has a plugin for them. Without a listener the response is UNSUPPORTED_VERSION.
- Rejected are a push too early (THROTTLING_QUOTA_EXCEEDED), of another subscription (UNKNOWN_SUBSCRIPTION_ID), with an
  unknown compression type, above `telemetry.max.bytes` (TELEMETRY_TOO_LARGE; INVALID_RECORD if it is above only when
  decompressed), without an instance ID, or after the last one (INVALID_REQUEST).
- A client that ends may send its last push early.
- Bytes that are not metrics are accepted and counted, as a plugin of Apache Kafka would do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.compression import CompressionError, decompress
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ...protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ..telemetry import otlp
from ..telemetry.clients import ACCEPTED_COMPRESSION, Client, ClientTelemetry

if TYPE_CHECKING:
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext


def handle_get_telemetry_subscriptions(
    broker: Broker, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Return the metrics that the client should push."""
    telemetry = _telemetry(broker)
    instance = telemetry.subscription(request.client_instance_id, _client(context))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(codec) for codec in ACCEPTED_COMPRESSION],
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )


def failed_get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, error: KafkaError
) -> GetTelemetrySubscriptionsResponse:
    """The error, without a subscription."""
    return GetTelemetrySubscriptionsResponse(error_code=error.code)


def handle_push_telemetry(
    broker: Broker, context: RequestContext, request: PushTelemetryRequest
) -> Sliced[PushTelemetryResponse]:
    """Keep the metrics of the client."""
    telemetry = _telemetry(broker)
    data = bytes(request.metrics)
    instance = telemetry.check_push(
        request.client_instance_id,
        _client(context),
        subscription_id=request.subscription_id,
        terminating=request.terminating,
        compression_type=request.compression_type,
        size=len(data),
    )
    if data:
        try:
            data = bytes(decompress(request.compression_type, data, telemetry.max_bytes))
        except CompressionError:
            raise KafkaError(ErrorCode.INVALID_RECORD) from None
    try:
        for point in otlp.points(data):
            if point is not None:
                telemetry.store(instance, point)
            yield 1
    except otlp.OtlpError:
        telemetry.unreadable += 1
    return PushTelemetryResponse()


def failed_push_telemetry(request: PushTelemetryRequest, error: KafkaError) -> PushTelemetryResponse:
    """The error."""
    return PushTelemetryResponse(error_code=error.code)


def _telemetry(broker: Broker) -> ClientTelemetry:
    if broker.telemetry is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return broker.telemetry


def _client(context: RequestContext) -> Client:
    name, _, version = context.client_software.partition(" ")
    return Client(
        context.client_id,
        name or "unknown",
        version or "unknown",
        context.client_host.removeprefix("/"),
        context.client_port,
    )

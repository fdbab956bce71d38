"""The metrics that clients have pushed (KIP-714)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...protocol.uuid import uuid_to_str
from .families import Family, Kind, Sample, counter, labels

if TYPE_CHECKING:
    from ..telemetry.clients import ClientTelemetry, Instance, Series

_PREFIX: Final = "org.apache.kafka."
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")


def client_families(telemetry: ClientTelemetry) -> Iterator[Family | None]:
    """The metrics of clients. None: a moment to pause. Called by another thread than the methods of ``telemetry``."""
    found: dict[tuple[str, bool], dict[str, float]] = {}
    for instance in telemetry.live_instances():
        yield None
        for series, value in list(instance.series.items()):
            name = metric_name(series)
            found.setdefault((name, series.is_counter), {})[_labels(instance, series)] = value
    for (name, is_counter), samples in sorted(found.items(), key=lambda item: item[0]):
        kind = Kind.COUNTER if is_counter else Kind.GAUGE
        yield Family(name, kind, "Pushed by clients (KIP-714).", [Sample(*item) for item in samples.items()])
    yield counter("moldau_client_metrics_unreadable_total", "Pushes that are not metrics.", telemetry.unreadable)
    yield counter("moldau_client_metrics_omitted_total", "Numbers above the limits of series.", telemetry.omitted)


def metric_name(series: Series) -> str:
    """The name for Prometheus: `org.apache.kafka.producer.request.latency.avg` is
    `kafka_client_producer_request_latency_avg`."""
    name = "kafka_client_" + _NOT_IN_NAMES.sub("_", series.name.removeprefix(_PREFIX))
    return f"{name}_total" if series.is_counter and not name.endswith("_total") else name


def _labels(instance: Instance, series: Series) -> str:
    """The labels of the client, and those that its attributes have: no attribute replaces one of the client."""
    found = {}
    for key, value in series.attributes:
        name = _NOT_IN_NAMES.sub("_", key).lstrip("_0123456789")
        if name and not name.startswith("client_"):
            found[name] = value
    return labels(
        client_id=instance.client.client_id,
        client_instance_id=uuid_to_str(instance.instance_id),
        client_software_name=instance.client.software_name,
        **found,
    )

"""A plugin for Apache Kafka that receives clients' metrics and drops them.

Without such a plugin a broker does not advertise GetTelemetrySubscriptions and PushTelemetry (KIP-714).
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from moldau.testing.requirements import require_kafka_jars, require_program

CLASS: Final = "TelemetryReceiver"

_SOURCE: Final = """
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

public class TelemetryReceiver implements MetricsReporter, ClientTelemetry {
    @Override public ClientTelemetryReceiver clientReceiver() { return (context, payload) -> { }; }
    @Override public void init(List<KafkaMetric> metrics) { }
    @Override public void metricChange(KafkaMetric metric) { }
    @Override public void metricRemoval(KafkaMetric metric) { }
    @Override public void close() { }
    @Override public void configure(Map<String, ?> configs) { }
}
"""


def compiled(version: str, folder: Path) -> Path:
    """The folder with the class, compiled with the jars of this version."""
    source = folder / f"{CLASS}.java"
    source.write_text(_SOURCE)
    libs, javac = require_kafka_jars(version), require_program("javac")
    subprocess.run([javac, "-Xlint:-removal", "-cp", f"{libs}/*", "-d", str(folder), str(source)], check=True)
    return folder

"""The latency from a producer to a consumer, one record after the other.

`EndToEndLatency` is Kafka's tool. It prints whole milliseconds, starts cold, and its consumer polls the server
repeatedly (``fetch.max.wait.ms=0``). After the measurement it commits its offset.

`java/RoundTrip.java` does the same warm, in microseconds, with a consumer whose fetch waits at the server as usual.
"""

from __future__ import annotations

import re
import subprocess

from .. import load, programs
from ..row import Bench, Numbers, Row, Subject, Target

GROUP = "Latency from producer to consumer"

_RECORDS = 10_000
_WARM_UP_RECORDS = 2_000
_SIZE = 100

_TIMEOUT_SECONDS = 300

_PERCENTILES = re.compile(r"Percentiles: 50th = (?P<p50>\d+), 99th = (?P<p99>\d+), 99\.9th = (?P<p999>\d+)")


def end_to_end_latency(bench: Bench) -> Numbers:
    """Kafka's tool."""
    topic = bench.topic()
    records = bench.count(_RECORDS)
    command = [
        *bench.program("org.apache.kafka.tools.EndToEndLatency"),
        *("--bootstrap-server", bench.server.bootstrap_servers, "--topic", topic),
        *("--num-records", str(records), "--producer-acks", "1", "--record-size", str(_SIZE)),
    ]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
    )
    found = _PERCENTILES.search(done.stdout)
    if done.returncode != 0 or found is None:
        raise RuntimeError(f"EndToEndLatency failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    if bench.subject is not Subject.CEILING:
        load.check_end_offset(bench.server, topic, records)
    return {f"{name}_ms": float(value) for name, value in found.groupdict().items()}


def round_trip(bench: Bench) -> Numbers:
    """Ours."""
    topic = bench.topic()
    counts = [str(bench.count(_RECORDS)), str(bench.count(_WARM_UP_RECORDS)), str(_SIZE)]
    command = [*bench.program("RoundTrip"), bench.server.bootstrap_servers, topic, *counts]
    result = programs.run_for_json("RoundTrip", command, timeout_s=_TIMEOUT_SECONDS)
    return {name: result[name] for name in ("p50_us", "p99_us", "p999_us")}


ROWS = (
    Row(
        name="end-to-end-latency",
        title="EndToEndLatency: 10,000 records of 100 B, acks=1 (whole milliseconds)",
        group=GROUP,
        measure=end_to_end_latency,
        needs=("java",),
        targets=(
            Target("p50_ms", at_most=1.0),
            Target("p99_ms", at_most=1.0, plus=1.0),
            Target("p999_ms", at_most=1.0, plus=1.0),
        ),
    ),
    Row(
        name="round-trip",
        title="The same with a warm client whose fetch waits at the server (microseconds)",
        group=GROUP,
        measure=round_trip,
        needs=("java", "javac"),
    ),
)

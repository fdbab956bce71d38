"""Metrics of the process and of the event loop."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from ..concurrency.garbage import resident_bytes
from .families import Family, counter, gauge
from .pace import process_cpu

_IO: Final = "/proc/self/io"
_DESCRIPTORS: Final = "/proc/self/fd"


def process_families() -> Iterator[Family]:
    """CPU time, memory, descriptors and disk I/O. Metrics that the system does not have are omitted."""
    yield counter("process_cpu_seconds_total", "CPU time of the process, in seconds.", process_cpu())
    resident = resident_bytes()
    if resident:
        yield gauge("process_resident_memory_bytes", "Memory of the process.", resident)
    try:
        yield gauge("process_open_fds", "Open descriptors.", len(os.listdir(_DESCRIPTORS)))
        with open(_IO) as file:
            numbers = dict(line.split(": ") for line in file.read().splitlines())
    except OSError:  # macOS has no /proc; containers may forbid io
        return
    prefix = "kafka.server:KafkaServer:linux-disk-"
    yield gauge(f"{prefix}read-bytes", "Bytes that the process has read from disks.", int(numbers["read_bytes"]))
    yield gauge(f"{prefix}write-bytes", "Bytes that the process has written to disks.", int(numbers["write_bytes"]))


def idle_families(idle: float) -> Iterator[Family]:
    """The share of time for which the event loop was idle. Apache Kafka has several kinds of threads for its work."""
    text = "The share of time for which the event loop did not compute, from 0 to 1."
    yield gauge("kafka.network:SocketServer:NetworkProcessorAvgIdlePercent", text, idle)
    yield gauge("kafka_network_socketserver_networkprocessoravgidlepercent", text, idle)
    yield gauge("kafka.server:KafkaRequestHandlerPool:RequestHandlerAvgIdlePercent", text, idle)

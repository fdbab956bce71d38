"""What a row of the comparison is: some work, done by one program against one server, and the numbers that come out.

A row does not know whom it measures. It gets a `Bench`: a server that is running and warm, or, where the life of the
server is the work (starts, memory, recovery), the means to start one. It returns numbers by name; the unit is the end
of the name. Rounds, the order of the servers, warming up, results and ratios are the runner's.

Names of numbers, so that tables and plots can be made of them: ``records_per_s requests_per_s transactions_per_s
mb_per_s gb_per_s p50_us p99_us p999_us max_us p50_ms p99_ms p999_ms cpu_s_per_gb cpu_us_per_request cpu_us_per_record
cpu_us_per_member cpu_us_per_transaction seconds seconds_per_gb rss_mb kb_per_connection kb_per_transactional_id
kb_per_producer_id``.
More words after one of them (``p99_us_without``) tell it from another of its kind.

MB and GB are 10^6 and 10^9 bytes. CPU is the server's process alone, user and system.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

Numbers = Mapping[str, float]


class Subject(enum.StrEnum):
    """Who is measured."""

    MOLDAU = "moldau"
    APACHE = "apache"
    CEILING = "ceiling"
    """A server that only acknowledges: what the client, or the generator, can do at most on this machine."""


class Server(Protocol):
    """A server under measurement: a process of its own, on a port of 127.0.0.1."""

    @property
    def subject(self) -> Subject: ...

    @property
    def bootstrap_servers(self) -> str:
        """``127.0.0.1:port``, the same after every restart."""

    @property
    def pid(self) -> int: ...

    @property
    def data_dir(self) -> Path:
        """The log directory."""

    def start(self) -> None:
        """Start, and return when it has answered ApiVersions. Does nothing when it runs."""

    def stop(self) -> None:
        """Stop cleanly."""

    def kill(self) -> None:
        """``kill -9``."""

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""

    def resident_bytes(self) -> int:
        """What of the process is in memory now."""


class Bench(Protocol):
    """What a row has to work with, made anew for every measurement."""

    @property
    def subject(self) -> Subject: ...

    @property
    def server(self) -> Server:
        """The running, warm server. Not there for rows with ``own_server``."""

    @property
    def work_dir(self) -> Path:
        """An empty folder, removed afterwards; on the disk that the servers use."""

    def count(self, full: int) -> int:
        """``full``, or less where the run (``--quick``) or the warming up wants less; at least 1."""

    def topic(self, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """The name of a new topic with a leader for each partition; deleted after the measurement. Against the
        ceiling: a name that its server answers for."""

    def start_server(self, *, config: Mapping[str, str] | None = None, data_dir: Path | None = None) -> Server:
        """For rows with ``own_server``: a server of the row's subject, running, on a new or a given data directory;
        stopped and removed after the measurement. ``config`` has Kafka's names, which both servers know."""

    def program(self, name: str) -> list[str]:
        """The command of a program of ours: ``load`` (from load.c; compiled once), or a Java class of
        ``benchmarks/java`` (with the class path of Kafka's jars), or a class of Kafka's tools by its full name."""


@dataclass(frozen=True)
class Target:
    """What a number has to reach: a ratio Moldau / Apache Kafka of the medians, or, against the ceiling, a ratio
    Moldau / ceiling; or a bound on the number itself."""

    number: str
    at_least: float | None = None
    at_most: float | None = None
    against: Subject | None = Subject.APACHE
    """None: the bound is for the number itself."""
    plus: float = 0.0
    """Allowed above Apache's number, in the number's unit (for latencies in whole milliseconds, whose ratio says
    nothing): the bound is then ``apache * at_most + plus``."""


@dataclass(frozen=True)
class Row:
    """One kind of work."""

    name: str
    """For ``--only``: words joined by ``-``."""
    title: str
    """For the table, with sizes and settings."""
    group: str
    """The heading it stands under."""
    measure: Callable[[Bench], Numbers]
    subjects: tuple[Subject, ...] = (Subject.APACHE, Subject.MOLDAU, Subject.CEILING)
    needs: tuple[str, ...] = ()
    """Programs and Python packages without which it cannot run: ``java``, ``cc``, ``aiokafka``, ..."""
    own_server: bool = False
    """It starts its servers itself; nothing is warmed up."""
    rounds: int | None = None
    """More or fewer than the run's; None: as the run has it."""
    targets: tuple[Target, ...] = field(default=())
    during: Callable[[], AbstractContextManager[None]] | None = None
    """Entered before the row's first warming up, and left after its last measurement: for a client that is too slow to
    start to be started for each. Servers that wait for their turn do not stand still then: the client may still have
    connections to them, which it closes in its own time."""

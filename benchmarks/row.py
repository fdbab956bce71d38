"""The definition of a row: some work, done by one program with one server, and the resulting numbers.

A row does not know which server it measures. It gets a `Bench`: a server that is running and warm, or, if the life of
the server is the work (starts, memory, recovery), the means to start one. It returns numbers by name; the end of the
name is the unit. The runner is responsible for rounds, the order of the servers, warmup, results and ratios.

Names of numbers, for tables and plots: ``records_per_s requests_per_s transactions_per_s
mb_per_s gb_per_s p50_us p99_us p999_us max_us p50_ms p99_ms p999_ms cpu_s_per_gb cpu_us_per_request cpu_us_per_record
cpu_us_per_member cpu_us_per_transaction cpu_us_per_connection seconds seconds_per_gb rss_mb kb_per_connection
kb_per_transactional_id kb_per_producer_id``.
A suffix after one of them (``p99_us_without``) distinguishes it from another number of its kind.

MB and GB are 10^6 and 10^9 bytes. CPU is that of the server's process alone, user and system.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

Numbers = Mapping[str, float]


class Subject(enum.StrEnum):
    """The server that is measured."""

    MOLDAU = "moldau"
    APACHE = "apache"
    CEILING = "ceiling"
    """A server that only acknowledges: the maximum of the client, or the generator, on this machine."""


class Server(Protocol):
    """A server under measurement: a separate process, on a port of 127.0.0.1."""

    @property
    def subject(self) -> Subject: ...

    @property
    def bootstrap_servers(self) -> str:
        """``127.0.0.1:port``, the same after every restart."""

    def address_of(self, listener: str) -> str:
        """``127.0.0.1:port`` of one of the further listeners that it was started with."""

    @property
    def pid(self) -> int: ...

    @property
    def data_dir(self) -> Path:
        """The log directory."""

    def start(self) -> None:
        """Start, and return after a response to ApiVersions. Does nothing if the server is running."""

    def stop(self) -> None:
        """Stop cleanly."""

    def kill(self) -> None:
        """``kill -9``."""

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""

    def resident_bytes(self) -> int:
        """The resident memory of the process."""


@runtime_checkable
class Brokers(Server, Protocol):
    """Several processes that are one server. The first broker also is the controller."""

    def kill_broker(self, number: int) -> None:
        """``kill -9`` of one broker, which stays dead until `start_broker`."""

    def stop_broker(self, number: int) -> None:
        """Stop one broker cleanly, and return when it has ended. It is not started before `start_broker`."""

    def start_broker(self, number: int) -> None:
        """Start the broker that was killed or stopped, without waiting for it."""


class Bench(Protocol):
    """The resources of a row, created for every measurement."""

    @property
    def subject(self) -> Subject: ...

    @property
    def server(self) -> Server:
        """The running, warm server. Not available for rows with ``own_server``."""

    @property
    def work_dir(self) -> Path:
        """An empty folder, removed afterwards; on the same disk as the servers' data."""

    def count(self, full: int) -> int:
        """``full``, or less for a quick run (``--quick``) or the warmup; at least 1."""

    def topic(self, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """The name of a new topic with a leader for each partition; deleted after the measurement. For the ceiling: a
        name
        that its server accepts."""

    def start_server(
        self,
        *,
        config: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
        brokers: int = 1,
        listeners: Mapping[str, str] | None = None,
    ) -> Server:
        """For rows with ``own_server``: a running server of the row's subject, on a new or a given data directory;
        stopped
        and removed after the measurement. ``config`` has Kafka's names, which both servers accept. ``brokers`` > 1:
        processes that are one server here. ``listeners``: further listeners of a single broker, with their security
        protocols."""

    def program(self, name: str) -> list[str]:
        """The command of a program: ``load`` (from load.c; compiled once), a Java class of ``benchmarks/java`` (with
        the
        class path of Kafka's jars), or a class of Kafka's tools by its full name."""


@dataclass(frozen=True)
class Target:
    """A limit for a number: for the ratio Moldau / Apache Kafka of the medians, or Moldau / ceiling, or for the number
    itself."""

    number: str
    at_least: float | None = None
    at_most: float | None = None
    against: Subject | None = Subject.APACHE
    """None: the limit is for the number itself."""
    plus: float = 0.0
    """Allowed above Apache's number, in the number's unit (for latencies in whole milliseconds, whose ratio is not
    meaningful): the limit is then ``apache * at_most + plus``."""


@dataclass(frozen=True)
class Row:
    """One kind of work."""

    name: str
    """For ``--only``: words joined by ``-``."""
    title: str
    """For the table, with sizes and settings."""
    group: str
    """The heading in the report."""
    measure: Callable[[Bench], Numbers]
    subjects: tuple[Subject, ...] = (Subject.APACHE, Subject.MOLDAU, Subject.CEILING)
    needs: tuple[str, ...] = ()
    """Required programs and Python packages: ``java``, ``cc``, ``aiokafka``, ..."""
    own_server: bool = False
    """The row starts its servers itself; there is no warmup."""
    rounds: int | None = None
    """The number of rounds, if different from the run's; None: that of the run."""
    targets: tuple[Target, ...] = field(default=())
    during: Callable[[], AbstractContextManager[None]] | None = None
    """Entered before the row's first warmup, and left after its last measurement: for a client whose start is too slow
    to be repeated. Waiting servers are not stopped then: the client may still have connections to them, which it closes
    later."""

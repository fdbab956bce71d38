"""A well-behaved client of an abused server. It produces one record, fetches it back, and measures each round trip.

It is a separate process, so that the interpreter of the attackers does not slow it. A test runs it with `Bystander`;
run as a script, it is the client itself, and responds to each line on its standard input with the numbers since the
previous line.

The limits apply to the part of a round trip that the server causes. Linux counts, for every thread, the time
during which it was ready to run and waited for a CPU (``/proc/PID/task/TID/schedstat``). That time, of the server's
main thread and of this process, is subtracted: a machine that is busy with other things makes no difference, while all
that the event loop itself does (computing, waiting for the interpreter lock, for a disk or for another process) counts.

Rounds begin every `PACE_MS`. One that takes longer delays the following ones, so these count too, each with its share
of the wait: otherwise a server that stops for a second several times would show a few slow rounds. The longest round
counts once, because it has its own limit.

The event loop also waits while the system starts a child process, which itself waits for a CPU. This wait cannot be
subtracted. It is one round of a test: 2 ms, and up to 400 ms with five busy processes of a higher priority per CPU.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.testing.builders import batch, fetch, produce, values
from moldau.testing.wire import WireClient

TOPIC = "bystander"
PACE_MS = 10.0
TIMEOUT_S = 200.0


class Numbers(NamedTuple):
    """The measurements between two requests, in milliseconds; without ``wall``, the part that the server causes."""

    rounds: int
    p99_ms: float
    worst_ms: float
    wall_p99_ms: float
    wall_worst_ms: float
    failures: list[str]

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, p99 {self.p99_ms:.1f} ms, worst {self.worst_ms:.0f} ms "
            f"(by the clock: p99 {self.wall_p99_ms:.1f} ms, worst {self.wall_worst_ms:.0f} ms)"
        )


class Bystander:
    """The client process, from the parent's side. Use it as a context manager."""

    def __init__(self, address: str, server_pid: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, address, str(server_pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ask()  # it is connected, and the routes that it uses have been compiled

    def ask(self) -> Numbers:
        """The numbers since the previous request. A round in progress completes first, and counts."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the bystander has ended; its standard error says why"
        return Numbers(**json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(TIMEOUT_S)
        finally:
            self._process.kill()
            self._process.wait()


# -- the process --


def waited_for_cpu_ms(pid: int) -> float:
    """The total time for which the main thread of this process has been ready to run without running."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_bytes().split()[1]) / 1e6


class Client:
    """One connection and the offset that its next record should get."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._wire: WireClient | None = None
        self._count = 0

    def round(self) -> str | None:
        """Produce a record and fetch it back; return the failure, if any."""
        try:
            if self._wire is None:
                self._wire = WireClient(self._address, timeout_s=TIMEOUT_S)
            self._count += 1
            value = b"record %d" % self._count
            produced = produce(self._wire, TOPIC, batch(value))
            if produced.error_code:
                return f"produce: {ErrorCode(produced.error_code).name}"
            fetched = fetch(self._wire, TOPIC, produced.base_offset, max_wait_ms=1000)
            if fetched.error_code:
                return f"fetch: {ErrorCode(fetched.error_code).name}"
            if values(fetched)[:1] != [value]:
                return f"fetched {values(fetched)!r} at offset {produced.base_offset}, not {value!r}"
        except (TimeoutError, OSError) as failure:
            if self._wire is not None:
                self._wire.close()
                self._wire = None
            return repr(failure)
        return None


def spread_out(rounds: list[float]) -> list[float]:
    """The rounds, and those that long ones other than the longest delayed, in order of length."""
    if not rounds:
        return []
    *others, longest = sorted(rounds)
    spread = []
    for duration in others:
        while duration >= 0:
            spread.append(duration)
            duration -= PACE_MS
    return [*sorted(spread), longest]


def numbers(blamed: list[float], walls: list[float], failures: list[str]) -> Numbers:
    """The numbers of these rounds."""
    by_server, by_clock = spread_out(blamed) or [0.0], spread_out(walls) or [0.0]
    return Numbers(
        rounds=len(walls),
        p99_ms=by_server[len(by_server) * 99 // 100],
        worst_ms=by_server[-1],
        wall_p99_ms=by_clock[len(by_clock) * 99 // 100],
        wall_worst_ms=by_clock[-1],
        failures=failures[:10],
    )


def main(address: str, server_pid: int) -> None:
    with WireClient(address) as wire:
        wire.call(CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)]), 7)
    client = Client(address)
    assert (failure := client.round()) is None, failure
    blamed: list[float] = []
    walls: list[float] = []
    failures: list[str] = []
    own_pid = os.getpid()
    due = time.monotonic()
    while True:
        waited = waited_for_cpu_ms(server_pid) + waited_for_cpu_ms(own_pid)
        began = time.monotonic()
        failure = client.round()
        wall = (time.monotonic() - began) * 1000
        waited = waited_for_cpu_ms(server_pid) + waited_for_cpu_ms(own_pid) - waited
        if failure is not None:
            failures.append(failure)
        walls.append(wall)
        blamed.append(max(0.0, wall - waited))
        due = max(due + PACE_MS / 1000, time.monotonic())
        requested, _, _ = select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))
        if requested:
            if not sys.stdin.readline():
                return
            print(json.dumps(numbers(blamed, walls, failures)._asdict()), flush=True)
            blamed, walls, failures = [], [], []


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

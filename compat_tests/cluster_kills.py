"""Kills of ``kill -9`` in a cluster whose clients continue:

    python -m moldau.compat_tests.cluster_kills controllers --seconds 600
    python -m moldau.compat_tests.cluster_kills brokers --seconds 600
    python -m moldau.compat_tests.cluster_kills replicas --seconds 600
    python -m moldau.compat_tests.cluster_kills faults --seconds 600

``controllers``: a broker of Moldau under three controllers of Apache Kafka, the active one of which is killed every 5 s
and started again. ``brokers``: ``moldau serve --brokers 3``, one broker of which is killed every 10 s. ``replicas``:
the same, but the clients' topics have three replicas, two of which must be in sync. ``faults``: the same, and brokers
are also paused beyond their session, paused and then killed, and cut off from each other (`cluster_faults`).

The clients (`cluster_load`) are idempotent producers, each with its own partition, a transactional producer over
several partitions, two groups of two consumers with either protocol, and one that creates topics and gets producer ids.
Under ``brokers`` and ``replicas``, a topic is also copied exactly once.
All errors that they see must be retriable. Every acknowledged record must exist once and in order, every transaction
whole or not at all; a group must not skip a record, and not read a record again whose offset it has committed; every
created topic must exist.

The results contain times: how long a killed broker's partition was not acknowledged, and how long the others' were not.
Times are reported and not checked: they depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from moldau.compat_tests.cluster_faults import KINDS, Faults, cluster_for_faults
from moldau.compat_tests.cluster_load import PAUSE_S, Load, Pause, TimedWriter
from moldau.compat_tests.exactly_once_copy import Copy
from moldau.compat_tests.kill_rounds import DEADLINE_S, WrongError, problems_of_verify
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.testing.apache_controllers import ApacheControllers
from moldau.testing.served_brokers import ServedBrokers
from moldau.testing.servers import around_tracebacks
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

BROKERS = 3
CONTROLLERS = 3
_NODE = 2
_START_S = 120

Report = Callable[[str], None]


@dataclass
class Outcome:
    """The result of a run. It exists only if no record was lost or duplicated."""

    kills: int
    lines: list[str]
    problems: list[str] = field(default_factory=list)
    """Findings of ``moldau log verify``, and internal errors in the log of a broker."""


def distribution(values: Iterable[float]) -> str:
    """Of times in seconds."""
    ordered = sorted(values)
    if not ordered:
        return "none"
    most = ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))]
    return f"median {statistics.median(ordered):.2f} s, 90 % {most:.2f} s, longest {ordered[-1]:.2f} s"


def _create_topics(address: str, leaders: dict[str, list[int]], replicas: int = 1) -> None:
    """Topics whose partitions have these leaders. All replicas but one must be in sync."""
    admin = AdminClient({"bootstrap.servers": address})
    config = {"min.insync.replicas": str(max(1, replicas - 1))}
    wanted = [
        NewTopic(
            name,
            len(ids),
            replica_assignment=[[(first - 1 + each) % BROKERS + 1 for each in range(replicas)] for first in ids]
            if replicas > 1
            else [[each] for each in ids],
            config=config,
        )
        for name, ids in leaders.items()
    ]
    for future in admin.create_topics(wanted).values():
        future.result(DEADLINE_S)


def _problems(log: str, directories: Iterable[Path]) -> list[str]:
    found = [f"the log of a broker: {around_tracebacks(log)}"] if "Traceback" in log else []
    return [*found, *(problem for directory in directories for problem in problems_of_verify(directory))]


def _wait(load: Load, until: float) -> None:
    while time.monotonic() < until:
        load.check_alive()
        time.sleep(0.05)


def kill_controllers(seconds: float, interval_s: float, report: Report = lambda _line: None) -> Outcome:
    """Kill the active controller of three every `interval_s`, at least once. A killed one is started again
    immediately; the next kill waits until it is ready."""
    elections: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="cluster-kills-") as folder,
        ApacheControllers(CONTROLLERS, Path(folder)) as controllers,
        controllers.broker(_NODE) as broker,
    ):
        address = broker.bootstrap_servers
        _create_topics(address, {"numbers": [_NODE], "transactions": [_NODE] * 3})
        load = Load(address, ["numbers"], 3)
        with WireClient(address, timeout_s=_START_S) as wire:
            load.start()
            load.wait_for_progress()
            began = time.monotonic()
            while not elections or time.monotonic() - began < seconds:
                killed = controllers.active(wire)
                at = time.monotonic()
                controllers.kill(killed)
                started = controllers.launch(killed)
                wait_until(lambda: controllers.active(wire), seconds=_START_S)
                elections.append(time.monotonic() - at)
                _wait(load, at + interval_s)
                _wait_for(started, load)
                report(f"{time.monotonic() - began:.0f} s: {len(elections)} kills; {'; '.join(load.table())}")
            took = time.monotonic() - began
            load.wait_for_progress()
            load.stop_and_check()
        (writer,) = load.timed
        longest = max((pause.seconds for pause in writer.pauses), default=0.0)
        lines = [
            f"{len(elections)} kills of the active controller in {took:.0f} s",
            f"another controller was active after: {distribution(elections)}",
            *load.table(),
            f"longest time without an acknowledgment of the idempotent producer: {longest:.2f} s",
        ]
        broker.stop()
        return Outcome(len(elections), lines, _problems(broker.log(), [broker.data_dir]))


def _wait_for(started: threading.Event, load: Load) -> None:
    deadline = time.monotonic() + _START_S
    while not started.wait(0.1):
        load.check_alive()
        if time.monotonic() > deadline:
            raise WrongError("a controller of Apache Kafka did not start")


def _waited_for_a_core(pid: int) -> float:
    """For how many seconds the first thread of a process has been ready to run and did not; 0 if that is unknown."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except FileNotFoundError:  # not Linux
        return 0.0


def _wait_for_replicas(addresses: Iterable[str], load: Load) -> None:
    """Return when all replicas are in sync: a second failure before that may stop producers, as it must."""
    deadline = time.monotonic() + DEADLINE_S
    while not all(_are_in_sync(address) for address in addresses):
        load.check_alive()
        if time.monotonic() > deadline:
            raise WrongError("not all replicas are in sync a minute after a broker was restarted")
        time.sleep(0.05)


def _are_in_sync(address: str) -> bool:
    """As this broker knows."""
    with WireClient(address, timeout_s=_START_S) as wire:
        response = wire.call(MetadataRequest(topics=None))
    return all(
        len(partition.isr_nodes) == len(partition.replica_nodes)
        for topic in response.topics
        for partition in topic.partitions
    )


class _BrokerKills:
    """The kills of brokers so far."""

    def __init__(self, served: ServedBrokers, load: Load) -> None:
        self._served = served
        self._load = load
        self.outages: dict[int, list[Pause]] = {broker: [] for broker in range(1, BROKERS + 1)}
        """From the kill to the next acknowledgment, by broker."""
        self.without_waiting: list[float] = []
        """The same times less those that the new process was ready to run, and waited for a core."""

    def kill(self, broker: int) -> None:
        """Kill a broker, and return when a record of its partition has been acknowledged again."""
        before = self._served.pids()
        writer = self._load.timed[broker - 1]
        at = time.monotonic()
        os.kill(dict(before)[broker], signal.SIGKILL)
        self._served.wait_for_ready(len(before) + 1)
        restarted = self._served.pids()[len(before) :]
        if [each for each, _ in restarted] != [broker]:
            raise WrongError(f"broker {broker} was killed, and these are ready: {restarted}")
        outage = Pause(at, self._acknowledged_after(writer, at))
        self.outages[broker].append(outage)
        self.without_waiting.append(max(0.0, outage.seconds - _waited_for_a_core(restarted[0][1])))

    def _acknowledged_after(self, writer: TimedWriter, at: float) -> float:
        """The end of the longest pause since the kill at this time, when the broker is ready again. A short one may
        have begun before the kill."""
        ready_at = time.monotonic()
        while writer.last_at is None or writer.last_at <= ready_at:
            self._load.check_alive()
            if time.monotonic() > ready_at + DEADLINE_S:
                raise WrongError(f"no record of {writer.topic} is acknowledged after the restart of its broker")
            time.sleep(0.005)
        pauses = [pause for pause in writer.pauses if pause.end > at]
        return max(pauses, key=lambda pause: pause.seconds).end if pauses else ready_at

    def others_pauses(self) -> list[float]:
        """The longest pause of other partitions in each outage of a broker."""
        found = []
        for broker, outages in self.outages.items():
            for outage in outages:
                pauses = [
                    pause.seconds
                    for other, writer in enumerate(self._load.timed, 1)
                    if other != broker
                    for pause in writer.pauses
                    if pause.overlaps(outage) and not any(pause.overlaps(own) for own in self.outages[other])
                ]
                found.append(max(pauses, default=0.0))
        return found


def kill_brokers(seconds: float, interval_s: float, report: Report = lambda _line: None) -> Outcome:
    """Kill each broker of three in turn, one every `interval_s`, at least one time each. Partitions have one replica,
    except those of coordinators' topics."""
    return _kill_each_broker(seconds, interval_s, report, replicas=1)


def kill_replicas(seconds: float, interval_s: float, report: Report = lambda _line: None) -> Outcome:
    """The same, with three replicas of each partition of the clients' topics."""
    return _kill_each_broker(seconds, interval_s, report, replicas=BROKERS)


def fault_replicas(seconds: float, interval_s: float, report: Report = lambda _line: None) -> Outcome:
    """Cause each kind of fault once, and further ones with pauses of `interval_s` until the time is over."""
    with cluster_for_faults() as cluster:
        address = cluster.bootstrap_servers
        topics = {f"on-{broker}": [broker] for broker in range(1, BROKERS + 1)}
        _create_topics(address, {**topics, "transactions": [1, 2, 3]}, BROKERS)
        load = Load(address, list(topics), BROKERS)
        load.start()
        load.wait_for_progress()
        faults = Faults(cluster, load)
        began = time.monotonic()
        while faults.counts.total() < len(KINDS) or time.monotonic() - began < seconds:
            faults.cause_next()
            _wait_for_replicas(address.split(","), load)
            report(f"{time.monotonic() - began:.0f} s: {dict(faults.counts)}; {'; '.join(load.table())}")
            _wait(load, time.monotonic() + interval_s)
        took = time.monotonic() - began
        load.wait_for_progress()
        load.stop_and_check()
        lines = [f"{faults.counts.total()} faults in {took:.0f} s: {dict(faults.counts)}", *load.table()]
        cluster.start_all()
        brokers = [cluster.broker(broker_id) for broker_id in cluster.broker_ids]
        for broker in reversed(brokers):
            broker.stop()
        logs = "".join(broker.log() for broker in brokers)
        return Outcome(faults.counts.total(), lines, _problems(logs, [broker.data_dir for broker in brokers]))


def _kill_each_broker(seconds: float, interval_s: float, report: Report, *, replicas: int) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="cluster-kills-") as name:
        folder = Path(name)
        served = ServedBrokers(folder, "--brokers", str(BROKERS))
        try:
            address = ",".join(served.addresses)
            topics = {f"on-{broker}": [broker] for broker in range(1, BROKERS + 1)}
            _create_topics(address, {**topics, "transactions": [1, 2, 3], "copy": [2]}, replicas)
            copy = Copy(address, "on-1", "copy")
            load = Load(address, list(topics), BROKERS, copy)
            load.start()
            load.wait_for_progress()
            kills = _BrokerKills(served, load)
            count = 0
            began = time.monotonic()
            while count < BROKERS or time.monotonic() - began < seconds:
                at = time.monotonic()
                kills.kill((2, 3, 1)[count % BROKERS])
                count += 1
                if replicas > 1:
                    _wait_for_replicas(served.addresses, load)
                _wait(load, at + interval_s)
                report(f"{time.monotonic() - began:.0f} s: {count} kills; {'; '.join((copy.line(), *load.table()))}")
            took = time.monotonic() - began
            load.wait_for_progress()
            load.stop_and_check()
        finally:
            if served.process.alive:
                served.process.stop(DEADLINE_S)
        outages = kills.outages
        lines = [
            f"{count} kills of brokers in {took:.0f} s",
            f"a killed broker's partition ({replicas} replicas) was acknowledged again after: "
            + distribution(outage.seconds for each in outages.values() for outage in each),
            "less the time that the new process waited for a core: " + distribution(kills.without_waiting),
            f"of broker 1, which has the controller: {distribution(outage.seconds for outage in outages[1])}",
            f"longest time without an acknowledgment of another partition, by kill (0: below {PAUSE_S:.1f} s): "
            + distribution(kills.others_pauses()),
            copy.line(),
            *load.table(),
        ]
        data = folder / "data"
        directories = [data, *(data / "brokers" / str(broker) for broker in range(2, BROKERS + 1))]
        return Outcome(count, lines, _problems(served.log(), directories))


_MODES = {
    "controllers": (kill_controllers, 5.0),
    "brokers": (kill_brokers, 10.0),
    "replicas": (kill_replicas, 10.0),
    "faults": (fault_replicas, 2.0),
}


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m moldau.compat_tests.cluster_kills",
        description="Kill brokers, or controllers of Apache Kafka, under load.",
    )
    parser.add_argument("killed", choices=_MODES)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument(
        "--interval", type=float, help="seconds between kills (controllers: 5, faults: 2, otherwise 10)"
    )
    options = parser.parse_args(None if arguments is None else list(arguments))
    run, interval_s = _MODES[options.killed]
    try:
        outcome = run(options.seconds, options.interval or interval_s, lambda line: print(line, flush=True))
    except WrongError as error:
        print(f"wrong: {error}", file=sys.stderr)
        return 1
    print("\n".join(outcome.lines))
    for problem in outcome.problems[:20]:
        print(problem, file=sys.stderr)
    print(f"moldau log verify: {len(outcome.problems) or 'no'} problems")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())

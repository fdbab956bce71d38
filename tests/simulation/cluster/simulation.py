"""A cluster under faults, from a seed: a controller, several brokers, and clients; see `Cluster`.

python -m tests.simulation.cluster.simulation --seed 7            replays a failure, with all its events
python -m tests.simulation.cluster.simulation --seeds 1000        runs for long, and stops at the first failure
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from .clients import ClientProcess
from .faults import Faults
from .invariants import Invariants
from .network import SimulatedNetwork
from .nodes import CONTROLLER, ErrorLog, Node, load_modules, without_threads
from .transactions import Transactions
from .workloads import DATA_TOPIC, Configs, GroupOffsets, Producer, ProducerIds, Topics, Workload, create_topic
from .world import START_SECONDS, World

if TYPE_CHECKING:
    from moldau.protocol.schema import Request

SECONDS = 60
"""Virtual time with faults."""

HEALING_SECONDS = 180
"""Virtual time after which every request must have ended, and all nodes must agree. Forwarded requests take longest: an
attempt has 30 seconds."""


class SimulationError(AssertionError):
    """A check has failed. The message has the events and the command that repeats them."""


class Cluster:
    """A simulation; see the docstring of the module. `run` raises `SimulationError` if a check fails."""

    def __init__(self, seed: int, seconds: float = SECONDS, *, has_eligible_leaders: bool | None = None) -> None:
        """``has_eligible_leaders``: eligible leader replicas (KIP-966); default: in half of the seeds."""
        self.seed = seed
        self.seconds = seconds
        self.events: list[str] = []
        self.digest = hashlib.sha256()
        dice = Random(f"cluster {seed}")
        self.world = World(dice)
        self.network = SimulatedNetwork(self.world)
        self.network.current_host = self._current_host
        self.errors = ErrorLog()
        brokers = range(1, 1 + dice.choice((2, 2, 3)))
        is_durable = dice.random() < 0.6
        # Without other replicas, a record is lost with its disk, and all that a broker leads waits for its return.
        replicas = dice.choice((1, len(brokers), len(brokers)))
        minimum = dice.choice((1, max(1, replicas - 1)))
        settings = {
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(minimum),
            "min.insync.replicas": str(minimum),
            "leader.imbalance.check.interval.seconds": "10",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.num.partitions": "3",
            "log.flush.interval.messages": "1" if is_durable else str(2**63 - 1),
        }
        self.nodes = {node_id: Node(self.world, self.network, node_id, settings) for node_id in (CONTROLLER, *brokers)}
        if has_eligible_leaders is None:  # a random source of its own: the faults are the same with and without it
            has_eligible_leaders = Random(f"eligible leaders {seed}").random() < 0.5
        self.has_eligible_leaders = has_eligible_leaders
        if not self.has_eligible_leaders:
            self.nodes[CONTROLLER].disable_eligible_leaders()
        self.clients = ClientProcess(self.world, self.network, brokers, Random(dice.random()))
        self.invariants = Invariants(self.world, self.nodes, self.errors)
        self.faults = Faults(
            self.world,
            self.network,
            self.nodes.values(),
            Random(dice.random()),
            self._log,
            power_may_fail=is_durable,
        )
        self.partitions = _replicas_of_partitions(list(brokers), replicas)
        self.workloads = self._new_workloads()
        self.world.on_iteration = self.invariants.check
        self.clients.on_response = self._responded
        self.clients.knows_stale_coordinators = self.invariants.knows_stale_coordinators
        self.responses: Counter[str] = Counter()

    def _new_workloads(self) -> dict[str, Workload]:
        ids = ProducerIds()
        process, partitions = self.clients, len(self.partitions)
        return {
            "topics": Topics(process, "topics"),
            "configs": Configs(process, "configs"),
            "producer-1": Producer(process, "producer-1", ids, partitions),
            "producer-2": Producer(process, "producer-2", ids, partitions),
            "transactions-1": Transactions(process, "transactions-1", ids, partitions),
            "transactions-2": Transactions(process, "transactions-2", ids, partitions),
            "group-1": GroupOffsets(process, "group-1", partitions),
            "group-2": GroupOffsets(process, "group-2", partitions),
        }

    def run(self) -> None:
        """Raises `SimulationError`."""
        load_modules()
        with without_collector(), self._installed():
            try:
                self._run()
            except Exception as error:
                raise SimulationError(self._description(error)) from error
            finally:
                self._release()

    def _run(self) -> None:
        for node in self.nodes.values():
            node.start()
        self._await("all nodes serve", lambda: all(node.serves for node in self.nodes.values()))
        self._do("the topic is created", create_topic(self.workloads["topics"], DATA_TOPIC, self.partitions))  # type: ignore[arg-type]
        for name, workload in self.workloads.items():
            self.clients.start(name, workload.run())
        self.faults.begin()
        self.world.run_until(self._has_failed, self.seconds)
        self._raise_failure()
        self.faults.end()
        self.clients.is_ending = True
        self._await("all clients end", lambda: not self.clients.unfinished)
        self._await("all nodes serve again", lambda: all(node.serves for node in self.nodes.values()))
        self._await("all replicas are in sync, and the first ones lead", self._is_balanced)
        self._await("all nodes agree", lambda: self.invariants.differences(self.nodes) is None)
        metadata = self.nodes[CONTROLLER].metadata
        assert metadata is not None
        for name, workload in self.workloads.items():
            self._do(f"{name} is checked", workload.check(metadata.image))

    def _is_balanced(self) -> bool:
        metadata = self.nodes[CONTROLLER].metadata
        return metadata is not None and all(
            set(partition.isr) == set(partition.replicas) and partition.leader == partition.replicas[0]
            for topic in metadata.image.topics_by_id.values()
            for partition in topic.partitions.values()
        )

    # Steps

    def _has_failed(self) -> bool:
        self.faults.restart_ended()
        return self.clients.failure is not None

    def _raise_failure(self) -> None:
        if self.clients.failure is not None:
            raise self.clients.failure

    def _await(self, what: str, condition: Any) -> None:
        self.world.run_until(lambda: self._has_failed() or condition(), HEALING_SECONDS)
        self._raise_failure()
        if not condition():
            waiting = [*self.clients.unfinished, *self.clients.pending.values()]
            raise AssertionError(f"it is not true that {what}; unfinished: {waiting}")
        self._log(what)

    def _do(self, what: str, work: Any) -> None:
        self.clients.start(what, work)
        self._await(what, lambda: what not in self.clients.unfinished)

    # Records of what happens

    def _log(self, event: str) -> None:
        line = f"{self.world.now - START_SECONDS:9.4f} {event}"
        self.events.append(line)
        self.digest.update(line.encode())

    def _responded(self, broker: int, request: Request, response: Any, began: float) -> None:
        self.responses[type(request).__name__] += 1
        self.digest.update(f"{self.world.now} {broker} {response}".encode())
        self.invariants.check_response(broker, request, response, began)

    def _description(self, error: Exception) -> str:
        command = f"python -m tests.simulation.cluster.simulation --seed {self.seed} --seconds {self.seconds:g}"
        command += " --eligible-leaders" if self.has_eligible_leaders else " --no-eligible-leaders"
        at = self.world.now - START_SECONDS
        events = "\n".join(self.events[-60:])
        return f"seed {self.seed}, after {at:.4f} s: {error!r}\nSee it again: {command}\nThe latest events:\n{events}"

    # The environment

    def _current_host(self) -> str:
        assert self.world.running is not None
        return self.world.running.address

    @contextmanager
    def _installed(self) -> Iterator[None]:
        logger = logging.getLogger("moldau")
        logger.addHandler(self.errors)
        try:
            with self.network.installed(), without_threads():
                yield
        finally:
            logger.removeHandler(self.errors)

    def _release(self) -> None:
        """End what is left of all processes: nothing of it may run later."""
        for node in self.nodes.values():
            if node.is_running:
                node.kill(power_lost=False)
        self.clients.loop.discard()
        for loop in (self.clients.loop, *(loop for loop, _ in self.world.dead)):
            loop.end_tasks()
        self.world.dead.clear()


@contextmanager
def without_collector() -> Iterator[None]:
    """Let Python release nothing during a simulation.

    What a process leaves unfinished, such as a request in slices, has code that runs when Python releases it. The seed
    does not determine the moment, and what this code logs means nothing.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        logging.disable(logging.CRITICAL)
        try:
            gc.collect()
        finally:
            logging.disable(logging.NOTSET)
            gc.enable()


def _replicas_of_partitions(brokers: list[int], count: int) -> dict[int, tuple[int, ...]]:
    """The replicas of each partition, the preferred leader first. There is one partition more than brokers."""
    number = len(brokers)
    return {
        partition: tuple(brokers[(partition + each) % number] for each in range(count))
        for partition in range(number + 1)
    }


def simulate(seed: int, seconds: float = SECONDS, *, has_eligible_leaders: bool | None = None) -> Cluster:
    """One run."""
    cluster = Cluster(seed, seconds, has_eligible_leaders=has_eligible_leaders)
    cluster.run()
    return cluster


def main() -> int:
    parser = argparse.ArgumentParser(description="Clusters of a controller and brokers under faults, from seeds.")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="virtual time with faults, in each")
    parser.add_argument(
        "--eligible-leaders",
        action=argparse.BooleanOptionalAction,
        help="with or without eligible leader replicas (default: in half of the seeds)",
    )
    parser.add_argument("--events", action="store_true", help="show the events of each run")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.seeds):
        cluster = simulate(seed, options.seconds, has_eligible_leaders=options.eligible_leaders)
        total += cluster.faults.counts + cluster.responses + cluster.invariants.eligible_leaders
        if options.events:
            print("\n".join(cluster.events))
        print(f"seed {seed}: {cluster.world.iterations} iterations, {cluster.digest.hexdigest()[:16]}", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(total.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())

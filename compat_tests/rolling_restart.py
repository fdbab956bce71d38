"""A rolling restart and a rolling upgrade of a cluster whose clients continue:

    python -m moldau.compat_tests.rolling_restart --rounds 3

A controller and three brokers, each in its own process. The cluster begins with the features of Apache Kafka 3.9. In
each round, the controller and then each broker is stopped (SIGTERM) and started again, as for new software; the next
one waits until all replicas are in sync, and until each partition has its preferred leader again. After the first
round, the features are raised to those of the newest release, as `kafka-features.sh upgrade --release-version` does.

The clients are an idempotent producer with acks=all for the partition of each broker, a transactional producer, a copy
that is exactly once, and one that creates topics and gets producer ids. Partitions have three replicas, two of which
must be in sync. All errors that clients see must be retriable. Every acknowledged record must exist once and in order,
and the copy must be equal to its source. Then a group with the new protocol reads everything.

The results contain times: how long the partitions were not acknowledged. They are reported and not checked: they depend
on what else the machine does.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import AdminClient, NewTopic

from moldau.compat_tests.cluster_kills import Outcome, distribution
from moldau.compat_tests.cluster_load import Group, Member, Pause, SlowTransactions, TimedWriter, TopicCreator
from moldau.compat_tests.exactly_once_copy import Copy
from moldau.compat_tests.kill_rounds import DEADLINE_S, Reader, Writer, WrongError, client_config, problems_of_verify
from moldau.log.files import RealFileSystem
from moldau.metadata.metadata_log import write_bootstrap_records
from moldau.metadata.outcome import Versioned
from moldau.metadata.records import FeatureLevelRecord
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.uuid import random_uuid, uuid_to_str
from moldau.testing.broker import Broker
from moldau.testing.controllers import CONTROLLER, Controller
from moldau.testing.joined_brokers import format_directory, joined_broker
from moldau.testing.servers import around_tracebacks
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

BROKERS = (1, 2, 3)

OLD_FEATURES = {"metadata.version": 21, "kraft.version": 1}
"""Those of a cluster of Apache Kafka 3.9."""

NEW_FEATURES = {"metadata.version": 30, "group.version": 1, "transaction.version": 2}

_CONFIG = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "auto.create.topics.enable": "false",
}

Upgrade = Callable[[str], None]
"""Raises the features of the cluster at this address to `NEW_FEATURES` or more."""


class RollingCluster:
    """The controller and the brokers, for the length of a ``with`` block."""

    def __init__(self, folder: Path) -> None:
        cluster_id = uuid_to_str(random_uuid())
        self.controller = Controller(folder)
        format_directory(cluster_id, self.controller.data_dir, CONTROLLER)
        levels = [FeatureLevelRecord(name=name, feature_level=level) for name, level in OLD_FEATURES.items()]
        write_bootstrap_records(
            RealFileSystem(), str(self.controller.data_dir), [Versioned(record) for record in levels]
        )
        controllers = {"controller.quorum.bootstrap.servers": self.controller.address}
        self.brokers: dict[int, Broker] = {}
        for node_id in BROKERS:
            directory = folder / f"broker-{node_id}"
            format_directory(cluster_id, directory, node_id)
            self.brokers[node_id] = joined_broker(directory, node_id, controllers, **_CONFIG)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.close)
            self.controller.start()
            for broker in self.brokers.values():
                broker.start()
            undo.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all nodes, the controller last."""
        for broker in self.brokers.values():
            broker.close()
        self.controller.stop()

    @property
    def addresses(self) -> list[str]:
        return [broker.bootstrap_servers for broker in self.brokers.values()]

    def features(self, broker: Broker) -> dict[str, int]:
        """The finalized levels, as a broker knows them."""
        with WireClient(broker.bootstrap_servers) as wire:
            response = wire.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
        return {each.name: each.max_version_level for each in response.finalized_features}

    def has_all_in_sync(self) -> bool:
        """Whether all replicas of topics with several are in sync, as all brokers know."""
        for address in self.addresses:
            with WireClient(address) as wire:
                topics = wire.call(MetadataRequest(topics=None)).topics
            if any(len(each.isr_nodes) < len(each.replica_nodes) for topic in topics for each in topic.partitions):
                return False
        return True

    def elect_preferred_leaders(self) -> None:
        with WireClient(self.addresses[0]) as wire:
            response = wire.call(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=30_000))
        if response.error_code:
            raise WrongError(f"ElectLeaders: {ErrorCode(response.error_code).name}")


class Clients:
    """All clients, and what they have measured."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.address = ",".join(addresses)
        self.topics = [f"on-{broker}" for broker in BROKERS]
        self._create_topics()
        self.timed = [TimedWriter(self.address, topic) for topic in self.topics]
        self.copy = Copy(self.address, self.topics[0], "copy")
        self.transactions = SlowTransactions(self.address, "transactions", len(BROKERS))
        self.creator = TopicCreator(self.address)
        self.all: list[Writer] = [*self.timed, self.copy, self.transactions, self.creator]

    def _create_topics(self) -> None:
        rotated = [[(first - 1 + each) % 3 + 1 for each in range(3)] for first in BROKERS]
        assignments = {topic: [rotated[number]] for number, topic in enumerate(self.topics)}
        assignments |= {"copy": [rotated[1]], "transactions": rotated}
        wanted = [
            NewTopic(name, len(replicas), replica_assignment=replicas, config={"min.insync.replicas": "2"})
            for name, replicas in assignments.items()
        ]
        admin = AdminClient(client_config(self.address))
        for future in admin.create_topics(wanted).values():
            future.result(DEADLINE_S)

    def check_alive(self) -> None:
        for writer in self.all:
            writer.check_alive()

    def wait_until(self, condition: Callable[[], Any]) -> None:
        def checked() -> Any:
            self.check_alive()
            return condition()

        wait_until(checked, seconds=DEADLINE_S, state=lambda: "\n".join(self.table()))

    def wait_for_progress(self) -> None:
        """Return when every client has been acknowledged something after this call, except the one that creates topics:
        it waits for a certain broker to get a producer id."""
        clients = [writer for writer in self.all if writer is not self.creator]
        before = [writer.written for writer in clients]
        self.wait_until(lambda: all(writer.written > count for writer, count in zip(clients, before, strict=True)))

    def longest_pause(self, broker: int, since: float) -> float:
        """Of the partition whose preferred leader is this broker; 0 if all were below 0.1 s."""
        return _longest(self.timed[broker - 1].pauses, since)

    def longest_pause_of_others(self, broker: int, since: float) -> float:
        return max(self.longest_pause(each, since) for each in BROKERS if each != broker)

    def stop_and_check(self) -> None:
        """Stop all clients, and compare what is read with what was acknowledged."""
        for writer in self.timed:
            writer.stop()
        copied = self.timed[0].snapshot()[0] + 1
        self.wait_until(lambda: self.copy.written >= copied)
        for client in self.all[len(self.timed) :]:
            client.stop()
        reader = Reader(self.address)
        for client in self.all:
            client.check_again()
            client.check(reader, client.snapshot())
        reader.close()
        self._read_with_the_new_protocol()

    def _read_with_the_new_protocol(self) -> None:
        group = Group("after", "consumer", self.topics)
        member = Member(self.address, group, 0)
        member.start()
        ends = {writer.topic: writer.snapshot()[0] + 1 for writer in self.timed}

        def has_read() -> bool:
            member.check_alive()
            return all(group.progress[topic].next >= end for topic, end in ends.items())

        try:
            self.wait_until(has_read)
        finally:
            member.stop()

    def table(self) -> list[str]:
        """A line for each kind of client."""
        transactions, creator = self.transactions, self.creator
        return [
            f"idempotent producers: {', '.join(str(writer.written) for writer in self.timed)} records",
            self.copy.line(),
            f"transactional producer: {len(transactions.committed)} committed, {len(transactions.aborted)} aborted",
            f"{len(creator.created)} topics created; retried: {dict(creator.errors) or 'none'}",
        ]


def _longest(pauses: Iterable[Pause], since: float) -> float:
    return max((pause.seconds for pause in pauses if pause.end > since), default=0.0)


def upgrade_by_request(address: str) -> None:
    """Raise the features with one UpdateFeatures request."""
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=1) for name, level in NEW_FEATURES.items()
    ]
    with WireClient(address) as wire:
        response = wire.call(UpdateFeaturesRequest(feature_updates=updates, timeout_ms=60_000))
    if response.error_code:
        raise WrongError(f"UpdateFeatures: {response.error_message}")


def roll(rounds: int, upgrade: Upgrade = upgrade_by_request, report: Callable[[str], None] = print) -> Outcome:
    """Restart each node in each round. The features are raised after the first round."""
    stopped: list[float] = []
    others: list[float] = []
    elections: list[float] = []
    controllers: list[float] = []
    with tempfile.TemporaryDirectory(prefix="rolling-restart-") as name:
        folder = Path(name)
        with RollingCluster(folder) as cluster:
            clients = Clients(cluster.addresses)
            clients.wait_until(cluster.has_all_in_sync)
            for writer in clients.all:
                writer.start()
            clients.wait_for_progress()
            for number in range(1, rounds + 1):
                at = time.monotonic()
                cluster.controller.stop()
                cluster.controller.start()
                clients.wait_for_progress()
                controllers.append(max(clients.longest_pause(broker, at) for broker in BROKERS))
                for broker_id, broker in cluster.brokers.items():
                    at = time.monotonic()
                    broker.stop()
                    clients.wait_for_progress()
                    stopped.append(clients.longest_pause(broker_id, at))
                    others.append(clients.longest_pause_of_others(broker_id, at))
                    broker.start()
                    clients.wait_until(cluster.has_all_in_sync)
                    at = time.monotonic()
                    cluster.elect_preferred_leaders()
                    clients.wait_for_progress()
                    elections.append(clients.longest_pause(broker_id, at))
                report(f"round {number}: {'; '.join(clients.table())}")
                if number == 1:
                    _raise_features(cluster, clients, upgrade)
            clients.stop_and_check()
            logs = "".join(broker.log() for broker in cluster.brokers.values()) + cluster.controller.log()
        lines = [
            f"{rounds} rounds, each with a restart of the controller and of {len(BROKERS)} brokers",
            f"a stopped broker's partition was not acknowledged (0: below 0.1 s): {distribution(stopped)}",
            f"others meanwhile: {distribution(others)}",
            f"when the broker leads again: {distribution(elections)}",
            f"any partition, while the controller restarts: {distribution(controllers)}",
            *clients.table(),
        ]
        problems = [f"a log: {around_tracebacks(logs)}"] if "Traceback" in logs else []
        for node_id in BROKERS:
            problems += problems_of_verify(folder / f"broker-{node_id}")
        return Outcome(rounds, lines, problems)


def _raise_features(cluster: RollingCluster, clients: Clients, upgrade: Upgrade) -> None:
    for broker in cluster.brokers.values():
        found = cluster.features(broker)
        if found.get("metadata.version") != OLD_FEATURES["metadata.version"]:
            raise WrongError(f"the cluster does not begin with {OLD_FEATURES}: {found}")
    upgrade(cluster.addresses[-1])
    for broker in cluster.brokers.values():
        clients.wait_until(
            lambda broker=broker: NEW_FEATURES.items() <= cluster.features(broker).items()  # type: ignore[misc]
        )
    clients.wait_for_progress()


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m moldau.compat_tests.rolling_restart", description="Restart all nodes under load."
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(None if arguments is None else list(arguments))
    try:
        outcome = roll(options.rounds, report=lambda line: print(line, flush=True))
    except WrongError as error:
        print(f"wrong: {error}", file=sys.stderr)
        return 1
    print("\n".join(outcome.lines))
    for problem in outcome.problems[:20]:
        print(problem, file=sys.stderr)
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""A cluster of a controller and two brokers, each of which is Apache Kafka or Moldau.

The controller is node 3000. The brokers are nodes 1 and 2, and have the same settings whatever they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple, Self

from moldau.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.broker import Broker
from moldau.testing.controllers import CONTROLLER, ApacheBroker, Controller
from moldau.testing.joined_brokers import format_directory, joined_broker
from moldau.testing.topic_requests import wait_for_topic
from moldau.testing.wire import WireClient

BROKERS: Final = (1, 2)

_CONTROLLER_CONFIG: Final = {
    # A busy machine must not fence a broker, and leaders only move when the test moves them.
    "broker.session.timeout.ms": "20000",
    "auto.leader.rebalance.enable": "false",
}
_BROKER_CONFIG: Final = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "broker.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
    # A follower that waits for a core is not out of sync.
    "replica.lag.time.max.ms": "60000",
    "initial.broker.registration.timeout.ms": "120000",
}


class Nodes(NamedTuple):
    """Which of the nodes are Moldau."""

    controller: bool
    first: bool
    second: bool

    @property
    def has_different_brokers(self) -> bool:
        """Whether one broker is Apache Kafka and the other Moldau."""
        return self.first != self.second

    def __str__(self) -> str:
        return "-".join("moldau" if each else "apache" for each in self)


class SwappedCluster:
    """The three nodes, running for the length of a ``with`` block. ``folder`` gets their directories."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        self.nodes = nodes
        self._folder = folder
        self._resources = ExitStack()
        self._brokers: dict[int, ApacheBroker | Broker] = {}
        self._running: set[int] = set()
        self._barriers = 0

    def __enter__(self) -> Self:
        try:
            address, cluster_id = self._start_controller()
            for node_id, is_moldau in zip(BROKERS, self.nodes[1:], strict=True):
                self._start_broker(node_id, address, cluster_id, is_moldau=is_moldau)
        except BaseException:
            self._resources.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._resources.close()

    def _start_controller(self) -> tuple[str, str]:
        """Its address, and the id of the cluster."""
        folder = self._folder / "controller"
        folder.mkdir()
        if self.nodes.controller:
            controller = Controller(folder, **_CONTROLLER_CONFIG)
            self._resources.callback(controller.stop)
            controller.start()
            return controller.address, controller.cluster_id
        config = {"node.id": str(CONTROLLER), **_CONTROLLER_CONFIG}
        apache = self._resources.enter_context(ApacheKafka(config, parent=folder, roles="controller", heap_mb=256))
        return apache.controllers, apache.cluster_id

    def _start_broker(self, node_id: int, address: str, cluster_id: str, *, is_moldau: bool) -> None:
        folder = self._folder / f"broker-{node_id}"
        folder.mkdir()
        broker: ApacheBroker | Broker
        if is_moldau:
            format_directory(cluster_id, folder / "data", node_id)
            controllers = {"controller.quorum.bootstrap.servers": address}
            moldau = joined_broker(folder / "data", node_id, controllers, **_BROKER_CONFIG)
            broker = self._resources.enter_context(moldau)
        else:
            apache = ApacheBroker(address, cluster_id, folder, node_id, **_BROKER_CONFIG)
            broker = self._resources.enter_context(apache)
        self._brokers[node_id] = broker
        self._running.add(node_id)

    @property
    def running(self) -> list[int]:
        """The running brokers."""
        return sorted(self._running)

    def address(self, node_id: int) -> str:
        """``host:port`` of a broker."""
        return self._brokers[node_id].bootstrap_servers

    def stop(self, node_id: int) -> None:
        """Stop a broker cleanly."""
        self._running.remove(node_id)
        self._brokers[node_id].stop()

    def start(self, node_id: int) -> None:
        """Start a stopped broker."""
        self._brokers[node_id].start()
        self._running.add(node_id)

    def create_topic(
        self, name: str, replicas: Sequence[Sequence[int]], *, via: int | None = None, **config: str
    ) -> CreateTopicsResponse:
        """Create a topic with these replicas by partition; return when the running brokers lead its partitions."""
        address = self.address(via or self.running[0])
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(each))
            for index, each in enumerate(replicas)
        ]
        requested = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=assignments,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
        )
        with WireClient(address) as wire:
            response: CreateTopicsResponse = wire.call(CreateTopicsRequest(topics=[requested], timeout_ms=60_000), 7)
        assert response.topics[0].error_code == 0, response
        wait_for_topic(address, name, len(replicas))
        return response

    def catch_up(self) -> None:
        """Return when each running broker has applied all changes that its metadata responses show now.

        Apache Kafka's broker shows a change before its replicas follow it. Both apply changes in order, so a topic
        that is created now, and is led, comes after all of them.
        """
        self._barriers += 1
        self.create_topic(f"barrier-{self._barriers}", [[node_id] for node_id in self.running])

    def log(self, node_id: int, topic: str, partition: int) -> bytes:
        """The first segment of a replica, as it is in the file."""
        path = self._brokers[node_id].data_dir / f"{topic}-{partition}" / "00000000000000000000.log"
        return path.read_bytes()

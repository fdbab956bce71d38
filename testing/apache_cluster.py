"""A cluster of Apache Kafka, and brokers of Moldau under Apache Kafka's controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.broker import Broker
from moldau.testing.joined_brokers import format_directory, joined_broker
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

CONTROLLER: Final = 3000

_HEAP_MB: Final = 400


class ApacheCluster:
    """Several brokers of Apache Kafka for the length of a ``with`` block. Broker 1 is also the controller.

    It calibrates what concerns several brokers, as `ApacheKafka` does for one. Its internal topics have one partition
    per broker and one replica, as those of `Cluster`. ``config`` overrides settings of all brokers, and
    ``jvm_options`` replaces all options of their JVMs. ``parent``: see `ApacheKafka`.
    """

    def __init__(
        self,
        brokers: int = 3,
        config: Mapping[str, str] | None = None,
        *,
        jvm_options: Sequence[str] | None = None,
        parent: Path | None = None,
    ) -> None:
        self._jvm_options = jvm_options
        self._parent = parent
        self._config = {
            "offsets.topic.num.partitions": str(brokers),
            "transaction.state.log.num.partitions": str(brokers),
            "share.coordinator.state.topic.num.partitions": str(brokers),
            **(config or {}),
        }
        self._count = brokers
        self._resources = ExitStack()
        self._brokers: dict[int, ApacheKafka] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.bootstrap_servers for broker in self._brokers.values())

    def broker(self, broker_id: int) -> ApacheKafka:
        """One broker."""
        return self._brokers[broker_id]

    def __enter__(self) -> Self:
        try:
            first = self._resources.enter_context(
                ApacheKafka(self._config, heap_mb=_HEAP_MB, jvm_options=self._jvm_options, parent=self._parent)
            )
            self._brokers[1] = first
            for node_id in range(2, self._count + 1):
                self._brokers[node_id] = self._resources.enter_context(
                    ApacheKafka(
                        {**self._config, "node.id": str(node_id)},
                        cluster_id=first.cluster_id,
                        roles="broker",
                        controllers=first.controllers,
                        heap_mb=_HEAP_MB,
                        jvm_options=self._jvm_options,
                        parent=self._parent,
                    )
                )
            for broker in self._brokers.values():
                with WireClient(broker.bootstrap_servers) as wire:
                    wait_until(lambda wire=wire: len(wire.call(DescribeClusterRequest()).brokers) == self._count)  # type: ignore[misc]
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all nodes. The end of ``with``."""
        self._resources.close()


def apache_controller() -> ApacheKafka:
    """A controller of Apache Kafka that is not a broker."""
    # A busy machine must not fence a broker: it would lose its leaderships for a moment.
    config = {"node.id": str(CONTROLLER), "broker.session.timeout.ms": "30000"}
    return ApacheKafka(config, roles="controller", heap_mb=_HEAP_MB)


def broker_of(controller: ApacheKafka, directory: Path, node_id: int = 1, **config: str) -> Broker:
    """A broker of Moldau, not started yet, with a new directory, under a controller of Apache Kafka."""
    format_directory(controller.cluster_id, directory, node_id)
    return joined_broker(directory, node_id, {"controller.quorum.bootstrap.servers": controller.controllers}, **config)

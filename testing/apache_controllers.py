"""Several controllers of Apache Kafka, without brokers: a quorum whose members can be killed.

    with ApacheControllers(3, folder) as controllers, controllers.broker(node_id=2) as broker:
        with WireClient(broker.bootstrap_servers) as wire:
            controllers.kill(controllers.active(wire))

The broker is Moldau's. The controllers are static voters (kraft.version 0), with the ids 100, 101 and so on.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from moldau.testing.apache_kafka import ApacheKafka, Quorum, free_ports, new_id
from moldau.testing.broker import Broker
from moldau.testing.joined_brokers import format_directory, joined_broker
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

FIRST_ID = 100
_HEAP_MB = 256
_START_SECONDS = 240
_METADATA_LOG = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])


class ApacheController(ApacheKafka):
    """One of several controllers of Apache Kafka."""

    def __init__(self, node_id: int, voters: Mapping[int, str], cluster_id: str, parent: Path) -> None:
        super().__init__(
            {"node.id": str(node_id), "broker.session.timeout.ms": "9000"},
            roles="controller",
            quorum=Quorum.STATIC,
            parent=parent,
            cluster_id=cluster_id,
            heap_mb=_HEAP_MB,
        )
        self._address = voters[node_id]
        self._voters = _voters(voters)

    def _write_properties(self, controller_port: int) -> None:
        super()._write_properties(controller_port)
        settings = dict(line.split("=", 1) for line in self.properties.read_text().splitlines())
        listeners = f"CONTROLLER://{self._address}"
        settings |= {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.quorum.voters": self._voters,
        }
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


class ApacheControllers:
    """A quorum of this many controllers; their data is in ``folder``."""

    def __init__(self, count: int, folder: Path) -> None:
        self._folder = folder
        self.addresses = {FIRST_ID + number: f"127.0.0.1:{port}" for number, port in enumerate(free_ports(count))}
        self.cluster_id = new_id()
        self._controllers = {
            node_id: ApacheController(node_id, self.addresses, self.cluster_id, folder) for node_id in self.addresses
        }

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for controller in self._controllers.values():
                stack.callback(controller.close)
                controller.prepare()
            for started in [controller.launch() for controller in self._controllers.values()]:
                if not started.wait(_START_SECONDS):
                    raise RuntimeError("a controller of Apache Kafka did not start")
            self._resources = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._resources.close()

    @property
    def voters(self) -> str:
        """``controller.quorum.voters``."""
        return _voters(self.addresses)

    def broker(self, node_id: int, **config: str) -> Broker:
        """A broker of Moldau that joins these controllers, with a directory that is formatted for them."""
        directory = self._folder / f"broker-{node_id}"
        format_directory(self.cluster_id, directory, node_id)
        return joined_broker(directory, node_id, {"controller.quorum.voters": self.voters}, **config)

    def kill(self, node_id: int) -> None:
        """``kill -9``."""
        self._controllers[node_id].kill()

    def launch(self, node_id: int) -> threading.Event:
        """Start a killed controller again; the event is set when it is ready."""
        return self._controllers[node_id].launch()

    def active(self, wire: WireClient) -> int:
        """The active controller, which has served this request itself, through a broker. Waits until there is one."""
        return wait_until(lambda: _active(wire))


def _active(wire: WireClient) -> int | None:
    response = wire.call(DescribeQuorumRequest(topics=[_METADATA_LOG]))
    return None if response.error_code else response.topics[0].partitions[0].leader_id


def _voters(addresses: Mapping[int, str]) -> str:
    return ",".join(f"{node_id}@{address}" for node_id, address in addresses.items())

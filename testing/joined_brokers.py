"""Brokers of Moldau that join a cluster whose controllers are other processes, and the directories of such brokers."""

from __future__ import annotations

from pathlib import Path

from moldau.protocol.uuid import random_uuid, uuid_to_str
from moldau.testing.broker import Broker


def cluster_id_of(directory: Path) -> str:
    """The cluster to which a formatted directory belongs."""
    lines = (directory / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)["cluster.id"]


def format_directory(cluster_id: str, directory: Path, node_id: int) -> None:
    """Create a directory for a node of a cluster, which may be one of Apache Kafka."""
    directory.mkdir(exist_ok=True)
    content = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": uuid_to_str(b"\0" + random_uuid()[1:]),
    }
    (directory / "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in content.items()))


def joined_broker(directory: Path, node_id: int, controllers: dict[str, str], **config: str) -> Broker:
    """A broker, not started yet, with a formatted directory. ``controllers``: the setting that has their addresses."""
    settings = {
        "process.roles": "broker",
        "node.id": str(node_id),
        "broker.heartbeat.interval.ms": "500",
        **controllers,
        **config,
    }
    return Broker(config=settings, data_dir=directory, timeout_s=120)

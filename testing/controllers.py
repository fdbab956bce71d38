"""A controller of Moldau as a separate process, and brokers of Apache Kafka that join it, for tests."""

import sys
from pathlib import Path

from moldau.testing.apache_kafka import ApacheKafka, free_ports
from moldau.testing.joined_brokers import cluster_id_of, format_directory
from moldau.testing.server_process import ServerProcess

CONTROLLER = 3000


class Controller:
    """`moldau serve` with process.roles=controller. It keeps its address and its data."""

    def __init__(self, folder: Path, **config: str) -> None:
        self._folder = folder
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self._config = {
            "process.roles": "controller",
            "node.id": str(CONTROLLER),
            "listeners": f"CONTROLLER://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.address,
            "broker.session.timeout.ms": "6000",
            **config,
        }
        self._run: ServerProcess | None = None

    @property
    def data_dir(self) -> Path:
        return self._folder / "controller"

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the node."""
        return {**self._config, "log.dirs": str(self.data_dir)}

    @property
    def cluster_id(self) -> str:
        return cluster_id_of(self.data_dir)

    def start(self) -> None:
        command = [sys.executable, "-m", "moldau", "serve", "--exit-with-stdin", "--data-dir", str(self.data_dir)]
        for name, value in self._config.items():
            command += ["--set", f"{name}={value}"]
        self._run = ServerProcess(command, self._folder / "controller.log")
        assert self._run.wait_ready(60) == self.address

    def stop(self) -> None:
        if self._run is not None:
            self._run.stop(60)
            self._run = None

    def kill(self) -> None:
        assert self._run is not None
        self._run.kill()
        self._run = None

    def log(self) -> str:
        return (self._folder / "controller.log").read_text()


class ApacheBroker(ApacheKafka):
    """A broker of Apache Kafka without the controller role."""

    def __init__(self, controller: str, cluster_id: str, folder: Path, node_id: int, **config: str) -> None:
        super().__init__(
            {"node.id": str(node_id), **config},
            data_dir=folder / "apache",
            parent=folder,
            roles="broker",
            controllers=controller,
        )
        format_directory(cluster_id, folder / "apache", node_id)

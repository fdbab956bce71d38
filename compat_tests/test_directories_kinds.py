"""Every kind of directory that a single node of Apache Kafka has: Moldau serves it, and then Apache Kafka again.

Kinds differ in how the quorum was formatted, in the node's id, in how many log directories there are and in which one
the metadata log is. Moldau gets only the directory, or Apache Kafka's own server.properties.
Directories formatted with ``--standalone`` are in `test_directories`.
"""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.compat_tests.test_directories import begin, continue_writing, end
from moldau.metadata.checkpoint import decode_snapshot
from moldau.metadata.records import ConfigRecord, TopicRecord
from moldau.testing import Broker, BrokerError
from moldau.testing.apache_kafka import ApacheKafka, Quorum
from moldau.testing.full_run import in_full_run
from moldau.testing.waiting import wait_until

pytestmark = pytest.mark.usefixtures("both_servers")


class ConfiguredBroker(Broker):
    """``moldau serve --config server.properties``, without other options."""

    def __init__(self, properties: Path) -> None:
        super().__init__()
        self._properties = properties

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "moldau", "serve", "--exit-with-stdin", "--config", str(self._properties)]


class Kind(NamedTuple):
    """The differences; "DIR" in a setting stands for the folder that contains all directories."""

    quorum: Quorum = Quorum.STANDALONE
    config: Mapping[str, str] = {}
    metadata: str = "data"

    def open(self, folder: Path) -> ApacheKafka:
        settings = {name: text.replace("DIR", str(folder)) for name, text in self.config.items()}
        return ApacheKafka(settings, data_dir=folder / self.metadata, quorum=self.quorum)


KINDS = {
    "initial controllers": Kind(Quorum.INITIAL_CONTROLLERS),
    # The official image formats its folder so, and calls it so.
    "static voters": Kind(Quorum.STATIC, metadata="kraft-combined-logs"),
    "another node id": Kind(config={"node.id": "42"}),
    "two directories": Kind(Quorum.STATIC, config={"log.dirs": "DIR/data,DIR/more"}),
    "metadata elsewhere": Kind(config={"log.dirs": "DIR/more,DIR/others", "metadata.log.dir": "DIR/data"}),
    "metadata in the second": Kind(
        Quorum.STATIC, config={"log.dirs": "DIR/more,DIR/data", "metadata.log.dir": "DIR/data", "node.id": "3000"}
    ),
}
# Combines the other kinds, except the initial controllers.
OF_ALL_SORTS = "metadata in the second"


@pytest.mark.slow
@pytest.mark.parametrize("name", [OF_ALL_SORTS, *in_full_run(*(name for name in KINDS if name != OF_ALL_SORTS))])
@pytest.mark.full
def test_to_and_fro(tmp_path: Path, name: str) -> None:
    kind = KINDS[name]
    with ExitStack() as resources:
        apache = resources.enter_context(kind.open(tmp_path))
        topic = begin(apache)
        end(apache, "kill" if len(name) % 2 else "stop")
        count = 50
        directory_is_enough = "log.dirs" not in kind.config
        for way in ("stop", "kill"):
            moldau = Broker(data_dir=apache.data_dir) if directory_is_enough else ConfiguredBroker(apache.properties)
            with moldau as server:
                count = continue_writing(server, topic, count)
                end(server, way)
            directory_is_enough = False
            apache.start()
            count = continue_writing(apache, topic, count)
            end(apache, way)
        assert count == 90
        assert "-stray" not in apache.log()
    assert list(tmp_path.glob("*/*-stray")) == []


def test_a_directory_that_apache_kafka_has_in_use(tmp_path: Path) -> None:
    with ApacheKafka(data_dir=tmp_path / "data") as apache:
        with pytest.raises(BrokerError, match=r"data is in use: another broker holds its \.lock"):
            Broker(data_dir=apache.data_dir).start()
        continue_writing(apache, begin(apache), 50)


def test_a_directory_that_we_have_in_use(tmp_path: Path) -> None:
    """Apache Kafka finds it locked, but only after its controller has written into the metadata log."""
    with Broker(data_dir=tmp_path / "data") as server:
        topic = begin(server)
        apache = ApacheKafka(data_dir=server.data_dir)
        apache.prepare()
        try:
            apache.launch()
            refusal = "A Kafka instance in another process or thread is using this directory"
            wait_until(lambda: refusal in apache.log(), "that Apache Kafka refuses the directory")
            apache.kill()  # its shutdown hangs now and then
            count = continue_writing(server, topic, 50)
            server.restart()
            count = continue_writing(server, topic, count)
            server.stop()
            apache.start()
            continue_writing(apache, topic, count)
        finally:
            apache.close()


def test_a_metadata_log_of_which_only_the_snapshot_remains(tmp_path: Path) -> None:
    """As retention leaves it, which Apache Kafka does once a minute: everything before the snapshot is cut off."""
    settings = {"metadata.log.max.record.bytes.between.snapshots": "1"}
    with ApacheKafka(settings, data_dir=tmp_path / "data") as apache:
        topic = begin(apache)
        log = apache.data_dir / "__cluster_metadata-0"
        kinds: set[str] = set()

        def has_everything() -> bool:
            latest = max(log.glob("*.checkpoint"))
            found = decode_snapshot(latest.read_bytes(), name=latest.name).records
            kinds.update(type(record).__name__ for record in found)
            created = {record.name for record in found if isinstance(record, TopicRecord)}
            configured = {record.resource_name for record in found if isinstance(record, ConfigRecord)}
            return topic.name in created & configured

        wait_until(has_everything, "a snapshot with the topic")
        apache.kill()
        assert kinds >= {"FeatureLevelRecord", "RegisterBrokerRecord", "RegisterControllerRecord", "PartitionRecord"}
        for path in log.iterdir():
            if path.suffix in (".log", ".index", ".timeindex", ".snapshot") or path.name == "leader-epoch-checkpoint":
                path.unlink()
        with Broker(data_dir=apache.data_dir) as server:
            count = continue_writing(server, topic, 50)
        apache.start()
        continue_writing(apache, topic, count)

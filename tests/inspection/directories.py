"""A log directory with all kinds of files, created by the server's own storage on the in-memory file system."""

from __future__ import annotations

from typing import Any

from moldau.config.broker_config import BrokerConfig, Listener
from moldau.log.memory_files import MemoryFileSystem
from moldau.log.producer_state import EndTransactionMarker, build_end_transaction_marker
from moldau.log.verification import DISABLED
from moldau.metadata.quorum import Metadata
from moldau.protocol.compression import Codec
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.records import Record, build_batch
from moldau.server.storage.log_configs import topic_log_config
from moldau.server.storage.opening import open_storage

NOW = 1_700_000_000_000
DIRECTORY = "/data"
TOPICS = {"plain": {}, "transactions": {}, "compacted": {"cleanup.policy": "compact"}}


class Storage:
    """The storage of one broker, without a network."""

    def __init__(self, file_system: Any, *directories: Any, cluster_id: Any = None) -> None:
        self.file_system = file_system
        self.now_ms = NOW
        self.config = BrokerConfig({})
        self.directories = list(directories or (DIRECTORY,))
        self.open()

    def open(self) -> Any:
        listeners = [Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT")]
        self.storage = open_storage(
            self.config, self.directories, listeners, now_ms=self.now_ms, file_system=self.file_system
        )
        return self

    def create(self, topic: str, configs: Any, *, partitions: int = 1) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
                )
            ]
        )
        metadata = self.storage.metadata
        assert isinstance(metadata, Metadata)
        (result,) = metadata.request(request, now_ms=self.now_ms).topics
        assert result.error_code == 0
        registered = self.storage.metadata.image.topics_by_name[topic]
        for number, registration in registered.partitions.items():
            self.storage.log_manager.get_or_create(
                topic,
                registered.topic_id,
                number,
                topic_log_config(configs, self.config),
                now_ms=self.now_ms,
                directory_id=registration.directories[0],
            )

    def log(self, topic: str, partition: int = 0) -> Any:
        return self.storage.log_manager.get(topic, partition)

    def append(self, topic: str, *values: Any, partition: int = 0, **fields: Any) -> Any:
        self.now_ms += 10
        registration = self.storage.metadata.image.partition(topic, partition)
        records = [Record(0, self.now_ms + n, b"key %d" % n, value) for n, value in enumerate(values)]
        return self.log(topic, partition).append(
            build_batch(records, **fields),
            now_ms=self.now_ms,
            leader_epoch=registration.leader_epoch,  # type: ignore[union-attr]
            verification=DISABLED,
        )

    def end_transaction(self, topic: str, producer_id: int, *, committed: Any) -> None:
        self.now_ms += 10
        log = self.log(topic)
        marker = build_end_transaction_marker(
            producer_id,
            0,
            EndTransactionMarker(committed, 3),
            offset=log.log_end_offset,
            leader_epoch=0,
            now_ms=self.now_ms,
        )
        epoch = self.storage.metadata.image.partition(topic, 0).leader_epoch  # type: ignore[union-attr]
        log.append(marker, now_ms=self.now_ms, leader_epoch=epoch, client=False)

    def high_watermarks(self) -> dict[Any, Any]:
        return {(log.topic, log.partition): log.log_end_offset for log in self.storage.log_manager.logs()}

    def stop(self) -> None:
        self.storage.close(self.now_ms, self.high_watermarks())

    def kill(self) -> None:
        self.storage.log_manager.flush_checkpoints(self.high_watermarks())
        self.storage.abandon()


def fill(storage: Any) -> None:
    """Three segments in each partition, every codec, producers, transactions."""
    for topic, configs in TOPICS.items():
        storage.create(topic, {**configs, "index.interval.bytes": "200"})
    for part in range(3):
        for number in range(4):
            sequence = part * 8 + number * 2
            producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            codec = tuple(Codec)[(part + number) % 5]
            storage.append("plain", b"value %d" % number * 20, b"second" * 30, codec=codec, **producer)
            storage.append("compacted", b"value" * 30, b"second", codec=codec, **producer)
        for number in range(3):
            sequence = part * 3 + number
            storage.append(
                "transactions",
                b"in a transaction" * 10,
                producer_id=9,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
            storage.end_transaction("transactions", 9, committed=number == 1)
        storage.append("transactions", b"alone" * 40, producer_id=20 + part, producer_epoch=0, base_sequence=0)
        if part < 2:
            for topic in TOPICS:
                storage.log(topic).roll(storage.now_ms)
    open_one = {"producer_id": 40, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    storage.append("transactions", b"open", **open_one)


def clean_directory() -> Any:
    """After two runs and two clean stops: two leader epochs."""
    storage = Storage(MemoryFileSystem(recording=False))
    fill(storage)
    storage.stop()
    storage.open()
    for topic in TOPICS:
        storage.append(topic, b"of another leader")
    storage.log("plain").delete_records_before(3)
    storage.stop()
    return storage.file_system


def files_of(file_system: Any) -> Any:
    """The content of each file by its path."""
    found = {}

    def walk(directory: Any) -> None:
        names, directories = file_system.list_directory(directory)
        for name in names:
            found[f"{directory}/{name}"] = file_system.read_file(f"{directory}/{name}")
        for name in directories:
            walk(f"{directory}/{name}")

    walk(DIRECTORY)
    return found


def overwrite(file_system: Any, path: str, data: Any) -> None:
    """Put these bytes in place of a file's content."""
    file = file_system.open(path)
    file.truncate(0)
    file.write_at((data,), 0, len(data))
    file.close()

"""A partition under test, on the real and on the in-memory file system, and helpers that create batches."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.log.config import LogConfig
from moldau.log.descriptors import DescriptorCache
from moldau.log.files import FileSystem, RealFileSystem
from moldau.log.memory_files import MemoryFileSystem
from moldau.log.partition_loading import load_log
from moldau.log.partition_log import AppendInfo, Log
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.records import Record, build_batch, iter_batches, iter_records
from moldau.testing import jvm
from moldau.testing.dump_tool import COMPLAINTS
from moldau.testing.requirements import require_kafka_jars, require_program

NOW = 1_700_000_000_000
_KAFKA_LOG = Path(__file__).parent / "java" / "KafkaLog.java"


def make_batch(*values: bytes | Record | None, timestamp: int = NOW, **fields: Any) -> bytes:
    """A batch of records with these values, all at `timestamp`."""
    records = [v if isinstance(v, Record) else Record(0, timestamp, None, v) for v in values or (b"value",)]
    return build_batch(records, **fields)


def make_producer_batch(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, **fields: Any) -> bytes:
    """A batch of an idempotent producer."""
    values = [b"%04d" % (sequence + index) for index in range(count)]
    return make_batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


class Partition:
    """One partition's directory, and the log that is open on it."""

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self.file_system: Any = file_system
        self.directory = directory
        self.config = LogConfig()
        self.now_ms = NOW
        self.leader_epoch = 1
        self.max_open_files = 64
        self.log: Log
        file_system.make_directory(directory)
        self.open()

    def open(
        self,
        *,
        clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        compacted_until: int | None = None,
    ) -> Log:
        self.files = DescriptorCache(self.file_system, self.max_open_files)
        self.log = load_log(
            self.files,
            self.directory,
            "topic",
            0,
            self.config,
            clean=clean,
            now_ms=self.now_ms,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            compacted_until=compacted_until,
        )
        return self.log

    def reopen(self, *, clean: bool = True, recovery_point: int = 0, log_start_offset: int = 0) -> Log:
        """Stop, cleanly or as kill -9 does, and start again."""
        if clean:
            self.log.close(self.now_ms)
        self.files.close()
        if not clean and isinstance(self.file_system, MemoryFileSystem):
            self.file_system = self.file_system.crash()
        return self.open(clean=clean, recovery_point=recovery_point, log_start_offset=log_start_offset)

    def configure(self, **settings: Any) -> None:
        self.config = self.config._replace(**settings)
        self.log.update_config(self.config)

    def append(self, data: bytes | None = None, **arguments: Any) -> AppendInfo:
        return self.log.append(
            make_batch() if data is None else data,
            **{"now_ms": self.now_ms, "leader_epoch": self.leader_epoch} | arguments,
        )

    def append_values(self, *values: bytes, **fields: Any) -> None:
        """One batch for each value."""
        for value in values:
            self.append(make_batch(value, **fields))

    def refused(self, data: bytes, **arguments: Any) -> KafkaError:
        """The error of an append; the log must be unchanged."""
        before = (self.log.log_end_offset, self.log.size, list(map(repr, self.log.producers)))
        with pytest.raises(KafkaError) as caught:
            self.append(data, **arguments)
        assert (self.log.log_end_offset, self.log.size, list(map(repr, self.log.producers))) == before
        return caught.value

    def fetch(self, offset: int, max_bytes: int = 1 << 30, **arguments: Any) -> bytes:
        """The bytes that a consumer is sent."""
        found = self.log.read(
            offset, max_bytes, **{"max_offset": self.log.log_end_offset, "min_one_batch": True} | arguments
        )
        if found.records is None:
            return b""
        with found.records as records:
            data = records.read()
        assert len(data) == found.records.length
        return data

    def records(self, offset: int | None = None) -> list[Record]:
        """All records from `offset` on, read as a consumer reads them."""
        offset = self.log.log_start_offset if offset is None else offset
        records: list[Record] = []
        while offset < self.log.log_end_offset:
            batches = list(iter_batches(self.fetch(offset)))
            if not batches:
                break
            for batch in batches:
                assert batch.has_valid_crc()
                records += [record for record in iter_records(batch) if record.offset >= offset]
            offset = batches[-1].next_offset
        return records

    def values(self, offset: int | None = None) -> list[bytes | None]:
        return [record.value for record in self.records(offset)]

    def names(self) -> list[str]:
        return sorted(self.file_system.list_directory(self.directory)[0])

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def damage(self, name: str, position: int, data: bytes) -> None:
        """Overwrite bytes of a file behind the log's back."""
        file = self.file_system.open(self.path(name))
        size = file.size()
        file.write_at((data,), position if position >= 0 else size + position, len(data))
        file.close()

    def cut(self, name: str, size: int) -> None:
        """Cut a file behind the log's back; a negative size counts from the end."""
        file = self.file_system.open(self.path(name))
        file.truncate(size if size >= 0 else file.size() + size)
        file.close()


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    """A file system and a directory on it: every test that takes this runs on both."""
    if request.param == "real":
        return RealFileSystem(), str(tmp_path)
    file_system = MemoryFileSystem()
    file_system.make_directory("/data")
    return file_system, "/data"


@pytest.fixture
def partition(disk: tuple[FileSystem, str]) -> Partition:
    """An empty partition, on both file systems."""
    file_system, root = disk
    return Partition(file_system, f"{root}/topic-0")


@pytest.fixture
def real_partition(tmp_path: Path) -> Partition:
    """An empty partition in a real directory, for other programs."""
    return Partition(RealFileSystem(durable=False), str(tmp_path / "ours" / "topic-0"))


@pytest.fixture
def memory_partition() -> Partition:
    """An empty partition on the in-memory file system, for failures that only it can simulate."""
    return Partition(MemoryFileSystem(), "/data/topic-0")


@pytest.fixture
def batch() -> Callable[..., bytes]:
    return make_batch


@pytest.fixture
def producer_batch() -> Callable[..., bytes]:
    return make_producer_batch


@pytest.fixture
def code_of() -> Callable[[KafkaError], ErrorCode]:
    return lambda error: error.code


@pytest.fixture
def segments_of() -> Callable[[Log], list[int]]:
    """Base offsets of a log's segments."""

    def base_offsets(log: Log) -> list[int]:
        segments: Iterable[Any] = log.segments
        return [segment.base_offset for segment in segments]

    return base_offsets


class KafkaLog:
    """Apache Kafka's log of one partition in a separate process: see KafkaLog.java for the commands."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, *words: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        assert not answer.startswith("failed"), answer
        return answer

    def ask_lines(self, *words: object) -> list[str]:
        assert self._process.stdout is not None
        lines = [self.ask(*words)]
        while lines[-1] != ".":
            lines.append(self._process.stdout.readline().rstrip("\n"))
        return lines[:-1]

    def open(
        self,
        directory: str,
        config: LogConfig,
        *,
        clean: bool = True,
        recovery_point: int = 0,
        start: int = 0,
        **more_settings: object,
    ) -> None:
        settings = {
            "internal.segment.bytes": config.segment_bytes,
            "segment.ms": config.segment_ms,
            "index.interval.bytes": config.index_interval_bytes,
            "max.message.bytes": config.max_message_bytes,
            "message.timestamp.type": config.message_timestamp_type,
            "message.timestamp.before.max.ms": config.message_timestamp_before_max_ms,
            "message.timestamp.after.max.ms": config.message_timestamp_after_max_ms,
            "compression.type": config.compression_type,
            "cleanup.policy": ",".join(config.cleanup_policy),
            "retention.ms": config.retention_ms,
            "retention.bytes": config.retention_bytes,
            **more_settings,
        }
        words = [f"{key}={value}" for key, value in settings.items()]
        assert self.ask("open", directory, str(clean).lower(), recovery_point, start, NOW, *words) == "ok"

    def close(self, *, clean: bool = True) -> None:
        assert self.ask("close", str(clean).lower()) == "ok"

    def end(self) -> None:
        self._process.communicate(timeout=120)


@pytest.fixture(scope="module")
def apache_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaLog]:
    classes = tmp_path_factory.mktemp("classes")
    class_path = f"{require_kafka_jars()}/*"
    subprocess.run([require_program("javac"), "-cp", class_path, "-d", str(classes), str(_KAFKA_LOG)], check=True)
    kafka = KafkaLog(jvm.command("KafkaLog", classes=classes))
    yield kafka
    kafka.end()


@pytest.fixture
def dump_segments() -> Callable[..., str]:
    """The output of Apache Kafka's DumpLogSegments for these files; it must report no problem."""

    def dump(paths: list[str], *options: str, compacted: bool = False) -> str:
        done = subprocess.run(
            jvm.command("org.apache.kafka.tools.DumpLogSegments", *options, "--files", ",".join(paths)),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0, output[-2_000:]
        assert [line for line in output.splitlines() if COMPLAINTS.search(line)] == []
        if not compacted:
            # It counts from -1 in every file, so the first offset of each but the first is "non-consecutive".
            jumps = [line.split() for line in output.splitlines() if " is followed by " in line]
            assert {jump[0] for jump in jumps} <= {"-1"}
            assert all(any(path.endswith(f"{int(jump[4]):020d}.log") for path in paths) for jump in jumps)
        return done.stdout

    return dump

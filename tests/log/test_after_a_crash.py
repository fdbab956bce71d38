"""Faults that the simulation of all parts (tests/simulation) has found, one test each."""

from __future__ import annotations

from typing import Any

from moldau.log.config import LogConfig
from moldau.log.manager import LogManager
from moldau.log.memory_files import MemoryFileSystem
from moldau.log.partition_log import Log
from moldau.log.producer_state import EndTransactionMarker
from moldau.log.verification import DISABLED
from moldau.protocol.records import Record, build_batch

NOW = 1_700_000_000_000
TOPIC_ID = b"\1" * 16
FIRST_LOG = "/data/t-0/00000000000000000000.log"
SECOND_LOG = "/data/t-0/00000000000000000001.log"


def batch(*values: bytes, producer_id: int = -1, sequence: int = -1) -> bytes:
    return build_batch(
        [Record(0, NOW, b"k", value) for value in values],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )


class Disk:
    """A log manager with one partition, whose process ends in different ways and is restarted."""

    def __init__(self, **config: Any) -> None:
        self.config = LogConfig(**config)
        self.file_system = MemoryFileSystem()
        self.file_system.make_directory("/data")
        self.file_system.sync_directory("")
        self.start()

    def start(self) -> None:
        self.manager = LogManager(["/data"], node_id=1, cluster_id="c", file_system=self.file_system)
        self.manager.open()
        self.report = self.manager.load(now_ms=NOW, config_of=lambda topic: self.config)
        self.log: Log = self.manager.get_or_create("t", TOPIC_ID, 0, self.config, now_ms=NOW)

    def append(self, *values: bytes, epoch: int = 0, **producer: int) -> None:
        self.log.append(batch(*values, **producer), now_ms=NOW, leader_epoch=epoch)

    def kill(self) -> None:
        self.file_system = self.file_system.crash()
        self.start()

    def lose_power(self) -> None:
        """It loses all unsynced data."""
        self.file_system = self.file_system.crash(discard_unsynced=True)
        self.start()

    def stop(self) -> None:
        self.manager.close(now_ms=NOW)
        self.start()


def test_a_log_that_lost_all_its_records_continues_at_its_start_offset_after_a_clean_shutdown() -> None:
    disk = Disk()
    disk.append(b"a", b"b", b"c")
    disk.log.flush(NOW)
    disk.log.delete_records_before(2)
    disk.manager.flush_checkpoints()
    # The checkpoint of the log start is there, and the records are damaged.
    file = disk.file_system.open(FIRST_LOG)
    file.write_at((bytes(61),), 0, 61)
    file.close()
    disk.file_system.unlink("/data/recovery-point-offset-checkpoint")
    disk.kill()
    assert (disk.log.log_start_offset, disk.log.log_end_offset) == (2, 2)
    disk.stop()
    assert (disk.log.log_start_offset, disk.log.log_end_offset) == (2, 2)
    disk.lose_power()
    assert (disk.log.log_start_offset, disk.log.log_end_offset) == (2, 2)


def test_a_log_that_starts_over_at_an_offset_begins_there_after_a_clean_shutdown() -> None:
    disk = Disk()
    disk.append(b"a")
    disk.log.truncate_fully_and_start_at(7, NOW)
    disk.stop()
    assert (disk.log.log_start_offset, disk.log.log_end_offset) == (7, 7)


def test_delete_records_keeps_the_files_that_contain_the_log_end_offset_until_it_is_durable() -> None:
    disk = Disk(segment_bytes=150)
    for sequence in range(4):
        disk.append(b"x" * 60, producer_id=5, sequence=sequence)
    disk.log.delete_records_before(3)
    assert disk.log.log_start_offset == 3
    assert len(disk.log.segments) == 4
    disk.log.flush(NOW)
    disk.log.delete_records_before(4)
    assert len(disk.log.segments) == 1
    disk.lose_power()
    assert disk.log.log_end_offset == 4
    assert disk.log.producers.producers[5].last_sequence == 3


def test_records_restored_after_a_crash_have_their_leader_epochs() -> None:
    disk = Disk()
    disk.append(b"a", b"b", epoch=1)
    disk.append(b"c", b"d", epoch=4)
    disk.log.flush(NOW)
    disk.manager.flush_checkpoints()
    disk.append(b"e", epoch=4)
    disk.log.delete_records_before(3)
    disk.log.roll(NOW)
    disk.append(b"f", epoch=4)
    disk.log.flush(NOW)
    disk.manager.end_checkpoints(_written(disk, log_start_offsets=False))
    assert disk.log.leader_epochs.entries == [(4, 3)]
    disk.kill()
    assert disk.log.log_start_offset == 0, "the checkpoint of the log start was not written since"
    assert disk.log.leader_epochs.entries == [(1, 0), (4, 2)]


def _written(disk: Disk, **which: Any) -> Any:
    files = disk.manager.begin_checkpoints(**which)
    files.run()
    return files


def test_a_gap_is_a_loss_in_a_new_directory_with_empty_checkpoints() -> None:
    """It is not a result of compaction: records after the gap must not replace those that were acknowledged before
    it."""
    disk = Disk(segment_bytes=150, cleanup_policy=("compact",))
    for number in range(3):
        disk.append(b"%d" % number * 60)
    file = disk.file_system.open(SECOND_LOG)
    file.truncate(0)
    file.close()
    disk.kill()
    assert disk.log.log_end_offset == 1
    assert "no segment begins at offset 1" in disk.report.summary()


def test_a_killed_process_has_synced_nothing() -> None:
    disk = Disk()
    disk.append(b"a")
    disk.log.flush(NOW)
    disk.append(b"b")
    disk.kill()
    assert disk.log.log_end_offset == 2
    disk.lose_power()
    assert disk.log.log_end_offset == 1


def abort_transaction(disk: Disk, number: int) -> None:
    """The next transaction of producer 5: one record, and the marker."""
    disk.log.append(
        build_batch(
            [Record(0, NOW, b"k", b"aborted")],
            producer_id=5,
            producer_epoch=0,
            base_sequence=number,
            transactional=True,
        ),
        now_ms=NOW,
        leader_epoch=0,
        verification=DISABLED,
    )
    disk.log.append_marker(5, 0, EndTransactionMarker(False, 0), transaction_version=0, now_ms=NOW, leader_epoch=0)


def aborted_offsets(disk: Disk) -> list[int]:
    return [found.first_offset for found in disk.log.aborted_transactions(0, 100)]


def test_indexes_that_recovery_finds_complete_are_durable_after_a_clean_shutdown() -> None:
    """The killed process has written them and not synced them."""
    disk = Disk()
    abort_transaction(disk, 0)
    disk.kill()
    assert aborted_offsets(disk) == [0]
    disk.log.flush(NOW)  # of the records alone
    disk.manager.close(now_ms=NOW)
    disk.lose_power()
    assert disk.report.recovered_directories == []
    assert aborted_offsets(disk) == [0]


def test_indexes_of_a_log_that_was_truncated_and_has_its_old_size_again_are_durable_after_a_clean_shutdown() -> None:
    disk = Disk()
    disk.append(b"a", b"b")
    disk.stop()
    disk.log.truncate_to(0, NOW)
    abort_transaction(disk, 0)
    disk.log.flush(NOW)
    disk.manager.close(now_ms=NOW)
    disk.lose_power()
    assert disk.report.recovered_directories == []
    assert aborted_offsets(disk) == [0]

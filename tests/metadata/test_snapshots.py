"""Snapshots of the metadata: when they are written, deletion of old data, crashes, full disks and damage."""

import errno
import random
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.log.memory_files import MemoryFileSystem, SimulatedCrash
from moldau.metadata.checkpoint import SnapshotId, decode_snapshot, parse_file_name
from moldau.metadata.image import MetadataImage
from moldau.metadata.quorum import Endpoint, Metadata, MetadataLogError
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

from .lookups import end_offset_of

DIRECTORY = "/data"
LOG = f"{DIRECTORY}/__cluster_metadata-0"
FIRST = f"{0:020d}-{0:010d}.checkpoint"
NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS


def start(disk: MemoryFileSystem, now_ms: int = NOW, **settings: int) -> Metadata:
    static = {name.replace("_", "."): StaticValue(str(value), "test") for name, value in settings.items()}
    return Metadata.open(
        disk,
        DIRECTORY,
        BrokerConfig(static),
        node_id=1,
        cluster_id="cluster",
        directory_ids=[b"d" * 16],
        listeners=[Endpoint("PLAINTEXT", "localhost", 9092)],
        now_ms=now_ms,
    )


def create(metadata: Metadata, *names: str, partitions: int = 1, now_ms: int = NOW) -> None:
    config = [CreatableTopicConfig(name="retention.ms", value="5000")]
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=config) for name in names
    ]
    response = metadata.request(CreateTopicsRequest(topics=topics), now_ms=now_ms)
    assert [topic.error_code for topic in response.topics] == [0] * len(names)


def delete(metadata: Metadata, name: str) -> None:
    metadata.request(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), now_ms=NOW)


def files(disk: MemoryFileSystem, suffix: str) -> list[str]:
    return sorted(name for name in disk.list_directory(LOG)[0] if name.endswith(suffix))


def state(image: MetadataImage) -> MetadataImage:
    """The image without epochs, incarnations and offsets, which differ between startups."""
    topics = {
        name: topic._replace(
            partitions={
                index: partition._replace(leader_epoch=0, partition_epoch=0)
                for index, partition in topic.partitions.items()
            }
        )
        for name, topic in image.topics_by_name.items()
    }
    by_id = {topic.topic_id: topic for topic in topics.values()}
    return image._replace(
        offset=0, epoch=0, timestamp_ms=0, topics_by_name=topics, topics_by_id=by_id, brokers={}, controllers={}
    )


@pytest.fixture
def disk() -> MemoryFileSystem:
    return MemoryFileSystem()


# When snapshots are written


def test_a_snapshot_is_due_when_the_log_has_grown(disk: MemoryFileSystem) -> None:
    metadata = start(disk, metadata_log_max_record_bytes_between_snapshots=20_000)
    names = (f"t-{number}" for number in range(1000))
    while metadata.snapshot_reason(NOW) is None:
        create(metadata, next(names))
    written = disk.size(f"{LOG}/{0:020d}.log")
    assert 20_000 <= written < 21_000
    assert metadata.snapshot_reason(NOW) == f"the log has {written} bytes after the latest snapshot"
    metadata.write_snapshot(NOW)
    assert metadata.snapshot_reason(NOW) is None
    before = metadata.image
    while metadata.snapshot_reason(NOW) is None:
        create(metadata, next(names))
    assert metadata.image.offset > before.offset + 100


def test_the_size_of_the_log_at_startup_is_included(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    create(metadata, "a", partitions=300)
    metadata.abandon()
    again = start(disk, metadata_log_max_record_bytes_between_snapshots=15_000)
    assert again.snapshot_reason(NOW) is not None


def test_a_snapshot_is_due_after_the_interval_if_there_are_changes(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    assert metadata.snapshot_reason(NOW + HOUR_MS - 1) is None
    assert metadata.snapshot_reason(NOW + HOUR_MS) is not None
    metadata.write_snapshot(NOW + HOUR_MS)
    assert metadata.snapshot_reason(NOW + WEEK_MS) is None
    create(metadata, "a")
    assert metadata.snapshot_reason(NOW + 2 * HOUR_MS - 1) is None
    assert metadata.snapshot_reason(NOW + 2 * HOUR_MS) is not None


def test_without_an_interval_no_snapshot_is_due_by_time(disk: MemoryFileSystem) -> None:
    metadata = start(disk, metadata_log_max_snapshot_interval_ms=0)
    assert metadata.snapshot_reason(NOW + WEEK_MS) is None


def test_a_startup_reads_only_the_latest_snapshot_and_later_records(disk: MemoryFileSystem) -> None:
    """10,000 partitions: a clean shutdown writes a complete snapshot, and the next startup replays no other records."""
    metadata = start(disk)
    create(metadata, "a", partitions=9_000)
    create(metadata, "b", partitions=1_000)
    metadata.close(NOW)
    *_, latest = (SnapshotId(*parsed) for parsed in map(parse_file_name, files(disk, ".checkpoint")) if parsed)
    segments = files(disk, ".log")
    assert segments[-1] == f"{latest.end_offset:020d}.log"
    reads: list[str] = []
    disk.fail_with = lambda operation, path: reads.append(path) if operation == "read" else None
    again = start(disk)
    assert f"{LOG}/{latest.file_name}" in reads
    assert not any(f"{LOG}/{name}" in reads for name in segments[:-1])
    # LeaderChange, the controller, the broker, two changes of it, and a change for each partition.
    assert again.image.offset == latest.end_offset + 4 + 10_000
    assert {p.leader_epoch for p in again.image.topics_by_name["a"].partitions.values()} == {2}


def test_repeated_restarts_do_not_become_slower(disk: MemoryFileSystem) -> None:
    """Each restart elects every leader again: without new snapshots, the log after the last one would grow forever."""
    metadata = start(disk)
    create(metadata, "a", partitions=3_000)
    for _ in range(4):
        metadata.close(NOW)
        metadata = start(disk)
    *_, latest = filter(None, map(parse_file_name, files(disk, ".checkpoint")))
    assert latest.end_offset > metadata.image.offset - 15_000


def test_a_snapshot_is_due_after_repeated_crashes(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    create(metadata, "a", partitions=2_000)
    for _ in range(3):
        metadata.abandon()
        metadata = start(disk)
    reason = metadata.snapshot_reason(NOW)
    assert reason is not None
    assert "records" in reason
    metadata.write_snapshot(NOW)
    assert metadata.snapshot_reason(NOW) is None


def test_changes_continue_while_a_snapshot_is_encoded(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    create(metadata, "a", partitions=500)
    then = metadata.image
    snapshot = metadata.begin_snapshot(NOW)
    slices = 0
    while snapshot.encode():
        slices += 1
        create(metadata, f"later-{slices}")
        if slices == 2:
            snapshot.write()
            assert files(disk, ".part") == [f"{snapshot.id.file_name}.part"]
    assert slices >= 5
    snapshot.finish()
    metadata.end_snapshot(snapshot, NOW)
    assert files(disk, ".part") == []
    assert snapshot.id == SnapshotId(then.offset + 1, 1)
    path = f"{LOG}/{snapshot.id.file_name}"
    content = decode_snapshot(disk.read_file(path), name=path)
    assert content.last_contained_timestamp_ms == NOW
    assert content.voters is not None
    assert disk.size(path) == snapshot.size
    replayed, _ = MetadataImage(cluster_id="cluster", features={"kraft.version": 1}).apply(
        content.records, end_offset=then.offset + 1, epoch=then.epoch, timestamp_ms=then.timestamp_ms
    )
    assert replayed == then
    # The log has the later changes, and a startup reads both.
    now = metadata.image
    metadata.abandon()
    assert state(start(disk).image) == state(now)


def test_the_log_is_rolled_at_snapshots_and_by_the_settings(disk: MemoryFileSystem) -> None:
    metadata = start(disk)
    create(metadata, "a")
    end_offset = metadata.image.offset + 1
    metadata.write_snapshot(NOW)
    create(metadata, "b")
    assert files(disk, ".log") == [f"{0:020d}.log", f"{end_offset:020d}.log"]
    create(metadata, "c", now_ms=NOW + WEEK_MS + 1)
    assert len(files(disk, ".log")) == 3
    metadata.abandon()
    metadata = start(disk, NOW + WEEK_MS + 1, internal_metadata_log_segment_bytes=2_000)
    for number in range(40):
        create(metadata, f"t-{number}", now_ms=NOW + WEEK_MS + 1)
    assert len(files(disk, ".log")) > 5
    assert all(disk.size(f"{LOG}/{name}") <= 2_000 for name in files(disk, ".log"))
    before = metadata.image
    metadata.abandon()
    assert state(start(disk).image) == state(before)


# Deletion of old data


def with_snapshots(disk: MemoryFileSystem, count: int, **settings: int) -> Metadata:
    """Metadata with ``count`` snapshots, a day apart, each with more topics than the previous one."""
    metadata = start(disk, **settings)
    for number in range(count):
        at = NOW + number * 24 * HOUR_MS
        create(metadata, *(f"t-{number}-{index}" for index in range(20)), now_ms=at)
        metadata.write_snapshot(at)
    return metadata


def test_recent_and_small_data_is_kept(disk: MemoryFileSystem) -> None:
    metadata = with_snapshots(disk, 3)
    assert metadata.clean(NOW + 3 * 24 * HOUR_MS) == []
    assert len(files(disk, ".checkpoint")) == 4


def test_old_snapshots_are_deleted_with_the_log_before_the_next_one(disk: MemoryFileSystem) -> None:
    metadata = with_snapshots(disk, 3)
    first, second, third, fourth = files(disk, ".checkpoint")
    create(metadata, "last")
    done = metadata.clean(NOW + WEEK_MS + 1)
    # The first two cover data that is more than a week old. The log before the third is deleted with them.
    assert [first in done[0], second in done[1], len(done)] == [True, True, 2]
    assert files(disk, ".checkpoint") == [third, fourth]
    start_offset = end_offset_of(third)
    assert files(disk, ".log") == [f"{start_offset:020d}.log", f"{end_offset_of(fourth):020d}.log"]
    assert set(files(disk, ".checkpoint.deleted")) == {f"{first}.deleted", f"{second}.deleted"}
    trash = metadata.take_trash()
    assert {f"{LOG}/{first}.deleted", f"{LOG}/{0:020d}.log.deleted"} <= set(trash)
    assert metadata.take_trash() == []
    assert {path.rpartition("/")[2] for path in trash} == set(files(disk, ".deleted"))
    # A startup unlinks the files that were not unlinked in time.
    before = metadata.image
    metadata.abandon()
    again = start(disk)
    assert files(disk, ".deleted") == []
    assert state(again.image) == state(before)


@pytest.mark.parametrize("limit", ["metadata.max.retention.ms", "metadata.max.retention.bytes"])
def test_the_latest_snapshot_is_never_deleted(disk: MemoryFileSystem, limit: str) -> None:
    metadata = with_snapshots(disk, 3, **{limit.replace(".", "_"): 0})
    *_, latest = files(disk, ".checkpoint")
    done = metadata.clean(NOW + 100 * WEEK_MS)
    assert len(done) == 3
    assert all(f"{limit}=0" in text for text in done)
    assert files(disk, ".checkpoint") == [latest]
    assert metadata.clean(NOW + 100 * WEEK_MS) == []
    assert state(start(disk.crash()).image) == state(metadata.image)


def test_the_oldest_snapshots_are_deleted_until_the_limit_is_met(disk: MemoryFileSystem) -> None:
    def size() -> int:
        return sum(disk.size(f"{LOG}/{name}") for suffix in (".log", ".checkpoint") for name in files(disk, suffix))

    with_snapshots(disk, 6).abandon()
    limit = size() * 2 // 3
    metadata = start(disk, metadata_max_retention_bytes=limit)
    done = metadata.clean(NOW)
    assert 0 < len(done) < 6
    assert size() <= limit
    assert f"metadata.max.retention.bytes={limit}" in done[-1]


def test_without_limits_no_snapshot_is_deleted(disk: MemoryFileSystem) -> None:
    metadata = with_snapshots(disk, 3, metadata_max_retention_ms=-1, metadata_max_retention_bytes=-1)
    assert metadata.clean(NOW + 100 * WEEK_MS) == []


def test_a_startup_deletes_snapshots_from_before_the_log(disk: MemoryFileSystem) -> None:
    """A crash between the deletion of segments and that of their snapshot leaves such a snapshot."""
    metadata = with_snapshots(disk, 2)
    first = disk.read_file(f"{LOG}/{FIRST}")
    assert len(metadata.clean(NOW + 100 * WEEK_MS)) == 2
    metadata.abandon()
    disk.replace_file(f"{LOG}/{FIRST}", first, sync=True)
    again = start(disk)
    assert len(files(disk, ".checkpoint")) == 1
    assert again.repairs == []


# Crashes


def steps(disk: MemoryFileSystem) -> Iterator[set[str]]:
    """Runs of a node with small segments, snapshots and truncations. Yields the existing topics before and after each
    change; before a change they include the pending topics."""
    limits = {"internal_metadata_log_segment_bytes": 3_000, "metadata_max_retention_bytes": 9_000}
    there: set[str] = set()
    for life in range(2):
        yield there
        metadata = start(disk, **limits)
        for step in range(3):
            names = {f"t-{life}-{step}-{index}" for index in range(5)}
            yield there | names
            create(metadata, *names)
            there = there | names
            yield there
            metadata.write_snapshot(NOW)
            metadata.clean(NOW)
            for path in metadata.take_trash():
                disk.unlink(path)
        metadata.close(NOW)


def formatted(*, journalled: bool) -> MemoryFileSystem:
    """A disk on which the name of the data directory is durable. The metadata log does not ensure that."""
    disk = MemoryFileSystem(journalled=journalled)
    disk.make_directory(DIRECTORY)
    disk.commit_names()
    return disk


def operations_of_a_run() -> int:
    disk = formatted(journalled=True)
    disk.operations_left = 100_000
    for _ in steps(disk):
        pass
    return 100_000 - disk.operations_left


@pytest.mark.parametrize("journalled", [True, False])
def test_a_crash_at_any_change_leaves_the_same_image(journalled: bool) -> None:
    """After every second change of a file or a name, in turn, the process is killed or the power fails."""
    total = operations_of_a_run()
    assert total > 200
    for operations in range(1 if journalled else 2, total, 2):
        disk = formatted(journalled=journalled)
        disk.operations_left = operations
        reported: list[set[str]] = [set()]
        with pytest.raises(SimulatedCrash):
            reported.extend(steps(disk))
        disk.operations_left = None
        acknowledged, pending = reported[-2] if len(reported) > 1 else set(), reported[-1]
        survivor = disk.crash(random.Random(operations) if operations % 3 else None)
        again = start(survivor)
        found = set(again.image.topics_by_name)
        assert acknowledged <= found <= pending, (operations, journalled)
        # Also check the startup after it, which reads the files that this one has written.
        after = state(again.image)
        again.close(NOW)
        assert state(start(survivor).image) == after
        assert files(survivor, ".part") == []


# Full and failed disks


def contents(disk: MemoryFileSystem) -> dict[str, bytes]:
    return {name: disk.read_file(f"{LOG}/{name}") for name in disk.list_directory(LOG)[0]}


@pytest.mark.parametrize("room", [0, 100, 1_000, 3_000])
def test_a_full_disk_keeps_the_existing_snapshots(disk: MemoryFileSystem, room: int) -> None:
    metadata = start(disk)
    create(metadata, "a", partitions=100)
    snapshots = files(disk, ".checkpoint")
    disk.capacity_bytes = disk.used_bytes() + room
    with pytest.raises((OSError, KafkaError)):
        metadata.write_snapshot(NOW)
    assert files(disk, ".checkpoint") == snapshots
    assert files(disk, ".part") == []
    assert metadata.snapshot_reason(NOW + HOUR_MS) is not None
    before = metadata.image
    assert state(start(disk.crash(), NOW).image) == state(before) if room >= 3_000 else True
    disk.capacity_bytes = None
    create(metadata, "b")
    metadata.write_snapshot(NOW)
    assert len(files(disk, ".checkpoint")) == 2
    metadata.abandon()
    assert set(start(disk).image.topics_by_name) == {"a", "b"}


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
def test_a_snapshot_that_cannot_be_finished_is_discarded(disk: MemoryFileSystem, operation: str) -> None:
    metadata = start(disk)
    create(metadata, "a", partitions=100)
    snapshot = metadata.begin_snapshot(NOW)
    while snapshot.encode():
        pass
    disk.fail_with = lambda doing, path: errno.EIO if doing == operation else None
    with pytest.raises(OSError):
        snapshot.finish()
    snapshot.discard()
    disk.fail_with = None
    assert files(disk, ".part") == []
    create(metadata, "b")
    metadata.write_snapshot(NOW)
    before = metadata.image
    metadata.close(NOW)
    assert state(start(disk).image) == state(before)
    assert disk.open_files > 0


def test_a_shutdown_on_a_full_disk_omits_the_snapshot(disk: MemoryFileSystem, caplog: pytest.LogCaptureFixture) -> None:
    metadata = start(disk)
    create(metadata, "a", partitions=6_000)
    disk.fail_with = lambda doing, path: (
        errno.ENOSPC if doing in ("create", "write") and path.endswith(".part") else None
    )
    metadata.close(NOW)
    disk.fail_with = None
    assert "Cannot write a metadata snapshot" in caplog.text
    assert files(disk, ".checkpoint") == [FIRST]
    assert len(start(disk).image.topics_by_name["a"].partitions) == 6_000


# Damage


def damage(disk: MemoryFileSystem, name: str, *, cut: bool) -> None:
    data = bytearray(disk.read_file(f"{LOG}/{name}"))
    if cut:
        del data[-80:]
    else:
        data[len(data) // 2] ^= 1
    disk.replace_file(f"{LOG}/{name}", data, sync=True)


@pytest.mark.parametrize("cut", [True, False])
def test_a_damaged_snapshot_is_skipped_if_the_previous_one_and_the_log_suffice(
    disk: MemoryFileSystem, cut: bool
) -> None:
    metadata = with_snapshots(disk, 3)
    create(metadata, "last")
    delete(metadata, "t-1-0")
    metadata.abandon()
    *_, older, latest = files(disk, ".checkpoint")
    expected = state(start(disk.crash()).image)
    damage(disk, latest, cut=cut)
    again = start(disk)
    assert state(again.image) == expected
    (reported,) = again.repairs
    assert f"{LOG}/{latest}" in reported
    assert f"the one that ends at {end_offset_of(older)}" in reported
    assert files(disk, ".checkpoint")[-1] == older
    assert files(disk, ".damaged") == [f"{latest}.damaged"]
    # The next snapshot has a higher end offset, and the startup after it needs no repair.
    again.write_snapshot(NOW)
    again.abandon()
    third = start(disk)
    assert third.repairs == []
    assert state(third.image) == expected


def test_several_damaged_snapshots_are_skipped(disk: MemoryFileSystem) -> None:
    metadata = with_snapshots(disk, 3)
    expected = state(metadata.image)
    metadata.abandon()
    for name in files(disk, ".checkpoint")[1:]:
        damage(disk, name, cut=False)
    again = start(disk)
    assert state(again.image) == expected
    assert len(files(disk, ".damaged")) == 3


def test_a_damaged_snapshot_without_other_sources_is_rejected(disk: MemoryFileSystem) -> None:
    metadata = with_snapshots(disk, 3)
    assert len(metadata.clean(NOW + 100 * WEEK_MS)) == 3
    metadata.take_trash()
    metadata.abandon()
    (latest,) = files(disk, ".checkpoint")
    damage(disk, latest, cut=False)
    before = contents(disk)
    with pytest.raises(MetadataLogError) as refused:
        start(disk)
    assert str(refused.value).startswith(f"{LOG}/{latest} is corrupt: ")
    assert "There is none before it, and the log does not start there" in str(refused.value)
    assert contents(disk) == before


def test_a_damaged_snapshot_is_rejected_if_the_log_before_it_is_damaged(disk: MemoryFileSystem) -> None:
    """Both the latest snapshot and the log before it are damaged. That part of the log is normally not read."""
    metadata = with_snapshots(disk, 3)
    expected = state(metadata.image)
    metadata.abandon()
    *_, older, latest = files(disk, ".checkpoint")
    segment = f"{end_offset_of(older):020d}.log"
    damage(disk, segment, cut=False)
    assert state(start(disk.crash()).image) == expected
    damage(disk, latest, cut=False)
    before = contents(disk)
    with pytest.raises(MetadataLogError) as refused:
        start(disk)
    assert f"The one before it ends at offset {end_offset_of(older)}" in str(refused.value)
    assert f"the changes up to offset {end_offset_of(latest)} are in no other file" in str(refused.value)
    assert contents(disk) == before


def test_a_damaged_first_snapshot_is_rejected(disk: MemoryFileSystem) -> None:
    start(disk).close(NOW)
    damage(disk, FIRST, cut=True)
    with pytest.raises(MetadataLogError, match="is incomplete"):
        start(disk)


def test_a_damaged_old_snapshot_has_no_effect(disk: MemoryFileSystem) -> None:
    metadata = with_snapshots(disk, 2)
    expected = state(metadata.image)
    metadata.abandon()
    damage(disk, files(disk, ".checkpoint")[1], cut=False)
    again = start(disk)
    assert again.repairs == []
    assert state(again.image) == expected


def test_a_log_that_starts_after_the_latest_snapshot_is_rejected(disk: MemoryFileSystem) -> None:
    metadata = with_snapshots(disk, 2)
    metadata.clean(NOW + 100 * WEEK_MS)
    create(metadata, "last")
    metadata.abandon()
    (latest,) = files(disk, ".checkpoint")
    disk.unlink(f"{LOG}/{latest}")
    with pytest.raises(MetadataLogError, match="no snapshot covers the offsets before it"):
        start(disk)


def test_unfinished_snapshots_are_unlinked_and_other_files_are_kept(disk: MemoryFileSystem) -> None:
    start(disk).close(NOW)
    ours = [f"{SnapshotId(7, 1).file_name}{suffix}" for suffix in (".part", ".deleted")]
    theirs: list[Any] = ["note.part", f"{SnapshotId(7, 1).file_name}.damaged"]
    for name in (*ours, *theirs):
        disk.replace_file(f"{LOG}/{name}", b"x", sync=True)
    start(disk)
    assert set(disk.list_directory(LOG)[0]).isdisjoint(ours)
    assert set(theirs) <= set(disk.list_directory(LOG)[0])

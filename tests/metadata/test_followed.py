"""The metadata of a broker with remote controllers: it follows the log and the snapshots of a real controller."""

from collections.abc import Callable

import pytest

from moldau.config.sources import BrokerConfig
from moldau.log.memory_files import MemoryFileSystem
from moldau.metadata.batches import MetadataLogError
from moldau.metadata.checkpoint import SnapshotId
from moldau.metadata.followed import FollowedMetadata
from moldau.metadata.image import MetadataDelta, MetadataImage
from moldau.metadata.observer import Address
from moldau.metadata.quorum import Endpoint, Metadata
from moldau.protocol.messages import fetch as fetches
from moldau.protocol.messages import fetch_snapshot as snapshots
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.fetch import FetchResponse
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from moldau.protocol.steps import completed

NOW = 1_700_000_000_000
DIRECTORY = bytes(15) + b"d"
LEADER = 100


class Controller:
    """A controller with its own files, whose log and snapshots are served as its listener would do it."""

    def __init__(self) -> None:
        self.files = MemoryFileSystem()
        self.files.make_directory("/c")
        self.reopen()

    def reopen(self) -> None:
        """Begin a new epoch, with the log that the files contain."""
        self.metadata = Metadata.open(
            self.files,
            "/c",
            BrokerConfig({}),
            node_id=LEADER,
            cluster_id="cluster",
            directory_ids=[DIRECTORY],
            listeners=[Endpoint("PLAINTEXT", "localhost", 9092)],
            now_ms=NOW,
        )

    def create(self, *names: str) -> None:
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
        response = self.metadata.request(CreateTopicsRequest(topics=topics), version=7, now_ms=NOW)
        assert not any(topic.error_code for topic in response.topics)

    def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        (deleted,) = self.metadata.request(request, version=6, now_ms=NOW).responses
        assert not deleted.error_code

    def records(self, offset: int) -> bytes:
        log = self.metadata.log
        found = log.read(offset, 1 << 20, max_offset=log.log_end_offset, min_one_batch=True).records
        if found is None:
            return b""
        with found:
            return found.read()

    def fetched(self, offset: int, high_watermark: int) -> FetchResponse:
        epoch = self.metadata.log.latest_epoch
        partition = fetches.PartitionData(
            high_watermark=high_watermark,
            current_leader=fetches.LeaderIdAndEpoch(leader_id=LEADER, leader_epoch=epoch),
            records=self.records(offset),
        )
        return _response(partition)

    def snapshot(self) -> tuple[SnapshotId, bytes]:
        self.metadata.write_snapshot(NOW)
        end = self.metadata.log.log_end_offset
        snapshot = SnapshotId(end, self.metadata.log.latest_epoch)
        return snapshot, self.files.read_file(f"/c/__cluster_metadata-0/{snapshot.file_name}")


def _response(partition: fetches.PartitionData) -> FetchResponse:
    node = fetches.NodeEndpoint(node_id=LEADER, host="controller", port=9093)
    return FetchResponse(
        responses=[fetches.FetchableTopicResponse(partitions=[partition])], node_endpoints=[node], session_id=0
    )


def follow(files: MemoryFileSystem, directory: str = "/b", *, node_id: int = 1) -> FollowedMetadata:
    return FollowedMetadata.open(
        files,
        directory,
        BrokerConfig({}),
        node_id=node_id,
        cluster_id="cluster",
        directory_id=DIRECTORY,
        bootstrap=[Address("controller", 9093)],
        now_ms=NOW,
    )


def catch_up(controller: Controller, metadata: FollowedMetadata, high_watermark: int | None = None) -> None:
    metadata.observer.request()
    offset = metadata.log.log_end_offset
    end = controller.metadata.log.log_end_offset if high_watermark is None else high_watermark
    completed(metadata.handle(controller.fetched(offset, end), NOW))


def receive_snapshot(metadata: FollowedMetadata, snapshot: SnapshotId, data: bytes, piece_bytes: int) -> None:
    offered = fetches.PartitionData(
        current_leader=fetches.LeaderIdAndEpoch(leader_id=LEADER, leader_epoch=snapshot.epoch),
        snapshot_id=fetches.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
    )
    completed(metadata.handle(_response(offered), NOW))
    while isinstance(request := metadata.observer.request(), FetchSnapshotRequest):
        position = request.topics[0].partitions[0].position
        partition = snapshots.ResponsePartitionSnapshot(
            size=len(data), position=position, unaligned_records=data[position : position + piece_bytes]
        )
        response = FetchSnapshotResponse(topics=[snapshots.ResponseTopicSnapshot(partitions=[partition])])
        completed(metadata.handle(response, NOW))


def same(image: MetadataImage, controller: Controller) -> bool:
    expected = controller.metadata.image
    return image._replace(offset=0, epoch=0, timestamp_ms=0) == expected._replace(offset=0, epoch=0, timestamp_ms=0)


def recorder(deltas: list[MetadataDelta]) -> Callable[[MetadataDelta, MetadataImage], None]:
    return lambda delta, _image: deltas.append(delta)


def test_the_image_is_that_of_the_controller() -> None:
    controller, metadata = Controller(), follow(MemoryFileSystem())
    controller.create("a", "b")
    catch_up(controller, metadata)
    assert same(metadata.image, controller)
    assert metadata.applied_offset == controller.metadata.log.log_end_offset - 1
    controller.delete("a")
    catch_up(controller, metadata)
    assert same(metadata.image, controller)


def test_records_above_the_high_watermark_are_not_applied() -> None:
    controller, metadata = Controller(), follow(MemoryFileSystem())
    committed = controller.metadata.log.log_end_offset
    controller.create("a")
    catch_up(controller, metadata, committed)
    assert metadata.log.log_end_offset > committed
    assert not metadata.image.topics_by_name
    assert metadata.applied_offset == committed - 1
    catch_up(controller, metadata)
    assert "a" in metadata.image.topics_by_name


def test_a_restart_continues_at_the_end_of_the_copy() -> None:
    controller, files = Controller(), MemoryFileSystem()
    controller.create("a")
    first = follow(files)
    catch_up(controller, first)
    end = first.log.log_end_offset
    first.close(NOW)
    second = follow(files)
    assert second.log.log_end_offset == end
    assert second.observer.epoch == controller.metadata.log.latest_epoch
    assert not second.image.topics_by_name  # the committed part of the copy is unknown
    catch_up(controller, second)
    assert same(second.image, controller)


def test_a_snapshot_replaces_the_copy_and_its_delta_has_only_the_differences() -> None:
    controller, files = Controller(), MemoryFileSystem()
    controller.create("kept", "deleted")
    metadata = follow(files)
    catch_up(controller, metadata)
    deltas: list[MetadataDelta] = []
    metadata.subscribe(recorder(deltas))
    controller.delete("deleted")
    controller.create("created")
    snapshot, data = controller.snapshot()
    receive_snapshot(metadata, snapshot, data, piece_bytes=100)
    assert same(metadata.image, controller)
    (delta,) = deltas
    assert [topic.name for topic in delta.created_topics] == ["created"]
    assert [topic.name for topic in delta.deleted_topics] == ["deleted"]
    assert sorted({change.topic for change in delta.partitions}) == ["created", "deleted"]
    assert metadata.log.log_end_offset == snapshot.end_offset
    controller.create("later")
    catch_up(controller, metadata)
    assert same(metadata.image, controller)
    metadata.close(NOW)
    again = follow(files)
    assert "created" in again.image.topics_by_name  # a snapshot is committed
    catch_up(controller, again)
    assert same(again.image, controller)


def test_a_damaged_snapshot_changes_nothing() -> None:
    controller, metadata = Controller(), follow(MemoryFileSystem())
    controller.create("a")
    snapshot, data = controller.snapshot()
    damaged = bytearray(data)
    damaged[-5] ^= 1
    receive_snapshot(metadata, snapshot, bytes(damaged), piece_bytes=1 << 20)
    assert not metadata.image.topics_by_name
    assert metadata.observer.problem is not None
    assert "corrupt" in metadata.observer.problem
    receive_snapshot(metadata, snapshot, data, piece_bytes=1 << 20)
    assert same(metadata.image, controller)


def test_the_log_of_a_controller_is_not_taken_for_a_copy() -> None:
    """A broker without the controller role would overwrite it."""
    controller = Controller()
    controller.metadata.close(NOW)
    paths = [f"/c/__cluster_metadata-0/{name}" for name in ("quorum-state", f"{0:020d}.log")]
    before = [controller.files.read_file(path) for path in paths]
    with pytest.raises(MetadataLogError, match=r"log of a controller .* process\.roles=broker,controller"):
        follow(controller.files, "/c", node_id=LEADER)
    assert [controller.files.read_file(path) for path in paths] == before


@pytest.mark.parametrize("left", [b"", bytes(94), b'{"leaderId":100,"leaderEpo'])
def test_a_copy_needs_no_quorum_state_after_a_power_failure(left: bytes) -> None:
    controller, files = Controller(), MemoryFileSystem()
    files.make_directory("/b")
    metadata = follow(files)
    catch_up(controller, metadata)
    files = files.crash()
    files.replace_file("/b/__cluster_metadata-0/quorum-state", left, sync=False)
    restarted = follow(files)
    assert any("quorum-state was incomplete" in repair for repair in restarted.repairs)
    catch_up(controller, restarted)
    assert restarted.image == controller.metadata.image


def test_a_quorum_state_in_an_unknown_version_is_refused() -> None:
    files = MemoryFileSystem()
    files.make_directory("/b")
    follow(files).close(NOW)
    newer = b'{"leaderId":100,"leaderEpoch":3,"votedId":-1,"data_version":9}'
    files.replace_file("/b/__cluster_metadata-0/quorum-state", newer, sync=False)
    with pytest.raises(MetadataLogError, match="data_version 9"):
        follow(files)

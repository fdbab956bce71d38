"""A broker follows the metadata log of controllers in memory, through elections, lost responses and lost records."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from moldau.metadata.checkpoint import SnapshotId
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from moldau.server.cluster.metadata_follower import MetadataFollower

from ..metadata.test_followed import NOW, same
from .remote_controllers import Host, Node, Quorum, open_metadata

TIMEOUT_MS = 2000


class Following:
    """A follower and three controllers, of which 101 leads and is the first bootstrap server."""

    def __init__(self) -> None:
        self.host = Host()
        self.quorum = Quorum(self.host, 101, 102, 103)
        self.metadata = open_metadata(self.quorum)
        self.ends: list[str] = []
        self.applied = 0
        self.follower = MetadataFollower(
            self.metadata,
            self.host.connect,
            self.host.timers,
            self.host.slices,
            lambda: NOW,
            self.host.run_in_thread,
            request_timeout_ms=TIMEOUT_MS,
            on_applied=self._count,
            on_end=self.ends.append,
        )

    def _count(self) -> None:
        self.applied += 1

    def start(self) -> None:
        self.follower.start()
        self.host.run()

    @property
    def topics(self) -> list[str]:
        return sorted(self.metadata.image.topics_by_name)

    @property
    def is_caught_up(self) -> bool:
        return same(self.metadata.image, self.quorum.log) and self.metadata.applied_offset == self.quorum.end_offset - 1

    def create(self, *names: str) -> None:
        """New topics, which the leader sends to the follower if it can."""
        self.quorum.log.create(*names)
        self.quorum.wake()
        self.host.run()

    def node(self, node_id: int) -> Node:
        return self.quorum.nodes[node_id]

    def offer_snapshot(self) -> None:
        """The leader has deleted the log before a snapshot of everything."""
        self.quorum.snapshot = self.quorum.log.snapshot()


@pytest.fixture
def following() -> Iterator[Following]:
    made = Following()
    yield made
    made.follower.close()
    made.host.close()


def test_changes_are_applied_immediately(following: Following) -> None:
    following.start()
    assert following.is_caught_up
    for name in ("a", "b"):
        following.create(name)
        assert following.is_caught_up
    assert following.topics == ["a", "b"]
    assert not following.ends


@pytest.mark.parametrize("leader", [101, 102, 103])
def test_any_controller_names_the_leader(following: Following, leader: int) -> None:
    following.quorum.leader = leader
    following.quorum.inform(101, 102, 103)
    following.start()
    assert following.is_caught_up
    assert following.metadata.observer.leader_address == following.node(leader).address
    assert all(len(node.received) <= 1 for node in following.quorum.nodes.values() if node.node_id != leader)


def test_a_bootstrap_server_that_is_down_is_skipped(following: Following) -> None:
    following.node(101).kill()
    following.quorum.elect(102)
    following.start()
    following.host.advance(1000)
    assert following.is_caught_up


def test_uncommitted_records_are_copied_and_not_applied(following: Following) -> None:
    following.start()
    following.quorum.high_watermark = following.quorum.end_offset
    following.create("a")
    assert following.metadata.log.log_end_offset == following.quorum.end_offset
    assert not following.topics
    following.quorum.high_watermark = None
    following.quorum.wake()
    following.host.run()
    assert following.topics == ["a"]


def test_records_lost_by_an_election_are_truncated(following: Following) -> None:
    """The copy has records that were never committed. The new leader has others at these offsets."""
    following.start()
    committed = following.quorum.end_offset
    following.quorum.high_watermark = committed
    following.create("lost-1", "lost-2")
    assert following.metadata.log.log_end_offset > committed
    following.node(101).kill()
    following.quorum.lose(committed)
    following.quorum.diverging = (following.quorum.epoch - 1, committed)
    following.quorum.high_watermark = None
    following.create("kept")
    following.host.advance(1000)
    assert following.topics == ["kept"]
    assert following.is_caught_up
    assert following.metadata.log.latest_epoch == following.quorum.epoch
    assert not following.ends


def test_a_quorum_that_has_lost_committed_records_is_not_followed(following: Following) -> None:
    following.start()
    following.create("committed")
    following.quorum.diverging = (following.quorum.epoch, 1)
    following.quorum.wake()
    following.host.run()
    assert ["The quorum has lost metadata" in end for end in following.ends] == [True]
    assert following.topics == ["committed"]
    received = len(following.node(101).received)
    following.host.advance(5000)
    assert len(following.node(101).received) == received


def test_a_controller_of_another_cluster_ends_the_follower(following: Following) -> None:
    def refuse(request: object) -> FetchResponse:
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, session_id=0)

    following.node(101).respond_to = refuse
    following.start()
    (end,) = following.ends
    assert "belongs to another cluster" in end
    assert "c101:9093" in end


# Snapshots


def test_a_snapshot_is_fetched_in_pieces(following: Following) -> None:
    following.quorum.log.create(*(f"topic-{number}" for number in range(20)))
    following.offer_snapshot()
    following.start()
    assert following.is_caught_up
    pieces = [request for request in following.node(101).received if isinstance(request, FetchSnapshotRequest)]
    assert len(pieces) > 2
    following.create("later")
    assert following.is_caught_up


def pieces_of(node: Node) -> list[int]:
    """The positions of the pieces that were requested."""
    return [
        request.topics[0].partitions[0].position
        for request in node.received
        if isinstance(request, FetchSnapshotRequest)
    ]


def in_a_snapshot(following: Following) -> Node:
    """Two pieces have arrived, and the leader keeps the request for the third."""
    following.quorum.log.create(*(f"topic-{number}" for number in range(20)))
    following.offer_snapshot()
    leader = following.node(101)
    leader.is_silent = True
    following.start()
    for _ in range(20):
        if len(pieces_of(leader)) == 3:
            return leader
        leader.answer()
        following.host.run()
    raise AssertionError("no third piece was requested")


@pytest.mark.parametrize("loss", ["timeout", "disconnect", "killed"])
def test_a_snapshot_whose_piece_is_lost_is_fetched_from_the_beginning(following: Following, loss: str) -> None:
    leader = in_a_snapshot(following)
    if loss == "timeout":
        following.host.advance(TIMEOUT_MS + 100)
    else:
        leader.kill()
        following.host.run()
        if loss == "disconnect":
            leader.start()
    assert not following.topics
    leader.is_silent = False
    if loss == "killed":
        following.quorum.elect(102)
    following.host.advance(5000)
    assert following.is_caught_up
    serving = following.node(102) if loss == "killed" else leader
    assert pieces_of(serving).count(0) == (1 if loss == "killed" else 2)


def test_a_late_piece_of_a_snapshot_is_ignored(following: Following) -> None:
    leader = in_a_snapshot(following)
    late = leader.kept[0]
    following.host.advance(TIMEOUT_MS + 100)
    peer, header, request = late
    with pytest.raises(OSError):  # the follower has closed the connection
        peer.respond(header, leader.response(request))
    leader.kept.clear()
    leader.is_silent = False
    following.host.advance(5000)
    assert following.is_caught_up


def test_a_snapshot_that_was_replaced_meanwhile_is_not_found_and_the_newer_one_is_fetched(following: Following) -> None:
    leader = in_a_snapshot(following)
    following.quorum.log.create("newer")
    following.offer_snapshot()
    leader.is_silent = False
    while leader.kept:
        leader.answer()
    following.host.run()
    assert following.is_caught_up
    assert "newer" in following.topics


def test_a_leader_that_is_elected_during_a_snapshot_sends_its_own(following: Following) -> None:
    leader = in_a_snapshot(following)
    following.quorum.elect(102)
    leader.is_silent = False
    leader.answer()
    following.host.advance(1000)
    assert following.is_caught_up
    assert pieces_of(following.node(102))[0] == 0


def test_a_snapshot_is_installed_while_other_work_runs(following: Following) -> None:
    """A thread syncs the file. The image is the previous one until everything is replayed."""
    host = following.host
    host.holds_jobs = True
    following.quorum.log.create("a")
    following.offer_snapshot()
    following.start()
    assert len(host.jobs) == 1
    host.advance(1000)
    assert not following.topics
    assert following.metadata.snapshot_reason(NOW + 10**9) is None
    while host.jobs:
        host.run_job()
        host.run()
    assert following.is_caught_up


def test_a_sync_that_fails_leaves_everything_unchanged_and_is_retried(following: Following) -> None:
    following.quorum.log.create("a")
    following.offer_snapshot()
    host = following.host
    host.holds_jobs = True
    following.start()
    host.jobs[0] = (host.jobs[0][0], _fail)
    host.run_job()
    host.run()
    assert not following.topics
    assert "No space left" in (following.follower.problem or "")
    host.holds_jobs = False
    host.advance(1000)
    assert following.is_caught_up


def _fail() -> None:
    raise OSError(28, "No space left on device")


def test_a_large_response_is_applied_in_slices(following: Following) -> None:
    following.quorum.log.create(*(f"topic-{number}" for number in range(1500)))
    ticks = iter(range(10**9))
    following.host.slices.clock = lambda: next(ticks) * 0.0005  # a step takes half a millisecond
    turns = 0
    schedule = following.host.slices._call_soon

    def count(callback: object) -> object:
        nonlocal turns
        turns += 1
        return schedule(callback)  # type: ignore[arg-type]

    following.host.slices._call_soon = count
    following.start()
    assert following.is_caught_up
    assert turns > 15


# Elections and failures


def test_a_fetch_that_waits_at_a_leader_that_dies_is_repeated_at_the_next_one(following: Following) -> None:
    following.start()
    following.node(101).kill()
    following.quorum.elect(-1, known_by=(102, 103))
    following.host.advance(1000)
    following.quorum.elect(103, known_by=(102, 103))
    following.host.advance(1000)
    following.create("a")
    assert following.is_caught_up
    assert following.metadata.observer.epoch == following.quorum.epoch


def test_an_election_is_not_a_storm_of_requests_and_not_logged(
    following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    following.start()
    following.node(101).kill()
    following.quorum.elect(-1, known_by=(102, 103))
    before = sum(len(node.received) for node in following.quorum.nodes.values())
    following.host.advance(900)
    assert sum(len(node.received) for node in following.quorum.nodes.values()) - before < 15
    following.quorum.elect(102, known_by=(102, 103))
    following.host.advance(500)
    assert following.is_caught_up
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_outage_is_logged_once_and_so_is_its_end(following: Following, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    following.start()
    for node in following.quorum.nodes.values():
        node.kill()
    following.host.advance(20_000)
    messages = [record.getMessage() for record in caplog.records]
    assert [message for message in messages if "Cannot follow the metadata log" in message] == messages
    assert len(messages) == 1
    for node in following.quorum.nodes.values():
        node.start()
    following.create("a")
    following.host.advance(5000)
    assert following.is_caught_up
    assert [record.getMessage() for record in caplog.records][1:] == [
        "Following the metadata log of c101:9093 again",
    ]


def test_a_new_leader_without_a_high_watermark_does_not_undo_applied_records(following: Following) -> None:
    following.start()
    following.create("a")
    following.quorum.elect(102)
    following.quorum.high_watermark = -1
    following.host.advance(1000)
    assert following.topics == ["a"]
    following.quorum.high_watermark = None
    following.create("b")
    following.host.advance(1000)
    assert following.is_caught_up


def test_a_controller_that_does_not_know_the_new_epoch_is_not_believed(following: Following) -> None:
    """101 was cut off while 102 was elected, and still regards itself as the leader."""
    following.start()
    following.quorum.elect(102, known_by=(102, 103))
    following.node(101).kill()
    following.host.advance(500)
    assert following.metadata.observer.epoch == following.quorum.epoch
    following.node(102).kill()
    following.node(101).start()
    following.quorum.log.create("later")
    following.host.advance(1000)
    assert following.metadata.observer.epoch == following.quorum.epoch
    assert not following.topics
    following.node(102).start()
    following.host.advance(2000)
    assert following.topics == ["later"]


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH]
)
def test_an_error_that_names_no_leader_sends_the_follower_to_the_next_controller(
    following: Following, code: ErrorCode
) -> None:
    from moldau.protocol.messages import fetch as fetches

    def refuse(request: object) -> FetchResponse:
        unknown = fetches.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
        partition = fetches.PartitionData(error_code=code, current_leader=unknown, high_watermark=-1)
        return FetchResponse(responses=[fetches.FetchableTopicResponse(partitions=[partition])], session_id=0)

    following.node(101).respond_to = refuse
    following.quorum.elect(102)
    following.start()
    following.host.advance(500)
    assert following.is_caught_up


def test_a_leader_that_does_not_respond_is_replaced_after_the_timeout(following: Following) -> None:
    following.start()
    leader = following.node(101)
    leader.is_silent = True
    leader.wake()
    following.host.advance(600)
    assert leader.kept  # the next fetch
    following.quorum.elect(102, known_by=(102, 103))
    following.quorum.log.create("a")
    following.host.advance(TIMEOUT_MS + 1000)
    assert following.topics == ["a"]
    peer, header, request = leader.kept[0]
    with pytest.raises(OSError):
        peer.respond(header, leader.response(request))


def test_closing_ignores_a_response_that_arrives_later(following: Following) -> None:
    leader = following.node(101)
    leader.is_silent = True
    following.start()
    assert isinstance(leader.kept[0][2], FetchRequest)
    following.follower.close()
    following.host.advance(10_000)
    assert following.applied == 0
    assert len(leader.received) == 1


def test_a_restart_continues_with_the_epoch_and_the_copy(following: Following) -> None:
    following.start()
    following.create("a")
    following.follower.close()
    end = following.metadata.log.log_end_offset
    following.metadata.close(NOW)
    again = open_metadata(following.quorum)
    assert again.observer.epoch == following.quorum.epoch
    request = again.observer.request()
    assert isinstance(request, FetchRequest)
    asked = request.topics[0].partitions[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (end, following.quorum.epoch)
    again.close(NOW)


def test_its_own_snapshot_is_discarded_if_a_fetched_one_is_newer(following: Following) -> None:
    """The broker encodes a snapshot of its image while a newer one arrives from the leader."""
    following.start()
    following.create("a")
    own = following.metadata.begin_snapshot(NOW)
    while own.encode():
        pass
    following.quorum.log.create("b")
    following.offer_snapshot()
    assert following.quorum.snapshot is not None
    latest: SnapshotId = following.quorum.snapshot[0]
    following.quorum.wake()
    following.host.run()
    assert following.is_caught_up
    own.finish()
    following.metadata.end_snapshot(own, NOW)
    assert following.metadata._copy.latest_snapshot == latest
    names = following.host.files.list_directory("/b/__cluster_metadata-0")[0]
    assert [name for name in names if name.endswith(".checkpoint")] == [latest.file_name]

"""Reports of the log directories of replicas: their size, their repetition, and the replicas that they omit."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages import assign_replicas_to_dirs as messages
from moldau.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from moldau.server.concurrency.slices import Sliced, SlicedFuture, Slices
from moldau.server.concurrency.timers import TimerWheel
from moldau.server.upkeep.directory_assignments import MAX_PER_REQUEST, DirectoryAssignments

from .test_timers import FakeLoop

NODE = 1
TOPIC = b"t" * 16
OLD, NEW = (bytes(15) + bytes((200 + number,)) for number in range(2))


class Cluster:
    """A topic whose replicas are in `NEW`, a controller that has registered them in `OLD`, and the reports."""

    def __init__(self, partitions: int) -> None:
        self.loop = FakeLoop()
        self.timers = TimerWheel(self.loop)  # type: ignore[arg-type]
        self._callbacks: deque[Callable[[], None]] = deque()
        self.slices = Slices(self._callbacks.append)
        self.registered = dict.fromkeys(range(partitions), OLD)
        self.replicas = [NODE]
        self.requests: list[tuple[AssignReplicasToDirsRequest, SlicedFuture[Any]]] = []
        topic = SimpleNamespace(partitions={index: _Registration(self, index) for index in range(partitions)})
        self.image = SimpleNamespace(topics_by_id={TOPIC: topic})
        metadata: Any = SimpleNamespace(node_id=NODE, broker_epoch=7, image=self.image)
        log_manager: Any = SimpleNamespace(directory_of=lambda _topic, _index: SimpleNamespace(directory_id=NEW))
        self.assignments = DirectoryAssignments(metadata, self, log_manager, self.slices, self.timers)

    def request(self, request: Any, version: int, origin: Any) -> Sliced[Any]:
        """See `ControllerClient`."""
        assert (version, origin, request.broker_epoch) == (0, None, 7)
        later: SlicedFuture[Any] = SlicedFuture(self.slices)
        self.requests.append((request, later))
        return (yield from later.result())

    def versions(self, _api_key: int) -> None:
        """See `ControllerClient`."""

    def note(self, *indexes: int) -> None:
        self.assignments.hold()
        for index in indexes:
            partition: Any = SimpleNamespace(topic="t", topic_id=TOPIC, index=index)
            self.assignments.note(partition, OLD)
        self.assignments.release()
        self.run()

    def assign(self, index: int) -> None:
        partition: Any = SimpleNamespace(topic="t", topic_id=TOPIC, index=index)
        directory: Any = SimpleNamespace(directory_id=NEW)
        self.slices.begin_shielded(self.assignments.assign(partition, directory))
        self.run()

    def reported(self) -> list[int]:
        """The partitions in the next request, which stays without a response."""
        return sorted(partitions_of(self.requests[0][0]))

    def respond(self, **errors: ErrorCode) -> None:
        """Accept the next request, except partitions with an error: ``p3=ErrorCode...``."""
        request, later = self.requests.pop(0)
        indexes = partitions_of(request)
        codes = {index: errors.get(f"p{index}", ErrorCode.NONE) for index in indexes}
        self.registered.update((index, NEW) for index, code in codes.items() if not code)
        partitions = [messages.ResponsePartitionData(partition_index=i, error_code=code) for i, code in codes.items()]
        topic = messages.ResponseTopicData(topic_id=TOPIC, partitions=partitions)
        later.succeed(
            AssignReplicasToDirsResponse(directories=[messages.ResponseDirectoryData(id=NEW, topics=[topic])])
        )
        self.run()

    def fail(self, error: KafkaError | ErrorCode) -> None:
        _, later = self.requests.pop(0)
        if isinstance(error, KafkaError):
            later.fail(error)
        else:
            later.succeed(AssignReplicasToDirsResponse(error_code=error))
        self.run()

    def advance(self, milliseconds: float) -> None:
        for _ in range(int(milliseconds // 2)):
            self.loop.advance(2)
            self.run()

    def run(self) -> None:
        while self._callbacks:
            self._callbacks.popleft()()


class _Registration:
    def __init__(self, cluster: Cluster, index: int) -> None:
        self._cluster = cluster
        self._index = index

    @property
    def replicas(self) -> list[int]:
        return self._cluster.replicas

    def directory(self, node_id: int) -> bytes:
        assert node_id == NODE
        return self._cluster.registered[self._index]


def partitions_of(request: AssignReplicasToDirsRequest) -> list[int]:
    return [each.partition_index for d in request.directories for topic in d.topics for each in topic.partitions]


def test_many_replicas_are_reported_in_several_requests_one_after_the_other() -> None:
    cluster = Cluster(2 * MAX_PER_REQUEST + 1)
    cluster.note(*range(2 * MAX_PER_REQUEST + 1))
    sizes = []
    while cluster.requests:
        assert len(cluster.requests) == 1
        sizes.append(len(cluster.reported()))
        cluster.respond()
    assert sizes == [MAX_PER_REQUEST, MAX_PER_REQUEST, 1]
    assert set(cluster.registered.values()) == {NEW}
    assert not cluster.loop.armed


@pytest.mark.parametrize(
    "error",
    [KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The controller did not respond."), ErrorCode.STALE_BROKER_EPOCH],
)
def test_a_report_that_fails_is_repeated_with_growing_pauses(error: KafkaError | ErrorCode) -> None:
    cluster = Cluster(3)
    cluster.note(0, 1, 2)
    for pause_ms in (100, 200, 400):
        cluster.fail(error)
        cluster.advance(pause_ms - 10)
        assert not cluster.requests
        cluster.advance(14)
        assert cluster.reported() == [0, 1, 2]
    cluster.respond()
    assert not cluster.requests
    assert not cluster.loop.armed


def test_only_the_replicas_with_an_error_are_reported_again() -> None:
    cluster = Cluster(3)
    cluster.note(0, 1, 2)
    cluster.respond(p1=ErrorCode.UNKNOWN_SERVER_ERROR)
    cluster.advance(110)
    assert cluster.reported() == [1]


def test_a_replica_that_is_noted_during_a_request_is_reported_in_the_next_one() -> None:
    cluster = Cluster(3)
    cluster.note(0)
    cluster.note(1)
    assert cluster.reported() == [0]
    cluster.respond()
    assert cluster.reported() == [1]


def test_what_no_longer_applies_is_not_reported_again() -> None:
    cluster = Cluster(4)
    cluster.note(0, 1, 2)
    cluster.fail(ErrorCode.NOT_CONTROLLER)
    cluster.registered[0] = NEW  # the response was lost
    del cluster.image.topics_by_id[TOPIC].partitions[1]
    cluster.advance(110)
    assert cluster.reported() == [2]
    cluster.fail(ErrorCode.NOT_CONTROLLER)
    cluster.image.topics_by_id.clear()
    cluster.advance(300)
    assert not cluster.requests
    assert not cluster.loop.armed


def test_a_move_takes_over_the_report_of_its_replica() -> None:
    """Otherwise the repetition would assign the replica to its old directory again, after the move."""
    cluster = Cluster(2)
    cluster.note(0, 1)
    cluster.assign(0)
    assert len(cluster.requests) == 2
    cluster.fail(ErrorCode.NOT_CONTROLLER)
    cluster.advance(110)
    assert [sorted(partitions_of(request)) for request, _ in cluster.requests] == [[0], [1]]


def test_closing_ends_the_repetition() -> None:
    cluster = Cluster(1)
    cluster.note(0)
    cluster.fail(ErrorCode.NOT_CONTROLLER)
    cluster.slices.close()
    cluster.advance(20_000)
    assert not cluster.requests

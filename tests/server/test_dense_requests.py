"""Requests whose arrays are as long as a frame allows, for every array of every API. No step is long, and memory use is
small.

The unit of work is a function call, counted in the thread of the server's event loop, so that no result depends on the
speed of the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.protocol.api import ApiKey, request_class, request_header_version
from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.headers import RequestHeader
from moldau.protocol.messages.list_offsets import ListOffsetsRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.schema import Field, Struct
from moldau.server.apis import APIS
from moldau.server.requests.dispatch import SLICED_BYTES

FRAME_BYTES = SLICED_BYTES + 4096

# For these APIs, a transaction or a resource is one change and one step.
IN_ONE_PIECE = [
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_QUORUM,
]

_CALLS_OF_A_STEP = 8_000
"""About as many calls as a slice has."""

_CALLS_OF_A_PIECE = 80_000
"""About twenty milliseconds."""


def array_paths(cls: type[Struct], version: int) -> Iterator[tuple[Field, ...]]:
    """The path to each array of a message, including nested arrays."""
    for field in cls.FIELDS:
        if version not in field.versions:
            continue
        if field.is_array:
            yield (field,)
        if field.struct is not None:
            for path in array_paths(field.struct, version):
                yield (field, *path)


def dense(cls: type[Any], path: tuple[Field, ...], length: int) -> Any:
    """A message with ``length`` elements in the array at the end of this path."""
    message = cls()
    for field in cls.FIELDS:
        if field.type == "records" and getattr(message, field.name) is not None:
            setattr(message, field.name, b"")
    field, *rest = path
    if rest:
        assert field.struct is not None
        inner = dense(field.struct, tuple(rest), length)
        setattr(message, field.name, [inner] if field.is_array else inner)
    elif field.struct is not None:
        setattr(message, field.name, [dense_element(field.struct) for _ in range(length)])
    else:
        values = {"string": "", "uuid": bytes(16)}
        setattr(message, field.name, [values.get(field.type, 0)] * length)
    return message


def dense_element(cls: type[Any]) -> Any:
    element = cls()
    for field in cls.FIELDS:
        if field.type == "records" and getattr(element, field.name) is not None:
            setattr(element, field.name, b"")
    return element


def frame(request: Any, version: int) -> bytes:
    header = RequestHeader(request_api_key=request.API_KEY, request_api_version=version, correlation_id=7)
    return encode(header, request_header_version(request.API_KEY, version)) + encode(request, version)


class StepMeter:
    """The largest number of function calls between two yields of any work of a server."""

    def __init__(self, server: Any) -> None:
        self.largest = 0
        self.steps = 0
        self.owners: list[Any] = []
        """The purpose of each step."""
        self._calls = 0
        begin = server.broker.slices.begin
        server.broker.slices.begin = lambda steps, owner, **facts: begin(self._measured(steps, owner), owner, **facts)

    def reset(self) -> None:
        """Reset on the server's event loop, so between two steps."""
        self.largest = 0

    def _measured(self, steps: Iterator[int], owner: Any) -> Iterator[int]:
        while True:
            outer, self._calls = self._calls, 0  # work may start other work, which also has steps
            profiled = sys.getprofile()
            sys.setprofile(self._count)
            try:
                more = next(steps)
            except StopIteration:
                return
            finally:
                sys.setprofile(profiled)
                self.largest = max(self.largest, self._calls)
                self._calls = outer
                self.steps += 1
                self.owners.append(owner)
            yield more

    def _count(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self._calls += 1


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name)
def test_dense_requests_are_served_in_small_steps(server: Any, api: Any) -> None:
    meter = StepMeter(server)
    cls = request_class(api.key)
    allowed = _CALLS_OF_A_STEP if api.key not in IN_ONE_PIECE else _CALLS_OF_A_PIECE
    for version in sorted({max(api.min_version, api.lowest_served), api.max_version}):
        for path in array_paths(cls, version):
            one, two = (len(frame(dense(cls, path, length), version)) for length in (1, 2))
            length = (FRAME_BYTES - one) // max(two - one, 1)
            for request in (dense(cls, path, 1), dense(cls, path, length)):
                # The first request creates the route: compiling is a separate step.
                server.call(meter.reset)
                if getattr(request, "acks", 1) == 0:
                    request.acks = 1
                with server.wire() as wire:
                    wire.send_frame(frame(request, version))
                    try_receive(wire)
            server.call(lambda: None)  # the step that sent the response has ended
            where = ".".join(field.name for field in path)
            assert meter.largest <= allowed, (version, where, length)


def try_receive(wire: Any) -> None:
    """The response or the end of the connection: both are correct here."""
    try:
        wire.receive_frame()
    except ConnectionError:
        return


def test_more_elements_than_the_limit_close_the_connection(server: Any, caplog: Any) -> None:
    keys = [""] * 300_000
    with server.wire() as wire:
        wire.send_frame(frame(FindCoordinatorRequest(coordinator_keys=keys), 4))
        with pytest.raises(ConnectionError):
            wire.receive_frame()
    assert "the limit is 250000: send several smaller requests" in caplog.text
    assert server.call(lambda: server.broker.slices.elements) == 0
    assert server.call(lambda: server.network.budget.used_bytes) == 0


@pytest.mark.parametrize("size", [(32 << 20), (32 << 20) + 1])
def test_more_bytes_than_the_limit_close_the_connection(server: Any, caplog: Any, size: int) -> None:
    """A few large elements."""
    keys = ["x" * 30_500] * 1100
    keys[-1] += "x" * (size - len(frame(FindCoordinatorRequest(coordinator_keys=keys), 4)))
    request = frame(FindCoordinatorRequest(coordinator_keys=keys), 4)
    assert len(request) == size
    with server.wire() as wire:
        wire.send_frame(request)
        if size <= 32 << 20:
            wire.receive_frame()
            assert caplog.text == ""
        else:
            with pytest.raises(ConnectionError):
                wire.receive_frame()
            assert f"FIND_COORDINATOR v4 has {size} bytes, but the limit" in caplog.text
    server.wait_until(lambda: server.network.budget.used_bytes == 0)


def test_requests_behind_a_long_one_complete_in_order(server: Any) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        keys = [str(number) for number in range(20_000)]
        wire.send(FindCoordinatorRequest(coordinator_keys=keys), 4)
        wire.send(FindCoordinatorRequest(coordinator_keys=["a", "a", "b"]), 4)
        assert [found.key for found in wire.receive().coordinators] == keys
        assert [found.key for found in wire.receive().coordinators] == ["a", "b"]


def test_a_long_request_is_freed_when_its_client_disconnects(server: Any) -> None:
    for _ in range(5):
        with server.wire() as wire:
            keys = [str(number) for number in range(100_000)]
            wire.send(FindCoordinatorRequest(coordinator_keys=keys), 4)
            server.wait_until(lambda: server.broker.slices.elements > 0)
        server.wait_until(lambda: not server.network.connections)
    server.wait_until(lambda: not len(server.broker.slices))
    assert server.call(lambda: server.broker.slices.elements) == 0
    server.wait_until(lambda: server.network.budget.used_bytes == 0)


def test_many_offsets_are_committed_and_fetched_in_one_request(server: Any) -> None:
    """More offsets than fit into one batch of the log."""
    server.create_topic("t", partitions=1)
    server.create_topic("many", partitions=2_000)
    indexes = list(range(2_000))
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=index + 1, committed_metadata="x")
                for index in indexes
            ],
        )
        for name in ("many", "t", "none")
    ]
    with server.wire() as wire:
        wire.call(FindCoordinatorRequest(key="g"), 3)
        for _ in range(100):
            answer = wire.call(OffsetCommitRequest(group_id="g", topics=topics), 8)
            if answer.topics[0].partitions[0].error_code not in (14, 15, 16):
                break
        codes = {
            topic.name: [partition.error_code for partition in topic.partitions if partition.error_code]
            for topic in answer.topics
        }
        assert {name: len(found) for name, found in codes.items()} == {"many": 0, "t": 1_999, "none": 2_000}
        assert [len(topic.partitions) for topic in answer.topics] == [2_000] * 3
        requested = OffsetFetchRequestTopics(name="many", partition_indexes=indexes + indexes)
        group = OffsetFetchRequestGroup(group_id="g", topics=[requested])
        (fetched,) = wire.call(OffsetFetchRequest(groups=[group, group]), 8).groups
        ((topic,), error_code) = fetched.topics, fetched.error_code
        assert error_code == 0
        assert [one.committed_offset for one in topic.partitions] == [index + 1 for index in indexes]
        (everything,) = wire.call(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8
        ).groups
        assert sum(len(topic.partitions) for topic in everything.topics) == 2_001


def test_all_versions_may_be_requested_at_the_same_time(server: Any) -> None:
    """The first request of each version compiles its code, one version at a time. Responses arrive in order."""
    requested = [
        (request, version)
        for request in (FindCoordinatorRequest(), MetadataRequest(), DescribeConfigsRequest(), ListOffsetsRequest())
        for api in APIS
        if api.key == request.API_KEY
        for version in range(api.min_version, api.max_version + 1)
    ]
    meter = StepMeter(server)
    with server.wire() as wire:
        correlation_ids = [wire.send(request, version) for request, version in requested]
        for _ in correlation_ids:
            wire.receive()
    assert meter.steps >= 2 * len(requested)


def test_duplicate_names_are_described_once(server: Any) -> None:
    """Otherwise a small request could cause a response of unlimited size."""
    server.create_topic("t")
    with server.wire() as wire:
        wire.call(FindCoordinatorRequest(key="g"), 3)
        described = wire.call(DescribeGroupsRequest(groups=["g"] * 1000), 5).groups
        assert [group.group_id for group in described] == ["g"]
        resources = [DescribeConfigsResource(resource_type=2, resource_name="t") for _ in range(1000)]
        assert len(wire.call(DescribeConfigsRequest(resources=resources), 4).results) == 1
        topics = [MetadataRequestTopic(name="t") for _ in range(1000)]
        assert len(wire.call(MetadataRequest(topics=topics), 9).topics) == 1


def test_more_topics_than_one_change_can_delete_are_deleted(server: Any) -> None:
    for number in range(25):
        server.create_topic(f"t{number}")
    topics = [DeleteTopicState(name=f"t{number}") for number in range(25)]
    twice = [DeleteTopicState(name="t24"), DeleteTopicState(name="none")]
    with server.wire() as wire:
        results = wire.call(DeleteTopicsRequest(topics=topics + twice, timeout_ms=60_000), 6).responses
    codes = {result.name: ErrorCode(result.error_code).name for result in results}
    assert len(results) == 26
    assert codes.pop("t24") == "INVALID_REQUEST"
    assert codes.pop("none") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert set(codes.values()) == {"NONE"}
    assert list(server.broker.metadata.image.topics_by_name) == ["t24"]

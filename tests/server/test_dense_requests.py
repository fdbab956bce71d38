"""Requests whose arrays are as long as a frame allows: every API, every array. No step is long, and little is held.

The unit of work is a call of a function, counted in the thread of the server's loop, so that nothing depends on how
fast the machine is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.protocol.api import request_class, request_header_version
from moldau.protocol.codec import encode
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.headers import RequestHeader
from moldau.protocol.messages.list_offsets import ListOffsetsRequest
from moldau.protocol.messages.metadata import MetadataRequest
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
from moldau.server.dispatch import APIS, SLICED_BYTES
from moldau.server.slices import MAX_ELEMENTS

FRAME_BYTES = SLICED_BYTES + 4096

# The handlers of these are in one piece: what they may be given is bounded instead (`Api.max_elements`).
IN_ONE_PIECE = [api.key for api in APIS if api.max_elements < MAX_ELEMENTS]

_CALLS_OF_A_STEP = 8_000
"""About as many as there are in a slice."""


def array_paths(cls: type[Struct], version: int) -> Iterator[tuple[Field, ...]]:
    """The way to each array of a message, also to those within others."""
    for field in cls.FIELDS:
        if version not in field.versions:
            continue
        if field.is_array:
            yield (field,)
        if field.struct is not None:
            for path in array_paths(field.struct, version):
                yield (field, *path)


def dense(cls: type[Any], path: tuple[Field, ...], length: int) -> Any:
    """A message with so many elements in the array at the end of this path."""
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
    """The largest number of calls between two yields of any work of a server."""

    def __init__(self, server: Any) -> None:
        self.largest = 0
        self.steps = 0
        self._calls = 0
        begin = server.broker.slices.begin
        server.broker.slices.begin = lambda steps, owner, **facts: begin(self._measured(steps), owner, **facts)

    def _measured(self, steps: Iterator[int]) -> Iterator[int]:
        while True:
            self._calls = 0
            sys.setprofile(self._count)
            try:
                more = next(steps)
            except StopIteration:
                return
            finally:
                sys.setprofile(None)
                self.largest = max(self.largest, self._calls)
                self.steps += 1
            yield more

    def _count(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self._calls += 1


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name)
def test_dense_requests_are_served_in_small_steps(server: Any, api: Any) -> None:
    meter = StepMeter(server)
    cls = request_class(api.key)
    allowed = _CALLS_OF_A_STEP if api.key not in IN_ONE_PIECE else 40 * api.max_elements
    for version in sorted({max(api.min_version, api.lowest_served), api.max_version}):
        for path in array_paths(cls, version):
            one, two = (len(frame(dense(cls, path, length), version)) for length in (1, 2))
            length = (FRAME_BYTES - one) // max(two - one, 1)
            for request in (dense(cls, path, 1), dense(cls, path, length)):
                # The first makes the route: compiling is a step of its own.
                meter.largest = 0
                if getattr(request, "acks", 1) == 0:
                    request.acks = 1
                with server.wire() as wire:
                    wire.send_frame(frame(request, version))
                    try_receive(wire)
            where = ".".join(field.name for field in path)
            assert meter.largest <= allowed, (version, where, length)


def try_receive(wire: Any) -> None:
    """The answer, or the end of the connection: both are right here."""
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
    assert server.call(lambda: server.server._network.budget.used_bytes) == 0


def test_requests_behind_a_long_one_are_answered_in_order(server: Any) -> None:
    server.create_topic("t")
    with server.wire() as wire:
        keys = [str(number) for number in range(20_000)]
        wire.send(FindCoordinatorRequest(coordinator_keys=keys), 4)
        wire.send(FindCoordinatorRequest(coordinator_keys=["a", "a", "b"]), 4)
        assert [found.key for found in wire.receive().coordinators] == keys
        assert [found.key for found in wire.receive().coordinators] == ["a", "b"]


def test_a_client_that_goes_away_leaves_nothing_of_its_long_request(server: Any) -> None:
    for _ in range(5):
        with server.wire() as wire:
            keys = [str(number) for number in range(100_000)]
            wire.send(FindCoordinatorRequest(coordinator_keys=keys), 4)
    server.wait_until(lambda: not len(server.broker.slices))
    assert server.call(lambda: server.broker.slices.elements) == 0
    assert server.call(lambda: server.server._network.budget.used_bytes) == 0


def test_many_offsets_are_committed_and_fetched_at_once(server: Any) -> None:
    """More than fit into one batch of the log."""
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
        asked = OffsetFetchRequestTopics(name="many", partition_indexes=indexes + indexes)
        group = OffsetFetchRequestGroup(group_id="g", topics=[asked])
        (fetched,) = wire.call(OffsetFetchRequest(groups=[group, group]), 8).groups
        ((topic,), error_code) = fetched.topics, fetched.error_code
        assert error_code == 0
        assert [one.committed_offset for one in topic.partitions] == [index + 1 for index in indexes]
        (everything,) = wire.call(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8
        ).groups
        assert sum(len(topic.partitions) for topic in everything.topics) == 2_001


def test_every_version_may_be_asked_for_at_once(server: Any) -> None:
    """The first request of each makes the server compile: one after the other, and the answers come in order."""
    asked = [
        (request, version)
        for request in (FindCoordinatorRequest(), MetadataRequest(), DescribeConfigsRequest(), ListOffsetsRequest())
        for api in APIS
        if api.key == request.API_KEY
        for version in range(api.min_version, api.max_version + 1)
    ]
    meter = StepMeter(server)
    with server.wire() as wire:
        correlation_ids = [wire.send(request, version) for request, version in asked]
        for _ in correlation_ids:
            wire.receive()
    assert meter.steps >= 2 * len(asked)

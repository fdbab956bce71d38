"""The classes created from declarations: constructors, defaults, equality, text."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from moldau.protocol.api import message_classes
from moldau.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.schema import MAX_VERSION, NO_VERSIONS, Versions, parse_versions


@pytest.mark.parametrize(
    ("text", "lowest", "highest"), [("4-18", 4, 18), ("12+", 12, MAX_VERSION), ("3", 3, 3), ("0", 0, 0)]
)
def test_versions(text: str, lowest: int, highest: int) -> None:
    versions = parse_versions(text)
    assert versions == Versions(lowest, highest)
    assert lowest in versions
    assert highest in versions
    assert lowest - 1 not in versions
    assert highest + 1 not in versions
    assert str(versions) == text


def test_no_versions() -> None:
    assert parse_versions("none") == NO_VERSIONS
    assert not NO_VERSIONS
    assert 0 not in NO_VERSIONS
    assert list(NO_VERSIONS) == []
    assert str(NO_VERSIONS) == "none"


def test_unstable_version_is_valid_but_not_stable() -> None:
    assert Versions(0, 6) == InitProducerIdRequest.VERSIONS
    assert Versions(0, 5) == InitProducerIdRequest.STABLE_VERSIONS
    assert FetchRequest.STABLE_VERSIONS == FetchRequest.VERSIONS


def test_constructor_accepts_keywords_and_has_every_default() -> None:
    request = FetchRequest(max_wait_ms=500)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 0, 0x7FFFFFFF)
    assert (request.cluster_id, request.rack_id, request.topics) == (None, "", [])
    assert request.unknown_tagged_fields is None
    with pytest.raises(TypeError, match="bogus"):
        FetchRequest(bogus=1)  # type: ignore[call-arg]
    constructor: Any = FetchRequest
    with pytest.raises(TypeError, match="positional"):
        constructor(1)


def test_structs_have_slots() -> None:
    with pytest.raises(AttributeError, match="max_wait"):
        FetchRequest().max_wait = 1  # type: ignore[attr-defined]


def test_arrays_are_not_shared() -> None:
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(FetchRequest)  # type: ignore[arg-type]
    assert second.topics == []


def test_null_is_not_the_default_of_a_nullable_array() -> None:
    assert MetadataRequest().topics == []
    assert MetadataRequest(topics=None).topics is None
    assert OffsetFetchRequest().topics == []


def test_default_of_a_struct_is_shared_and_read_only() -> None:
    first, second = PartitionData(), PartitionData()
    assert first.current_leader is second.current_leader
    assert first.current_leader == LeaderIdAndEpoch()
    assert LeaderIdAndEpoch() == first.current_leader
    assert isinstance(first.current_leader, LeaderIdAndEpoch)
    assert first.current_leader.leader_id == -1
    with pytest.raises(AttributeError, match="assign a new LeaderIdAndEpoch instead"):
        first.current_leader.leader_id = 3
    first.current_leader = LeaderIdAndEpoch(leader_id=3)
    first.current_leader.leader_id = 4
    assert second.current_leader.leader_id == -1


def test_copies() -> None:
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(high_watermark=5)])])
    copied = copy.deepcopy(response)
    assert copied == response
    copied.responses[0].partitions[0].high_watermark = 6
    assert copied != response
    assert copy.copy(PartitionData(error_code=1)) == PartitionData(error_code=1)


def test_equality() -> None:
    assert FetchPartition(partition=1) == FetchPartition(partition=1)
    assert FetchPartition(partition=1) != FetchPartition(partition=2)
    assert FetchPartition() != PartitionData()
    assert FetchPartition() != 1
    assert FetchPartition(unknown_tagged_fields={5: b""}) != FetchPartition()
    assert FetchPartition(unknown_tagged_fields={}) == FetchPartition()
    with pytest.raises(TypeError, match="unhashable"):
        hash(FetchPartition())


def test_repr_shows_fields_that_were_set() -> None:
    assert repr(FetchRequest()) == "FetchRequest()"
    request = FetchRequest(max_wait_ms=5, topics=[], cluster_id="c", unknown_tagged_fields={7: b"x"})
    assert repr(request) == "FetchRequest(cluster_id='c', max_wait_ms=5, unknown_tagged_fields={7})"
    topic = FetchableTopicResponse(topic_id=bytes(15) + b"\1", partitions=[PartitionData(records=b"abc")])
    assert repr(topic) == (
        "FetchableTopicResponse(topic_id=AAAAAAAAAAAAAAAAAAAAAQ, partitions=[PartitionData(records=<3 bytes>)])"
    )


def test_repr_hides_bytes() -> None:
    assert repr(SaslAuthenticateRequest(auth_bytes=b"password")) == "SaslAuthenticateRequest(auth_bytes=<8 bytes>)"


def test_every_message_has_a_repr() -> None:
    for cls in message_classes():
        assert repr(cls()) == f"{cls.__name__}()"

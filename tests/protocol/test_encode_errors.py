"""Messages that a version cannot represent, and values that no version can: the error names the field."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.protocol.codec import decode, encode, encode_parts
from moldau.protocol.errors import EncodeError, ErrorCode, UnsupportedVersion
from moldau.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from moldau.protocol.messages.consumer_group_describe import Assignment, ConsumerGroupDescribeResponse, DescribedGroup
from moldau.protocol.messages.consumer_group_describe import Member as DescribedMember
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.schema import Message


def test_field_that_is_not_in_the_version() -> None:
    request = HeartbeatRequest(group_instance_id="static")
    assert decode(HeartbeatRequest, encode(request, 3), 3) == request
    with pytest.raises(
        UnsupportedVersion, match=r"HeartbeatRequest v2 has no HeartbeatRequest\.group_instance_id"
    ) as e:
        encode(request, 2)
    assert e.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_ignorable_field_that_is_not_in_the_version_is_omitted() -> None:
    request = FetchRequest(rack_id="a", max_wait_ms=1)
    assert decode(FetchRequest, encode(request, 10), 10) == FetchRequest(max_wait_ms=1)


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (FindCoordinatorRequest(coordinator_keys=["a"]), 3),
        (FetchRequest(replica_state=ReplicaState(replica_id=1)), 14),
        (FetchRequest(replica_id=1), 15),
        (MetadataRequest(allow_auto_topic_creation=False), 3),
        (FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(last_fetched_epoch=2)])]), 11),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else str(value),
)
def test_fields_of_every_type_that_are_not_in_the_version(message: Message, version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        encode(message, version)


def test_default_value_of_a_field_that_is_not_in_the_version_is_not_an_error() -> None:
    assert encode(FetchRequest(replica_state=ReplicaState()), 14) == encode(FetchRequest(), 14)


def test_unknown_tags_in_a_version_without_tags() -> None:
    request = HeartbeatRequest(unknown_tagged_fields={3: b"x"})
    with pytest.raises(UnsupportedVersion, match="HeartbeatRequest v3 is not flexible"):
        encode(request, 3)
    assert decode(HeartbeatRequest, encode(request, 4), 4) == request


def test_unknown_tag_that_is_known() -> None:
    with pytest.raises(EncodeError, match="FetchRequest v15: FetchRequest: tag 1 is a known field in this version"):
        encode(FetchRequest(unknown_tagged_fields={1: b""}), 15)


def test_invalid_tag_number() -> None:
    with pytest.raises(EncodeError, match="invalid tag -1"):
        encode(HeartbeatRequest(unknown_tagged_fields={-1: b""}), 4)


ANY: Any = None


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (HeartbeatRequest(group_id=ANY), "group_id is null, but is not nullable"),
        (HeartbeatRequest(group_id=5), "group_id is a int (5), not a string"),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id="x" * 0x8000), "group_id has 32768 bytes, more than the limit of 32767"),
        (HeartbeatRequest(group_id="\ud800"), "group_id contains a lone surrogate"),
        (HeartbeatRequest(generation_id=ANY), "generation_id is null"),
        (HeartbeatRequest(generation_id=1.5), "generation_id is a float (1.5), not an integer"),  # type: ignore[arg-type]
        (HeartbeatRequest(generation_id=2**31), "generation_id is 2147483648, which does not fit into int32"),
        (HeartbeatRequest(generation_id=-(2**31) - 1), "generation_id is -2147483649, which does not fit into int32"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_wrong_value(message: Message, reason: str, version: int) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(message, version)
    assert str(caught.value).startswith(f"HeartbeatRequest v{version}: {reason}")


def topics(*partitions: Any) -> Any:
    return [FetchTopic(), FetchTopic(partitions=list(partitions))]


@pytest.mark.parametrize(
    ("message", "version", "reason"),
    [
        (FetchRequest(topics=ANY), 17, "topics is null"),
        (FetchRequest(topics=ANY), 4, "topics is null"),
        (
            FetchRequest(topics=topics(None)),
            17,
            r"topics\[1\].partitions\[0\] is a NoneType, not a FetchPartition",
        ),
        (
            FetchRequest(topics=topics(FetchPartition(), FetchPartition(fetch_offset=1 << 63))),
            12,
            r"topics\[1\].partitions\[1\].fetch_offset is 9223372036854775808, which does not fit into int64",
        ),
        (
            FetchRequest(topics=[FetchTopic(topic_id=b"short")]),
            13,
            r"topics\[0\].topic_id is a bytes, not the 16",
        ),
        (FetchRequest(topics=[FetchTopic(topic_id=ANY)]), 13, r"topics\[0\].topic_id is null"),
        (FetchRequest(topics="t"), 12, r"topics is a str \('t'\), not a list"),  # type: ignore[arg-type]
        (SaslAuthenticateRequest(auth_bytes=ANY), 2, "auth_bytes is null"),
        (AlterClientQuotasRequest(entries=[EntryData(ops=[OpData(value="1")])]), 1, "value is a str .*not a number"),  # type: ignore[arg-type]
        (FetchRequest(replica_state=ANY), 17, "replica_state is null"),
        (MetadataRequest(allow_auto_topic_creation=ANY), 9, "allow_auto_topic_creation is null"),
        (MetadataRequest(allow_auto_topic_creation="no"), 9, "allow_auto_topic_creation is a str .*not a boolean"),  # type: ignore[arg-type]
        (ProduceRequest(acks=1 << 15), 9, "acks is 32768, which does not fit into int16"),
        (FetchResponse(responses=[ANY]), 12, r"responses\[0\] is a NoneType, not a FetchableTopicResponse"),
    ],
)
def test_wrong_value_deep_in_a_message(message: Message, version: int, reason: str) -> None:
    with pytest.raises(EncodeError, match=f"{type(message).__name__} v{version}: .*{reason}"):
        encode(message, version)


def test_error_does_not_show_bytes() -> None:
    with pytest.raises(EncodeError) as caught:
        encode(SaslAuthenticateRequest(auth_bytes=["secret"]), 2)  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


class Range:
    """Represents a range of a file: it has only a length."""

    def __len__(self) -> int:
        return 300


@pytest.mark.parametrize("version", [3, 9])
def test_records_may_be_any_object_with_a_length(version: int) -> None:
    records = Range()
    partition: Any = PartitionProduceData(index=4)
    partition.records = records
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    parts: list[Any] = []
    encode_parts(request, version, parts)
    assert records in parts
    with_bytes = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=4, records=bytes(300))])]
    )
    assert b"".join(bytes(300) if part is records else part for part in parts) == encode(with_bytes, version)


def test_struct_with_two_fields_of_one_struct_type() -> None:
    """The generated code must not mix up its variables."""
    response = ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(
                members=[
                    DescribedMember(
                        assignment=Assignment(unknown_tagged_fields={1: b"a"}),
                        target_assignment=Assignment(unknown_tagged_fields={2: b"b"}),
                    )
                ]
            )
        ]
    )
    assert decode(ConsumerGroupDescribeResponse, encode(response, 1), 1) == response


def test_response_without_partitions_is_small() -> None:
    assert encode(ProduceResponse(), 9) == b"\1\0\0\0\0\0"

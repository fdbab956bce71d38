"""Requests with thousands of elements and a result for each: they are served in small steps, as one atomic request."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

import pytest

from moldau.coordinator.patterns import Pattern
from moldau.protocol.api import request_class
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.server.apis import APIS, Api
from moldau.server.requests.dispatch import Route

from .test_dense_requests import StepMeter, array_paths, dense
from .transactional import Transactional

PARTITIONS = 1_000

_CALLS_OF_A_STEP = 8_000

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


@pytest.fixture
def server(make_server: Any) -> Any:
    return make_server(config=QUICK)


@pytest.fixture
def wire(server: Any) -> Iterator[Any]:
    with server.wire() as wire:
        yield wire


def find_group(server: Any, wire: Any, group_id: str = "g") -> None:
    wire.call(FindCoordinatorRequest(coordinator_keys=[group_id]), 6)
    server.wait_until(lambda: all(runtime.state.value == "active" for runtime in server.broker.groups.runtimes()))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name)
def test_the_same_error_for_all_elements_is_returned_in_small_steps(api: Api) -> None:
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1

    cls = request_class(api.key)
    route = Route(api, api.max_version)
    for path in array_paths(cls, api.max_version):
        struct = path[-1].struct
        length = min(api.max_elements, 30_000) // (1 if struct is None else 1 + len(struct.FIELDS))
        request = dense(cls, path, length)
        calls = largest = 0
        sys.setprofile(count)
        try:
            answer = route.failed(request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "why"))
            for _ in answer if isinstance(answer, GeneratorType) else ():
                largest, calls = max(largest, calls), 0
        finally:
            sys.setprofile(None)
        assert max(largest, calls) <= _CALLS_OF_A_STEP, path


def test_each_leaving_member_gets_a_result(server: Any, wire: Any) -> None:
    find_group(server, wire)
    protocols = [JoinGroupRequestProtocol(name="p", metadata=b"")]
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="x", protocols=protocols
    )
    join.member_id = wire.call(join, 9).member_id
    assert wire.call(join, 9).error_code == 0
    members = [MemberIdentity(member_id=f"{number}") for number in range(9_000)]
    members[4_321].member_id = join.member_id
    wire.call(LeaveGroupRequest(group_id="g", members=members[:1]), 5)
    meter = StepMeter(server)
    answer = wire.call(LeaveGroupRequest(group_id="g", members=members), 5)
    assert answer.error_code == 0
    assert [member.member_id for member in answer.members] == [member.member_id for member in members]
    codes = [member.error_code for member in answer.members]
    assert codes.pop(4_321) == ErrorCode.NONE
    assert set(codes) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert 0 < meter.largest <= _CALLS_OF_A_STEP


def test_members_that_leave_a_group_of_another_coordinator_get_its_error(make_server: Any) -> None:
    with make_server().wire() as wire:  # no coordinator has been requested before
        members = [MemberIdentity(member_id=f"{number}") for number in range(1_000)]
        answer = wire.call(LeaveGroupRequest(group_id="g", members=members), 5)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert answer.members == []


def offsets(producer: Transactional, **fields: Any) -> TxnOffsetCommitRequest:
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=index + 1)
        for index in range(PARTITIONS)
    ]
    topics = [TxnOffsetCommitRequestTopic(name=name, partitions=partitions) for name in ("many", "none")]
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=topics,
        **fields,
    )


def test_many_offsets_belong_to_one_transaction(server: Any, wire: Any) -> None:
    server.create_topic("many", partitions=PARTITIONS)
    find_group(server, wire)
    producer = Transactional(wire, "x")
    while producer.init():
        pass
    wire.call(TxnOffsetCommitRequest(transactional_id="x", group_id="g"), 5)
    meter = StepMeter(server)
    for fields, expected in (({"generation_id": 7}, ErrorCode.ILLEGAL_GENERATION), ({}, ErrorCode.NONE)):
        answer = wire.call(offsets(producer, **fields), 5)
        codes = {topic.name: [one.error_code for one in topic.partitions] for topic in answer.topics}
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == {"many": [expected] * PARTITIONS, "none": [unknown] * PARTITIONS}
    assert 0 < meter.largest <= _CALLS_OF_A_STEP
    fetch = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g",
                topics=[OffsetFetchRequestTopics(name="many", partition_indexes=list(range(PARTITIONS)))],
            )
        ]
    )
    for committed in (False, True):
        ((topic,),) = [group.topics for group in wire.call(fetch, 8).groups]
        assert [one.committed_offset for one in topic.partitions] == [
            index + 1 if committed else -1 for index in range(PARTITIONS)
        ]
        end = EndTxnRequest(
            transactional_id="x", producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
        )
        assert wire.call(end, 5).error_code in (0, ErrorCode.PRODUCER_FENCED)
        server.wait_until(lambda: server.broker.transactions.has_ended("x"))


@pytest.mark.parametrize("missing", [False, True])
def test_many_partitions_are_added_all_or_none(server: Any, wire: Any, missing: bool) -> None:
    server.create_topic("many", partitions=PARTITIONS - missing)
    producer = Transactional(wire, "x", v2=False)
    while producer.init(4):
        pass
    producer.add("many", partitions=(0,))
    meter = StepMeter(server)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name="many", partitions=list(range(PARTITIONS))) for _ in range(9)
        ],
    )
    for topic in wire.call(request, 3).results_by_topic_v3_and_below:
        codes = [one.partition_error_code for one in topic.results_by_partition]
        if missing:
            assert codes.pop() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED] * (PARTITIONS - 1)
        else:
            assert codes == [ErrorCode.NONE] * PARTITIONS
    assert 0 < meter.largest <= _CALLS_OF_A_STEP


def test_many_config_keys_are_described_once_if_they_exist(server: Any, wire: Any) -> None:
    server.create_topic("t")
    keys = ["retention.ms", "none", *(str(number) for number in range(30_000)), "segment.bytes", "retention.ms"]
    request = DescribeConfigsRequest()
    wire.call(request, 4)
    meter = StepMeter(server)
    request.resources = [DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=keys)]
    (result,) = wire.call(request, 4).results
    assert [config.name for config in result.configs] == ["retention.ms", "segment.bytes"]
    request.resources[0].configuration_keys = keys[1:1000]
    (result,) = wire.call(request, 4).results
    assert result.configs == []  # not all configs
    assert 0 < meter.largest <= _CALLS_OF_A_STEP


def test_many_topics_are_described_in_order(server: Any, wire: Any) -> None:
    server.create_topic("t7", partitions=3)
    names = [f"t{number}" for number in range(20_000)]
    topics = [TopicRequest(name=name) for name in [*names, *names[:100]]]
    answer = wire.call(DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=2), 0)
    described = [topic.name for topic in answer.topics]
    assert described == [name for name in sorted(names) if name <= "t7"]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("t7", 2)


def test_transactional_ids_are_listed_in_small_steps(server: Any, wire: Any) -> None:
    names = {f"x{number}" for number in range(250)}
    for name in names:
        producer = Transactional(wire, name)
        while producer.init():
            pass
    wire.call(ListTransactionsRequest(), 2)
    meter = StepMeter(server)
    listed = wire.call(ListTransactionsRequest(), 2).transaction_states
    assert {one.transactional_id for one in listed} == names
    listed = wire.call(ListTransactionsRequest(transactional_id_pattern="x1.*"), 2).transaction_states
    assert {one.transactional_id for one in listed} == {name for name in names if name.startswith("x1")}
    assert meter.steps > 0


def subscribe(group_id: str, regex: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )


def create_many(wire: Any, names: list[str]) -> None:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    assert {topic.error_code for topic in wire.call(CreateTopicsRequest(topics=topics), 7).topics} == {0}


def test_a_regular_expression_is_matched_with_one_topic_per_step(server: Any, wire: Any, monkeypatch: Any) -> None:
    create_many(wire, [f"t{number}" for number in range(40)])
    find_group(server, wire)
    monkeypatch.delattr(Pattern, "matching")  # the variant that matches all topics in one step
    meter = StepMeter(server)
    answer = wire.call(subscribe("g", "t1.*"), 1)
    assert answer.error_code == 0, answer
    assert len(answer.assignment.topic_partitions) == 11
    assert meter.steps > 40
    assert wire.call(subscribe("g2", "("), 1).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_topic_that_is_created_during_matching_is_matched_too(server: Any, wire: Any, monkeypatch: Any) -> None:
    create_many(wire, [f"t{number}" for number in range(40)])
    find_group(server, wire)
    matches = Pattern.matches
    matched = []

    def create_in_between(pattern: Pattern, name: str) -> bool:
        matched.append(name)
        if len(matched) == 20:
            topics = [CreatableTopic(name="t1new", num_partitions=1, replication_factor=1)]
            server.broker.metadata.request(CreateTopicsRequest(topics=topics), now_ms=0)
        return matches(pattern, name)

    monkeypatch.setattr(Pattern, "matches", create_in_between)
    monkeypatch.delattr(Pattern, "matching")
    answer = wire.call(subscribe("g", "t1.*"), 1)
    assert len(answer.assignment.topic_partitions) == 12
    assert len(matched) == len(set(matched)) == 41 + 1  # including the topic of the coordinator


@pytest.mark.parametrize("version", [5, 10])
def test_the_offsets_of_many_topics_and_groups_are_fetched_in_small_steps(server: Any, wire: Any, version: int) -> None:
    find_group(server, wire)
    names = [f"{number}" for number in range(20_000)]
    if version < 8:
        request = OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[]) for name in names]
        )
    else:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=[]) for name in names])
    wire.call(OffsetFetchRequest(topics=[]), version)
    meter = StepMeter(server)
    answer = wire.call(request, version)
    assert [group.group_id for group in answer.groups] + [topic.name for topic in answer.topics] == names
    assert 0 < meter.largest <= _CALLS_OF_A_STEP

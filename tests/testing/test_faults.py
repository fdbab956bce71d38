"""Faults that a test injects, and the record of requests, through real connections."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from moldau.protocol.api import ApiKey
from moldau.protocol.codec import decode_at
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.records import iter_batches
from moldau.testing import Broker, BrokerError
from moldau.testing.builders import batch, fetch_request, produce_request
from moldau.testing.topic_requests import Topic, create_topic, header
from moldau.testing.wire import WireClient

PRODUCE, FETCH, METADATA = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture(scope="module", params=["process", "thread"])
def started(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(thread=request.param == "thread") as broker:
        yield broker


@pytest.fixture
def broker(started: Broker) -> Iterator[Broker]:
    started.faults.clear()
    started.reset()
    yield started
    started.faults.clear()


@pytest.fixture
def orders(broker: Broker) -> Topic:
    return create_topic(broker.bootstrap_servers, "orders", 2)


@pytest.fixture
def wire(broker: Broker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap_servers, client_id="tester") as client:
        yield client


def produce(wire: WireClient, topic: str = "orders", partition: int = 0, acks: int = -1) -> tuple[int, int]:
    """The error code and the base offset."""
    request = produce_request(topic, batch(b"value"), partition=partition, acks=acks)
    answer = wire.call(request, 9).responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def end_offset(broker: Broker, wire: WireClient) -> int:
    """The number of records of partition 0."""
    answer = wire.call(fetch_request("orders", 0, max_wait_ms=0), 12)
    return int(answer.responses[0].partitions[0].high_watermark)


def test_an_error_for_the_first_two_requests(broker: Broker, orders: Topic, wire: WireClient) -> None:
    fault = broker.faults.error(PRODUCE, NOT_LEADER, topic="orders", times=2)
    assert [produce(wire) for _ in range(3)] == [(NOT_LEADER, -1), (NOT_LEADER, -1), (0, 0)]
    assert fault.triggered == 2


def test_a_connection_on_the_fast_path_is_affected_too(broker: Broker, orders: Topic, wire: WireClient) -> None:
    assert [produce(wire)[1] for _ in range(5)] == [0, 1, 2, 3, 4]
    with broker.faults.error(PRODUCE, NOT_LEADER):
        assert produce(wire) == (NOT_LEADER, -1)
    assert [produce(wire)[1] for _ in range(5)] == [5, 6, 7, 8, 9]


def test_filters(broker: Broker, orders: Topic, wire: WireClient) -> None:
    create_topic(broker.bootstrap_servers, "other")
    broker.faults.error(PRODUCE, NOT_LEADER, topic="orders", partition=1, client_id="tester", versions=(9, 10))
    assert produce(wire) == (0, 0)
    assert produce(wire, "other") == (0, 0)
    assert produce(wire, partition=1) == (NOT_LEADER, -1)
    with WireClient(broker.bootstrap_servers, client_id="somebody") as somebody:
        assert produce(somebody, partition=1) == (0, 0)
    request = produce_request("orders", batch(b"value"), partition=1)
    assert wire.call(request, 11).responses[0].partition_responses[0].error_code == 0


def test_a_topic_is_found_by_its_id(broker: Broker, orders: Topic, wire: WireClient) -> None:
    broker.faults.error(METADATA, ErrorCode.LEADER_NOT_AVAILABLE, topic="orders")
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=orders.topic_id)])
    assert wire.call(by_id, 12).topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    create_topic(broker.bootstrap_servers, "other")
    assert wire.call(MetadataRequest(topics=[MetadataRequestTopic(name="other")]), 12).topics[0].error_code == 0


def test_a_group_is_found_by_its_name(broker: Broker, wire: WireClient) -> None:
    broker.faults.error(ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, group="billing", times=1)
    request = FindCoordinatorRequest(coordinator_keys=["billing"])
    assert wire.call(request, 4).coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert wire.call(request, 4).coordinators[0].error_code == 0
    assert wire.call(FindCoordinatorRequest(coordinator_keys=["other"]), 4).coordinators[0].error_code == 0


def test_an_error_after_the_append(broker: Broker, orders: Topic, wire: WireClient) -> None:
    broker.faults.error(PRODUCE, ErrorCode.REQUEST_TIMED_OUT, after=True, times=1)
    assert produce(wire) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert produce(wire) == (0, 1)


def test_the_third_call(broker: Broker, orders: Topic, wire: WireClient) -> None:
    broker.faults.error(PRODUCE, NOT_LEADER, on_call=3)
    assert [produce(wire)[0] for _ in range(5)] == [0, 0, NOT_LEADER, 0, 0]


def test_a_probability_makes_the_same_choice_for_the_same_seed(broker: Broker, orders: Topic, wire: WireClient) -> None:
    def errors(seed: int) -> list[int]:
        with broker.faults.error(PRODUCE, NOT_LEADER, probability=0.5, seed=seed):
            return [produce(wire)[0] for _ in range(40)]

    first = errors(1)
    assert set(first) == {0, NOT_LEADER}
    assert errors(1) == first
    assert errors(2) != first


def test_a_delay_keeps_the_order_of_responses(broker: Broker, orders: Topic, wire: WireClient) -> None:
    broker.faults.delay(PRODUCE, seconds=0.3, times=1)
    began = time.monotonic()
    for _ in range(3):
        wire.send(produce_request("orders", batch(b"value")), 9)
    wire.send(ApiVersionsRequest(), 0)
    answers = [wire.receive() for _ in range(4)]
    assert time.monotonic() - began >= 0.3
    assert [answer.responses[0].partition_responses[0].base_offset for answer in answers[:3]] == [0, 1, 2]
    assert answers[3].error_code == 0


def test_a_delay_does_not_affect_other_connections(broker: Broker, orders: Topic, wire: WireClient) -> None:
    broker.faults.delay(PRODUCE, seconds=60, client_id="tester")
    wire.send(produce_request("orders", batch(b"value")), 9)
    with WireClient(broker.bootstrap_servers, client_id="somebody") as somebody:
        assert produce(somebody) == (0, 0)


@pytest.mark.parametrize(("when", "records"), [("before", 0), ("after", 1), ("middle", 1)])
def test_a_disconnect(broker: Broker, orders: Topic, when: str, records: int) -> None:
    broker.faults.disconnect(PRODUCE, when=when, times=1)  # type: ignore[arg-type]
    with WireClient(broker.bootstrap_servers) as client:
        client.send(produce_request("orders", batch(b"value")), 9)
        with pytest.raises(ConnectionError, match="closed the connection" if when != "middle" else r"\([1-9]"):
            client.receive()
    with WireClient(broker.bootstrap_servers) as client:
        assert end_offset(broker, client) == records


def test_a_blackhole_holds_its_connection_only(broker: Broker, orders: Topic, wire: WireClient) -> None:
    fault = broker.faults.blackhole(PRODUCE, client_id="tester")
    with WireClient(broker.bootstrap_servers, client_id="tester", timeout_s=0.2) as impatient:
        impatient.send(produce_request("orders", batch(b"value")), 9)
        impatient.send(ApiVersionsRequest(), 0)
        with pytest.raises(TimeoutError):
            impatient.receive()
    assert fault.triggered == 1
    with WireClient(broker.bootstrap_servers, client_id="somebody") as somebody:
        assert produce(somebody) == (0, 0)


def test_a_throttle(broker: Broker, orders: Topic, wire: WireClient) -> None:
    broker.faults.throttle(seconds=1.5)
    assert wire.call(produce_request("orders", batch(b"value")), 9).throttle_time_ms == 1500
    assert wire.call(fetch_request("orders", 0, max_wait_ms=0), 12).throttle_time_ms == 1500


def test_corrupt_batch(broker: Broker, orders: Topic, wire: WireClient) -> None:
    produce(wire)
    fault = broker.faults.corrupt_batch(topic="orders")
    records = wire.call(fetch_request("orders", 0, max_wait_ms=0), 12).responses[0].partitions[0].records
    assert [found.has_valid_crc() for found in iter_batches(bytes(records))] == [False]
    fault.remove()
    records = wire.call(fetch_request("orders", 0, max_wait_ms=0), 12).responses[0].partitions[0].records
    assert [found.has_valid_crc() for found in iter_batches(bytes(records))] == [True]


def test_capped_versions(broker: Broker, wire: WireClient) -> None:
    broker.faults.cap_versions({PRODUCE: 7, FETCH: -1})
    versions = {api.api_key: api.max_version for api in wire.call(ApiVersionsRequest(), 0).api_keys}
    assert versions[PRODUCE] == 7
    assert FETCH not in versions
    assert versions[METADATA] > 9


def test_versions_are_capped_also_for_a_client_that_is_newer_than_the_server(broker: Broker, wire: WireClient) -> None:
    """The response to an unknown version of ApiVersions has version 0."""
    broker.faults.cap_versions({PRODUCE: 7})
    wire.send_frame(header(ApiKey.API_VERSIONS, 9, correlation_id=5))
    frame = wire.receive_frame()
    answer, _ = decode_at(ApiVersionsResponse, frame, 0, 4)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {api.api_key: api.max_version for api in answer.api_keys}[PRODUCE] == 7


def test_acks_0_with_an_error_closes_the_connection(broker: Broker, orders: Topic, wire: WireClient) -> None:
    broker.faults.error(PRODUCE, NOT_LEADER)
    wire.send(produce_request("orders", batch(b"value"), acks=0), 9, answered=False)
    assert wire.closed_by_server()


def test_an_invalid_fault_is_an_error(broker: Broker) -> None:
    with pytest.raises(BrokerError, match="needs a topic"):
        broker.faults.error(PRODUCE, NOT_LEADER, partition=1)
    with pytest.raises(BrokerError, match="no color"):
        broker.faults.error(PRODUCE, NOT_LEADER, color="red")
    with pytest.raises(ValueError, match="on_call"):
        broker.faults.error(PRODUCE, NOT_LEADER, on_call=2, times=3)


def test_recorded_requests(broker: Broker, orders: Topic, wire: WireClient) -> None:
    broker.requests.clear()
    produce(wire)
    wire.call(fetch_request("orders", 0, max_wait_ms=123), 12)
    found = broker.requests.all()
    assert [(each.api, each.version, each.client_id) for each in found] == [
        (PRODUCE, 9, "tester"),
        (FETCH, 12, "tester"),
    ]
    assert found[1].request.max_wait_ms == 123
    assert broker.requests.of(PRODUCE, client_id="tester")[0].request.topic_data[0].name == "orders"
    assert broker.requests.of(PRODUCE, client_id="somebody") == []
    broker.requests.clear()
    assert len(broker.requests) == 0


def test_a_request_is_waited_for(broker: Broker, orders: Topic, wire: WireClient) -> None:
    broker.requests.clear()
    for _ in range(3):
        wire.send(produce_request("orders", batch(b"value")), 9)
    assert broker.requests.wait_for(PRODUCE, count=3).size > 60
    with pytest.raises(BrokerError, match=r"3 of 4 requests of PRODUCE.*PRODUCE v9 of 'tester'"):
        broker.requests.wait_for(PRODUCE, count=4, timeout=0.05)


def test_a_recorded_request_names_its_fault(broker: Broker, orders: Topic, wire: WireClient) -> None:
    broker.requests.clear()
    broker.faults.error(PRODUCE, NOT_LEADER, times=1)
    produce(wire)
    produce(wire)
    assert [each.fault for each in broker.requests] == ["error", None]


def test_a_broker_with_a_blackhole_stops_cleanly() -> None:
    with Broker() as broker:
        broker.faults.blackhole(METADATA)
        broker.requests.clear()
        with WireClient(broker.bootstrap_servers) as client:
            client.send(MetadataRequest(topics=[]), 12)
            broker.requests.wait_for(METADATA)
            broker.stop()
            assert "Traceback" not in broker.log()


def test_a_reset_removes_faults_and_recorded_requests(broker: Broker, orders: Topic, wire: WireClient) -> None:
    assert len(broker.requests) > 0
    broker.faults.error(METADATA, ErrorCode.LEADER_NOT_AVAILABLE, client_id="tester")
    broker.reset()
    assert wire.call(MetadataRequest(topics=[]), 12).topics == []
    assert [each.api for each in broker.requests.of(METADATA, client_id="tester")] == [METADATA]


def test_capped_versions_of_a_release(broker: Broker, wire: WireClient) -> None:
    broker.faults.cap_versions("2.8")
    answer = wire.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
    versions = {api.api_key: api.max_version for api in answer.api_keys}
    assert (versions[PRODUCE], versions[FETCH], versions[ApiKey.OFFSET_FETCH]) == (9, 12, 7)
    assert ApiKey.CONSUMER_GROUP_HEARTBEAT not in versions
    assert answer.finalized_features == []
    with pytest.raises(BrokerError, match=r"no versions of Apache Kafka 2\.0"):
        broker.faults.cap_versions("2.0")


def test_stale_metadata(broker: Broker, orders: Topic, wire: WireClient) -> None:
    def described(*names: str) -> list[tuple[str | None, int, int, bytes]]:
        topics = [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics or None, allow_auto_topic_creation=False)
        return [
            (each.name, each.error_code, len(each.partitions), each.topic_id)
            for each in wire.call(request, 12).topics
            if not each.is_internal
        ]

    fault = broker.faults.stale_metadata(client_id="tester")
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=10_000)
    assert [each.error_code for each in wire.call(delete, 6).responses] == [0]
    assert described("orders") == [("orders", 0, 2, orders.topic_id)]
    again = create_topic(broker.bootstrap_servers, "orders", 3)
    create_topic(broker.bootstrap_servers, "later")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described("orders", "later") == [("orders", 0, 2, orders.topic_id), ("later", unknown, 0, bytes(16))]
    assert described() == [("orders", 0, 2, orders.topic_id)]
    fault.remove()
    assert described("orders", "later")[0] == ("orders", 0, 3, again.topic_id)
    assert described("later")[0][1:3] == (0, 1)


def test_stale_metadata_of_one_topic(broker: Broker, orders: Topic, wire: WireClient) -> None:
    broker.faults.stale_metadata(topic="later", client_id="tester")
    create_topic(broker.bootstrap_servers, "later")
    names = [MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="later")]
    errors = [each.error_code for each in wire.call(MetadataRequest(topics=names), 12).topics]
    assert errors == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_moved_coordinator_is_found_by_a_lookup(broker: Broker, wire: WireClient) -> None:
    def heartbeat(client: WireClient, group: str) -> int:
        request = HeartbeatRequest(group_id=group, generation_id=1, member_id="member")
        return int(client.call(request, 4).error_code)

    def look_up(client: WireClient, group: str) -> None:
        assert client.call(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators[0].error_code == 0

    for group in ("billing", "other"):
        look_up(wire, group)
    fault = broker.faults.move_coordinator("billing")
    assert heartbeat(wire, "billing") == ErrorCode.NOT_COORDINATOR
    look_up(wire, "other")
    assert heartbeat(wire, "other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(wire, "billing") == ErrorCode.NOT_COORDINATOR
    look_up(wire, "billing")
    assert heartbeat(wire, "billing") == ErrorCode.UNKNOWN_MEMBER_ID
    with WireClient(broker.bootstrap_servers, client_id="second") as second:
        assert heartbeat(second, "billing") == ErrorCode.NOT_COORDINATOR
        look_up(second, "billing")
        assert heartbeat(second, "billing") == ErrorCode.UNKNOWN_MEMBER_ID
    assert fault.triggered == 3


def test_an_advertised_address(broker: Broker, wire: WireClient) -> None:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    broker.faults.advertise("broker.invalid", 9, times=2)
    (found,) = wire.call(MetadataRequest(topics=[]), 12).brokers
    assert (found.host, found.port) == ("broker.invalid", 9)
    (coordinator,) = wire.call(FindCoordinatorRequest(coordinator_keys=["billing"]), 4).coordinators
    assert (coordinator.host, coordinator.port) == ("broker.invalid", 9)
    (found,) = wire.call(MetadataRequest(topics=[]), 12).brokers
    assert (found.host, found.port) == (host, int(port))
    with pytest.raises(BrokerError, match="a host and a port"):
        broker.faults.advertise("", 0)


def test_tagged_fields(broker: Broker, orders: Topic, wire: WireClient) -> None:
    broker.faults.tagged_fields()
    topic = MetadataRequestTopic(name="orders")
    answer = wire.call(MetadataRequest(topics=[topic]), 12)
    for struct in (answer, answer.brokers[0], answer.topics[0], answer.topics[0].partitions[1]):
        assert struct.unknown_tagged_fields == {10_000: b"a field of a later version"}
    assert wire.call(MetadataRequest(topics=[topic]), 8).topics[0].error_code == 0
    produce(wire)
    records = wire.call(fetch_request("orders", 0, max_wait_ms=0), 12).responses[0].partitions[0].records
    assert [found.has_valid_crc() for found in iter_batches(bytes(records))] == [True]


def test_a_request_is_waited_for_by_the_broker(broker: Broker, orders: Topic, wire: WireClient) -> None:
    broker.requests.clear()
    wire.send(produce_request("orders", batch(b"value")), 9)
    assert broker.wait_for_request(PRODUCE, client_id="tester").api is PRODUCE

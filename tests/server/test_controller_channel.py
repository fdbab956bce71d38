"""Requests to the active controller, with controllers in memory: elections, lost responses and deadlines; and the
forwarding of clients' requests over such a channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.metadata.observer import Address
from moldau.protocol.api import ApiKey, request_class, request_header_version, response_header_version
from moldau.protocol.codec import decode_at, encode
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages import incremental_alter_configs as configs
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.default_principal import DefaultPrincipalData
from moldau.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.protocol.messages.headers import RequestHeader, ResponseHeader
from moldau.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.schema import Request, Response
from moldau.server.cluster.controller_channel import ControllerChannel
from moldau.server.cluster.peers import Unanswered
from moldau.server.cluster.remote_controller import RemoteController
from moldau.server.controller_client import Origin

from ..metadata.test_followed import NOW, Controller, catch_up
from .remote_controllers import APIS, Host, Node, Quorum, open_metadata

ATTEMPT_MS = 1000
IDS = AllocateProducerIdsResponse(producer_id_start=5000, producer_id_len=1000)
INACTIVE = AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)


class Channel:
    """A channel to the leader of two controllers, which keep requests until the test answers them."""

    def __init__(self) -> None:
        self.host = Host()
        self.quorum = Quorum(self.host, 101, 102)
        self.controller: Address | None = None
        self.channel = ControllerChannel(
            self.host.connect,
            lambda: self.controller,
            self.host.timers,
            client_id="1",
            request_timeout_ms=ATTEMPT_MS,
        )
        self.results: dict[str, Any] = {}
        for node in self.quorum.nodes.values():
            node.is_silent = True

    def send(self, name: str = "a", *, timeout_ms: int = 30_000) -> None:
        assert name not in self.results

        def done(result: Any) -> None:
            assert name not in self.results, "completed twice"
            self.results[name] = result

        self.channel.request(AllocateProducerIdsRequest(broker_id=1), done, timeout_ms=timeout_ms)
        self.host.run()

    def follow(self, node_id: int | None) -> None:
        """The metadata follower has noticed that this controller is active."""
        self.controller = None if node_id is None else self.node(node_id).address
        self.channel.controller_changed()
        self.host.run()

    def node(self, node_id: int) -> Node:
        return self.quorum.nodes[node_id]

    def answer(self, node_id: int, response: Response = IDS) -> None:
        self.node(node_id).answer(response)
        self.host.run()


@pytest.fixture
def channel() -> Iterator[Channel]:
    made = Channel()
    yield made
    made.channel.close()
    made.host.close()


def test_a_request_waits_until_a_controller_is_known(channel: Channel) -> None:
    channel.send()
    channel.host.advance(3000)
    assert not channel.results
    channel.follow(101)
    channel.answer(101)
    assert channel.results == {"a": IDS}


def test_without_a_controller_a_request_ends_at_its_deadline(channel: Channel) -> None:
    channel.send(timeout_ms=500)
    channel.host.advance(510)
    assert "no controller is known" in channel.results["a"].problem
    channel.follow(101)
    assert not channel.node(101).received


def test_a_controller_that_is_no_longer_active_is_asked_again_until_there_is_another(channel: Channel) -> None:
    channel.follow(101)
    channel.send()
    for pause_ms in (20, 40, 80):
        channel.answer(101, INACTIVE)
        assert not channel.node(101).kept
        channel.host.advance(pause_ms + 4)
        assert channel.node(101).kept
    channel.follow(102)
    channel.host.advance(400)
    channel.answer(102)
    assert channel.results == {"a": IDS}


def test_requests_in_flight_at_a_controller_that_dies_are_sent_to_the_next_one(channel: Channel) -> None:
    channel.follow(101)
    for name in ("a", "b", "c"):
        channel.send(name)
    assert len(channel.node(101).kept) == 3
    channel.answer(101)
    channel.node(101).kill()
    channel.follow(None)
    channel.host.advance(1000)
    channel.send("d")
    channel.follow(102)
    channel.host.advance(500)
    assert len(channel.node(102).kept) == 3
    for _ in range(3):
        channel.answer(102)
    assert channel.results == dict.fromkeys("abcd", IDS)


def test_requests_do_not_wait_for_a_suspended_controller_when_another_one_is_active(channel: Channel) -> None:
    channel.follow(101)
    channel.send()
    channel.follow(102)
    channel.host.advance(50)
    channel.answer(102)
    assert channel.results == {"a": IDS}


def test_a_response_that_is_lost_is_requested_again(channel: Channel) -> None:
    channel.follow(101)
    channel.send()
    channel.node(101).kill()
    channel.node(101).start()
    channel.host.advance(1000)
    channel.answer(101)
    assert channel.results == {"a": IDS}


def test_a_response_after_the_deadline_is_ignored(channel: Channel) -> None:
    channel.follow(101)
    channel.send(timeout_ms=500)
    channel.host.advance(510)
    assert isinstance(channel.results["a"], Unanswered)
    assert "c101:9093" in channel.results["a"].problem
    channel.answer(101)
    channel.send("b")
    channel.answer(101)
    assert channel.results["b"] == IDS


def test_a_controller_without_the_api_is_not_asked_again(channel: Channel) -> None:
    channel.node(101).apis = tuple(api for api in APIS if api[0] != ApiKey.ALLOCATE_PRODUCER_IDS)
    channel.follow(101)
    channel.send()
    assert channel.results["a"].is_final
    assert "AllocateProducerIds" in channel.results["a"].problem
    assert channel.channel.versions(ApiKey.ENVELOPE) is not None
    assert not channel.channel.versions(ApiKey.ALLOCATE_PRODUCER_IDS)


def test_closing_completes_each_request_once(channel: Channel) -> None:
    channel.send("waits")
    channel.follow(101)
    channel.send("sent")
    channel.channel.close()
    channel.send("later")
    channel.host.advance(5000)
    assert all(isinstance(result, Unanswered) for result in channel.results.values())
    assert set(channel.results) == {"waits", "sent", "later"}


# Forwarding


class Forwarding(Channel):
    """A `RemoteController` over the channel."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = open_metadata(self.quorum)
        self.client = RemoteController(
            self.metadata,
            self.channel,
            self.channel,
            self.host.slices,
            self.host.timers,
            self.channel.versions,
        )
        self.follow(101)

    def begin(self, request: Request, version: int, origin: Origin | None = None) -> list[Any]:
        """The response or the error of a request, after its completion."""
        result: list[Any] = []

        def steps() -> Any:
            try:
                result.append((yield from self.client.request(request, version, origin)))
            except KafkaError as error:
                result.append(error)

        self.host.slices.begin_shielded(steps(), immediately=True)
        self.host.run()
        return result

    def forwarded(self) -> tuple[EnvelopeRequest, RequestHeader, Any]:
        """The envelope that the controller has received, and its content."""
        envelope = self.node(101).kept[0][2]
        assert isinstance(envelope, EnvelopeRequest)
        data = envelope.request_data
        key, version = (int.from_bytes(data[at : at + 2], "big") for at in (0, 2))
        header, offset = decode_at(RequestHeader, data, request_header_version(key, version), 0)
        return envelope, header, decode_at(request_class(key), data, version, offset)[0]

    def reply(self, response: Response, version: int) -> None:
        key = response.API_KEY
        data = encode(ResponseHeader(correlation_id=0), response_header_version(key, version))
        self.answer(101, EnvelopeResponse(response_data=data + encode(response, version)))


ORIGIN = Origin("User:alice", "/192.168.1.7")
CREATE = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=5000)


@pytest.fixture
def forwarding() -> Iterator[Forwarding]:
    made = Forwarding()
    yield made
    made.channel.close()
    made.metadata.close(NOW)
    made.host.close()


def created(code: int = ErrorCode.NONE) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code)])


def apply_topic(forwarding: Forwarding) -> None:
    controller = Controller()
    controller.create("t")
    catch_up(controller, forwarding.metadata)
    forwarding.host.run()


def test_an_envelope_has_the_request_the_principal_and_the_address_of_the_client(forwarding: Forwarding) -> None:
    forwarding.begin(CREATE, 7, ORIGIN)
    envelope, header, request = forwarding.forwarded()
    assert (header.request_api_key, header.request_api_version) == (ApiKey.CREATE_TOPICS, 7)
    assert request == CREATE
    principal = decode_at(DefaultPrincipalData, envelope.request_principal or b"", 0, 2)[0]
    assert (principal.type, principal.name) == ("User", "alice")
    assert envelope.client_host_address == bytes([192, 168, 1, 7])


def test_the_response_waits_until_the_created_topic_can_be_used(forwarding: Forwarding) -> None:
    result = forwarding.begin(CREATE, 7, ORIGIN)
    forwarding.reply(created(), 7)
    assert not result
    apply_topic(forwarding)
    assert result == [created()]


@pytest.mark.parametrize("code", [ErrorCode.POLICY_VIOLATION, 999])
def test_errors_in_the_response_reach_the_client_unchanged(forwarding: Forwarding, code: int) -> None:
    """Also those that are newer than this software."""
    result = forwarding.begin(CREATE, 7, ORIGIN)
    forwarding.reply(created(code), 7)
    assert result == [created(code)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (999, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_errors_of_the_envelope(forwarding: Forwarding, code: int, expected: ErrorCode) -> None:
    result = forwarding.begin(CREATE, 7, ORIGIN)
    forwarding.answer(101, EnvelopeResponse(error_code=code))
    assert [error.code for error in result] == [expected]


def test_an_envelope_that_an_inactive_controller_rejects_is_sent_to_the_next_one(forwarding: Forwarding) -> None:
    result = forwarding.begin(CREATE, 7, ORIGIN)
    forwarding.answer(101, EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
    forwarding.follow(102)
    forwarding.host.advance(100)
    assert isinstance(forwarding.node(102).kept[0][2], EnvelopeRequest)
    assert not result


def test_malformed_responses_are_an_error_of_the_request_only(forwarding: Forwarding) -> None:
    result = forwarding.begin(CREATE, 7, ORIGIN)
    forwarding.answer(101, EnvelopeResponse(response_data=b"\0\0"))
    assert [error.code for error in result] == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_version_that_the_controller_does_not_have_is_not_forwarded(forwarding: Forwarding) -> None:
    forwarding.begin(CREATE, 7, ORIGIN)  # the controller's versions are known now
    forwarding.node(101).kept.clear()
    versions = forwarding.client.versions(ApiKey.DELETE_TOPICS)
    assert versions is not None
    assert versions.highest == 6
    assert forwarding.client.versions(ApiKey.METADATA) is None  # this broker serves it
    (error,) = forwarding.begin(CREATE, 8, ORIGIN)
    assert error.code == ErrorCode.UNSUPPORTED_VERSION
    (error,) = forwarding.begin(IncrementalAlterConfigsRequest(), 1, ORIGIN)
    assert error.code == ErrorCode.UNSUPPORTED_VERSION
    assert not forwarding.node(101).kept


def test_a_request_whose_time_is_over_is_not_forwarded(forwarding: Forwarding) -> None:
    (error,) = forwarding.begin(CREATE, 7, ORIGIN._replace(deadline_ms=forwarding.host.timers.now_ms()))
    assert error.code == ErrorCode.REQUEST_TIMED_OUT
    assert not forwarding.node(101).received


def test_a_request_without_a_response_times_out(forwarding: Forwarding) -> None:
    result = forwarding.begin(CREATE, 7, ORIGIN._replace(deadline_ms=forwarding.host.timers.now_ms() + 500))
    forwarding.host.advance(510)
    assert [error.code for error in result] == [ErrorCode.REQUEST_TIMED_OUT]


# Configs


def changed(resource_type: int, name: str, **values: str | None) -> configs.AlterConfigsResource:
    return configs.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            configs.AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
            for key, value in values.items()
        ],
    )


TOPIC, BROKER = 2, 4


def test_configs_are_checked_before_they_are_forwarded(forwarding: Forwarding) -> None:
    """The controllers of Apache Kafka do not repeat these checks."""
    for node in forwarding.quorum.nodes.values():
        node.apis = (*APIS, (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1))
    resources = [
        changed(BROKER, "1", log_retention_ms="word"),
        changed(TOPIC, "b", retention_ms="7"),
        changed(BROKER, "2", log_retention_ms="7"),
        changed(TOPIC, "null", retention_ms=None),
        changed(TOPIC, "a", retention_ms="7"),
        changed(1, "type"),
        changed(TOPIC, "twice"),
        changed(TOPIC, "twice"),
    ]
    result = forwarding.begin(IncrementalAlterConfigsRequest(resources=resources), 1, ORIGIN)
    _, _, request = forwarding.forwarded()
    assert [resource.resource_name for resource in request.resources] == ["b", "a"]
    answers = [
        configs.AlterConfigsResourceResponse(resource_type=TOPIC, resource_name="a", error_code=ErrorCode.NONE),
        configs.AlterConfigsResourceResponse(
            resource_type=TOPIC, resource_name="b", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ),
    ]
    forwarding.reply(IncrementalAlterConfigsResponse(responses=answers), 1)  # in another order
    (response,) = result
    invalid = ErrorCode.INVALID_REQUEST
    assert [(each.resource_name, each.error_code) for each in response.responses] == [
        ("1", invalid),
        ("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("2", invalid),
        ("null", invalid),
        ("a", ErrorCode.NONE),
        ("type", invalid),
        ("twice", invalid),
        ("twice", invalid),
    ]


def test_configs_without_a_valid_resource_are_not_forwarded(forwarding: Forwarding) -> None:
    for node in forwarding.quorum.nodes.values():
        node.apis = (*APIS, (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1))
    request = IncrementalAlterConfigsRequest(resources=[changed(BROKER, "2", log_retention_ms="7")])
    (response,) = forwarding.begin(request, 1, ORIGIN)
    assert [each.error_code for each in response.responses] == [ErrorCode.INVALID_REQUEST]
    assert not forwarding.node(101).received

"""The listener of a controller with an authorizer: who may send requests of brokers, and requests in envelopes."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.protocol.acl import AclOperation, AclResource
from moldau.protocol.api import ApiKey, request_class, response_header_version
from moldau.protocol.codec import decode, encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.default_principal import DefaultPrincipalData
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.envelope import EnvelopeRequest
from moldau.protocol.messages.headers import RequestHeader, ResponseHeader
from moldau.protocol.schema import Request
from moldau.testing.acl_requests import add_acl
from moldau.testing.controllers import Controller
from moldau.testing.wire import WireClient

from .secured_nodes import AUTHORIZER

OF_BROKERS = (
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ENVELOPE,
)
VERSION = 7


def controlled_by(folder: Path, super_user: str) -> Controller:
    return Controller(folder, **{"authorizer.class.name": AUTHORIZER, "super.users": super_user})


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireClient]:
    """A connection without any rights."""
    controller = controlled_by(tmp_path_factory.mktemp("strict"), "User:root")
    controller.start()
    with WireClient(controller.address) as wire:
        yield wire
    controller.stop()


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireClient]:
    """A connection of a super user."""
    controller = controlled_by(tmp_path_factory.mktemp("open"), "User:ANONYMOUS")
    controller.start()
    with WireClient(controller.address) as wire:
        yield wire
    controller.stop()


@pytest.mark.parametrize("key", OF_BROKERS, ids=lambda key: key.name)
def test_requests_of_brokers_need_cluster_action(strict: WireClient, key: ApiKey) -> None:
    request = request_class(key)()
    if isinstance(request, DescribeClusterRequest):
        request.endpoint_type = 2
    assert strict.call(request).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_tools_are_authorized_as_on_a_broker(strict: WireClient) -> None:
    topics = [CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
    (topic,) = strict.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000)).topics
    assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def enveloped(request: Request, version: int, user: str) -> EnvelopeRequest:
    header = RequestHeader(
        request_api_key=request.API_KEY, request_api_version=version, correlation_id=5, client_id="client"
    )
    return EnvelopeRequest(
        request_data=encode(header, 2) + encode(request, version),
        request_principal=struct.pack(">h", 0) + encode(DefaultPrincipalData(type="User", name=user), 0),
        client_host_address=ipaddress.ip_address("10.1.2.3").packed,
    )


def create_as(wire: WireClient, user: str, *names: str) -> dict[str, Any]:
    """Create topics through a broker; returns the results by name."""
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    response = wire.call(enveloped(CreateTopicsRequest(topics=topics, timeout_ms=10_000), VERSION, user))
    assert response.error_code == ErrorCode.NONE
    data = response.response_data
    assert data is not None
    size = len(encode(ResponseHeader(correlation_id=5), response_header_version(ApiKey.CREATE_TOPICS, VERSION)))
    created = decode(CreateTopicsResponse, bytes(data)[size:], VERSION)
    return {topic.name: topic for topic in created.topics}


def test_a_request_in_an_envelope_is_authorized_for_the_client(wire: WireClient) -> None:
    """An ACL is in effect when its creation is answered. There is no broker, so an allowed topic fails differently."""
    refused, allowed = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_REPLICATION_FACTOR
    assert create_as(wire, "alice", "a")["a"].error_code == refused
    add_acl(wire, AclOperation.CREATE, AclResource.TOPIC, "a")
    add_acl(wire, AclOperation.CREATE, AclResource.TOPIC, "of-another-host", host="10.9.9.9")
    found = create_as(wire, "alice", "a", "b", "of-another-host")
    assert [found[name].error_code for name in ("a", "b", "of-another-host")] == [allowed, refused, refused]
    assert create_as(wire, "bob", "a")["a"].error_code == refused
    assert create_as(wire, "ANONYMOUS", "c")["c"].error_code == allowed

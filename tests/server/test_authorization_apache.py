"""The table of `test_authorization` with Apache Kafka: every API without an ACL, with the needed ones, and denied.

Both servers receive the same requests, with the same ACLs. Refused requests have the same responses, apart from texts.
Allowed ones have the same errors. Requests with several elements, of which some are refused, have the same errors for
each element, at the same places of the response, except those of `ANY_ORDER`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from typing import Any, Final, NamedTuple

import pytest

from moldau.protocol.acl import AclOperation as Can
from moldau.protocol.acl import AclResource as On
from moldau.protocol.api import ApiKey
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.describe_acls import DescribeAclsRequest
from moldau.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.protocol.schema import Struct
from moldau.security.acls import AclPermission
from moldau.security.jaas import PLAIN_MODULE
from moldau.server.authorizer import STANDARD_AUTHORIZER
from moldau.testing import Broker
from moldau.testing.acl_requests import acl_filter, add_acl, remove_acls
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.topic_requests import wait_for_topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .test_authorization import CASES, errors_in, has_coordinator, name_of

pytestmark = pytest.mark.full

LOGIN = f'{PLAIN_MODULE} required user_alice="alice-secret";'
CONFIG: Final = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secure.plain.sasl.jaas.config": LOGIN,
}
NAMES: Final = {On.TOPIC: "t", On.GROUP: "g", On.TRANSACTIONAL_ID: "x", On.CLUSTER: "kafka-cluster"}
SUFFIXES: Final = ("-4", "-1", "-3", "-2")
TOPICS: Final = ("t", *(f"t{suffix}" for suffix in SUFFIXES))
ANY_ORDER: Final = frozenset(
    {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS, ApiKey.FETCH, ApiKey.PRODUCE}
)
"""APIs whose responses Apache Kafka shuffles (DeleteTopics), or has in the order of a hash table or of a session."""
UNSTABLE: Final = frozenset({"error_message", "throttle_time_ms", "cluster_id", "brokers"})
"""Fields that may differ."""


class Peer(NamedTuple):
    """A server with ACLs: ANONYMOUS, of the plaintext listener, is a super user; alice is not."""

    plain: str
    secure: str

    def prepare(self) -> None:
        """Create the topics that an earlier request has deleted."""
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in TOPICS]
        with WireClient(self.plain) as wire:
            wire.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000))
            for name in TOPICS:
                wait_for_topic(self.plain, name, 1)
            for kind in (0, 1):
                wait_until(lambda kind=kind: has_coordinator(wire, kind))  # type: ignore[misc]
            wait_until(
                lambda: (
                    not wire.call(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)).error_code
                )
            )

    def acl(self, operation: Can, kind: On, name: str, permission: AclPermission = AclPermission.ALLOW) -> None:
        with WireClient(self.plain) as wire:
            add_acl(wire, operation, kind, name, permission=permission)
            # A broker of Apache Kafka knows it a moment after the controller.
            wait_until(lambda: (kind, name, operation, permission) in acls_of(wire))

    def clear(self) -> None:
        with WireClient(self.plain) as wire:
            remove_acls(wire)
            wait_until(lambda: not acls_of(wire))

    def ask(self, request: Any, version: int) -> Any:
        """The response to alice."""
        with WireClient(self.secure) as wire:
            assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            assert wire.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 2).error_code == 0
            wanted = deepcopy(request)
            if hasattr(wanted, "timeout_ms"):
                wanted.timeout_ms = 60_000  # Apache Kafka's controller looks at it first
            return wire.call(wanted, version)

    def interrupt(self, request: Any, version: int) -> Any:
        """The response to the request instead of SaslAuthenticate, after which the connection is closed; None: there
        is no response."""
        with WireClient(self.secure) as wire:
            assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            try:
                response = wire.call(deepcopy(request), version)
            except ConnectionError:
                return None
            assert wire.closed_by_server()
            return response


@pytest.fixture(scope="module")
def peers() -> Iterator[tuple[Peer, Peer]]:
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka(CONFIG, listeners={"SECURE": "SASL_PLAINTEXT"}))
        moldau = stack.enter_context(
            Broker(
                config={
                    **CONFIG,
                    "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
                    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
                }
            )
        )
        found = (
            Peer(moldau.bootstrap_servers, moldau.address_of("SECURE")),
            Peer(kafka.bootstrap_servers, kafka.address_of("SECURE")),
        )
        yield found


def acls_of(wire: WireClient) -> set[tuple[int, str, int, int]]:
    """The ACLs that the broker knows: resource type and name, operation, permission."""
    described = wire.call(DescribeAclsRequest(**acl_filter()), 3)
    return {
        (resource.resource_type, resource.resource_name, acl.operation, acl.permission_type)
        for resource in described.resources
        for acl in resource.acls
    }


def names_in(message: Struct) -> list[str]:
    """The names of the fields."""
    return [field.name for field in message.FIELDS]


def fields_of(value: Any) -> Any:
    """A response without the fields that may differ."""
    if isinstance(value, list):
        return [fields_of(each) for each in value]
    if isinstance(value, Struct):
        return {name: fields_of(getattr(value, name)) for name in names_in(value) if name not in UNSTABLE}
    return value


def spread(request: Any, name: str) -> Any | None:
    """The request with an element for each of `SUFFIXES` instead of the one with this name; None if it has no array
    with this name."""
    changed = deepcopy(request)
    for field in names_in(changed):
        value = getattr(changed, field)
        if not isinstance(value, list) or len(value) != 1:
            continue
        (element,) = value
        if element == name:
            setattr(changed, field, [name + suffix for suffix in SUFFIXES])
            return changed
        if isinstance(element, Struct):
            named = [each for each in names_in(element) if getattr(element, each) == name]
            if named:
                elements = [deepcopy(element) for _ in SUFFIXES]
                for each, suffix in zip(elements, SUFFIXES, strict=True):
                    setattr(each, named[0], name + suffix)
                setattr(changed, field, elements)
                return changed
            inner = spread(element, name)
            if inner is not None:
                setattr(changed, field, [inner])
                return changed
    return None


def elements_of(value: Any, names: frozenset[str]) -> list[tuple[str, set[int]]]:
    """The elements of a response that have one of these names, in their order, with their errors."""
    if isinstance(value, list):
        return [found for each in value for found in elements_of(each, names)]
    if not isinstance(value, Struct):
        return []
    fields = [getattr(value, name) for name in names_in(value)]
    own = [each for each in fields if isinstance(each, str) and each in names]
    if own:
        return [(own[0], errors_in(value))]
    return [found for each in fields for found in elements_of(each, names)]


@pytest.mark.parametrize(("request_", "version", "error", "needed"), CASES, ids=name_of)
def test_the_same_answers(
    peers: tuple[Peer, Peer], request_: Any, version: int, error: int, needed: list[tuple[Can, On]]
) -> None:
    def same(*, is_refused: bool) -> None:
        ours, theirs = (fields_of(peer.ask(request_, version)) if is_refused else errors_in(peer.ask(request_, version))
                        for peer in peers)  # fmt: skip
        assert ours == theirs

    if request_.API_KEY == ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS:
        # A refused request for all users is one that Apache Kafka does not respond to.
        request_ = DescribeUserScramCredentialsRequest(users=[UserName(name="alice")])
    for peer in peers:
        peer.prepare()
        peer.clear()
    same(is_refused=True)
    for operation, kind in needed[:-1]:
        for peer in peers:
            peer.acl(operation, kind, NAMES[kind])
        same(is_refused=True)
    operation, kind = needed[-1]
    for peer in peers:
        peer.acl(operation, kind, NAMES[kind])
    same(is_refused=False)
    for peer in peers:
        peer.acl(operation, kind, NAMES[kind], AclPermission.DENY)
    same(is_refused=True)


@pytest.mark.parametrize(("request_", "version"), [case[:2] for case in CASES], ids=name_of)
def test_the_same_answers_during_an_exchange(peers: tuple[Peer, Peer], request_: Any, version: int) -> None:
    if request_.API_KEY == ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS:
        request_ = DescribeUserScramCredentialsRequest(users=[UserName(name="alice")])  # as in `test_the_same_answers`
    ours, theirs = (fields_of(peer.interrupt(request_, version)) for peer in peers)
    assert ours == theirs


def several() -> Iterator[Any]:
    for request, version, _, needed in CASES:
        _, kind = needed[-1]
        changed = None if kind is On.CLUSTER else spread(request, NAMES[kind])
        if changed is not None:
            yield pytest.param(changed, version, needed, id=f"{name_of(request)}-{version}")


@pytest.mark.parametrize(("request_", "version", "needed"), list(several()))
def test_the_same_answers_where_some_elements_are_refused(
    peers: tuple[Peer, Peer], request_: Any, version: int, needed: list[tuple[Can, On]]
) -> None:
    operation, kind = needed[-1]
    names = frozenset(NAMES[kind] + suffix for suffix in SUFFIXES)
    for peer in peers:
        peer.prepare()
        peer.clear()
        for other, kind_of_other in needed[:-1]:
            peer.acl(other, kind_of_other, NAMES[kind_of_other])
        for suffix in ("-1", "-2"):
            peer.acl(operation, kind, NAMES[kind] + suffix)
    ours, theirs = (elements_of(peer.ask(request_, version), names) for peer in peers)
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs))
    if ApiKey(request_.API_KEY) not in ANY_ORDER:
        assert ours == theirs

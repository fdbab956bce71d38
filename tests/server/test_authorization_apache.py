"""The table of `test_authorization` with Apache Kafka: every API without an ACL, with the needed ones, and denied.

APIs that omit what a client may not see, and those of delegation tokens, have tests of their own.

Both servers receive the same requests, with the same ACLs. Refused requests have the same responses, apart from texts.
Allowed ones have the same errors. Requests with several elements, of which some are refused, have the same errors for
each element, at the same places of the response, except those of `ANY_ORDER`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import deepcopy
from functools import partial
from typing import Any, Final, NamedTuple

import pytest

from moldau.protocol.acl import AclOperation as Can
from moldau.protocol.acl import AclResource as On
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.describe_acls import DescribeAclsRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from moldau.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from moldau.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
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

LOGIN = f'{PLAIN_MODULE} required user_alice="alice-secret" user_bob="bob-secret";'
CONFIG: Final = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secure.plain.sasl.jaas.config": LOGIN,
    "delegation.token.secret.key": "the secret of both servers",
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

    def ask(self, request: Any, version: int, user: str = "alice") -> Any:
        """The response to a user."""
        with WireClient(self.secure) as wire:
            assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            login = f"\0{user}\0{user}-secret".encode()
            assert wire.call(SaslAuthenticateRequest(auth_bytes=login), 2).error_code == 0
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


OMITTING: Final[list[tuple[Any, int, list[tuple[Can, On]]]]] = [
    (ListGroupsRequest(), 5, [(Can.DESCRIBE, On.GROUP)]),
    (ListGroupsRequest(), 5, [(Can.DESCRIBE, On.CLUSTER)]),
    (ListTransactionsRequest(), 1, [(Can.DESCRIBE, On.TRANSACTIONAL_ID)]),
    (ListTransactionsRequest(), 1, [(Can.WRITE, On.TRANSACTIONAL_ID)]),
    (DescribeClusterRequest(include_cluster_authorized_operations=True), 1, [(Can.ALTER, On.CLUSTER)]),
    (DescribeClusterRequest(include_cluster_authorized_operations=True), 1, [(Can.DESCRIBE, On.CLUSTER)]),
    (MetadataRequest(topics=None, include_topic_authorized_operations=True), 9, [(Can.WRITE, On.TOPIC)]),
    (DescribeTopicPartitionsRequest(topics=[]), 0, [(Can.ALTER, On.TOPIC)]),
    (
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]),
        8,
        [(Can.READ, On.GROUP), (Can.READ, On.TOPIC)],
    ),
    (DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), 5, [(Can.READ, On.GROUP)]),
]
"""Requests whose responses have what the client may see, and operations with which it sees more."""


@pytest.mark.parametrize(("request_", "version", "helpful"), OMITTING, ids=name_of)
def test_the_same_elements_are_omitted(
    peers: tuple[Peer, Peer], request_: Any, version: int, helpful: list[tuple[Can, On]]
) -> None:
    committed = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition(partition_index=0)])
            for name in ("t", "t-1")
        ],
    )

    def same() -> Any:
        ours, theirs = (visible_in(peer.ask(request_, version)) for peer in peers)
        assert ours == theirs
        return ours

    for peer in peers:
        peer.prepare()
        peer.clear()
        with WireClient(peer.plain) as wire:
            wait_until(lambda wire=wire: errors_in(wire.call(committed, 8)) == {0})  # type: ignore[misc]
    nothing = same()
    for operation, kind in helpful:
        for peer in peers:
            peer.acl(operation, kind, NAMES[kind])
        more = same()
    assert more != nothing
    operation, kind = helpful[-1]
    for peer in peers:
        peer.acl(Can.ALL, kind, NAMES[kind], AclPermission.DENY)
    assert same() != more


def visible_in(response: Any) -> list[str]:
    """The elements of a response in any order, without the ids of topics and the topics of share groups."""
    elements = [
        (name, each)
        for name in names_in(response)
        for value in (getattr(response, name),)
        for each in (value if isinstance(value, list) else [value])
        if name not in UNSTABLE | {"controller_id"} and "__share_group_state" not in repr(each)
    ]
    return sorted(re.sub(r"topic_id=\S+|producer_id=\d+", "", f"{name}: {each!r}") for name, each in elements)


def outcome(response: Any) -> tuple[Any, ...]:
    """The error and the principals of a response about a token."""
    names = ("principal_name", "token_requester_principal_name")
    return (response.error_code, *(getattr(response, name, None) for name in names))


def test_the_same_answers_about_delegation_tokens(peers: tuple[Peer, Peer]) -> None:
    """Without an ACL, with the needed one, and denied."""

    def same(question: Callable[[Peer], Any]) -> Any:
        ours, theirs = map(question, peers)
        assert ours == theirs
        return ours

    def create(owner: str | None, user: str = "alice") -> Callable[[Peer], Any]:
        kind = None if owner is None else "User"
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind, owner_principal_name=owner, max_lifetime_ms=-1
        )
        return lambda peer: outcome(peer.ask(request, 3, user))

    def seen(peer: Peer) -> list[tuple[str, str]]:
        tokens = peer.ask(DescribeDelegationTokenRequest(owners=None), 3).tokens
        return sorted((each.principal_name, each.token_requester_principal_name) for each in tokens)

    def has_seen(peer: Peer) -> bool:
        of_bob = peer.ask(DescribeDelegationTokenRequest(owners=None), 3, "bob").tokens
        return (len(seen(peer)), len(of_bob)) == (2, 2)

    def change_one_of_bob(peer: Peer) -> list[int]:
        tokens = peer.ask(DescribeDelegationTokenRequest(owners=None), 3, "bob").tokens
        token = next(each for each in tokens if each.token_requester_principal_name == "bob")
        renewal = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1)
        end = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=3_600_000)
        return [peer.ask(renewal, 2).error_code, peer.ask(end, 2).error_code, peer.ask(renewal, 2, "bob").error_code]

    def user_acl(operation: Can, permission: AclPermission = AclPermission.ALLOW) -> None:
        for peer in peers:
            peer.acl(operation, On.USER, "User:bob", permission)

    for peer in peers:
        peer.clear()
    assert same(create(None))[0] == 0
    assert same(create(None, "bob"))[0] == 0
    assert same(create("bob"))[0] == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    user_acl(Can.CREATE_TOKENS)
    assert same(create("bob")) == (0, "bob", "alice")
    for peer in peers:
        wait_until(partial(has_seen, peer))
    assert same(seen) == [("alice", "alice"), ("bob", "alice")]
    assert same(change_one_of_bob) == [ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH] * 2 + [0]
    user_acl(Can.DESCRIBE_TOKENS)
    assert len(same(seen)) == 3
    user_acl(Can.DESCRIBE_TOKENS, AclPermission.DENY)
    assert len(same(seen)) == 2
    user_acl(Can.CREATE_TOKENS, AclPermission.DENY)
    assert same(create("bob"))[0] == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED

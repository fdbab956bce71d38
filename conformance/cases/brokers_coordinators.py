"""Coordinators of several brokers: which one coordinates a group or transactional ID, and what the others respond."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ...protocol.messages.find_coordinator import FindCoordinatorRequest
from ...protocol.messages.init_producer_id import InitProducerIdRequest
from ...protocol.messages.leave_group import LeaveGroupRequest
from ...protocol.messages.list_groups import ListGroupsRequest
from ...protocol.messages.list_transactions import ListTransactionsRequest
from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ...protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ...protocol.messages.sync_group import SyncGroupRequest
from ...protocol.schema import Request, Struct
from .. import committed_offsets as o
from ..case import Layer, Release, case, needs, versions_of
from ..check import COORDINATOR_NOT_READY, GROUP, TRANSACTION, Check, Topic
from ..classic_group import BATCHED_LEAVE
from ..consumer_group import FEATURES
from ..harmless_requests import REQUESTS, Scene
from ..transactional_producer import Producer
from .groups_coordinator import BATCHED

KINDS = {"group": (GROUP,), "transaction": (TRANSACTION,)}
KEYS = 20
OFFSET_FETCH_ERRORS_SINCE = Release(4, 0)
"""Since this release, the response in version 1 has the error of the group in each partition."""


def found_by(c: Check, node_id: int, kind: int, *keys: str) -> dict[str, int]:
    """The coordinators of some keys, according to one broker, when it knows them."""
    version = c.version(ApiKey.FIND_COORDINATOR)
    wire = c.to_broker(node_id)

    def answered() -> list[Any] | None:
        if version >= BATCHED:
            request = FindCoordinatorRequest(coordinator_keys=list(keys), key_type=kind)
            answers = list(c.call(request, version, to=wire).coordinators)
        else:
            answers = [c.call(FindCoordinatorRequest(key=key, key_type=kind), version, to=wire) for key in keys]
        return None if any(each.error_code in COORDINATOR_NOT_READY for each in answers) else answers

    found = c.until(answered, f"coordinators from broker {node_id}")
    for answer in found:
        c.error(answer.error_code, ErrorCode.NONE, f"FindCoordinator error_code of broker {node_id}")
    return {key: answer.node_id for key, answer in zip(keys, found, strict=True)}


def elsewhere(c: Check, kind: int) -> str:
    """A group or transactional ID that another broker coordinates."""
    with c.setup("finding a name that another broker coordinates"):
        while True:
            name = c.group() if kind == GROUP else c.name("transaction")
            if c.coordinator(name, kind) is not c.wire:
                return name


@case(
    "brokers.coordinator.same",
    "all brokers name the same coordinator",
    source="Protocol: FindCoordinator",
    layer=Layer.CLUSTER,
    needs=needs(ApiKey.FIND_COORDINATOR, 1),
    variants=KINDS,
)
def same(c: Check, kind: int) -> None:
    """Sends: FindCoordinator for 20 names that do not exist yet, to each broker.

    Expects: the same broker from each of them.

    Why: clients ask any broker; members that join the same group at different brokers would be two groups.
    """
    names = [c.name("key") for _ in range(KEYS)]
    expected = found_by(c, c.target.node_id, kind, *names)
    for node_id in c.target.other_ids:
        c.equal(found_by(c, node_id, kind, *names), expected, f"coordinators according to broker {node_id}")


# Requests for a group or transactional ID that are valid, and change nothing where they are rejected.


def _leave_group(scene: Scene, version: int) -> Request:
    if version < BATCHED_LEAVE:
        return LeaveGroupRequest(group_id=scene.group, member_id="no-such-member")
    return REQUESTS[ApiKey.LEAVE_GROUP].request(scene, version)


def _sync_group(scene: Scene, version: int) -> Request:
    request = REQUESTS[ApiKey.SYNC_GROUP].request(scene, version)
    assert isinstance(request, SyncGroupRequest)
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    return request


def _offset_fetch(scene: Scene, version: int) -> Request:
    if version >= o.BATCHED_FETCH:
        return REQUESTS[ApiKey.OFFSET_FETCH].request(scene, version)
    topic = OffsetFetchRequestTopic(name=scene.topic.name, partition_indexes=[0])
    return OffsetFetchRequest(group_id=scene.group, topics=[topic])


def _offset_delete(scene: Scene, version: int) -> Request:
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequestTopic(name=scene.topic.name, partitions=[partition])
    return OffsetDeleteRequest(group_id=scene.group, topics=[topic])


def _add_partitions(scene: Scene, version: int) -> Request:
    topic = AddPartitionsToTxnTopic(name=scene.topic.name, partitions=[0])
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=scene.group,
            v3_and_below_producer_id=4_000_000_000,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[topic],
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=scene.group, producer_id=4_000_000_000, producer_epoch=0, topics=[topic]
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def _txn_offset_commit(scene: Scene, version: int) -> Request:
    # About a topic that exists: a broker rejects the others before it looks for the coordinator.
    return REQUESTS[ApiKey.TXN_OFFSET_COMMIT].request(scene._replace(missing=scene.topic), version)


def _init_producer_id(scene: Scene, version: int) -> Request:
    return InitProducerIdRequest(transactional_id=scene.group, transaction_timeout_ms=1_000)


REQUESTS_ABOUT = {
    ApiKey.JOIN_GROUP: (GROUP, REQUESTS[ApiKey.JOIN_GROUP].request),
    ApiKey.SYNC_GROUP: (GROUP, _sync_group),
    ApiKey.HEARTBEAT: (GROUP, REQUESTS[ApiKey.HEARTBEAT].request),
    ApiKey.LEAVE_GROUP: (GROUP, _leave_group),
    ApiKey.OFFSET_COMMIT: (GROUP, REQUESTS[ApiKey.OFFSET_COMMIT].request),
    ApiKey.OFFSET_FETCH: (GROUP, _offset_fetch),
    ApiKey.OFFSET_DELETE: (GROUP, _offset_delete),
    ApiKey.TXN_OFFSET_COMMIT: (GROUP, _txn_offset_commit),
    ApiKey.DESCRIBE_GROUPS: (GROUP, REQUESTS[ApiKey.DESCRIBE_GROUPS].request),
    ApiKey.DELETE_GROUPS: (GROUP, REQUESTS[ApiKey.DELETE_GROUPS].request),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (GROUP, REQUESTS[ApiKey.CONSUMER_GROUP_HEARTBEAT].request),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (GROUP, REQUESTS[ApiKey.CONSUMER_GROUP_DESCRIBE].request),
    ApiKey.INIT_PRODUCER_ID: (TRANSACTION, _init_producer_id),
    ApiKey.ADD_PARTITIONS_TO_TXN: (TRANSACTION, _add_partitions),
    ApiKey.ADD_OFFSETS_TO_TXN: (TRANSACTION, REQUESTS[ApiKey.ADD_OFFSETS_TO_TXN].request),
    ApiKey.END_TXN: (TRANSACTION, REQUESTS[ApiKey.END_TXN].request),
    ApiKey.DESCRIBE_TRANSACTIONS: (TRANSACTION, REQUESTS[ApiKey.DESCRIBE_TRANSACTIONS].request),
}
"""By API: the kind of coordinator, and the request for a version."""
CONSUMER_GROUPS = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE)
"""Without the feature, every broker responds UNSUPPORTED_VERSION."""


def error_codes(response: Struct) -> Iterator[int]:
    """All error codes of a response that are not 0."""
    for field in response.FIELDS:
        value: Any = getattr(response, field.name)
        if field.name.endswith("error_code") and value:
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from error_codes(each)


def not_coordinator(c: Check, version: int, api: ApiKey) -> None:
    """Sends: the request, about a group or transactional ID that another broker coordinates.

    Expects: NOT_COORDINATOR, as the error of the response, of the group, or of each partition.

    Why: by this error a client finds out that the coordinator has moved; any other one fails it.
    """
    if api is ApiKey.OFFSET_FETCH and version < 2 and c.target.release < OFFSET_FETCH_ERRORS_SINCE:
        c.not_applicable("before Apache Kafka 4.0, the response in this version has no error")
    kind, request = REQUESTS_ABOUT[api]
    topic = c.topic()
    name = elsewhere(c, kind)
    response = c.call(request(Scene(topic, Topic(c.name("missing"), bytes(16)), name), version), version)
    found = [ErrorCode(each) for each in error_codes(response)]
    c.error(found[0] if found else ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)
    c.equal({*found}, {ErrorCode.NOT_COORDINATOR}, "all error codes of the response")


def _declare(api: ApiKey, body: Callable[..., None]) -> None:
    name = "-".join(api.name.lower().split("_"))
    case(
        f"brokers.not-coordinator.{name}",
        f"{api.message_name} for another coordinator is rejected",
        source=f"Protocol: {api.message_name}",
        layer=Layer.CLUSTER,
        features=FEATURES if api in CONSUMER_GROUPS else None,
        versions=versions_of(api),
        variants={"": (api,)},
    )(body)


for _api in REQUESTS_ABOUT:
    _declare(_api, not_coordinator)


@case(
    "brokers.coordinator.offsets",
    "offsets that are committed at the coordinator are found through every broker",
    source="KIP-211",
    layer=Layer.CLUSTER,
    needs=needs(ApiKey.OFFSET_COMMIT, 2, ApiKey.OFFSET_FETCH, 1),
)
def offsets(c: Check) -> None:
    """Sends: OffsetCommit of six groups, each to its coordinator; then to each broker FindCoordinator, and OffsetFetch
    to the broker that it names.

    Expects: each time the offset of the group.

    Why: a consumer may start at any broker, and must continue where the one before it has stopped.
    """
    topic = c.topic()
    c.known_everywhere(topic)
    groups = {c.group(): number for number in range(1, 7)}
    for group, offset in groups.items():
        o.committed_before(c, c.coordinator(group), o.commit_request(group, topic, {0: offset}))
    for node_id in c.target.brokers:
        for group, coordinator in found_by(c, node_id, GROUP, *groups).items():
            found = o.fetch(c, c.to_broker(coordinator), group, {topic: [0]})
            c.error(found.error_code, ErrorCode.NONE, f"OffsetFetch error_code of {group}")
            actual = [each.offset for partitions in found.topics.values() for each in partitions.values()]
            c.equal(actual, [groups[group]], f"the offset of {group} through broker {node_id}")


@case(
    "brokers.coordinator.list",
    "a broker lists the groups and transactions that it coordinates",
    source="Protocol: ListGroups, KIP-664",
    layer=Layer.CLUSTER,
    needs=needs(ApiKey.LIST_GROUPS, 0, ApiKey.LIST_TRANSACTIONS, 0),
)
def listed(c: Check) -> None:
    """Sends: ListGroups and ListTransactions to each broker, when six groups with offsets and three transactional IDs
    exist.

    Expects: each of them from its coordinator, and from no other broker.

    Why: tools ask all brokers, and show what they list together.
    """
    topic = c.topic()
    expected: dict[str, int] = {}
    for _ in range(6):
        group = c.group()
        o.committed_before(c, c.coordinator(group), o.commit_request(group, topic, {0: 1}))
        expected |= found_by(c, c.target.node_id, GROUP, group)
    for _ in range(3):
        producer = Producer(c).begin()
        expected |= found_by(c, c.target.node_id, TRANSACTION, producer.transactional_id)
    found: dict[str, list[int]] = {name: [] for name in expected}
    for node_id in c.target.brokers:
        wire = c.to_broker(node_id)
        names = [each.group_id for each in c.call(ListGroupsRequest(), to=wire).groups]
        names += [each.transactional_id for each in c.call(ListTransactionsRequest(), to=wire).transaction_states]
        for name in expected.keys() & {*names}:
            found[name].append(node_id)
    c.equal(found, {name: [node_id] for name, node_id in expected.items()}, "the brokers that list each name")

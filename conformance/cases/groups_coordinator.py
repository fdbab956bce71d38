"""FindCoordinator: which broker coordinates a group or a transactional ID."""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_groups import DescribeGroupsRequest
from ...protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from ...protocol.messages.init_producer_id import InitProducerIdRequest
from ..case import Layer, Level, case, needs, versions_of
from ..check import GROUP, TRANSACTION, Check

BATCHED = 4
"""The first version with several keys (KIP-699)."""


def find(c: Check, key: str, kind: int, version: int) -> Any:
    """The response or, for versions with several keys, its only entry."""
    if version < BATCHED:
        return c.call(FindCoordinatorRequest(key=key, key_type=kind), version)
    found = c.call(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), version).coordinators
    c.equal([each.key for each in found], [key], "coordinators (key)")
    return found[0]


def is_a_broker(c: Check, found: Any, where: str) -> None:
    """The response names a broker of the cluster by its node ID, and its address."""
    c.error(found.error_code, ErrorCode.NONE, f"{where}error_code")
    c.true(found.node_id in c.target.brokers, f"{where}node_id", expected="a broker of Metadata", actual=found.node_id)
    host = f"[{found.host}]" if ":" in found.host else found.host
    c.equal(f"{host}:{found.port}", c.target.brokers[found.node_id], f"{where}host and port")


@case(
    "groups.find-coordinator.exchange",
    "the coordinator of a group is a broker of the cluster",
    source="Protocol: FindCoordinator, KIP-699",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FIND_COORDINATOR),
)
def exchange(c: Check, version: int) -> None:
    """Sends: FindCoordinator for a group that does not exist yet; from version 4 on also for two more in one request.

    Expects: no error, and the node ID, host and port of a broker as Metadata shows them; from version 4 on one entry
    for each key, in the order of the request.

    Why: a consumer sends all requests of its group to this address, before the group exists.
    """
    group = c.name("group")
    c.coordinator(group)
    is_a_broker(c, find(c, group, GROUP, version), "")
    if version >= BATCHED:
        keys = [c.name("group"), group, c.name("group")]
        answer = c.call(FindCoordinatorRequest(coordinator_keys=keys, key_type=GROUP), version)
        c.equal([each.key for each in answer.coordinators], keys, "coordinators (key)")
        for number, found in enumerate(answer.coordinators):
            is_a_broker(c, found, f"coordinators[{number}].")


@case(
    "groups.find-coordinator.transaction",
    "the coordinator of a transactional ID is a broker of the cluster",
    source="Protocol: FindCoordinator, KIP-98",
    layer=Layer.WIRE,
    needs=needs(ApiKey.INIT_PRODUCER_ID, 0),
    versions=versions_of(ApiKey.FIND_COORDINATOR, 1),
)
def transaction(c: Check, version: int) -> None:
    """Sends: FindCoordinator with key type 1 for a transactional ID that does not exist yet.

    Expects: no error, and the node ID, host and port of a broker as Metadata shows them.

    Why: a transactional producer sends InitProducerId to this address, before the transactional ID exists.
    """
    name = c.name("transactional-id")
    c.coordinator(name, TRANSACTION)
    is_a_broker(c, find(c, name, TRANSACTION, version), "")


@case(
    "groups.find-coordinator.unknown-type",
    "a key type that does not exist is rejected",
    source="Protocol: FindCoordinator",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    versions=versions_of(ApiKey.FIND_COORDINATOR, 1),
)
def unknown_type(c: Check, version: int) -> None:
    """Sends: FindCoordinator with key type 9.

    Expects: INVALID_REQUEST, node ID -1, an empty host and port -1, for each key.

    Why: a server that reports any broker for a type that it does not know misleads a newer client.
    """
    for key in ("one", "two"):
        found = find(c, key, 9, version)
        c.error(found.error_code, ErrorCode.INVALID_REQUEST)
        c.equal((found.node_id, found.host, found.port), (-1, "", -1), "node_id, host and port")


@case(
    "groups.find-coordinator.share-type-too-early",
    "the key type of share groups does not exist before version 6",
    source="KIP-932",
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=needs(ApiKey.FIND_COORDINATOR, 6),
    versions=versions_of(ApiKey.FIND_COORDINATOR, 1, 5),
)
def share_type(c: Check, version: int) -> None:
    """Sends: FindCoordinator with key type 2, which version 6 added, in an older version.

    Expects: INVALID_REQUEST and node ID -1.

    Why: key types belong to versions; a client must not rely on one that its version does not have.
    """
    found = find(c, c.name("group") + ":AAAAAAAAAAAAAAAAAAAAAQ:0", 2, version)
    c.error(found.error_code, ErrorCode.INVALID_REQUEST)
    c.equal((found.node_id, found.host, found.port), (-1, "", -1), "node_id, host and port")


@case(
    "groups.find-coordinator.same-in-all-versions",
    "all versions and all brokers name the same coordinator",
    source="Protocol: FindCoordinator",
    needs=needs(ApiKey.FIND_COORDINATOR, 0),
)
def same_in_all_versions(c: Check) -> None:
    """Sends: FindCoordinator for one group in each version, to each broker.

    Expects: the same node ID, host and port in all responses.

    Why: members with different clients must meet at one broker, or each has its own group.
    """
    group = c.name("group")
    coordinator = c.coordinator(group)
    found = set()
    for address in c.target.brokers.values():
        broker = c.connect(address=address)
        for version in range(c.version(ApiKey.FIND_COORDINATOR) + 1):
            if version < BATCHED:
                answer = c.call(FindCoordinatorRequest(key=group), version, to=broker)
            else:
                request = FindCoordinatorRequest(coordinator_keys=[group])
                (answer,) = c.call(request, version, to=broker).coordinators
            c.error(answer.error_code, ErrorCode.NONE)
            found.add((answer.node_id, answer.host, answer.port))
    c.equal(len(found), 1, "different coordinators of the group")
    answer = c.call(DescribeGroupsRequest(groups=[group]), to=coordinator).groups[0]
    c.error(answer.error_code, (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND), "DescribeGroups error_code there")


@case(
    "groups.find-coordinator.transaction-works",
    "the coordinator of a transactional ID accepts InitProducerId",
    source="KIP-98",
    needs=needs(ApiKey.FIND_COORDINATOR, 1, ApiKey.INIT_PRODUCER_ID, 0),
)
def transaction_works(c: Check) -> None:
    """Sends: FindCoordinator with key type 1; then InitProducerId to the broker in the response.

    Expects: no error, a producer ID and epoch 0.

    Why: a producer that is sent to a broker which then responds NOT_COORDINATOR never starts.
    """
    name = c.name("transactional-id")
    coordinator = c.coordinator(name, TRANSACTION)
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000)

    def accepted() -> Any:
        answer = c.call(request, to=coordinator)
        return None if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else answer

    answer = c.until(accepted, "InitProducerId without COORDINATOR_LOAD_IN_PROGRESS")
    c.error(answer.error_code, ErrorCode.NONE, "InitProducerId error_code")
    c.true(answer.producer_id >= 0, "producer_id", expected="0 or more", actual=answer.producer_id)
    c.equal(answer.producer_epoch, 0, "producer_epoch")


@case(
    "groups.find-coordinator.no-keys",
    "a request without keys has a response without coordinators",
    source="KIP-699",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=versions_of(ApiKey.FIND_COORDINATOR, BATCHED),
)
def no_keys(c: Check, version: int) -> None:
    """Sends: FindCoordinator with an empty array of keys.

    Expects: an empty array of coordinators.

    Why: an admin client that describes no groups must not fail.
    """
    c.equal(c.call(FindCoordinatorRequest(coordinator_keys=[]), version).coordinators, [], "coordinators")


@case(
    "groups.find-coordinator.many-keys",
    "a request with many keys has an entry for each, in order",
    source="KIP-699",
    needs=needs(ApiKey.FIND_COORDINATOR, BATCHED),
)
def many_keys(c: Check) -> None:
    """Sends: FindCoordinator for 200 groups in one request.

    Expects: 200 entries in the order of the request, each with a broker of the cluster.

    Why: an admin client looks up the coordinators of all groups with one request.
    """
    keys = [c.name("group") for _ in range(200)]
    c.coordinator(keys[0])
    version = c.version(ApiKey.FIND_COORDINATOR)
    answer: list[Coordinator] = c.call(FindCoordinatorRequest(coordinator_keys=keys), version).coordinators
    c.equal([each.key for each in answer], keys, "coordinators (key)")
    for number, found in enumerate(answer):
        is_a_broker(c, found, f"coordinators[{number}].")


@case(
    "groups.find-coordinator.same-key-twice",
    "a key that occurs twice has one coordinator",
    source="KIP-699",
    level=Level.SHOULD,
    needs=needs(ApiKey.FIND_COORDINATOR, BATCHED),
)
def same_key_twice(c: Check) -> None:
    """Sends: FindCoordinator with the keys A, B, A.

    Expects: no error, entries for A and B and no other key, and the same coordinator in all entries of A. Apache Kafka
    has two entries for A; one is sufficient.

    Why: a client that looks up keys of several applications may have one twice.
    """
    first, second = c.name("group"), c.name("group")
    c.coordinator(first)
    request = FindCoordinatorRequest(coordinator_keys=[first, second, first])
    found = c.call(request).coordinators
    c.equal(sorted({each.key for each in found}), sorted([first, second]), "coordinators (key)")
    c.equal(len({each.node_id for each in found if each.key == first}), 1, "different coordinators of A")
    for number, each in enumerate(found):
        is_a_broker(c, each, f"coordinators[{number}].")


@case(
    "groups.find-coordinator.empty-group",
    "the empty group has a coordinator",
    source="Protocol: FindCoordinator",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=versions_of(ApiKey.FIND_COORDINATOR),
)
def empty_group(c: Check, version: int) -> None:
    """Sends: FindCoordinator for the group with the empty name.

    Expects: no error, and a broker of the cluster.

    Why: old clients without a group name commit offsets for the empty group. Others learn from the error of JoinGroup,
    their next request, that they need a name.
    """
    c.coordinator("")
    is_a_broker(c, find(c, "", GROUP, version), "")

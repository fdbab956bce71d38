"""Every version of every API that clients can send has a case with a normal exchange, and one with a rejection.

The versions are those of `protocol/messages/`, which another test compares with Apache Kafka's jars. A normal exchange
is a case with `exchange` in its ID. A rejection is `protocol.malformed.body`, which all requests with a body have, and
a case that `REJECTIONS` names, unless no well-formed request is rejected. The tables below contain the exceptions and
their reasons; an entry that is no longer needed fails, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest

from moldau.conformance import catalog
from moldau.protocol.api import ApiKey, request_class

APIS = [api for api in ApiKey if "broker" in request_class(api).LISTENERS and request_class(api).STABLE_VERSIONS]

OTHER_EXCHANGES: Mapping[ApiKey, tuple[str, ...]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: ("transactions.add-partitions.batched",),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ("security.scram.describe.all",),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("cluster.reassign.list",),
}
"""Normal exchanges with other names."""

NO_EXCHANGE: Mapping[ApiKey, str] = {
    ApiKey.UNREGISTER_BROKER: "it would remove a broker from the cluster",
    ApiKey.ADD_RAFT_VOTER: "it needs a further controller, which has to be running",
    ApiKey.REMOVE_RAFT_VOTER: "it would remove a controller from the quorum",
}

REJECTIONS: Mapping[ApiKey, tuple[str, ...]] = {
    ApiKey.PRODUCE: ("produce.unknown-partition",),
    ApiKey.FETCH: ("fetch.unknown-topic",),
    ApiKey.LIST_OFFSETS: ("listoffsets.unknown",),
    ApiKey.METADATA: ("metadata.invalid-name",),
    ApiKey.OFFSET_COMMIT: ("offsets.commit.unknown-member",),
    ApiKey.OFFSET_FETCH: ("security.denied.each-version.offset-fetch",),
    ApiKey.FIND_COORDINATOR: ("security.denied.each-version.find-coordinator",),
    ApiKey.JOIN_GROUP: ("groups.join.unknown-member",),
    ApiKey.HEARTBEAT: ("groups.heartbeat.unknown-member",),
    ApiKey.LEAVE_GROUP: ("groups.leave.unknown-member",),
    ApiKey.SYNC_GROUP: ("groups.sync.unknown-member",),
    ApiKey.DESCRIBE_GROUPS: ("security.denied.each-version.describe-groups",),
    ApiKey.SASL_HANDSHAKE: ("security.sasl.handshake.unknown",),
    ApiKey.API_VERSIONS: ("protocol.api-versions.software-name",),
    ApiKey.CREATE_TOPICS: ("topics.create.existing",),
    ApiKey.DELETE_TOPICS: ("topics.delete.unknown",),
    ApiKey.DELETE_RECORDS: ("records.delete.out-of-range",),
    ApiKey.INIT_PRODUCER_ID: ("transactions.init-producer-id.empty-id",),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("listoffsets.epoch-end.rejected",),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        "transactions.add-partitions.unknown-producer",
        "transactions.add-partitions.batched-errors.unknown-producer",
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: ("transactions.add-offsets.unknown-producer",),
    ApiKey.END_TXN: ("transactions.end.unknown-producer",),
    ApiKey.WRITE_TXN_MARKERS: ("transactions.write-markers.fenced",),
    ApiKey.TXN_OFFSET_COMMIT: ("transactions.offset-commit.unknown-producer",),
    ApiKey.DESCRIBE_ACLS: ("security.acls.describe.denied",),
    ApiKey.CREATE_ACLS: ("security.acls.create.invalid",),
    ApiKey.DELETE_ACLS: ("security.acls.delete.denied",),
    ApiKey.DESCRIBE_CONFIGS: ("configs.describe.unknown-topic",),
    ApiKey.ALTER_CONFIGS: ("configs.replace.unknown-topic",),
    ApiKey.DESCRIBE_LOG_DIRS: ("security.denied.each-version.describe-log-dirs",),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("security.denied.each-version.list-partition-reassignments",),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ("log-dirs.move.unknown-directory",),
    ApiKey.SASL_AUTHENTICATE: ("security.sasl.authenticate.wrong-password",),
    ApiKey.CREATE_PARTITIONS: ("topics.partitions.unknown-topic",),
    ApiKey.CREATE_DELEGATION_TOKEN: ("security.tokens.create",),
    ApiKey.RENEW_DELEGATION_TOKEN: ("security.tokens.renew.unknown",),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ("security.tokens.expire.unknown",),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ("security.tokens.describe.all",),
    ApiKey.DELETE_GROUPS: ("groups.delete.unknown",),
    ApiKey.ELECT_LEADERS: ("cluster.elect.unknown",),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("configs.incremental.unknown-topic",),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("cluster.reassign.unknown",),
    ApiKey.OFFSET_DELETE: ("offsets.delete.unknown-group",),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ("quotas.describe.invalid",),
    ApiKey.ALTER_CLIENT_QUOTAS: ("quotas.alter.invalid",),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ("security.scram.describe.unknown",),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("security.scram.invalid",),
    ApiKey.DESCRIBE_QUORUM: ("cluster.quorum.unknown",),
    ApiKey.UPDATE_FEATURES: ("cluster.features.reject",),
    ApiKey.DESCRIBE_CLUSTER: ("metadata.describe-cluster.endpoint-type",),
    ApiKey.DESCRIBE_PRODUCERS: ("transactions.describe-producers.unknown-partition",),
    ApiKey.UNREGISTER_BROKER: ("cluster.unregister.unknown",),
    ApiKey.DESCRIBE_TRANSACTIONS: ("transactions.describe.unknown",),
    ApiKey.LIST_TRANSACTIONS: ("transactions.list.invalid-pattern",),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ("consumer-groups.heartbeat.unknown-member",),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("consumer-groups.describe.unknown-group",),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ("telemetry.subscriptions.too-early",),
    ApiKey.PUSH_TELEMETRY: ("telemetry.push.invalid",),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ("metadata.topic-partitions.unknown-topic",),
    ApiKey.SHARE_GROUP_HEARTBEAT: ("share-groups.heartbeat.unknown-member",),
    ApiKey.SHARE_GROUP_DESCRIBE: ("share-groups.describe.unknown-group",),
    ApiKey.SHARE_FETCH: ("share-groups.fetch.session",),
    ApiKey.SHARE_ACKNOWLEDGE: ("share-groups.acknowledge.not-acquired",),
    ApiKey.ADD_RAFT_VOTER: ("cluster.voters.add-existing",),
    ApiKey.REMOVE_RAFT_VOTER: ("cluster.voters.remove-unknown",),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ("share-groups.state.initialize.fenced",),
    ApiKey.READ_SHARE_GROUP_STATE: ("share-groups.state.read.rejected",),
    ApiKey.WRITE_SHARE_GROUP_STATE: ("share-groups.state.write.rejected",),
    ApiKey.STREAMS_GROUP_HEARTBEAT: ("streams-groups.heartbeat.unknown-member",),
    ApiKey.STREAMS_GROUP_DESCRIBE: ("streams-groups.describe.unknown-group",),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ("share-groups.offsets.describe.unknown-group",),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ("share-groups.offsets.alter.rejected",),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ("share-groups.offsets.delete.rejected",),
}
"""Cases that expect an error for a well-formed request."""

NO_REJECTION: Mapping[tuple[ApiKey, range], str] = {
    (ApiKey.LIST_GROUPS, range(6)): "filters that match nothing have an empty response",
    (ApiKey.API_VERSIONS, range(3)): "before version 3 it has no fields",
    (
        ApiKey.DESCRIBE_LOG_DIRS,
        range(1, 3),
    ): "before version 3 it has no error code",
    (ApiKey.DESCRIBE_CLUSTER, range(1)): "version 0 has no endpoint type",
    (ApiKey.LIST_TRANSACTIONS, range(2)): "before version 2 it has no pattern; unknown states are in the response",
    (ApiKey.LIST_CONFIG_RESOURCES, range(2)): "types that do not exist have no resources",
    (ApiKey.DELETE_SHARE_GROUP_STATE, range(1)): "a state that does not exist is deleted, too",
    (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, range(2)): "a state that does not exist has the offset -1",
}
"""Versions without an error for a well-formed request of a user that may send it."""

WITHOUT_BODY = {(ApiKey.LIST_GROUPS, version) for version in range(3)} | {
    (ApiKey.API_VERSIONS, version) for version in range(3)
}


def versions() -> list[tuple[ApiKey, int]]:
    # Versions 0 to 2 of Produce are advertised without existing: `protocol.unknown-version.produce-removed`.
    lowest = {ApiKey.PRODUCE: 3}
    return [
        (api, version)
        for api in APIS
        for version in request_class(api).STABLE_VERSIONS
        if version >= lowest.get(api, 0)
    ]


@cache
def cases_of(api: ApiKey, version: int) -> tuple[str, ...]:
    """The IDs of the cases for a version of an API, without the version."""
    return tuple(
        case.id.replace(f".v{version}", "", 1) for case in catalog.all_cases().values() if case.tested == (api, version)
    )


def named(api: ApiKey, version: int, *names: str) -> bool:
    return any(found == name or found.startswith(f"{name}.") for found in cases_of(api, version) for name in names)


def has_no_rejection(api: ApiKey, version: int) -> bool:
    return any(api == each and version in without for each, without in NO_REJECTION)


def shown(found: list[tuple[ApiKey, int]]) -> list[str]:
    return [f"{api.message_name} v{version}" for api, version in found]


def test_there_are_enough_cases() -> None:
    declared = {case.body for case in catalog.all_cases().values()}
    assert len(declared) >= 600, "one declaration counts once, whatever its versions and variants"


def test_every_version_has_a_normal_exchange() -> None:
    missing = [
        (api, version)
        for api, version in versions()
        if api not in NO_EXCHANGE
        and not any("exchange" in found.split(".") for found in cases_of(api, version))
        and not named(api, version, *OTHER_EXCHANGES.get(api, ()))
    ]
    assert shown(missing) == []


def test_every_version_has_a_rejection() -> None:
    missing = [
        (api, version)
        for api, version in versions()
        if not named(api, version, *REJECTIONS.get(api, ())) and not has_no_rejection(api, version)
    ]
    assert shown(missing) == []


def test_every_version_has_a_malformed_request() -> None:
    missing = [
        (api, version)
        for api, version in versions()
        if (api, version) not in WITHOUT_BODY and not named(api, version, "protocol.malformed.body")
    ]
    assert shown(missing) == []


@pytest.mark.parametrize("names", [OTHER_EXCHANGES, REJECTIONS], ids=["exchanges", "rejections"])
def test_the_named_cases_exist(names: Mapping[ApiKey, tuple[str, ...]]) -> None:
    unknown = [
        name
        for api, each in names.items()
        for name in each
        if not any(named(api, version, name) for version in request_class(api).STABLE_VERSIONS)
    ]
    assert unknown == []


def test_the_exceptions_are_needed() -> None:
    assert [api for api in NO_EXCHANGE if any("exchange" in case.split(".") for case in cases_of(api, 0))] == []
    needless = [
        (api, version)
        for api, without in NO_REJECTION
        for version in without
        if version not in request_class(api).STABLE_VERSIONS or named(api, version, *REJECTIONS.get(api, ()))
    ]
    assert shown(needless) == []

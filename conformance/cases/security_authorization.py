"""What a user may do without ACLs, and with them: a second user, in addition to that of the suite (KIP-11, KIP-290,
KIP-679).

The second user is a SCRAM user of the case. It uses the broker at the address, so that some cases do not apply to a
cluster whose coordinators are on other brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ...protocol.acl import AclOperation, AclResource
from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.create_topics import CreateTopicsRequest
from ...protocol.messages.delete_acls import DeleteAclsRequest
from ...protocol.messages.describe_groups import DescribeGroupsRequest
from ...protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ...protocol.messages.find_coordinator import FindCoordinatorRequest
from ...protocol.messages.init_producer_id import InitProducerIdRequest
from ...protocol.messages.list_groups import ListGroupsRequest
from ...protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ...protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ...protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ...protocol.records import iter_records
from ...protocol.schema import Request, Struct
from .. import committed_offsets as o
from .. import harmless_requests
from .. import partitions as p
from .. import principals as a
from .. import topic_admin as t
from ..case import Layer, Release, case, needs, versions_of
from ..check import Check, Topic, code
from ..exchange import Connection
from ..principals import Acl
from ..record_batches import batch

SOURCE = "KIP-11"
ACLS = needs(ApiKey.DESCRIBE_ACLS, 1, ApiKey.CREATE_ACLS, 1, ApiKey.DELETE_ACLS, 1, ApiKey.METADATA, 9)
TOPIC, GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

DENIED: Final[Mapping[ApiKey, ErrorCode]] = {
    ApiKey.PRODUCE: TOPIC,
    ApiKey.FETCH: TOPIC,
    ApiKey.LIST_OFFSETS: TOPIC,
    ApiKey.METADATA: TOPIC,
    ApiKey.OFFSET_COMMIT: GROUP,
    ApiKey.OFFSET_FETCH: GROUP,
    ApiKey.FIND_COORDINATOR: GROUP,
    ApiKey.JOIN_GROUP: GROUP,
    ApiKey.HEARTBEAT: GROUP,
    ApiKey.LEAVE_GROUP: GROUP,
    ApiKey.DESCRIBE_GROUPS: GROUP,
    ApiKey.DELETE_GROUPS: GROUP,
    ApiKey.CREATE_TOPICS: TOPIC,
    ApiKey.DELETE_TOPICS: TOPIC,
    ApiKey.DELETE_RECORDS: TOPIC,
    ApiKey.INIT_PRODUCER_ID: TRANSACTION,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: TOPIC,
    ApiKey.ADD_OFFSETS_TO_TXN: TRANSACTION,
    ApiKey.END_TXN: TRANSACTION,
    ApiKey.TXN_OFFSET_COMMIT: TRANSACTION,
    ApiKey.DESCRIBE_CONFIGS: TOPIC,
    ApiKey.ALTER_CONFIGS: TOPIC,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: TOPIC,
    ApiKey.CREATE_PARTITIONS: TOPIC,
    ApiKey.ELECT_LEADERS: CLUSTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: CLUSTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: CLUSTER,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: CLUSTER,
    ApiKey.UPDATE_FEATURES: CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS: TOPIC,
    ApiKey.DESCRIBE_TRANSACTIONS: TRANSACTION,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: GROUP,
    ApiKey.CONSUMER_GROUP_DESCRIBE: GROUP,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: TOPIC,
}
"""The error that a user without ACLs gets for the request of `harmless_requests`."""


NEW_GROUPS: Final = frozenset({ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE})


def codes(struct: Struct) -> Iterator[int]:
    """All error codes of a response."""
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if field.name == "error_code":
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from codes(each)


@case(
    "security.denied",
    "a user without ACLs is rejected",
    source=SOURCE,
    needs=ACLS,
    variants={api.name.lower().replace("_", "-"): (api,) for api in DENIED},
)
def denied(c: Check, api: ApiKey) -> None:
    """Sends: a request about a topic with a record, a group or a transactional ID, by a new user without ACLs.

    Expects: the authorization error of the resource, and no other error.

    Why: a forbidden operation must not happen; a client must distinguish this error from a temporary one, which it
    would retry.
    """
    version = c.version(api)
    if api in NEW_GROUPS and c.target.features.get("group.version", 0) < 1:
        c.not_applicable("the server has the new groups, and they are not enabled")
    topic = c.topic()
    p.append(c, topic, batch(b"value"))
    user = a.another(c)
    scene = harmless_requests.Scene(topic, topic, c.group())
    harmless = harmless_requests.REQUESTS[api]
    wire = user.wire
    if harmless.coordinator is not None and c.coordinator(scene.group, harmless.coordinator) is not c.wire:
        c.not_applicable("the second user connects only to the broker at the address")
    response = c.call(harmless.request(scene, version), version, to=wire)
    found = sorted(set(codes(response)) - {int(ErrorCode.NONE)})
    c.equal([code(each) for each in found], [code(DENIED[api])], "the error codes of the response")
    c.equal(p.values(c, topic), [b"value"], "the values of the topic")


def _offset_fetch(topic: Topic, group: str, version: int) -> Request:
    if version >= 8:
        return harmless_requests.REQUESTS[ApiKey.OFFSET_FETCH].request(
            harmless_requests.Scene(topic, topic, group), version
        )
    return OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=topic.name, partition_indexes=[0])])


def _find_coordinator(topic: Topic, group: str, version: int) -> Request:
    return FindCoordinatorRequest(coordinator_keys=[group]) if version >= 4 else FindCoordinatorRequest(key=group)


def _list_reassignments(topic: Topic, group: str, version: int) -> Request:
    return ListPartitionReassignmentsRequest(topics=None, timeout_ms=t.TIMEOUT_MS)


IN_EACH_VERSION: Final[Mapping[ApiKey, tuple[int, Callable[[Topic, str, int], Request], ErrorCode]]] = {
    ApiKey.OFFSET_FETCH: (1, _offset_fetch, GROUP),
    ApiKey.FIND_COORDINATOR: (0, _find_coordinator, GROUP),
    ApiKey.DESCRIBE_GROUPS: (0, lambda topic, group, version: DescribeGroupsRequest(groups=[group]), GROUP),
    ApiKey.DESCRIBE_LOG_DIRS: (3, lambda topic, group, version: DescribeLogDirsRequest(topics=None), CLUSTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, _list_reassignments, CLUSTER),
}
"""APIs whose other requests have no error: the first version with one, the request, and the error."""


def _denied_in(api: ApiKey) -> Callable[[Check, int], None]:
    def denied_in(c: Check, version: int) -> None:
        """Sends: a request about a group, or about the whole cluster, by a new user without ACLs.

        Expects: GROUP_AUTHORIZATION_FAILED or CLUSTER_AUTHORIZATION_FAILED, and no other error.

        Why: each version has its own place for the error; a client that does not find it takes the response for empty.
        """
        _, request, expected = IN_EACH_VERSION[api]
        if (api, version) == (ApiKey.OFFSET_FETCH, 1) and c.target.release < Release(4, 0):
            c.not_applicable("before Apache Kafka 4.0, version 1 has no partitions and no error")
        topic, group = c.topic(), c.group()
        user = a.another(c)
        response = c.call(request(topic, group, version), version, to=user.wire)
        found = sorted(set(codes(response)) - {int(ErrorCode.NONE)})
        c.equal([code(each) for each in found], [code(expected)], "the error codes of the response")

    return denied_in


for _api, _entry in IN_EACH_VERSION.items():
    case(
        f"security.denied.each-version.{_api.name.lower().replace('_', '-')}",
        f"{_api.message_name} rejects a user without ACLs",
        source=SOURCE,
        layer=Layer.WIRE,
        needs=ACLS,
        versions=versions_of(_api, _entry[0]),
    )(_denied_in(_api))


@case(
    "security.denied.topic-names",
    "a user sees only topics that it may describe",
    source=SOURCE,
    needs=ACLS,
)
def topic_names(c: Check) -> None:
    """Sends: Metadata of all topics by a user that may read one of two new topics.

    Expects: the one, and not the other.

    Why: names of topics show what a company does; a consumer with a pattern would try to read the others.
    """
    visible, hidden = c.topic(), c.topic()
    user = a.another(c)
    a.allow(c, Acl(AclResource.TOPIC, visible.name, AclOperation.READ, user.name))

    def names() -> set[str]:
        return {each.name for each in c.call(MetadataRequest(topics=None), to=user.wire).topics}

    c.until(lambda: visible.name in names(), "the visible topic in Metadata")
    c.equal(hidden.name in names(), False, "whether the hidden topic is in Metadata")


@case(
    "security.denied.unknown-topic",
    "a topic that does not exist looks like one that a user may not see",
    source=SOURCE,
    needs=ACLS,
)
def unknown_topic(c: Check) -> None:
    """Sends: Metadata of a topic that does not exist, and of one that does, by a user without ACLs.

    Expects: TOPIC_AUTHORIZATION_FAILED for both.

    Why: otherwise a user can find out which topics exist.
    """
    topic, missing = c.topic(), c.name("no-such-topic")
    user = a.another(c)
    wanted = [MetadataRequestTopic(name=name) for name in (topic.name, missing)]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    found = {each.name: each.error_code for each in c.call(request, to=user.wire).topics}
    c.equal(found, {topic.name: int(TOPIC), missing: int(TOPIC)}, "topics (name and error_code)")


def produce_error(c: Check, topic: Topic, to: Connection) -> int:
    return p.produce(c, topic, batch(b"value"), to=to).error_code


@case(
    "security.allowed.produce",
    "a user with WRITE can produce, until the ACL is deleted",
    source=SOURCE,
    needs=(*ACLS, *needs(ApiKey.PRODUCE, 9)),
    variants={
        "literal": ("topic", a.LITERAL, AclOperation.WRITE),
        "prefix": ("prefix", a.PREFIXED, AclOperation.WRITE),
        "all-operations": ("topic", a.LITERAL, AclOperation.ALL),
    },
)
def allowed_produce(c: Check, name: str, pattern: int, operation: AclOperation) -> None:
    """Sends: Produce by a new user before and after CreateAcls for the name or a prefix of it, and after DeleteAcls.

    Expects: TOPIC_AUTHORIZATION_FAILED, then no error, then TOPIC_AUTHORIZATION_FAILED; one record in the log.

    Why: permissions are given and withdrawn while a cluster runs, without restarting clients.
    """
    topic = c.topic()
    user = a.another(c)
    resource = topic.name if name == "topic" else topic.name[:-2]
    acl = Acl(AclResource.TOPIC, resource, operation, user.name, pattern=pattern)
    c.error(produce_error(c, topic, user.wire), TOPIC, "error_code without ACLs")
    a.allow(c, acl)
    c.until(lambda: produce_error(c, topic, user.wire) == ErrorCode.NONE, "a Produce that is allowed")
    c.call(DeleteAclsRequest(filters=[acl.exact_filter()]))
    c.until(lambda: produce_error(c, topic, user.wire) == TOPIC, "a Produce that is denied again")
    c.true(p.values(c, topic), "the values of the topic", expected="one or more", actual=p.values(c, topic))


@case(
    "security.allowed.denial-first",
    "a denial is stronger than a permission",
    source=SOURCE,
    needs=(*ACLS, *needs(ApiKey.PRODUCE, 9)),
)
def denial_first(c: Check) -> None:
    """Sends: CreateAcls that allow a new user all operations on a topic, and Produce; then CreateAcls that deny it
    WRITE, and Produce.

    Expects: no error at first; then TOPIC_AUTHORIZATION_FAILED. ListOffsets is still allowed.

    Why: an administrator blocks a user without looking for all of its permissions.
    """
    topic = c.topic()
    user = a.another(c)
    a.allow(c, Acl(AclResource.TOPIC, topic.name, AclOperation.ALL, user.name))
    c.until(lambda: produce_error(c, topic, user.wire) == ErrorCode.NONE, "a Produce that is allowed")
    a.allow(c, Acl(AclResource.TOPIC, topic.name, AclOperation.WRITE, user.name, permission=a.DENY))
    c.until(lambda: produce_error(c, topic, user.wire) == TOPIC, "a Produce that is denied")
    requested = [ListOffsetsPartition(partition_index=0, timestamp=p.LATEST)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=requested)])
    answer = c.call(request, to=user.wire).topics[0].partitions[0]
    c.error(answer.error_code, ErrorCode.NONE, "error_code of ListOffsets")


@case(
    "security.allowed.everybody",
    "ACLs with wildcards apply to all users and all topics",
    source=SOURCE,
    needs=(*ACLS, *needs(ApiKey.PRODUCE, 9)),
)
def everybody(c: Check) -> None:
    """Sends: CreateAcls that allow `User:*` to write to the topics below a prefix, and Produce by a new user.

    Expects: no error for a topic below the prefix; TOPIC_AUTHORIZATION_FAILED for another.

    Why: wildcards open a topic for everyone.
    """
    topic, other = c.topic(), c.topic(name=c.topic_name("other"))
    user = a.another(c)
    a.allow(c, Acl(AclResource.TOPIC, topic.name[:-2], AclOperation.WRITE, "User:*", pattern=a.PREFIXED))
    c.until(lambda: produce_error(c, topic, user.wire) == ErrorCode.NONE, "a Produce that is allowed")
    c.error(produce_error(c, other, user.wire), TOPIC, "error_code of the other topic")


@case(
    "security.allowed.consume",
    "a consumer needs READ on its topic and on its group",
    source=SOURCE,
    needs=(*ACLS, *needs(ApiKey.FETCH, 12, ApiKey.OFFSET_COMMIT, 8, ApiKey.OFFSET_FETCH, 8)),
)
def allowed_consume(c: Check) -> None:
    """Sends: Fetch, OffsetCommit and OffsetFetch by a new user: with READ on the topic, then also on the group.

    Expects: at first the record, and GROUP_AUTHORIZATION_FAILED for the offset; then the offset is committed and
    returned. Produce is rejected.

    Why: a consumer with the wrong group would take over the offsets of another one.
    """
    topic, group = c.topic(), c.group()
    p.append(c, topic, batch(b"value"))
    user = a.another(c)
    if c.coordinator(group) is not c.wire:
        c.not_applicable("the second user connects only to the broker at the address")

    def fetched() -> list[bytes]:
        data = p.fetch(c, topic, to=user.wire, min_bytes=1, max_wait_ms=500)
        return (
            []
            if data.error_code
            else [record.value or b"" for each in p.batches_of(data) for record in iter_records(each)]
        )

    def commit_error() -> int:
        version = c.version(ApiKey.OFFSET_COMMIT)
        return o.commit_error(c, user.wire, o.commit_request(group, topic, {0: 1}), version)

    a.allow(c, Acl(AclResource.TOPIC, topic.name, AclOperation.READ, user.name))
    c.until(lambda: fetched() == [b"value"], "the record, with READ on the topic")
    c.error(commit_error(), GROUP, "error_code of OffsetCommit without READ on the group")
    a.allow(c, Acl(AclResource.GROUP, group, AclOperation.READ, user.name))
    c.until(lambda: commit_error() == ErrorCode.NONE, "an OffsetCommit that is allowed")
    c.equal(o.offsets(c, user.wire, group, topic, [0]), {0: 1}, "the committed offsets")
    c.error(produce_error(c, topic, user.wire), TOPIC, "error_code of Produce")


@case(
    "security.allowed.create-topic",
    "a user may create topics whose names it has CREATE for",
    source="KIP-277 and KIP-290",
    needs=(*ACLS, *needs(ApiKey.CREATE_TOPICS, 5)),
)
def allowed_create(c: Check) -> None:
    """Sends: CreateTopics by a new user with CREATE on a prefix: of a topic below it, and of another.

    Expects: the one is created; TOPIC_AUTHORIZATION_FAILED for the other, which does not exist.

    Why: teams create their own topics in a shared cluster.
    """
    name, other = c.topic_name("own"), c.topic_name("other")
    user = a.another(c)
    a.allow(c, Acl(AclResource.TOPIC, name[:-2], AclOperation.CREATE, user.name, pattern=a.PREFIXED))

    def create(topic: str) -> int:
        request = CreateTopicsRequest(topics=[t.creatable(topic)], timeout_ms=t.TIMEOUT_MS)
        (result,) = c.call(request, to=user.wire).topics
        return int(result.error_code)

    c.until(lambda: create(name) in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), "a CreateTopics that is allowed")
    c.error(create(other), TOPIC, "error_code of the other topic")
    c.topic_ready(name)
    (found,) = c.call(
        MetadataRequest(topics=[MetadataRequestTopic(name=other)], allow_auto_topic_creation=False)
    ).topics
    c.error(found.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "error_code of the other topic in Metadata")


@case(
    "security.allowed.idempotent",
    "a producer ID needs IDEMPOTENT_WRITE, or WRITE on any topic",
    source="KIP-679",
    needs=(*ACLS, *needs(ApiKey.INIT_PRODUCER_ID, 2)),
)
def allowed_idempotent(c: Check) -> None:
    """Sends: InitProducerId without transactional ID by a new user: without ACLs, and with WRITE on one topic.

    Expects: CLUSTER_AUTHORIZATION_FAILED at first, then a producer ID.

    Why: producers are idempotent by default; with WRITE alone they must work.
    """
    user = a.another(c)

    def init() -> tuple[int, int]:
        answer = c.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000), to=user.wire)
        return int(answer.error_code), int(answer.producer_id)

    c.error(init()[0], CLUSTER, "error_code without ACLs")
    a.allow(c, Acl(AclResource.TOPIC, c.name("topic"), AclOperation.WRITE, user.name))
    c.until(lambda: init()[0] == ErrorCode.NONE and init()[1] >= 0, "a producer ID")


@case(
    "security.allowed.list-groups",
    "a user sees only groups that it may describe",
    source="KIP-231",
    needs=(*ACLS, *needs(ApiKey.LIST_GROUPS, 3, ApiKey.OFFSET_COMMIT, 8)),
)
def list_groups(c: Check) -> None:
    """Sends: ListGroups by a new user that may describe one of two groups.

    Expects: the one, and not the other.

    Why: names of groups are the names of applications.
    """
    topic, visible, hidden = c.topic(), c.group(), c.group()
    version = c.version(ApiKey.OFFSET_COMMIT)
    for group in (visible, hidden):
        o.committed_before(c, c.coordinator(group), o.commit_request(group, topic, {0: 1}), version)
    user = a.another(c)
    if c.coordinator(visible) is not c.wire:
        c.not_applicable("the second user connects only to the broker at the address")
    a.allow(c, Acl(AclResource.GROUP, visible, AclOperation.DESCRIBE, user.name))

    def names() -> set[str]:
        answer = c.call(ListGroupsRequest(), to=user.wire)
        c.error(answer.error_code, ErrorCode.NONE, "ListGroups error_code")
        return {each.group_id for each in answer.groups}

    c.until(lambda: visible in names(), "the visible group in ListGroups")
    c.equal(hidden in names(), False, "whether the hidden group is in ListGroups")

"""Crash: topics, configs and quotas; leader epochs; what belongs to connections and does not survive."""

from __future__ import annotations

import threading

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ...protocol.messages.create_topics import CreateTopicsRequest
from ...protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ...protocol.messages.metadata import MetadataRequest
from ...protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from .. import configs, topic_admin
from .. import partitions as p
from ..case import Level, Release, needs
from ..check import Check
from ..exchange import Recorder
from ..outcome import MismatchError
from ..record_batches import batch
from ..recovery import crash_case, leader_epoch, ready, stored_records

EPOCHS = needs(ApiKey.PRODUCE, 9, ApiKey.METADATA, 10, ApiKey.FETCH, 12)


@crash_case(
    "crash.topics.created",
    "a created topic keeps its ID, its partitions, its replicas and its configs",
    source="KIP-516 and KIP-631",
    needs=needs(ApiKey.METADATA, 10, ApiKey.DESCRIBE_CONFIGS, 1),
)
def created(c: Check) -> None:
    """Sends: CreateTopics with 5 partitions and two configs; kill -9; restart; Metadata and DescribeConfigs.

    Expects: the same topic ID, the same 5 partitions with the same leader and replicas, and both configs.

    Why: clients from before the crash still have the ID; an unknown one makes them drop what they know of the topic.
    """
    topic = c.topic(5, {"retention.ms": "123456789", "cleanup.policy": "compact"})
    before = topic_admin.shape(c, topic.name)
    c.crash()
    ready(c, topic, partitions=5)
    c.equal(topic_admin.shape(c, topic.name), before, "index, leader, replicas and ISR of the partitions")
    resource = configs.Resource(configs.TOPIC, topic.name)
    for key, value in (("retention.ms", "123456789"), ("cleanup.policy", "compact")):
        c.equal(configs.value(c, resource, key), (value, configs.DYNAMIC_TOPIC), f"value and source of {key}")


@crash_case(
    "crash.topics.deleted",
    "a deleted topic stays deleted",
    source="KIP-516",
    needs=needs(ApiKey.METADATA, 10, ApiKey.DELETE_TOPICS, 5),
)
def deleted(c: Check) -> None:
    """Sends: CreateTopics, Produce, DeleteTopics; kill -9; restart; Metadata, and CreateTopics with the same name.

    Expects: UNKNOWN_TOPIC_OR_PARTITION; the new topic has another ID and no records.

    Why: files of a deleted topic that are found at the restart must not bring the topic or its records back.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"deleted"))
    (result,) = topic_admin.delete(c, topic.name)
    c.error(result.error_code, ErrorCode.NONE, "DeleteTopics error_code")
    c.crash()
    topic_admin.until_missing(c, topic.name)
    again = c.topic(name=topic.name)
    c.true(again.topic_id != topic.topic_id, "the ID of the new topic", expected="a new one", actual=again.topic_id)
    c.equal(p.end_offset(c, again), 0, "the log end offset of the new topic")


@crash_case(
    "crash.topics.recreated",
    "a topic that was deleted and created again has only its new records",
    source="KIP-516",
    needs=needs(ApiKey.METADATA, 10, ApiKey.DELETE_TOPICS, 5, ApiKey.PRODUCE, 9),
)
def recreated(c: Check) -> None:
    """Sends: CreateTopics, Produce, DeleteTopics, CreateTopics with the same name, Produce; kill -9; restart; Fetch.

    Expects: the ID of the second topic, and only its record.

    Why: the directories of both topics may be on the disk; the ID decides which one is valid.
    """
    first = c.topic()
    p.append(c, first, batch(b"old", b"old"))
    (result,) = topic_admin.delete(c, first.name)
    c.error(result.error_code, ErrorCode.NONE, "DeleteTopics error_code")
    with c.setup("deleting the topic"):
        topic_admin.until_missing(c, first.name)
    second = c.topic(name=first.name)
    p.append(c, second, batch(b"new"))
    c.crash()
    ready(c, second)
    c.equal([(each.offset, each.value) for each in stored_records(c, second)], [(0, b"new")], "offsets and values")


@crash_case(
    "crash.topics.partitions-added",
    "added partitions survive, with their records",
    source="KIP-195",
    needs=needs(ApiKey.CREATE_PARTITIONS, 0, ApiKey.PRODUCE, 9),
)
def partitions_added(c: Check) -> None:
    """Sends: CreatePartitions from 1 to 4, Produce to partition 3; kill -9; restart; Metadata and Fetch.

    Expects: 4 partitions, and the record in partition 3.

    Why: records with a key are written to a partition by its number modulo the count; a lower count would lose them.
    """
    topic = c.topic()
    only_here = [[c.target.node_id]] * 3
    result = topic_admin.add_partitions(c, topic.name, 4, assignments=only_here)
    c.error(result.error_code, ErrorCode.NONE, "CreatePartitions error_code")
    c.topic_ready(topic.name, 4)
    p.append(c, topic, batch(b"added"), partition=3)
    c.crash()
    ready(c, topic, partitions=4)
    c.equal(p.values(c, topic, partition=3), [b"added"], "the values of partition 3")


@crash_case(
    "crash.topics.configs",
    "changed and removed configs of a topic survive",
    source="KIP-339",
    needs=needs(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, ApiKey.DESCRIBE_CONFIGS, 1),
)
def topic_configs(c: Check) -> None:
    """Sends: IncrementalAlterConfigs of a topic: one config is set, one is changed, one is removed; kill -9; restart;
    DescribeConfigs.

    Expects: the two values with the source of a topic config; the removed one has another source.

    Why: a lost `retention.ms` or `cleanup.policy` deletes records that its user wanted to keep.
    """
    topic = c.topic(configs={"retention.ms": "1000000", "retention.bytes": "1000000"})
    resource = configs.Resource(configs.TOPIC, topic.name)
    result = configs.alter(
        c,
        resource,
        ("max.message.bytes", configs.SET, "54321"),
        ("retention.ms", configs.SET, "-1"),
        ("retention.bytes", configs.DELETE, None),
    )
    c.error(result.error_code, ErrorCode.NONE, "IncrementalAlterConfigs error_code")
    c.crash()
    ready(c, topic)
    configs.until_value(c, resource, "max.message.bytes", ("54321", configs.DYNAMIC_TOPIC))
    c.equal(
        configs.value(c, resource, "retention.ms"), ("-1", configs.DYNAMIC_TOPIC), "value and source of retention.ms"
    )
    found = configs.value(c, resource, "retention.bytes")
    c.true(
        found is not None and found[1] != configs.DYNAMIC_TOPIC,
        "the source of the removed retention.bytes",
        expected="that of a default",
        actual=found,
    )


@crash_case(
    "crash.topics.under-load",
    "a server that is killed while topics are created has all that it acknowledged",
    source="KIP-631",
    needs=needs(ApiKey.CREATE_TOPICS, 7, ApiKey.METADATA, 10),
)
def created_under_load(c: Check) -> None:
    """Sends: CreateTopics, one after the other, until the server is killed; restart; Metadata.

    Expects: every acknowledged topic, with the ID of the CreateTopics response.

    Why: CreateTopics has a response when the topic is committed, not before.
    """
    names = [c.topic_name() for _ in range(60)]
    acknowledged: dict[str, bytes] = {}
    failures: list[str] = []
    begun = threading.Event()
    version = c.version(ApiKey.CREATE_TOPICS)
    node_id = c.target.node_id

    def create() -> None:
        try:
            with c.target.connect(Recorder(), lambda: 60.0 * c.target.patience) as wire:
                for name in names:
                    wanted = topic_admin.creatable(name, -1, -1, assignments={0: [node_id]})
                    request = CreateTopicsRequest(topics=[wanted], timeout_ms=topic_admin.TIMEOUT_MS)
                    (result,) = wire.call(request, version).topics
                    if result.error_code:
                        failures.append(f"{name}: {result}")
                        return
                    acknowledged[name] = result.topic_id
                    begun.set()
        except OSError:
            return
        finally:
            begun.set()

    thread = threading.Thread(target=create, name="creator", daemon=True)
    thread.start()
    with c.setup("creating the first topic"):
        c.until(begun.is_set, "a created topic")
    c.crash()
    thread.join()
    if failures:
        raise MismatchError("CreateTopics before the crash", "no error", failures[0])
    for name, topic_id in acknowledged.items():
        c.equal(c.topic_ready(name).topic_id, topic_id, f"the ID of {name}")


@crash_case(
    "crash.cluster.identity",
    "the cluster and the broker keep their IDs",
    source="KIP-78",
    needs=needs(ApiKey.METADATA, 2),
)
def identity(c: Check) -> None:
    """Sends: Metadata; kill -9; restart; Metadata.

    Expects: the same cluster ID, node IDs, hosts and ports.

    Why: clients reconnect to the addresses that they know, and some refuse to talk to another cluster.
    """

    def found() -> tuple[str | None, list[tuple[int, str, int]]]:
        response = c.call(MetadataRequest(topics=[]), c.version(ApiKey.METADATA, 12))
        return response.cluster_id, sorted((each.node_id, each.host, each.port) for each in response.brokers)

    before = found()
    c.crash()
    c.until(lambda: len(found()[1]) >= len(before[1]), "all brokers in Metadata")
    c.equal(found(), before, "cluster_id, and node_id, host and port of the brokers")


@crash_case(
    "crash.leader-epoch.grows",
    "the leader epoch grows, and the old one is fenced",
    source="KIP-320",
    level=Level.SHOULD,
    needs=EPOCHS,
    since=Release(4, 0),
)
def epoch_grows(c: Check) -> None:
    """Sends: Produce, Metadata; kill -9; restart; Metadata, and Fetch with the old and with the new leader epoch.

    Expects: a higher leader epoch; FENCED_LEADER_EPOCH for the old one, no error for the new one.

    Why: by the epoch a consumer learns that the log may have been truncated while the leader was dead.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"-"))
    before = leader_epoch(c, topic)
    c.crash()
    ready(c, topic)
    after = leader_epoch(c, topic)
    c.true(after > before, "the leader epoch after the restart", expected=f"more than {before}", actual=after)
    version = c.version(ApiKey.FETCH)
    for epoch, expected in ((before, ErrorCode.FENCED_LEADER_EPOCH), (after, ErrorCode.NONE)):
        request = p.fetch_request(topic, {0: 0}, version=version)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        (data,) = c.call(request, version).responses[0].partitions
        c.error(data.error_code, expected, f"Fetch error_code with leader epoch {epoch}")


@crash_case(
    "crash.leader-epoch.end-offset",
    "the old leader epoch ends where its records end",
    source="KIP-320",
    level=Level.SHOULD,
    needs=(*EPOCHS, *needs(ApiKey.OFFSET_FOR_LEADER_EPOCH, 3)),
    since=Release(4, 0),
)
def epoch_end(c: Check) -> None:
    """Sends: Produce of 3 records; kill -9; restart; Produce of 2 records; OffsetForLeaderEpoch for the old and the new
    epoch.

    Expects: end offset 3 for the old epoch, and 5 for the new one.

    Why: a consumer compares this offset with its own, to detect records that it read and that are lost.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a", b"b", b"c"))
    before = leader_epoch(c, topic)
    c.crash()
    ready(c, topic)
    after = leader_epoch(c, topic)
    p.append(c, topic, batch(b"d", b"e"))
    for epoch, end_offset in ((before, 3), (after, 5)):
        partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=after, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[partition])]
        )
        (found,) = c.call(request).topics[0].partitions
        c.error(found.error_code, ErrorCode.NONE, "OffsetForLeaderEpoch error_code")
        c.equal((found.leader_epoch, found.end_offset), (epoch, end_offset), "leader_epoch and end_offset")
    epochs = [each.partition_leader_epoch for each in p.read_batches(c, topic)]
    c.equal(epochs, [before, after], "the partition_leader_epoch of the stored batches")


@crash_case(
    "crash.fetch-session.unknown",
    "a fetch session does not survive",
    source="KIP-227",
    needs=needs(ApiKey.FETCH, 12, ApiKey.PRODUCE, 9),
)
def fetch_session(c: Check) -> None:
    """Sends: Fetch that creates a session; kill -9; restart; Fetch in this session; Fetch that creates a session.

    Expects: FETCH_SESSION_ID_NOT_FOUND and no partitions; then a session with all partitions.

    Why: a server that accepts the old session, without its partitions, never sends records to the consumer again.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"-"))
    version = c.version(ApiKey.FETCH)
    session = c.call(p.fetch_request(topic, {0: 0}, version=version, session_epoch=0), version).session_id
    c.true(session > 0, "session_id of a new session", expected="more than 0", actual=session)
    c.crash()
    ready(c, topic)
    request = p.fetch_request(topic, {}, version=version, session_id=session, session_epoch=1)
    response = c.call(request, version)
    c.error(response.error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "Fetch error_code in the old session")
    c.equal(response.responses, [], "responses in the old session")
    response = c.call(p.fetch_request(topic, {0: 0}, version=version, session_epoch=0), version)
    c.error(response.error_code, ErrorCode.NONE, "Fetch error_code of a new session")
    c.equal([len(each.partitions) for each in response.responses], [1], "partitions of a new session")


@crash_case(
    "crash.quotas",
    "client quotas survive",
    source="KIP-546",
    needs=needs(ApiKey.ALTER_CLIENT_QUOTAS, 1, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1),
    alters_configs=True,
)
def quotas(c: Check) -> None:
    """Sends: AlterClientQuotas that sets two quotas of a user, and removes one of them; kill -9; restart;
    DescribeClientQuotas.

    Expects: the other quota, with its value.

    Why: a lost quota lets one client take the whole capacity of the server.
    """
    user = c.name("user")
    entity = [EntityData(entity_type="user", entity_name=user)]

    def alter(**values: float) -> None:
        ops = [
            OpData(key=key, value=max(value, 0.0), remove=value < 0)
            for key, value in values.items()
        ]  # fmt: skip
        (entry,) = c.call(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)])).entries
        c.error(entry.error_code, ErrorCode.NONE, "AlterClientQuotas error_code")

    def described() -> dict[str, float]:
        component = ComponentData(entity_type="user", match_type=0, match=user)
        response = c.call(DescribeClientQuotasRequest(components=[component], strict=True))
        c.error(response.error_code, ErrorCode.NONE, "DescribeClientQuotas error_code")
        return {each.key: each.value for entry in response.entries for each in entry.values}

    alter(producer_byte_rate=1e6, consumer_byte_rate=2e6)
    alter(producer_byte_rate=-1)
    c.crash()
    c.until(described, f"the quotas of {user}")
    c.equal(described(), {"consumer_byte_rate": 2e6}, f"the quotas of {user}")
    alter(consumer_byte_rate=-1)

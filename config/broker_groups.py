"""The broker's settings of the coordinators: offsets, the kinds of groups, transactions."""

from typing import Final

from .definition import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    SHORT,
    STRING,
    OneOfAnyCase,
    Section,
    Setting,
    at_least,
    between,
    list_of,
)

CONSUMER_ASSIGNORS: Final = ("uniform", "range")
"""The available server-side assignors, the default one first."""

_ASSIGNOR_CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


def consumer_assignor(name: str) -> str | None:
    """The assignor for a name in `group.consumer.assignors`; Kafka's files may use the Java class name."""
    name = _ASSIGNOR_CLASSES.get(name, name)
    return name if name in CONSUMER_ASSIGNORS else None


# fmt: off
SECTIONS: Final = (
    Section(
        "Offsets",
        Setting(
            "offset.metadata.max.bytes", INT, 4096, None, HIGH,
            "Maximum size of the metadata that a client may store with a committed offset.",
            acted_on=True,
        ),
        Setting(
            "offsets.commit.timeout.ms", INT, 5000, at_least(1), HIGH,
            "Time limit for the replicas to store a commit.",
        ),
        Setting(
            "offsets.load.buffer.size", INT, 5_242_880, at_least(1), HIGH,
            "Bytes read at a time when committed offsets are loaded.",
            acted_on=True,
        ),
        Setting(
            "offsets.retention.minutes", INT, 10_080, at_least(1), HIGH,
            "Time after which committed offsets of an empty group expire.",
            acted_on=True,
        ),
        Setting(
            "offsets.retention.check.interval.ms", LONG, 600_000, at_least(1), HIGH,
            "Interval between checks for expired offsets.",
            acted_on=True,
        ),
        Setting(
            "offsets.topic.num.partitions", INT, 50, at_least(1), HIGH,
            "Number of partitions of `__consumer_offsets`.",
            acted_on=True,
        ),
        Setting(
            "offsets.topic.replication.factor", SHORT, 1, at_least(1), HIGH,
            "Number of replicas of `__consumer_offsets`.",
            kafka_default=3, acted_on=True,
        ),
        Setting(
            "offsets.topic.segment.bytes", INT, 104_857_600, at_least(1), HIGH,
            "Segment size of `__consumer_offsets`.",
            acted_on=True,
        ),
        Setting(
            "offsets.topic.compression.codec", INT, 0, None, HIGH,
            "Compression codec of the records in `__consumer_offsets`, as its number in the protocol.",
            acted_on=True,
        ),
    ),
    Section(
        "Group coordinator",
        Setting(
            "group.coordinator.rebalance.protocols", LIST, ("classic", "consumer", "streams"),
            list_of("consumer", "classic", "share", "streams", empty_allowed=False), MEDIUM,
            "Enabled group protocols.",
            acted_on=True,
        ),
        Setting(
            "group.coordinator.threads", INT, 4, at_least(1), HIGH,
            "Threads of the coordinator. Moldau's coordinator runs on the event loop.",
        ),
        Setting(
            "group.coordinator.background.threads", INT, 2, at_least(1), HIGH,
            "Threads for long tasks of the coordinator.",
        ),
        Setting(
            "group.coordinator.append.linger.ms", INT, -1, at_least(-1), MEDIUM,
            "Time for which the coordinator batches records before it writes them; -1 adapts to the load.",
        ),
        Setting(
            "group.coordinator.cached.buffer.max.bytes", INT, 1_048_588, at_least(524_288), MEDIUM,
            "Maximum size of a buffer that the coordinator keeps for reuse.",
            update=CLUSTER_WIDE,
        ),
    ),
    Section(
        "Classic groups",
        Setting(
            "group.initial.rebalance.delay.ms", INT, 3000, None, MEDIUM,
            "Time that a new group waits for more members before its first rebalance.",
            acted_on=True,
        ),
        Setting(
            "group.min.session.timeout.ms", INT, 6000, None, MEDIUM,
            "Minimum session timeout that a member may request.",
            acted_on=True,
        ),
        Setting(
            "group.max.session.timeout.ms", INT, 1_800_000, None, MEDIUM,
            "Maximum session timeout that a member may request.",
            acted_on=True,
        ),
        Setting(
            "group.max.size", INT, INT_MAX, at_least(1), MEDIUM,
            "Maximum number of members of a group.",
            acted_on=True,
        ),
    ),
    Section(
        "Consumer groups (KIP-848)",
        Setting(
            "group.consumer.assignors", LIST, CONSUMER_ASSIGNORS, list_of(empty_allowed=False), MEDIUM,
            "Names of the server-side assignors; the first is the default.",
            acted_on=True,
        ),
        Setting(
            "group.consumer.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
            "Heartbeat interval of the members.",
            acted_on=True,
        ),
        Setting(
            "group.consumer.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
            "Minimum heartbeat interval of a group.",
            acted_on=True,
        ),
        Setting(
            "group.consumer.max.heartbeat.interval.ms", INT, 15_000, at_least(1), MEDIUM,
            "Maximum heartbeat interval of a group.",
            acted_on=True,
        ),
        Setting(
            "group.consumer.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
            "Time without a heartbeat after which a member is removed.",
            acted_on=True,
        ),
        Setting(
            "group.consumer.min.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
            "Minimum session timeout of a group.",
            acted_on=True,
        ),
        Setting(
            "group.consumer.max.session.timeout.ms", INT, 60_000, at_least(1), MEDIUM,
            "Maximum session timeout of a group.",
            acted_on=True,
        ),
        Setting(
            "group.consumer.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM,
            "Minimum time between two new assignments of a group.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "group.consumer.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM,
            "Minimum assignment interval of a group.",
            acted_on=True,
        ),
        Setting(
            "group.consumer.max.assignment.interval.ms", INT, 15_000, at_least(0), MEDIUM,
            "Maximum assignment interval of a group.",
            acted_on=True,
        ),
        Setting(
            "group.consumer.max.size", INT, INT_MAX, at_least(1), MEDIUM,
            "Maximum number of members of a group.",
            acted_on=True,
        ),
        Setting(
            "group.consumer.migration.policy", STRING, "bidirectional",
            OneOfAnyCase(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL")), MEDIUM,
            "Directions in which a group may migrate between the classic and the new protocol.",
            acted_on=True,
        ),
        Setting(
            "group.consumer.regex.refresh.interval.ms", INT, 600_000, at_least(10_000), MEDIUM,
            "Interval between checks for topics that match a group's regular expressions.",
            internal=True, acted_on=True,
        ),
    ),
    Section(
        "Share groups (KIP-932)",
        Setting(
            "group.share.assignors", LIST, ("simple",), list_of(empty_allowed=False), MEDIUM,
            "Assignor of share groups.",
        ),
        Setting(
            "group.share.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
            "Heartbeat interval of the members.",
        ),
        Setting(
            "group.share.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
            "Minimum heartbeat interval of a group.",
        ),
        Setting(
            "group.share.max.heartbeat.interval.ms", INT, 15_000, at_least(1), MEDIUM,
            "Maximum heartbeat interval of a group.",
        ),
        Setting(
            "group.share.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
            "Time without a heartbeat after which a member is removed.",
        ),
        Setting(
            "group.share.min.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
            "Minimum session timeout of a group.",
        ),
        Setting(
            "group.share.max.session.timeout.ms", INT, 60_000, at_least(1), MEDIUM,
            "Maximum session timeout of a group.",
        ),
        Setting(
            "group.share.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM,
            "Minimum time between two new assignments of a group.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "group.share.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM,
            "Minimum assignment interval of a group.",
        ),
        Setting(
            "group.share.max.assignment.interval.ms", INT, 15_000, at_least(0), MEDIUM,
            "Maximum assignment interval of a group.",
        ),
        Setting(
            "group.share.max.size", INT, 200, between(1, 1000), MEDIUM,
            "Maximum number of members of a group.",
        ),
        Setting(
            "group.share.max.share.sessions", INT, 2000, at_least(1), MEDIUM,
            "Maximum number of share sessions of a broker.",
        ),
        Setting(
            "group.share.delivery.count.limit", INT, 5, between(2, 10), MEDIUM,
            "Maximum number of deliveries of a record.",
        ),
        Setting(
            "group.share.min.delivery.count.limit", INT, 2, between(2, 5), MEDIUM,
            "Minimum delivery limit of a group.",
        ),
        Setting(
            "group.share.max.delivery.count.limit", INT, 10, between(5, 25), MEDIUM,
            "Maximum delivery limit of a group.",
        ),
        Setting(
            "group.share.partition.max.record.locks", INT, 2000, between(100, 10_000), MEDIUM,
            "Maximum number of records of a partition that are acquired at the same time.",
        ),
        Setting(
            "group.share.min.partition.max.record.locks", INT, 100, between(100, 2000), MEDIUM,
            "Minimum limit of acquired records of a group.",
        ),
        Setting(
            "group.share.max.partition.max.record.locks", INT, 4000, between(2000, 10_000), MEDIUM,
            "Maximum limit of acquired records of a group.",
        ),
        Setting(
            "group.share.record.lock.duration.ms", INT, 30_000, between(1000, 3_600_000), MEDIUM,
            "Time for which a record stays acquired by a member.",
        ),
        Setting(
            "group.share.min.record.lock.duration.ms", INT, 15_000, between(1000, 30_000), MEDIUM,
            "Minimum acquisition time of a group.",
        ),
        Setting(
            "group.share.max.record.lock.duration.ms", INT, 60_000, between(30_000, 3_600_000), MEDIUM,
            "Maximum acquisition time of a group.",
        ),
        Setting(
            "group.share.persister.class.name", STRING, "org.apache.kafka.server.share.persister.DefaultStatePersister",
            None, MEDIUM,
            "Java class that stores the groups' state. Not loaded.",
            internal=True,
        ),
        Setting(
            "group.share.initialize.retry.interval.ms", INT, 30_000, at_least(1), LOW,
            "Delay before the initialization of a share group's state is retried.",
            internal=True,
        ),
        Setting(
            "share.fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM,
            "Number of waiting share fetches between two purges. Moldau removes each one when it ends.",
        ),
    ),
    Section(
        "Share coordinator",
        Setting(
            "share.coordinator.state.topic.num.partitions", INT, 50, at_least(1), HIGH,
            "Number of partitions of `__share_group_state`.",
            acted_on=True,
        ),
        Setting(
            "share.coordinator.state.topic.replication.factor", SHORT, 1, at_least(1), HIGH,
            "Number of replicas of `__share_group_state`.",
            kafka_default=3, acted_on=True,
        ),
        Setting(
            "share.coordinator.state.topic.min.isr", SHORT, 1, at_least(1), HIGH,
            "Minimum number of in-sync replicas of `__share_group_state`.",
            kafka_default=2, acted_on=True,
        ),
        Setting(
            "share.coordinator.state.topic.segment.bytes", INT, 104_857_600, at_least(1), HIGH,
            "Segment size of `__share_group_state`.",
            acted_on=True,
        ),
        Setting(
            "share.coordinator.state.topic.compression.codec", INT, 0, None, HIGH,
            "Compression codec of the records in `__share_group_state`, as its number in the protocol.",
        ),
        Setting(
            "share.coordinator.state.topic.prune.interval.ms", INT, 300_000, at_least(1), LOW,
            "Interval between two deletions of outdated records of `__share_group_state`.",
            internal=True,
        ),
        Setting(
            "share.coordinator.snapshot.update.records.per.snapshot", INT, 500, between(0, 500), MEDIUM,
            "Number of updates between two snapshots of a share partition.",
        ),
        Setting(
            "share.coordinator.cold.partition.snapshot.interval.ms", INT, 300_000, at_least(1), LOW,
            "Time after which a snapshot of an unchanged share partition is written again.",
            internal=True,
        ),
        Setting(
            "share.coordinator.load.buffer.size", INT, 5_242_880, at_least(1), HIGH,
            "Bytes read at a time when the state is loaded.",
        ),
        Setting(
            "share.coordinator.threads", INT, 1, at_least(1), MEDIUM,
            "Threads of the coordinator. Moldau's coordinator runs on the event loop.",
        ),
        Setting(
            "share.coordinator.write.timeout.ms", INT, 5000, at_least(1), HIGH,
            "Time limit for the replicas to store a write of state.",
        ),
        Setting(
            "share.coordinator.append.linger.ms", INT, -1, at_least(-1), MEDIUM,
            "Time for which the coordinator batches records before it writes them; -1 adapts to the load.",
        ),
        Setting(
            "share.coordinator.cached.buffer.max.bytes", INT, 1_048_588, at_least(524_288), MEDIUM,
            "Maximum size of a buffer that the coordinator keeps for reuse.",
            update=CLUSTER_WIDE,
        ),
    ),
    Section(
        "Streams groups (KIP-1071)",
        Setting(
            "group.streams.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
            "Heartbeat interval of the members.",
        ),
        Setting(
            "group.streams.min.heartbeat.interval.ms", INT, 5000, at_least(1), MEDIUM,
            "Minimum heartbeat interval of a group.",
        ),
        Setting(
            "group.streams.max.heartbeat.interval.ms", INT, 15_000, at_least(1), MEDIUM,
            "Maximum heartbeat interval of a group.",
        ),
        Setting(
            "group.streams.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
            "Time without a heartbeat after which a member is removed.",
        ),
        Setting(
            "group.streams.min.session.timeout.ms", INT, 45_000, at_least(1), MEDIUM,
            "Minimum session timeout of a group.",
        ),
        Setting(
            "group.streams.max.session.timeout.ms", INT, 60_000, at_least(1), MEDIUM,
            "Maximum session timeout of a group.",
        ),
        Setting(
            "group.streams.assignment.interval.ms", INT, 1000, at_least(0), MEDIUM,
            "Minimum time between two new assignments of a group.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "group.streams.min.assignment.interval.ms", INT, 0, at_least(0), MEDIUM,
            "Minimum assignment interval of a group.",
        ),
        Setting(
            "group.streams.max.assignment.interval.ms", INT, 15_000, at_least(0), MEDIUM,
            "Maximum assignment interval of a group.",
        ),
        Setting(
            "group.streams.initial.rebalance.delay.ms", INT, 3000, at_least(0), MEDIUM,
            "Time that a new group waits for more members before its first assignment.",
        ),
        Setting(
            "group.streams.num.standby.replicas", INT, 0, at_least(0), MEDIUM,
            "Number of standby replicas of each task.",
        ),
        Setting(
            "group.streams.max.standby.replicas", INT, 2, at_least(0), MEDIUM,
            "Maximum number of standby replicas of a group.",
        ),
        Setting(
            "group.streams.max.size", INT, INT_MAX, at_least(1), MEDIUM,
            "Maximum number of members of a group.",
        ),
    ),
    Section(
        "Transactions",
        Setting(
            "transactional.id.expiration.ms", INT, 604_800_000, at_least(1), HIGH,
            "Time after which an unused transactional id expires.",
            acted_on=True,
        ),
        Setting(
            "transaction.max.timeout.ms", INT, 900_000, at_least(1), HIGH,
            "Maximum transaction timeout that a producer may request.",
            acted_on=True,
        ),
        Setting(
            "transaction.partition.verification.enable", BOOLEAN, True, None, LOW,
            "Whether the broker verifies that a transactional write belongs to an open transaction (KIP-890).",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "transaction.two.phase.commit.enable", BOOLEAN, False, None, LOW,
            "Whether transactions may take part in a two-phase commit (KIP-939).",
            acted_on=True,
        ),
        Setting(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, at_least(1), LOW,
            "Interval between checks for transactions that have timed out.",
            acted_on=True,
        ),
        Setting(
            "transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, at_least(1), LOW,
            "Interval between checks for expired transactional ids.",
            acted_on=True,
        ),
        Setting(
            "transaction.state.log.num.partitions", INT, 50, at_least(1), HIGH,
            "Number of partitions of `__transaction_state`.",
            acted_on=True,
        ),
        Setting(
            "transaction.state.log.replication.factor", SHORT, 1, at_least(1), HIGH,
            "Number of replicas of `__transaction_state`.",
            kafka_default=3, acted_on=True,
        ),
        Setting(
            "transaction.state.log.min.isr", INT, 1, at_least(1), HIGH,
            "Minimum number of in-sync replicas of `__transaction_state`.",
            kafka_default=2, acted_on=True,
        ),
        Setting(
            "transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1), HIGH,
            "Segment size of `__transaction_state`.",
            acted_on=True,
        ),
        Setting(
            "transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1), HIGH,
            "Bytes read at a time when transactions are loaded.",
            acted_on=True,
        ),
        Setting(
            "add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1), HIGH,
            "First delay before the server retries to add a partition to a transaction.",
            acted_on=True,
        ),
        Setting(
            "add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0), HIGH,
            "Time limit for the server to add a partition to a transaction.",
            acted_on=True,
        ),
    ),
)
# fmt: on

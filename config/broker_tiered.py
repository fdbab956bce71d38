"""The broker's settings of tiered storage, which Moldau does not have; they are known so that nothing is a surprise."""

from typing import Final

from .definition import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    INT,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    STRING,
    NonEmpty,
    Section,
    Setting,
    at_least,
    between,
)

# fmt: off
SECTIONS: Final = (
    Section(
        "Tiered storage",
        Setting(
            "remote.log.storage.system.enable", BOOLEAN, False, None, MEDIUM,
            "Whether the broker has tiered storage. Moldau has none, and refuses topics that ask for it.",
        ),
        Setting(
            "log.local.retention.bytes", LONG, -2, at_least(-2), MEDIUM,
            "With tiered storage, size of a log kept locally; -2 takes `log.retention.bytes`.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "log.local.retention.ms", LONG, -2, at_least(-2), MEDIUM,
            "With tiered storage, age of a log kept locally; -2 takes `log.retention.ms`.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "follower.fetch.last.tiered.offset.enable", BOOLEAN, False, None, MEDIUM,
            "Whether an empty follower begins after what is already in tiered storage.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.fetch.max.wait.ms", INT, 500, at_least(1), MEDIUM,
            "Time a fetch from tiered storage may take.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.list.offsets.request.timeout.ms", LONG, 30_000, at_least(1), MEDIUM,
            "Time a search for an offset in tiered storage may take.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.reader.threads", INT, 10, at_least(1), MEDIUM,
            "Threads that read from tiered storage.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.reader.max.pending.tasks", INT, 100, at_least(1), MEDIUM,
            "Reads from tiered storage that may wait.",
        ),
        Setting(
            "remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824, at_least(1), LOW,
            "Local space for index files of tiered storage.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.index.file.cache.ttl.ms", LONG, 900_000, at_least(-1), LOW,
            "Time an unused index file of tiered storage stays local.",
            internal=True,
        ),
        Setting(
            "remote.log.manager.thread.pool.size", INT, 2, at_least(1), MEDIUM,
            "Older name of `remote.log.manager.follower.thread.pool.size`.",
        ),
        Setting(
            "remote.log.manager.copier.thread.pool.size", INT, 10, at_least(1), MEDIUM,
            "Workers that copy segments out.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.manager.expiration.thread.pool.size", INT, 10, at_least(1), MEDIUM,
            "Workers that delete expired segments.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.manager.follower.thread.pool.size", INT, 2, at_least(1), MEDIUM,
            "Workers that follow what the leader copied.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.manager.task.interval.ms", LONG, 30_000, at_least(1), LOW,
            "Time between two rounds of copying and deleting.",
        ),
        Setting(
            "remote.log.manager.task.retry.backoff.ms", LONG, 500, at_least(1), LOW,
            "First wait before a failed round is tried again.",
            internal=True,
        ),
        Setting(
            "remote.log.manager.task.retry.backoff.max.ms", LONG, 30_000, at_least(1), LOW,
            "Longest wait before a failed round is tried again.",
            internal=True,
        ),
        Setting(
            "remote.log.manager.task.retry.jitter", DOUBLE, 0.2, between(0, 0.5), LOW,
            "Random part of those waits.",
            internal=True,
        ),
        Setting(
            "remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX, at_least(1), MEDIUM,
            "Bytes a second that may be copied out.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.manager.copy.quota.window.num", INT, 11, at_least(1), MEDIUM,
            "Samples kept to measure copying.",
        ),
        Setting(
            "remote.log.manager.copy.quota.window.size.seconds", INT, 1, at_least(1), MEDIUM,
            "Length of a sample of copying.",
        ),
        Setting(
            "remote.log.manager.fetch.max.bytes.per.second", LONG, LONG_MAX, at_least(1), MEDIUM,
            "Bytes a second that may be fetched back.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.manager.fetch.quota.window.num", INT, 11, at_least(1), MEDIUM,
            "Samples kept to measure fetching back.",
        ),
        Setting(
            "remote.log.manager.fetch.quota.window.size.seconds", INT, 1, at_least(1), MEDIUM,
            "Length of a sample of fetching back.",
        ),
        Setting(
            "remote.log.metadata.custom.metadata.max.bytes", INT, 128, at_least(0), LOW,
            "Largest note a storage plugin may attach to a segment.",
        ),
        Setting(
            "remote.log.metadata.manager.class.name", STRING,
            "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
            NonEmpty(), MEDIUM,
            "Java class that remembers what was copied. Not loaded.",
        ),
        Setting(
            "remote.log.metadata.manager.class.path", STRING, None, None, MEDIUM,
            "Where that class is found.",
        ),
        Setting(
            "remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", NonEmpty(), MEDIUM,
            "Prefix of that class's own settings.",
        ),
        Setting(
            "remote.log.metadata.manager.listener.name", STRING, None, NonEmpty(), MEDIUM,
            "Listener that class connects to.",
        ),
        Setting(
            "remote.log.storage.manager.class.name", STRING, None, NonEmpty(), MEDIUM,
            "Java class that stores segments elsewhere. Not loaded.",
        ),
        Setting(
            "remote.log.storage.manager.class.path", STRING, None, None, MEDIUM,
            "Where that class is found.",
        ),
        Setting(
            "remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", NonEmpty(), MEDIUM,
            "Prefix of that class's own settings.",
        ),
    ),
)
# fmt: on

"""The broker's settings of tiered storage, which Moldau does not have. They are accepted and described."""

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
            "Whether the broker has tiered storage. Moldau has none, and rejects topics with it.",
        ),
        Setting(
            "log.local.retention.bytes", LONG, -2, at_least(-2), MEDIUM,
            "With tiered storage, size of a log that is kept locally; -2 is the value of `log.retention.bytes`.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "log.local.retention.ms", LONG, -2, at_least(-2), MEDIUM,
            "With tiered storage, age of a log that is kept locally; -2 is the value of `log.retention.ms`.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "follower.fetch.last.tiered.offset.enable", BOOLEAN, False, None, MEDIUM,
            "Whether an empty follower begins after the segments in tiered storage.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.fetch.max.wait.ms", INT, 500, at_least(1), MEDIUM,
            "Timeout of a fetch from tiered storage.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.list.offsets.request.timeout.ms", LONG, 30_000, at_least(1), MEDIUM,
            "Timeout of a search for an offset in tiered storage.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.reader.threads", INT, 10, at_least(1), MEDIUM,
            "Threads that read from tiered storage.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.reader.max.pending.tasks", INT, 100, at_least(1), MEDIUM,
            "Maximum number of waiting reads from tiered storage.",
        ),
        Setting(
            "remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824, at_least(1), LOW,
            "Local space for index files of tiered storage.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.index.file.cache.ttl.ms", LONG, 900_000, at_least(-1), LOW,
            "Time for which an unused index file of tiered storage is kept locally.",
            internal=True,
        ),
        Setting(
            "remote.log.manager.thread.pool.size", INT, 2, at_least(1), MEDIUM,
            "Older name of `remote.log.manager.follower.thread.pool.size`.",
        ),
        Setting(
            "remote.log.manager.copier.thread.pool.size", INT, 10, at_least(1), MEDIUM,
            "Workers that copy segments to tiered storage.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.manager.expiration.thread.pool.size", INT, 10, at_least(1), MEDIUM,
            "Workers that delete expired segments.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.manager.follower.thread.pool.size", INT, 2, at_least(1), MEDIUM,
            "Workers that track the segments copied by the leader.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.manager.task.interval.ms", LONG, 30_000, at_least(1), LOW,
            "Interval between two rounds of copying and deleting.",
        ),
        Setting(
            "remote.log.manager.task.retry.backoff.ms", LONG, 500, at_least(1), LOW,
            "First delay before a failed round is retried.",
            internal=True,
        ),
        Setting(
            "remote.log.manager.task.retry.backoff.max.ms", LONG, 30_000, at_least(1), LOW,
            "Maximum delay before a failed round is retried.",
            internal=True,
        ),
        Setting(
            "remote.log.manager.task.retry.jitter", DOUBLE, 0.2, between(0, 0.5), LOW,
            "Random part of these delays.",
            internal=True,
        ),
        Setting(
            "remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX, at_least(1), MEDIUM,
            "Maximum bytes per second that are copied to tiered storage.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.manager.copy.quota.window.num", INT, 11, at_least(1), MEDIUM,
            "Number of samples for the copy rate.",
        ),
        Setting(
            "remote.log.manager.copy.quota.window.size.seconds", INT, 1, at_least(1), MEDIUM,
            "Length of a sample of the copy rate.",
        ),
        Setting(
            "remote.log.manager.fetch.max.bytes.per.second", LONG, LONG_MAX, at_least(1), MEDIUM,
            "Maximum bytes per second that are fetched from tiered storage.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "remote.log.manager.fetch.quota.window.num", INT, 11, at_least(1), MEDIUM,
            "Number of samples for the fetch rate.",
        ),
        Setting(
            "remote.log.manager.fetch.quota.window.size.seconds", INT, 1, at_least(1), MEDIUM,
            "Length of a sample of the fetch rate.",
        ),
        Setting(
            "remote.log.metadata.custom.metadata.max.bytes", INT, 128, at_least(0), LOW,
            "Maximum size of the metadata that a storage plugin may attach to a segment.",
        ),
        Setting(
            "remote.log.metadata.manager.class.name", STRING,
            "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
            NonEmpty(), MEDIUM,
            "Java class that stores the metadata of copied segments. Not loaded.",
        ),
        Setting(
            "remote.log.metadata.manager.class.path", STRING, None, None, MEDIUM,
            "Class path of that class.",
        ),
        Setting(
            "remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", NonEmpty(), MEDIUM,
            "Prefix of the settings of that class.",
        ),
        Setting(
            "remote.log.metadata.manager.listener.name", STRING, None, NonEmpty(), MEDIUM,
            "Listener to which that class connects.",
        ),
        Setting(
            "remote.log.storage.manager.class.name", STRING, None, NonEmpty(), MEDIUM,
            "Java class that stores segments in tiered storage. Not loaded.",
        ),
        Setting(
            "remote.log.storage.manager.class.path", STRING, None, None, MEDIUM,
            "Class path of that class.",
        ),
        Setting(
            "remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", NonEmpty(), MEDIUM,
            "Prefix of the settings of that class.",
        ),
    ),
)
# fmt: on

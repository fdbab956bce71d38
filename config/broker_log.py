"""The broker's settings of the logs: directories, segments, records, flushing, retention, compaction.

Most of them are what a topic has when it does not say (the synonyms in ``topic.py``).
"""

from typing import Final

from .definition import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    DOUBLE_MAX,
    HIGH,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    PER_BROKER,
    STRING,
    GzipLevel,
    Section,
    Setting,
    at_least,
    between,
    list_of,
)
from .topic import CLEANUP_POLICIES, CODECS, TIMESTAMP_TYPES

# fmt: off
SECTIONS: Final = (
    Section(
        "Directories",
        Setting(
            "log.dirs", LIST, None, list_of(empty_allowed=False, null_allowed=True), HIGH,
            "Directories of the data, with commas between; `moldau serve --data-dir` sets it.",
            acted_on=True,
        ),
        Setting(
            "log.dir", LIST, None, list_of(empty_allowed=False), HIGH,
            "Directory of the data when `log.dirs` is not set; without both, a folder for Moldau among the user's "
            "data.",
            kafka_default=("/tmp/kafka-logs",), acted_on=True,
        ),
        Setting(
            "cordoned.log.dirs", LIST, (), list_of(null_allowed=True), MEDIUM,
            "Directories that get no new partitions.",
            update=PER_BROKER,
        ),
        Setting(
            "num.recovery.threads.per.data.dir", INT, 2, at_least(1), HIGH,
            "Threads per directory that read ahead what is recovered at a start, where there are several directories.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "num.replica.alter.log.dirs.threads", INT, None, None, HIGH,
            "Replicas that move between directories at the same time; null: as many as there are directories.",
            acted_on=True,
        ),
        Setting(
            "log.dir.failure.timeout.ms", LONG, 30_000, at_least(1), LOW,
            "Time in which the controller must hear of a failed directory, or the broker stops.",
        ),
    ),
    Section(
        "Segments and indexes",
        Setting(
            "log.segment.bytes", INT, 1_073_741_824, at_least(1_048_576), HIGH,
            "Size at which a segment is closed and the next one begun.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.roll.ms", LONG, None, None, HIGH,
            "Age at which a segment is closed; unset, `log.roll.hours` counts.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.roll.hours", INT, 168, at_least(1), HIGH,
            "Age at which a segment is closed, in hours.",
            acted_on=True,
        ),
        Setting(
            "log.roll.jitter.ms", LONG, None, None, HIGH,
            "Random time taken off the age at which a segment is closed; unset, `log.roll.jitter.hours` counts.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.roll.jitter.hours", INT, 0, at_least(0), HIGH,
            "Random time taken off the age at which a segment is closed, in hours.",
            acted_on=True,
        ),
        Setting(
            "log.index.interval.bytes", INT, 4096, at_least(0), MEDIUM,
            "Bytes of log between two entries of the offset index.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.index.size.max.bytes", INT, 10_485_760, at_least(4), MEDIUM,
            "Largest size of an offset index.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.preallocate", BOOLEAN, False, None, MEDIUM,
            "Whether a new segment takes its full size on disk at once.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "log.segment.delete.delay.ms", LONG, 60_000, at_least(0), HIGH,
            "Time between a segment leaving the log and its files leaving the disk.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.initial.task.delay.ms", LONG, 30_000, at_least(0), LOW,
            "Time from the start to the first look for segments to delete, for tests only.",
            internal=True, acted_on=True,
        ),
    ),
    Section(
        "Records",
        Setting(
            "message.max.bytes", INT, 1_048_588, at_least(0), HIGH,
            "Largest record batch accepted, for topics that do not say `max.message.bytes`.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "compression.type", STRING, "producer", CODECS, HIGH,
            "Codec in which batches are stored; `producer` keeps what the producer chose.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "compression.gzip.level", INT, -1, GzipLevel(), MEDIUM,
            "Level used when the broker compresses with gzip; -1 is the library's default.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "compression.lz4.level", INT, 9, between(1, 17), MEDIUM,
            "Level used when the broker compresses with lz4.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "compression.zstd.level", INT, 3, between(-131_072, 22), MEDIUM,
            "Level used when the broker compresses with zstd.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.message.timestamp.type", STRING, "CreateTime", TIMESTAMP_TYPES, MEDIUM,
            "Whose clock stamps records: the producer's (`CreateTime`) or the broker's (`LogAppendTime`).",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), MEDIUM,
            "How far a record's own timestamp may lie ahead of the broker's clock.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), MEDIUM,
            "How far a record's own timestamp may lie behind the broker's clock.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "producer.id.expiration.ms", INT, 86_400_000, at_least(1), LOW,
            "Time after which a silent idempotent producer is forgotten.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1), LOW,
            "Time between two looks for producers to forget.",
            internal=True, acted_on=True,
        ),
    ),
    Section(
        "Flushing",
        Setting(
            "log.flush.interval.messages", LONG, LONG_MAX, at_least(1), HIGH,
            "Number of records after which a log is forced to disk; 1 makes every append durable before it is "
            "acknowledged.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.flush.interval.ms", LONG, None, None, HIGH,
            "Longest time that appended records may wait before a log is forced to disk; unset, "
            "`log.flush.scheduler.interval.ms` counts.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.flush.scheduler.interval.ms", LONG, LONG_MAX, None, HIGH,
            "Time between two looks for logs to force to disk.",
            acted_on=True,
        ),
        Setting(
            "log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0), HIGH,
            "Time between two writes of the recovery points.",
            acted_on=True,
        ),
        Setting(
            "log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0), HIGH,
            "Time between two writes of the log start offsets.",
            acted_on=True,
        ),
    ),
    Section(
        "Retention",
        Setting(
            "log.cleanup.policy", LIST, ("delete",), CLEANUP_POLICIES, MEDIUM,
            "What happens to old segments: `delete`, `compact`, or both.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.retention.ms", LONG, None, None, HIGH,
            "Age beyond which segments are deleted, -1 for never; unset, `log.retention.minutes` counts.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.retention.minutes", INT, None, None, HIGH,
            "Age beyond which segments are deleted, in minutes; unset, `log.retention.hours` counts.",
            acted_on=True,
        ),
        Setting(
            "log.retention.hours", INT, 168, None, HIGH,
            "Age beyond which segments are deleted, in hours.",
            acted_on=True,
        ),
        Setting(
            "log.retention.bytes", LONG, -1, None, HIGH,
            "Size of a partition beyond which its oldest segments are deleted; -1 sets no limit.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.retention.check.interval.ms", LONG, 300_000, at_least(1), MEDIUM,
            "Time between two looks for segments to delete.",
            acted_on=True,
        ),
    ),
    Section(
        "Compaction",
        Setting(
            "log.cleaner.enable", BOOLEAN, True, None, MEDIUM,
            "Whether compaction runs.",
            acted_on=True,
        ),
        Setting(
            "log.cleaner.threads", INT, 1, at_least(0), MEDIUM,
            "Processes that compact, each started when it is needed.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.backoff.ms", LONG, 15_000, at_least(0), MEDIUM,
            "Pause when there is nothing to compact.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM,
            "Share of a log that must be uncompacted before compaction is worth its work.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM,
            "Time for which a record is safe from compaction.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), MEDIUM,
            "Age at which a record is compacted even if little of the log has changed.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.delete.retention.ms", LONG, 86_400_000, at_least(0), MEDIUM,
            "How long tombstones and transaction markers are kept.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.dedupe.buffer.size", LONG, 134_217_728, None, MEDIUM,
            "Memory for the keys seen in one round, all workers together.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, None, MEDIUM,
            "How full that memory may become.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.io.buffer.size", INT, 524_288, at_least(0), MEDIUM,
            "Memory for reading and writing, all workers together.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, None, MEDIUM,
            "Bytes a second that compaction may read and write, all workers together.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
    ),
)
# fmt: on

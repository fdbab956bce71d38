"""The broker's settings of the logs: directories, segments, records, flushing, retention, compaction.

Most of them are defaults for topics (the synonyms in ``topic.py``).
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
            "Data directories, separated by commas; `moldau serve --data-dir` sets it.",
            acted_on=True,
        ),
        Setting(
            "log.dir", LIST, None, list_of(empty_allowed=False), HIGH,
            "Data directory when `log.dirs` is not set; without both, a folder for Moldau among the user's "
            "data.",
            kafka_default=("/tmp/kafka-logs",), acted_on=True,
        ),
        Setting(
            "cordoned.log.dirs", LIST, (), list_of(null_allowed=True), MEDIUM,
            "Directories that get no new partitions; `*` means all.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "num.recovery.threads.per.data.dir", INT, 2, at_least(1), HIGH,
            "Threads per directory that read ahead during recovery at startup, if there are several directories.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "num.replica.alter.log.dirs.threads", INT, None, None, HIGH,
            "Number of replicas that move between directories at the same time; null: the number of directories.",
            acted_on=True,
        ),
        Setting(
            "log.dir.failure.timeout.ms", LONG, 30_000, at_least(1), LOW,
            "Time limit for reporting a failed directory to the controller, after which the broker stops.",
        ),
    ),
    Section(
        "Segments and indexes",
        Setting(
            "log.segment.bytes", INT, 1_073_741_824, at_least(1_048_576), HIGH,
            "Size at which a segment is closed and a new one is created.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.roll.ms", LONG, None, None, HIGH,
            "Age at which a segment is closed; if unset, `log.roll.hours` applies.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.roll.hours", INT, 168, at_least(1), HIGH,
            "Age at which a segment is closed, in hours.",
            acted_on=True,
        ),
        Setting(
            "log.roll.jitter.ms", LONG, None, None, HIGH,
            "Maximum random time subtracted from the age at which a segment is closed; if unset, "
            "`log.roll.jitter.hours` applies.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.roll.jitter.hours", INT, 0, at_least(0), HIGH,
            "Maximum random time subtracted from the age at which a segment is closed, in hours.",
            acted_on=True,
        ),
        Setting(
            "log.index.interval.bytes", INT, 4096, at_least(0), MEDIUM,
            "Bytes of log between two entries of the offset index.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.index.size.max.bytes", INT, 10_485_760, at_least(4), MEDIUM,
            "Maximum size of an offset index.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.preallocate", BOOLEAN, False, None, MEDIUM,
            "Whether the full size of a new segment is preallocated on disk.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "log.segment.delete.delay.ms", LONG, 60_000, at_least(0), HIGH,
            "Time between the removal of a segment from the log and the deletion of its files.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.initial.task.delay.ms", LONG, 30_000, at_least(0), LOW,
            "Time from startup to the first check for segments to delete, for tests only.",
            internal=True, acted_on=True,
        ),
    ),
    Section(
        "Records",
        Setting(
            "message.max.bytes", INT, 1_048_588, at_least(0), HIGH,
            "Maximum size of a record batch, for topics without `max.message.bytes`.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "compression.type", STRING, "producer", CODECS, HIGH,
            "Compression codec of stored batches; `producer` keeps the producer's codec.",
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
            "Clock of the record timestamps: the producer's (`CreateTime`) or the broker's (`LogAppendTime`).",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), MEDIUM,
            "Maximum time by which a record's timestamp may be ahead of the broker's clock.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), MEDIUM,
            "Maximum time by which a record's timestamp may be behind the broker's clock.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "producer.id.expiration.ms", INT, 86_400_000, at_least(1), LOW,
            "Time after which the state of an inactive idempotent producer expires.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1), LOW,
            "Interval between checks for expired producers.",
            internal=True, acted_on=True,
        ),
    ),
    Section(
        "Flushing",
        Setting(
            "log.flush.interval.messages", LONG, LONG_MAX, at_least(1), HIGH,
            "Number of records after which a log is flushed; 1 makes every append durable before it is "
            "acknowledged.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.flush.interval.ms", LONG, None, None, HIGH,
            "Maximum time between an append and the flush of a log; if unset, "
            "`log.flush.scheduler.interval.ms` applies.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.flush.scheduler.interval.ms", LONG, LONG_MAX, None, HIGH,
            "Interval between checks for logs to flush.",
            acted_on=True,
        ),
        Setting(
            "log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0), HIGH,
            "Interval between two writes of the recovery points.",
            acted_on=True,
        ),
        Setting(
            "log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0), HIGH,
            "Interval between two writes of the log start offsets.",
            acted_on=True,
        ),
    ),
    Section(
        "Retention",
        Setting(
            "log.cleanup.policy", LIST, ("delete",), CLEANUP_POLICIES, MEDIUM,
            "Cleanup of old segments: `delete`, `compact`, or both.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.retention.ms", LONG, None, None, HIGH,
            "Age after which segments are deleted, -1 for never; if unset, `log.retention.minutes` applies.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.retention.minutes", INT, None, None, HIGH,
            "Age after which segments are deleted, in minutes; if unset, `log.retention.hours` applies.",
            acted_on=True,
        ),
        Setting(
            "log.retention.hours", INT, 168, None, HIGH,
            "Age after which segments are deleted, in hours.",
            acted_on=True,
        ),
        Setting(
            "log.retention.bytes", LONG, -1, None, HIGH,
            "Size of a partition above which its oldest segments are deleted; -1 is no limit.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.retention.check.interval.ms", LONG, 300_000, at_least(1), MEDIUM,
            "Interval between checks for segments to delete.",
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
            "Maximum number of compaction processes; each is started when it is needed.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.backoff.ms", LONG, 15_000, at_least(0), MEDIUM,
            "Pause when no log needs compaction.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1), MEDIUM,
            "Minimum uncompacted share of a log before it is compacted.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), MEDIUM,
            "Minimum time before a record can be compacted.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), MEDIUM,
            "Maximum age of an uncompacted record, even if little of the log has changed.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.delete.retention.ms", LONG, 86_400_000, at_least(0), MEDIUM,
            "Time for which tombstones and transaction markers are kept.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.dedupe.buffer.size", LONG, 134_217_728, None, MEDIUM,
            "Memory for the keys of one round, for all workers together.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, None, MEDIUM,
            "Maximum fill ratio of that memory.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "log.cleaner.io.buffer.size", INT, 524_288, at_least(0), MEDIUM,
            "Memory for I/O buffers, for all workers together.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, None, MEDIUM,
            "Maximum bytes per second that compaction reads and writes, for all workers together.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
    ),
)
# fmt: on

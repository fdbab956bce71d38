"""The broker's settings of the server itself: identity, connections, requests, topics, replication, the controller.

Threads and purgatories are parts of Kafka's design. Where Moldau has none, the setting is accepted, and its description
states what Moldau uses instead.
"""

from typing import Final

from .definition import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    HIGH,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    PER_BROKER,
    STRING,
    HostsAndPorts,
    Section,
    Setting,
    at_least,
    list_of,
    one_of,
)

# fmt: off
SECTIONS: Final = (
    Section(
        "Identity and roles",
        Setting(
            "node.id", INT, 1, at_least(0), HIGH,
            "ID of this node in its cluster.",
            kafka_default=None, acted_on=True,
        ),
        Setting(
            "broker.id", INT, 1, None, HIGH,
            "Older name of `node.id`; the setting that is given applies to both.",
            kafka_default=-1, acted_on=True,
        ),
        Setting(
            "process.roles", LIST, ("broker", "controller"), list_of("broker", "controller", empty_allowed=False), HIGH,
            "Roles of this process: `broker`, `controller` or both.",
            kafka_default=None, acted_on=True,
        ),
        Setting(
            "broker.rack", STRING, None, None, MEDIUM,
            "Rack or availability zone of this broker, reported to clients and used to distribute replicas.",
            acted_on=True,
        ),
        Setting(
            "initial.broker.registration.timeout.ms", INT, 60_000, None, MEDIUM,
            "Time to wait for the first registration with the controller before giving up.",
            acted_on=True,
        ),
        Setting(
            "broker.heartbeat.interval.ms", INT, 2000, None, MEDIUM,
            "Interval of the heartbeats that a broker sends to the controller.",
            acted_on=True,
        ),
        Setting(
            "broker.session.timeout.ms", INT, 9000, None, MEDIUM,
            "Time without a heartbeat after which the controller fences a broker.",
            acted_on=True,
        ),
        Setting(
            "controlled.shutdown.enable", BOOLEAN, True, None, MEDIUM,
            "Whether a broker transfers its leaderships to other brokers before a shutdown.",
        ),
        Setting(
            "server.max.startup.time.ms", LONG, LONG_MAX, at_least(0), MEDIUM,
            "Timeout of the server's startup, for tests only.",
            internal=True,
        ),
        Setting(
            "background.threads", INT, 10, at_least(1), HIGH,
            "Threads for background work. Moldau has a small fixed number.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "num.io.threads", INT, 8, at_least(1), HIGH,
            "Request threads. Moldau handles requests on one event loop.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "num.network.threads", INT, 3, at_least(1), HIGH,
            "Network threads. Moldau serves all connections from one event loop.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "unstable.api.versions.enable", BOOLEAN, False, None, HIGH,
            "Whether unstable API versions are enabled, for tests only.",
            internal=True,
        ),
        Setting(
            "unstable.feature.versions.enable", BOOLEAN, False, None, HIGH,
            "Whether unstable feature versions may be finalized, for tests only.",
            internal=True,
        ),
        Setting(
            "config.providers", LIST, (), list_of(), LOW,
            "Names of providers of values from files and environment variables.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
    ),
    Section(
        "Listeners and connections",
        Setting(
            "listeners", LIST, ("PLAINTEXT://127.0.0.1:9092",), list_of(empty_allowed=False), HIGH,
            "Addresses to listen on, as `NAME://host:port` separated by commas; an empty host is every interface, "
            "port 0 any free port.",
            update=PER_BROKER, kafka_default=("PLAINTEXT://:9092",), acted_on=True,
        ),
        Setting(
            "advertised.listeners", LIST, None, list_of(empty_allowed=False, null_allowed=True), HIGH,
            "Addresses reported to clients. If unset, clients get the address that they connected to.",
            acted_on=True,
        ),
        Setting(
            "listener.security.protocol.map", STRING,
            "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
            None, LOW,
            "Security protocol of each listener name, as `NAME:PROTOCOL` separated by commas.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "inter.broker.listener.name", STRING, None, None, MEDIUM,
            "Listener for connections between brokers.",
            acted_on=True,
        ),
        Setting(
            "security.inter.broker.protocol", STRING, "PLAINTEXT",
            one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), MEDIUM,
            "Security protocol between brokers when `inter.broker.listener.name` is not set.",
            acted_on=True,
        ),
        Setting(
            "controller.listener.names", LIST, ("CONTROLLER",), list_of(empty_allowed=False), HIGH,
            "Names of listeners that only the controller serves. Without an address for one of them in `listeners`, "
            "the controller of a broker serves no other broker.",
            kafka_default=None, acted_on=True,
        ),
        Setting(
            "early.start.listeners", LIST, None, list_of(null_allowed=True), HIGH,
            "Listeners that are opened before the authorizer is ready. No effect: every listener is opened when the "
            "ACLs are loaded.",
            acted_on=True,
        ),
        Setting(
            "socket.request.max.bytes", INT, 104_857_600, at_least(1), HIGH,
            "Maximum size of a request; a client that sends a larger size is disconnected.",
            acted_on=True,
        ),
        Setting(
            "socket.receive.buffer.bytes", INT, 102_400, None, HIGH,
            "Receive buffer of a connection (SO_RCVBUF); -1 leaves it to the operating system.",
            acted_on=True,
        ),
        Setting(
            "socket.send.buffer.bytes", INT, 102_400, None, HIGH,
            "Send buffer of a connection (SO_SNDBUF); -1 leaves it to the operating system.",
            acted_on=True,
        ),
        Setting(
            "socket.listen.backlog.size", INT, 50, at_least(1), MEDIUM,
            "Maximum number of connections that wait to be accepted.",
            acted_on=True,
        ),
        Setting(
            "connections.max.idle.ms", LONG, 600_000, None, MEDIUM,
            "Time after which an idle connection is closed.",
            acted_on=True,
        ),
        Setting(
            "connections.max.reauth.ms", LONG, 0, None, MEDIUM,
            "Lifetime of an authenticated session before the client must authenticate again; 0 is no limit.",
            acted_on=True,
        ),
        Setting(
            "connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW,
            "Delay before a connection is closed after a failed authentication.",
            acted_on=True,
        ),
        Setting(
            "max.connections", INT, INT_MAX, at_least(0), MEDIUM,
            "Maximum number of connections of a broker.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "max.connections.per.ip", INT, INT_MAX, at_least(0), MEDIUM,
            "Maximum number of connections of a broker from one address.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "max.connections.per.ip.overrides", STRING, "", None, MEDIUM,
            "Exceptions to `max.connections.per.ip`, as `address:limit` separated by commas.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "max.connection.creation.rate", INT, INT_MAX, at_least(0), MEDIUM,
            "Maximum number of new connections per second.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "queued.max.requests", INT, 500, at_least(1), HIGH,
            "Maximum number of requests that wait for a thread. Moldau limits their bytes instead, with "
            "`queued.max.request.bytes`.",
        ),
        Setting(
            "queued.max.request.bytes", LONG, 134_217_728, None, MEDIUM,
            "Maximum bytes of requests, arriving or waiting, of all connections together. Above it, connections are "
            "not read until some requests are complete. At least `socket.request.max.bytes`, so that the largest "
            "request can arrive. -1 is no limit.",
            kafka_default=-1, acted_on=True,
        ),
        Setting(
            "request.timeout.ms", INT, 30_000, None, HIGH,
            "Timeout of the server's own requests.",
            acted_on=True,
        ),
        Setting(
            "socket.connection.setup.timeout.ms", LONG, 10_000, None, MEDIUM,
            "Initial timeout to establish one of the server's own connections.",
        ),
        Setting(
            "socket.connection.setup.timeout.max.ms", LONG, 30_000, None, MEDIUM,
            "Maximum timeout to establish one of the server's own connections, after several failures.",
        ),
    ),
    Section(
        "Requests",
        Setting(
            "fetch.max.bytes", INT, 57_671_680, at_least(1024), MEDIUM,
            "Maximum size of a fetch response; a single batch that is larger is still sent.",
            acted_on=True,
        ),
        Setting(
            "max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), MEDIUM,
            "Maximum number of cached incremental fetch sessions (KIP-227).",
            acted_on=True,
        ),
        Setting(
            "max.request.partition.size.limit", INT, 2000, at_least(1), MEDIUM,
            "Maximum number of partitions in a DescribeTopicPartitions response.",
            acted_on=True,
        ),
        Setting(
            "fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM,
            "Number of waiting fetches between two purges. Moldau removes each one when it ends.",
        ),
        Setting(
            "producer.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM,
            "Number of waiting produce requests between two purges. Moldau removes each one when it ends.",
        ),
        Setting(
            "delete.records.purgatory.purge.interval.requests", INT, 1, None, MEDIUM,
            "Number of waiting delete requests between two purges. Moldau removes each one when it ends.",
        ),
    ),
    Section(
        "Topics",
        Setting(
            "auto.create.topics.enable", BOOLEAN, True, None, HIGH,
            "Whether a topic is created when a client requests its metadata and allows the creation.",
            acted_on=True,
        ),
        Setting(
            "delete.topic.enable", BOOLEAN, True, None, HIGH,
            "Whether topics may be deleted.",
            acted_on=True,
        ),
        Setting(
            "num.partitions", INT, 1, at_least(1), MEDIUM,
            "Number of partitions of a topic when the request does not specify it.",
            acted_on=True,
        ),
        Setting(
            "default.replication.factor", INT, 1, None, MEDIUM,
            "Number of replicas of a partition when the request does not specify it.",
            acted_on=True,
        ),
        Setting(
            "create.topic.policy.class.name", CLASS, None, None, LOW,
            "Java class that may reject new topics. Not loaded.",
        ),
        Setting(
            "alter.config.policy.class.name", CLASS, None, None, LOW,
            "Java class that may reject changes of settings. Not loaded.",
        ),
    ),
    Section(
        "Replication",
        Setting(
            "min.insync.replicas", INT, 1, at_least(1), HIGH,
            "Minimum number of in-sync replicas for a produce request with acks=all, for topics without this setting.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "unclean.leader.election.enable", BOOLEAN, False, None, HIGH,
            "Whether an out-of-sync replica may become leader if no other can, with loss of the records it lacks, for "
            "topics without this setting.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "unclean.leader.election.interval.ms", LONG, 300_000, at_least(1), MEDIUM,
            "Interval between checks for partitions that need an unclean election.",
            internal=True, acted_on=True,
        ),
        Setting(
            "auto.leader.rebalance.enable", BOOLEAN, True, None, HIGH,
            "Whether leadership moves back to the preferred replicas automatically.",
            acted_on=True,
        ),
        Setting(
            "leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH,
            "Interval between checks of the distribution of leaders.",
            acted_on=True,
        ),
        Setting(
            "num.replica.fetchers", INT, 1, at_least(1), HIGH,
            "Number of fetchers per source broker.",
            acted_on=True, update=CLUSTER_WIDE,
        ),
        Setting(
            "replica.lag.time.max.ms", LONG, 30_000, None, HIGH,
            "Maximum lag time of a follower before it is removed from the in-sync replicas.",
            acted_on=True,
        ),
        Setting(
            "replica.fetch.min.bytes", INT, 1, None, HIGH,
            "Minimum bytes of the response to a follower's fetch.",
            acted_on=True,
        ),
        Setting(
            "replica.fetch.max.bytes", INT, 1_048_576, at_least(0), MEDIUM,
            "Maximum bytes per partition of a follower's fetch.",
            acted_on=True,
        ),
        Setting(
            "replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0), MEDIUM,
            "Maximum bytes of a follower's fetch.",
            acted_on=True,
        ),
        Setting(
            "replica.fetch.wait.max.ms", INT, 500, None, HIGH,
            "Maximum time that a follower's fetch waits for data.",
            acted_on=True,
        ),
        Setting(
            "replica.fetch.backoff.ms", INT, 1000, at_least(0), MEDIUM,
            "Time that a follower waits after an error of a partition.",
            acted_on=True,
        ),
        Setting(
            "replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None, HIGH,
            "Interval between two writes of the high watermarks to disk.",
            acted_on=True,
        ),
        Setting(
            "replica.socket.timeout.ms", INT, 30_000, None, HIGH,
            "Timeout of a follower's request to the leader.",
            acted_on=True,
        ),
        Setting(
            "replica.socket.receive.buffer.bytes", INT, 65_536, None, HIGH,
            "Receive buffer of a follower's connection.",
        ),
        Setting(
            "replica.selector.class", STRING, None, None, MEDIUM,
            "The replica from which consumers should read: org.apache.kafka.common.replica.RackAwareReplicaSelector is "
            "a follower in their rack, org.apache.kafka.common.replica.LeaderSelector is the leader. Other classes are "
            "rejected.",
            acted_on=True,
        ),
        Setting(
            "controller.socket.timeout.ms", INT, 30_000, None, MEDIUM,
            "Timeout of a controller's request to a broker.",
        ),
    ),
    Section(
        "Controller quorum",
        Setting(
            "controller.quorum.voters", LIST, (), HostsAndPorts(with_id=True), HIGH,
            "Voters of a static quorum, as `id@host:port`. If this node is a controller, it must be the only voter.",
            acted_on=True,
        ),
        Setting(
            "controller.quorum.bootstrap.servers", LIST, (), HostsAndPorts(with_id=False), HIGH,
            "Addresses at which a node that is only a broker finds the controllers.",
            acted_on=True,
        ),
        Setting(
            "controller.quorum.auto.join.enable", BOOLEAN, False, None, LOW,
            "Whether a controller joins the quorum's voters automatically.",
        ),
        Setting(
            "controller.quorum.election.timeout.ms", INT, 1000, at_least(0), HIGH,
            "Time without contact to the leader after which an election begins.",
        ),
        Setting(
            "controller.quorum.election.backoff.max.ms", INT, 1000, at_least(0), HIGH,
            "Maximum delay between two elections.",
        ),
        Setting(
            "controller.quorum.fetch.timeout.ms", INT, 2000, at_least(0), HIGH,
            "Time without a fetch after which a voter starts an election, or a leader resigns.",
        ),
        Setting(
            "controller.quorum.fetch.max.bytes", INT, 1_048_576, at_least(1), LOW,
            "Maximum bytes of a fetch of metadata.",
            acted_on=True,
        ),
        Setting(
            "controller.quorum.fetch.snapshot.max.bytes", INT, 1_048_576, at_least(1), LOW,
            "Maximum bytes of a fetch of a metadata snapshot.",
            acted_on=True,
        ),
        Setting(
            "controller.quorum.request.timeout.ms", INT, 2000, at_least(0), MEDIUM,
            "Timeout of a request within the quorum.",
            acted_on=True,
        ),
        Setting(
            "controller.quorum.retry.backoff.ms", INT, 20, at_least(0), LOW,
            "Delay before a request within the quorum is retried.",
            acted_on=True,
        ),
        Setting(
            "controller.quorum.append.linger.ms", INT, 25, at_least(0), MEDIUM,
            "Time for which the leader batches metadata records before it flushes them.",
        ),
        Setting(
            "controller.performance.always.log.threshold.ms", LONG, 2000, at_least(0), MEDIUM,
            "Duration above which a controller event is always logged.",
            internal=True,
        ),
        Setting(
            "controller.performance.sample.period.ms", LONG, 60_000, at_least(100), MEDIUM,
            "Interval between two summaries of the controller's performance.",
            internal=True,
        ),
    ),
    Section(
        "Metadata log",
        Setting(
            "metadata.log.dir", STRING, None, None, HIGH,
            "Directory of the metadata log; if unset, the first of `log.dirs`.",
            acted_on=True,
        ),
        Setting(
            "metadata.log.segment.bytes", INT, 1_073_741_824, at_least(8_388_608), HIGH,
            "Size at which a segment of the metadata log is closed.",
            acted_on=True,
        ),
        Setting(
            "metadata.log.segment.ms", LONG, 604_800_000, None, HIGH,
            "Age at which a segment of the metadata log is closed.",
            acted_on=True,
        ),
        Setting(
            "metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, at_least(1), HIGH,
            "Bytes of metadata records after which a snapshot is written.",
            acted_on=True,
        ),
        Setting(
            "metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, at_least(0), HIGH,
            "Time after which a snapshot is written if anything changed.",
            acted_on=True,
        ),
        Setting(
            "metadata.max.retention.bytes", LONG, 104_857_600, None, HIGH,
            "Size of the metadata log and snapshots above which the oldest are deleted.",
            acted_on=True,
        ),
        Setting(
            "metadata.max.retention.ms", LONG, 604_800_000, None, HIGH,
            "Age after which parts of the metadata log and snapshots are deleted.",
            acted_on=True,
        ),
        Setting(
            "metadata.max.idle.interval.ms", INT, 500, at_least(0), LOW,
            "Time without a change after which the controller writes a NoOp record; 0 writes none.",
        ),
        Setting(
            "internal.metadata.log.segment.bytes", INT, None, None, LOW,
            "Size of a metadata segment, without a lower limit, for tests only.",
            internal=True, acted_on=True,
        ),
        Setting(
            "internal.metadata.max.batch.size.in.bytes", INT, 8_388_608, None, LOW,
            "Maximum size of a batch of the metadata log, for tests only.",
            internal=True,
        ),
        Setting(
            "internal.metadata.delete.delay.millis", LONG, 60_000, None, LOW,
            "Time before files of the metadata log are deleted, for tests only.",
            internal=True, acted_on=True,
        ),
    ),
    Section(
        "Quotas",
        Setting(
            "quota.window.num", INT, 11, at_least(1), LOW,
            "Number of samples for client quotas.", acted_on=True,
        ),
        Setting(
            "quota.window.size.seconds", INT, 1, at_least(1), LOW,
            "Length of a client quota sample.", acted_on=True,
        ),
        Setting(
            "controller.quota.window.num", INT, 11, at_least(1), LOW,
            "Number of samples for quotas on topic changes.", acted_on=True,
        ),
        Setting(
            "controller.quota.window.size.seconds", INT, 1, at_least(1), LOW,
            "Length of a sample of topic changes.", acted_on=True,
        ),
        Setting(
            "replication.quota.window.num", INT, 11, at_least(1), LOW,
            "Number of samples for replication quotas.",
        ),
        Setting(
            "replication.quota.window.size.seconds", INT, 1, at_least(1), LOW,
            "Length of a replication quota sample.",
        ),
        Setting(
            "alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1), LOW,
            "Number of samples for moves between log directories.",
        ),
        Setting(
            "alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1), LOW,
            "Length of a sample of moves between log directories.",
        ),
        Setting(
            "client.quota.callback.class", CLASS, None, None, LOW,
            "Java class that decides client quotas. Not loaded.",
        ),
    ),
    Section(
        "Metrics",
        Setting(
            "metric.reporters", LIST, ("org.apache.kafka.common.metrics.JmxReporter",), list_of(), LOW,
            "Java classes that receive metrics. Not loaded.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "metrics.num.samples", INT, 2, at_least(1), LOW,
            "Number of samples per metric.",
        ),
        Setting(
            "metrics.recording.level", STRING, "INFO", None, LOW,
            "Level of detail of the metrics: INFO, DEBUG or TRACE.",
        ),
        Setting(
            "metrics.sample.window.ms", LONG, 30_000, at_least(1), LOW,
            "Length of a sample of a metric.",
        ),
        Setting(
            "kafka.metrics.reporters", LIST, (), list_of(), LOW,
            "Java classes that receive the server's own metrics. Not loaded.",
        ),
        Setting(
            "kafka.metrics.polling.interval.secs", INT, 10, at_least(1), LOW,
            "Interval at which these reporters push metrics.",
        ),
        Setting(
            "telemetry.max.bytes", INT, 1_048_576, at_least(1), LOW,
            "Maximum size of the client metrics in one push (KIP-714), before and after decompression.", acted_on=True,
        ),
    ),
)
# fmt: on

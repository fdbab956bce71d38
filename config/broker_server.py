"""The broker's settings of the server itself: identity, connections, requests, topics, replication, the controller.

Threads and purgatories are Kafka's way of doing things; where Moldau has none, the setting is known and its sentence
says what there is instead.
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
            "Number of this node in its cluster.",
            kafka_default=None, acted_on=True,
        ),
        Setting(
            "broker.id", INT, 1, None, HIGH,
            "Older name of `node.id`; whichever is given stands for both.",
            kafka_default=-1, acted_on=True,
        ),
        Setting(
            "process.roles", LIST, ("broker", "controller"), list_of("broker", "controller", empty_allowed=False), HIGH,
            "What this process is: `broker`, `controller` or both.",
            kafka_default=None, acted_on=True,
        ),
        Setting(
            "broker.rack", STRING, None, None, MEDIUM,
            "Rack or availability zone of this broker, told to clients and used to spread replicas.",
            acted_on=True,
        ),
        Setting(
            "initial.broker.registration.timeout.ms", INT, 60_000, None, MEDIUM,
            "Time to wait for the first registration with the controller before giving up.",
        ),
        Setting(
            "broker.heartbeat.interval.ms", INT, 2000, None, MEDIUM,
            "Time between the heartbeats a broker sends to the controller.",
        ),
        Setting(
            "broker.session.timeout.ms", INT, 9000, None, MEDIUM,
            "Time without a heartbeat after which the controller fences a broker.",
        ),
        Setting(
            "controlled.shutdown.enable", BOOLEAN, True, None, MEDIUM,
            "Whether a stopping broker hands its partitions to others first.",
        ),
        Setting(
            "server.max.startup.time.ms", LONG, LONG_MAX, at_least(0), MEDIUM,
            "Time the server may take to start, for tests only.",
            internal=True,
        ),
        Setting(
            "background.threads", INT, 10, at_least(1), HIGH,
            "Threads for background work. Moldau has its own, small number.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "num.io.threads", INT, 8, at_least(1), HIGH,
            "Request threads. Moldau answers on one event loop.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "num.network.threads", INT, 3, at_least(1), HIGH,
            "Network threads. Moldau serves all connections from one event loop.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "unstable.api.versions.enable", BOOLEAN, False, None, HIGH,
            "Whether API versions that Kafka still develops are served, for tests only.",
            internal=True,
        ),
        Setting(
            "unstable.feature.versions.enable", BOOLEAN, False, None, HIGH,
            "Whether feature versions that Kafka still develops may be finalized, for tests only.",
            internal=True,
        ),
        Setting(
            "config.providers", LIST, (), list_of(), LOW,
            "Names of providers that fetch values from elsewhere. Moldau reads files, the environment and the command "
            "line.",
            update=CLUSTER_WIDE,
        ),
    ),
    Section(
        "Listeners and connections",
        Setting(
            "listeners", LIST, ("PLAINTEXT://127.0.0.1:9092",), list_of(empty_allowed=False), HIGH,
            "Addresses to listen on, as `NAME://host:port` with commas between; an empty host is every interface, "
            "port 0 any free port.",
            update=PER_BROKER, kafka_default=("PLAINTEXT://:9092",), acted_on=True,
        ),
        Setting(
            "advertised.listeners", LIST, None, list_of(empty_allowed=False, null_allowed=True), HIGH,
            "Addresses told to clients. Unset, clients are told the address they connected to.",
            acted_on=True,
        ),
        Setting(
            "listener.security.protocol.map", STRING,
            "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
            None, LOW,
            "Security protocol of each listener name, as `NAME:PROTOCOL` with commas between.",
            update=PER_BROKER, acted_on=True,
        ),
        Setting(
            "inter.broker.listener.name", STRING, None, None, MEDIUM,
            "Listener that brokers use among themselves.",
        ),
        Setting(
            "security.inter.broker.protocol", STRING, "PLAINTEXT",
            one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), MEDIUM,
            "Security protocol among brokers when `inter.broker.listener.name` is not set.",
        ),
        Setting(
            "controller.listener.names", LIST, ("CONTROLLER",), list_of(empty_allowed=False), HIGH,
            "Names of listeners that only controllers serve. Moldau's controller lives in the broker's process and "
            "opens none of them.",
            kafka_default=None, acted_on=True,
        ),
        Setting(
            "early.start.listeners", LIST, None, list_of(null_allowed=True), HIGH,
            "Listeners that may open before the authorizer is ready.",
        ),
        Setting(
            "socket.request.max.bytes", INT, 104_857_600, at_least(1), HIGH,
            "Largest request; a client that announces a larger one is disconnected.",
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
            "Connections that may wait to be accepted.",
            acted_on=True,
        ),
        Setting(
            "connections.max.idle.ms", LONG, 600_000, None, MEDIUM,
            "Time after which a connection that says nothing is closed.",
            acted_on=True,
        ),
        Setting(
            "connections.max.reauth.ms", LONG, 0, None, MEDIUM,
            "Lifetime of an authenticated session before the client must authenticate again; 0 is no limit.",
        ),
        Setting(
            "connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW,
            "Time by which closing a connection is delayed after a failed authentication.",
        ),
        Setting(
            "max.connections", INT, INT_MAX, at_least(0), MEDIUM,
            "Connections a broker accepts at once.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "max.connections.per.ip", INT, INT_MAX, at_least(0), MEDIUM,
            "Connections a broker accepts at once from one address.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "max.connections.per.ip.overrides", STRING, "", None, MEDIUM,
            "Exceptions to `max.connections.per.ip`, as `address:limit` with commas between.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "max.connection.creation.rate", INT, INT_MAX, at_least(0), MEDIUM,
            "New connections accepted per second.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "queued.max.requests", INT, 500, at_least(1), HIGH,
            "Requests that may wait for a thread. Moldau bounds their bytes instead, with `queued.max.request.bytes`.",
        ),
        Setting(
            "queued.max.request.bytes", LONG, 268_435_456, None, MEDIUM,
            "Bytes of requests, arriving or waiting, of all connections together; above it no more is read until some "
            "are answered. At least `socket.request.max.bytes`, or the largest request could never arrive. -1 is no "
            "limit.",
            kafka_default=-1, acted_on=True,
        ),
        Setting(
            "request.timeout.ms", INT, 30_000, None, HIGH,
            "Time the server waits for the answer to a request of its own.",
        ),
        Setting(
            "socket.connection.setup.timeout.ms", LONG, 10_000, None, MEDIUM,
            "Time in which a connection of the server's own must stand, at first.",
        ),
        Setting(
            "socket.connection.setup.timeout.max.ms", LONG, 30_000, None, MEDIUM,
            "Time in which a connection of the server's own must stand, after several failures.",
        ),
    ),
    Section(
        "Requests",
        Setting(
            "fetch.max.bytes", INT, 57_671_680, at_least(1024), MEDIUM,
            "Largest answer to a fetch request; a single batch that is larger is still sent.",
            acted_on=True,
        ),
        Setting(
            "max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), MEDIUM,
            "Incremental fetch sessions (KIP-227) remembered at once.",
            acted_on=True,
        ),
        Setting(
            "max.request.partition.size.limit", INT, 2000, at_least(1), MEDIUM,
            "Partitions that one DescribeTopicPartitions answer may list.",
            acted_on=True,
        ),
        Setting(
            "fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM,
            "Waiting fetches between two clean-ups. Moldau removes each when it ends.",
        ),
        Setting(
            "producer.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM,
            "Waiting produce requests between two clean-ups. Moldau removes each when it ends.",
        ),
        Setting(
            "delete.records.purgatory.purge.interval.requests", INT, 1, None, MEDIUM,
            "Waiting delete requests between two clean-ups. Moldau removes each when it ends.",
        ),
    ),
    Section(
        "Topics",
        Setting(
            "auto.create.topics.enable", BOOLEAN, True, None, HIGH,
            "Whether a topic is made when a client first asks for it and allows it.",
            acted_on=True,
        ),
        Setting(
            "delete.topic.enable", BOOLEAN, True, None, HIGH,
            "Whether topics may be deleted.",
            acted_on=True,
        ),
        Setting(
            "num.partitions", INT, 1, at_least(1), MEDIUM,
            "Partitions of a topic when the request does not say.",
            acted_on=True,
        ),
        Setting(
            "default.replication.factor", INT, 1, None, MEDIUM,
            "Replicas of a partition when the request does not say.",
            acted_on=True,
        ),
        Setting(
            "create.topic.policy.class.name", CLASS, None, None, LOW,
            "Java class that may refuse new topics. Not loaded.",
        ),
        Setting(
            "alter.config.policy.class.name", CLASS, None, None, LOW,
            "Java class that may refuse changes of settings. Not loaded.",
        ),
    ),
    Section(
        "Replication",
        Setting(
            "min.insync.replicas", INT, 1, at_least(1), HIGH,
            "Replicas that must be in sync for a produce request with acks=all, for topics that do not say.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "unclean.leader.election.enable", BOOLEAN, False, None, HIGH,
            "Whether a replica that is not in sync may lead when no other can, losing what it lacks, for topics that "
            "do not say.",
            update=CLUSTER_WIDE, acted_on=True,
        ),
        Setting(
            "unclean.leader.election.interval.ms", LONG, 300_000, at_least(1), MEDIUM,
            "Time between two looks for partitions that an unclean election would help.",
            internal=True,
        ),
        Setting(
            "auto.leader.rebalance.enable", BOOLEAN, True, None, HIGH,
            "Whether leadership moves back to the preferred replicas by itself.",
        ),
        Setting(
            "leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH,
            "Time between two looks at how leadership is spread.",
        ),
        Setting(
            "num.replica.fetchers", INT, 1, at_least(1), HIGH,
            "Fetchers per broker that is copied from.",
            update=CLUSTER_WIDE,
        ),
        Setting(
            "replica.lag.time.max.ms", LONG, 30_000, None, HIGH,
            "Time a follower may lag before it leaves the in-sync replicas.",
        ),
        Setting(
            "replica.fetch.min.bytes", INT, 1, None, HIGH,
            "Bytes a follower's fetch waits for.",
        ),
        Setting(
            "replica.fetch.max.bytes", INT, 1_048_576, at_least(0), MEDIUM,
            "Bytes a follower asks for of one partition.",
        ),
        Setting(
            "replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0), MEDIUM,
            "Bytes a follower asks for in one fetch.",
        ),
        Setting(
            "replica.fetch.wait.max.ms", INT, 500, None, HIGH,
            "Time a follower's fetch may wait for data.",
        ),
        Setting(
            "replica.fetch.backoff.ms", INT, 1000, at_least(0), MEDIUM,
            "Time a follower waits after an error of a partition.",
        ),
        Setting(
            "replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None, HIGH,
            "Time between two writes of the high watermarks to disk.",
        ),
        Setting(
            "replica.socket.timeout.ms", INT, 30_000, None, HIGH,
            "Time a follower waits for the leader's answer.",
        ),
        Setting(
            "replica.socket.receive.buffer.bytes", INT, 65_536, None, HIGH,
            "Receive buffer of a follower's connection.",
        ),
        Setting(
            "replica.selector.class", STRING, None, None, MEDIUM,
            "Java class that picks the replica a consumer should read from. Not loaded.",
        ),
        Setting(
            "controller.socket.timeout.ms", INT, 30_000, None, MEDIUM,
            "Time the controller waits for a broker's answer.",
        ),
    ),
    Section(
        "Controller quorum",
        Setting(
            "controller.quorum.voters", LIST, (), HostsAndPorts(with_id=True), HIGH,
            "Voters of a static quorum, as `id@host:port`. Moldau is the only one.",
            acted_on=True,
        ),
        Setting(
            "controller.quorum.bootstrap.servers", LIST, (), HostsAndPorts(with_id=False), HIGH,
            "Addresses at which the quorum can be found.",
        ),
        Setting(
            "controller.quorum.auto.join.enable", BOOLEAN, False, None, LOW,
            "Whether a controller joins the quorum's voters by itself.",
        ),
        Setting(
            "controller.quorum.election.timeout.ms", INT, 1000, at_least(0), HIGH,
            "Time without the leader after which an election begins.",
        ),
        Setting(
            "controller.quorum.election.backoff.max.ms", INT, 1000, at_least(0), HIGH,
            "Longest wait between two elections.",
        ),
        Setting(
            "controller.quorum.fetch.timeout.ms", INT, 2000, at_least(0), HIGH,
            "Time without a fetch after which a voter stands for election, or a leader gives up.",
        ),
        Setting(
            "controller.quorum.fetch.max.bytes", INT, 1_048_576, at_least(1), LOW,
            "Bytes of metadata asked for in one fetch.",
        ),
        Setting(
            "controller.quorum.fetch.snapshot.max.bytes", INT, 1_048_576, at_least(1), LOW,
            "Bytes of a metadata snapshot asked for in one request.",
        ),
        Setting(
            "controller.quorum.request.timeout.ms", INT, 2000, at_least(0), MEDIUM,
            "Time a request within the quorum may take.",
        ),
        Setting(
            "controller.quorum.retry.backoff.ms", INT, 20, at_least(0), LOW,
            "Wait before a request within the quorum is tried again.",
        ),
        Setting(
            "controller.quorum.append.linger.ms", INT, 25, at_least(0), MEDIUM,
            "Time the leader gathers metadata records before it forces them to disk.",
        ),
        Setting(
            "controller.performance.always.log.threshold.ms", LONG, 2000, at_least(0), MEDIUM,
            "Time from which a controller event is always logged.",
            internal=True,
        ),
        Setting(
            "controller.performance.sample.period.ms", LONG, 60_000, at_least(100), MEDIUM,
            "Time between two summaries of the controller's speed.",
            internal=True,
        ),
    ),
    Section(
        "Metadata log",
        Setting(
            "metadata.log.dir", STRING, None, None, HIGH,
            "Directory of the metadata log; unset, the first of `log.dirs`.",
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
            "Size of metadata log and snapshots beyond which the oldest are deleted.",
            acted_on=True,
        ),
        Setting(
            "metadata.max.retention.ms", LONG, 604_800_000, None, HIGH,
            "Age beyond which parts of the metadata log and snapshots are deleted.",
            acted_on=True,
        ),
        Setting(
            "metadata.max.idle.interval.ms", INT, 500, at_least(0), LOW,
            "Time without a change after which the controller writes a NoOp record; 0 writes none.",
        ),
        Setting(
            "internal.metadata.log.segment.bytes", INT, None, None, LOW,
            "Size of a metadata segment without a lower limit, for tests only.",
            internal=True, acted_on=True,
        ),
        Setting(
            "internal.metadata.max.batch.size.in.bytes", INT, 8_388_608, None, LOW,
            "Largest batch of the metadata log, for tests only.",
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
            "Samples kept to measure client quotas.",
        ),
        Setting(
            "quota.window.size.seconds", INT, 1, at_least(1), LOW,
            "Length of a client quota sample.",
        ),
        Setting(
            "controller.quota.window.num", INT, 11, at_least(1), LOW,
            "Samples kept to measure quotas on changes of topics.",
        ),
        Setting(
            "controller.quota.window.size.seconds", INT, 1, at_least(1), LOW,
            "Length of a sample of changes of topics.",
        ),
        Setting(
            "replication.quota.window.num", INT, 11, at_least(1), LOW,
            "Samples kept to measure replication quotas.",
        ),
        Setting(
            "replication.quota.window.size.seconds", INT, 1, at_least(1), LOW,
            "Length of a replication quota sample.",
        ),
        Setting(
            "alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1), LOW,
            "Samples kept to measure moves between log directories.",
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
            "Samples a metric is computed from.",
        ),
        Setting(
            "metrics.recording.level", STRING, "INFO", None, LOW,
            "Detail of the metrics: INFO, DEBUG or TRACE.",
        ),
        Setting(
            "metrics.sample.window.ms", LONG, 30_000, at_least(1), LOW,
            "Time one sample of a metric covers.",
        ),
        Setting(
            "kafka.metrics.reporters", LIST, (), list_of(), LOW,
            "Java classes that receive the server's own metrics. Not loaded.",
        ),
        Setting(
            "kafka.metrics.polling.interval.secs", INT, 10, at_least(1), LOW,
            "How often those reporters are asked to report.",
        ),
        Setting(
            "telemetry.max.bytes", INT, 1_048_576, at_least(1), LOW,
            "Largest set of client metrics accepted in one push (KIP-714).",
        ),
    ),
)
# fmt: on

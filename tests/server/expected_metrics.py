"""Names, types and labels of the metrics that dashboards ask for, as Apache Kafka 4.3.1 has them with Strimzi's rules
for the JMX exporter; those of kafka_exporter below."""

from __future__ import annotations

from typing import Final

NONE: Final[tuple[str, ...]] = ()
TOPIC: Final = ("topic",)
PARTITION: Final = ("topic", "partition")
REQUEST: Final = ("request",)
QUANTILE: Final = ("quantile",)
PROCESSOR: Final = ("listener", "networkProcessor")
GROUP_PARTITION: Final = ("consumergroup", "topic", "partition")

_BROKER_TOPIC: Final = (
    "messagesin",
    "bytesin",
    "bytesout",
    "bytesrejected",
    "totalproducerequests",
    "totalfetchrequests",
    "failedproducerequests",
    "failedfetchrequests",
    "producemessageconversions",
    "fetchmessageconversions",
)
_REPLICA_MANAGER: Final = (
    "leadercount",
    "partitioncount",
    "underreplicatedpartitions",
    "underminisrpartitioncount",
    "atminisrpartitioncount",
    "offlinereplicacount",
)
_CONTROLLER: Final = (
    "activecontrollercount",
    "offlinepartitionscount",
    "globaltopiccount",
    "globalpartitioncount",
    "preferredreplicaimbalancecount",
    "activebrokercount",
    "fencedbrokercount",
    "metadataerrorcount",
    "lastappliedrecordoffset",
    "lastcommittedrecordoffset",
    "lastappliedrecordlagms",
)
_RAFT: Final = (
    "current_leader",
    "current_epoch",
    "current_vote",
    "high_watermark",
    "log_end_offset",
    "append_records_rate",
    "fetch_records_rate",
)
_TIMES: Final = (
    "totaltimems",
    "requestqueuetimems",
    "localtimems",
    "remotetimems",
    "responsequeuetimems",
    "responsesendtimems",
)
_GROUP_COUNTS: Final = ("", "stable", "empty", "dead", "preparingrebalance", "completingrebalance")
_TOPIC_PARTITION: Final = (
    "current_offset",
    "oldest_offset",
    "replicas",
    "in_sync_replica",
    "leader",
    "leader_is_preferred",
    "under_replicated_partition",
)

EXPECTED: Final[dict[str, tuple[str, set[tuple[str, ...]]]]] = {
    **{f"kafka_server_brokertopicmetrics_{name}_total": ("counter", {NONE, TOPIC}) for name in _BROKER_TOPIC},
    **{f"kafka_server_replicamanager_{name}": ("gauge", {NONE}) for name in _REPLICA_MANAGER},
    "kafka_server_replicamanager_isrshrinks_total": ("counter", {NONE}),
    "kafka_server_replicamanager_isrexpands_total": ("counter", {NONE}),
    **{
        f"kafka_cluster_partition_{name}": ("gauge", {PARTITION})
        for name in ("underminisr", "atminisr", "replicascount")
    },
    **{
        f"kafka_log_log_{name}": ("gauge", {PARTITION})
        for name in ("size", "logstartoffset", "logendoffset", "numlogsegments")
    },
    "kafka_log_logmanager_offlinelogdirectorycount": ("gauge", {NONE}),
    "kafka_log_logflushstats_logflushrateandtimems": ("gauge", {QUANTILE}),
    "kafka_log_logflushstats_logflushrateandtimems_count_total": ("counter", {NONE}),
    "kafka_log_logcleaner_max_clean_time_secs": ("gauge", {NONE}),
    "kafka_log_logcleanermanager_uncleanable_partitions_count": ("gauge", {("logDirectory",)}),
    **{f"kafka_controller_kafkacontroller_{name}": ("gauge", {NONE}) for name in _CONTROLLER},
    "kafka_controller_controllerstats_uncleanleaderelections_total": ("counter", {NONE}),
    **{f"kafka_server_raftmetrics_{name}": ("gauge", {NONE}) for name in _RAFT},
    "kafka_server_raftmetrics_current_state": ("gauge", {("current_state",)}),
    "kafka_network_requestmetrics_requests_total": ("counter", {("request", "version")}),
    "kafka_network_requestmetrics_errors_total": ("counter", {("request", "error")}),
    **{f"kafka_network_requestmetrics_{name}": ("gauge", {REQUEST + QUANTILE}) for name in _TIMES},
    **{f"kafka_network_requestmetrics_{name}_count_total": ("counter", {REQUEST}) for name in _TIMES},
    "kafka_network_requestchannel_requestqueuesize": ("gauge", {NONE}),
    "kafka_network_requestchannel_responsequeuesize": ("gauge", {NONE}),
    "kafka_network_socketserver_networkprocessoravgidle_percent": ("gauge", {NONE}),
    "kafka_network_socketserver_networkprocessoravgidlepercent": ("gauge", {NONE}),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": ("gauge", {NONE}),
    **{
        f"kafka_server_socket_server_metrics_{name}": ("gauge", {PROCESSOR})
        for name in ("connection_count", "connection_creation_rate", "connection_close_rate")
    },
    "kafka_server_socket_server_metrics_connections_software": (
        "gauge",
        {("clientSoftwareName", "clientSoftwareVersion", *PROCESSOR)},
    ),
    "kafka_server_kafkaserver_brokerstate": ("gauge", {NONE}),
    **{f"kafka_coordinator_group_groupmetadatamanager_numgroups{name}": ("gauge", {NONE}) for name in _GROUP_COUNTS},
    **{
        f"kafka_server_transaction_coordinator_metrics_{name}": ("gauge", {NONE})
        for name in (
            "partition_load_time_avg",
            "partition_load_time_max",
            "transactional_id_count",
            "active_transaction_total_time_max",
        )
    },
    "kafka_topic_partitions": ("gauge", {TOPIC}),
    **{f"kafka_topic_partition_{name}": ("gauge", {PARTITION}) for name in _TOPIC_PARTITION},
    "kafka_brokers": ("gauge", {NONE}),
    "kafka_broker_info": ("gauge", {("id", "address")}),
    "kafka_consumergroup_current_offset": ("gauge", {GROUP_PARTITION}),
    "kafka_consumergroup_lag": ("gauge", {GROUP_PARTITION}),
    "kafka_consumergroup_members": ("gauge", {("consumergroup",)}),
    "process_cpu_seconds_total": ("counter", {NONE}),
}

ON_LINUX: Final[dict[str, tuple[str, set[tuple[str, ...]]]]] = {
    "kafka_server_kafkaserver_linux_disk_read_bytes": ("gauge", {NONE}),
    "kafka_server_kafkaserver_linux_disk_write_bytes": ("gauge", {NONE}),
    "process_open_fds": ("gauge", {NONE}),
    "process_resident_memory_bytes": ("gauge", {NONE}),
}

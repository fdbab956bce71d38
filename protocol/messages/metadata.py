"""Metadata (API key 3): versions 0-13, flexible from 9.

The addresses of the brokers, the partitions of topics, and their leaders. A null list of topics requests all of them,
an empty one none; version 0 has no null, and its empty list requests all.

Topics may be created by the request (`allow_auto_topic_creation`, since version 4), leader epochs since 7 (KIP-320),
authorized operations since 8 (KIP-430; those of the cluster moved to DescribeCluster with 11, KIP-700), requests by
topic id since 12 (KIP-516), an error for the whole response since 13.
"""

from ..schema import Request, Response, Struct, array, boolean, int16, int32, string, uuid


class MetadataRequestTopic(Struct):
    topic_id: bytes = uuid("10+", ignorable=True)
    name: str | None = string("0+", nullable="10+")


class MetadataRequest(Request, api_key=3, versions="0-13", flexible="9+", listeners=("broker",)):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponseBroker(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32, "0+")
    isr_nodes: list[int] = array(int32, "0+")
    offline_replicas: list[int] = array(int32, "5+", ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="12+")
    topic_id: bytes = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition, "0+")
    topic_authorized_operations: int = int32("8+", default=-0x80000000)


class MetadataResponse(Response, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, "0+")
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, "0+")
    cluster_authorized_operations: int = int32("8-10", default=-0x80000000)
    error_code: int = int16("13+", ignorable=True)

"""AssignReplicasToDirs (API key 73): version 0, flexible.

From a broker to the controller: the log directories of replicas (KIP-858).
"""

from ..schema import Request, Response, Struct, array, int16, int32, int64, uuid


class PartitionData(Struct):
    partition_index: int = int32("0+")


class TopicData(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DirectoryData(Struct):
    id: bytes = uuid("0+")
    topics: list[TopicData] = array(TopicData, "0+")


class AssignReplicasToDirsRequest(Request, api_key=73, versions="0", flexible="0+", listeners=("controller",)):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    directories: list[DirectoryData] = array(DirectoryData, "0+")


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class ResponseTopicData(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


class ResponseDirectoryData(Struct):
    id: bytes = uuid("0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")


class AssignReplicasToDirsResponse(Response, api_key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    directories: list[ResponseDirectoryData] = array(ResponseDirectoryData, "0+")

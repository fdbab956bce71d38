"""EndQuorumEpoch (API key 54): versions 0-1, flexible from 1.

Raft: a leader that resigns requests an election from the others (KIP-595). Directory ids and endpoints since version 1
(KIP-853).
"""

from ..schema import Request, Response, Struct, array, int16, int32, string, uint16, uuid


class ReplicaInfo(Struct):
    candidate_id: int = int32("1+")
    candidate_directory_id: bytes = uuid("1+")


class PartitionData(Struct):
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    preferred_successors: list[int] = array(int32, "0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, "1+", ignorable=True)


class TopicData(Struct):
    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class LeaderEndpoint(Struct):
    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class EndQuorumEpochRequest(Request, api_key=54, versions="0-1", flexible="1+", listeners=("controller",)):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    topics: list[TopicData] = array(TopicData, "0+")
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class ResponseTopicData(Struct):
    topic_name: str = string("0+")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class EndQuorumEpochResponse(Response, api_key=54, versions="0-1", flexible="1+"):
    error_code: int = int16("0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)

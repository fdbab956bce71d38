"""ListOffsets (API key 2): versions 1-11, flexible from 6.

Finds the offset for a timestamp, per partition. Negative timestamps have special meanings: -1 the end, -2 the
start, -3 the record with the greatest timestamp (7, KIP-734), -4 the start of what is stored locally (8, KIP-405), -5
the end of what is stored remotely (9, KIP-1005), -6 the first offset whose upload is pending (11, KIP-1023).

`timeout_ms` limits the time of requests to the remote storage since version 10 (KIP-1075).
"""

from ..schema import Request, Response, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64("0+")


class ListOffsetsTopic(Struct):
    name: str = string("0+")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, "0+")


class ListOffsetsRequest(Request, api_key=2, versions="1-11", flexible="6+", listeners=("broker",)):
    replica_id: int = int32("0+")
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string("0+")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0+")


class ListOffsetsResponse(Response, api_key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+")

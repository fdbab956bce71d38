"""DeleteShareGroupState (API key 86): version 0, flexible.

From the group coordinator to the share coordinator: deletes the state of a share partition (KIP-932).
"""

from ..schema import Request, Response, Struct, array, int16, int32, string, uuid


class PartitionData(Struct):
    partition: int = int32("0+")


class DeleteStateData(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DeleteShareGroupStateRequest(Request, api_key=86, versions="0", flexible="0+", listeners=("broker",)):
    group_id: str = string("0+")
    topics: list[DeleteStateData] = array(DeleteStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class DeleteStateResult(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class DeleteShareGroupStateResponse(Response, api_key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = array(DeleteStateResult, "0+")

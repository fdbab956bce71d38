"""CreatePartitions (API key 37): versions 0-3, flexible from 2.

Increases the number of partitions of topics (KIP-195). Throttling by THROTTLING_QUOTA_EXCEEDED since version 3
(KIP-599).
"""

from ..schema import Request, Response, Struct, array, boolean, int16, int32, string


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(int32, "0+")


class CreatePartitionsTopic(Struct):
    name: str = string("0+")
    count: int = int32("0+")
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, "0+", nullable="0+")


class CreatePartitionsRequest(Request, api_key=37, versions="0-3", flexible="2+", listeners=("broker", "controller")):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


class CreatePartitionsTopicResult(Struct):
    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class CreatePartitionsResponse(Response, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, "0+")

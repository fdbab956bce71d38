"""AlterPartition (API key 56): versions 2-3, flexible.

From a partition's leader to the controller: the new set of in-sync replicas (KIP-497, KIP-841). With the
brokers' epochs since version 3, so that a restarted replica is not mistaken for the previous one (KIP-903).
"""

from ..schema import Request, Response, Struct, array, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class PartitionData(Struct):
    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    new_isr: list[int] = array(int32, "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32("0+")


class TopicData(Struct):
    topic_id: bytes = uuid("2+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData, "0+")


class AlterPartitionRequest(Request, api_key=56, versions="2-3", flexible="0+", listeners=("controller",)):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    topics: list[TopicData] = array(TopicData, "0+")


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: list[int] = array(int32, "0+")
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32("0+")


class ResponseTopicData(Struct):
    topic_id: bytes = uuid("2+", ignorable=True)
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


class AlterPartitionResponse(Response, api_key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")

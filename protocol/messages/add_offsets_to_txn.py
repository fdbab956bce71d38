"""AddOffsetsToTxn (API key 25): versions 0-4, flexible from 3.

Makes the offsets of a consumer group part of a transaction, before TxnOffsetCommit (KIP-98). PRODUCER_FENCED since
version 2 (KIP-588), TRANSACTION_ABORTABLE since 4 (KIP-890).
"""

from ..schema import Request, Response, int16, int32, int64, string


class AddOffsetsToTxnRequest(Request, api_key=25, versions="0-4", flexible="3+", listeners=("broker",)):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


class AddOffsetsToTxnResponse(Response, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")

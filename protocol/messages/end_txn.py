"""EndTxn (API key 26): versions 0-5, flexible from 3.

Commits or aborts a transaction (KIP-98). From version 5 on the producer's epoch increases with every transaction, and
the response contains it (KIP-890).
"""

from ..schema import Request, Response, boolean, int16, int32, int64, string


class EndTxnRequest(Request, api_key=26, versions="0-5", flexible="3+", listeners=("broker",)):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


class EndTxnResponse(Response, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)

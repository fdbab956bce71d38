"""AllocateProducerIds (API key 67): version 0, flexible.

From a broker to the controller: allocates a block of producer ids (KIP-730).
"""

from ..schema import Request, Response, int16, int32, int64


class AllocateProducerIdsRequest(Request, api_key=67, versions="0", flexible="0+", listeners=("controller",)):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)


class AllocateProducerIdsResponse(Response, api_key=67, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: int = int64("0+")
    producer_id_len: int = int32("0+")

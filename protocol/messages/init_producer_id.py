"""InitProducerId (API key 22): versions 0-6, flexible from 2.

Assigns an id and epoch to a producer; for a transactional id, also fences the previous producer and ends its open
transaction (KIP-98).

Resuming with a known id and epoch since version 3 (KIP-360), PRODUCER_FENCED since 4 (KIP-588), TRANSACTION_ABORTABLE
since 5 (KIP-890). Version 6, two-phase commit (KIP-939), is not stable in Apache Kafka 4.3.
"""

from ..schema import Request, Response, boolean, int16, int32, int64, string


class InitProducerIdRequest(
    Request, api_key=22, versions="0-6", flexible="2+", latest_version_unstable=True, listeners=("broker",)
):
    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable_2pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Response, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)

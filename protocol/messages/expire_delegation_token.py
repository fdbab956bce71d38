"""ExpireDelegationToken (API key 40): versions 1-2, flexible from 2.

Ends a delegation token, now or at a time (KIP-48).
"""

from ..schema import Request, Response, bytes_, int16, int32, int64


class ExpireDelegationTokenRequest(
    Request, api_key=40, versions="1-2", flexible="2+", listeners=("broker", "controller")
):
    hmac: bytes = bytes_("0+")
    expiry_time_period_ms: int = int64("0+")


class ExpireDelegationTokenResponse(Response, api_key=40, versions="1-2", flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")

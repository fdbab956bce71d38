"""RenewDelegationToken (API key 39): versions 1-2, flexible from 2.

Moves the expiry of a delegation token (KIP-48).
"""

from ..schema import Request, Response, bytes_, int16, int32, int64


class RenewDelegationTokenRequest(
    Request, api_key=39, versions="1-2", flexible="2+", listeners=("broker", "controller")
):
    hmac: bytes = bytes_("0+")
    renew_period_ms: int = int64("0+")


class RenewDelegationTokenResponse(Response, api_key=39, versions="1-2", flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")

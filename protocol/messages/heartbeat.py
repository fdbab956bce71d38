"""Heartbeat (API key 12): versions 0-4, flexible from 4.

Keeps a member of a classic group alive, and notifies it of a rebalance. Static members since version 3 (KIP-345).
"""

from ..schema import Request, Response, int16, int32, string


class HeartbeatRequest(Request, api_key=12, versions="0-4", flexible="4+", listeners=("broker",)):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Response, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")

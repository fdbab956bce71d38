"""UnregisterBroker (API key 64): version 0, flexible.

Removes a broker's registration for good (KIP-631).
"""

from ..schema import Request, Response, int16, int32, string


class UnregisterBrokerRequest(Request, api_key=64, versions="0", flexible="0+", listeners=("broker", "controller")):
    broker_id: int = int32("0+")


class UnregisterBrokerResponse(Response, api_key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")

"""RemoveRaftVoter (API key 81): version 0, flexible.

Removes a controller from the voters of the metadata quorum (KIP-853).
"""

from ..schema import Request, Response, int16, int32, string, uuid


class RemoveRaftVoterRequest(Request, api_key=81, versions="0", flexible="0+", listeners=("controller", "broker")):
    cluster_id: str | None = string("0+", nullable="0+")
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")


class RemoveRaftVoterResponse(Response, api_key=81, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)

"""DeleteGroups (API key 42): versions 0-2, flexible from 2.

Deletes groups that have no members (KIP-229).
"""

from ..schema import Request, Response, Struct, array, int16, int32, string


class DeleteGroupsRequest(Request, api_key=42, versions="0-2", flexible="2+", listeners=("broker",)):
    groups_names: list[str] = array(string, "0+")


class DeletableGroupResult(Struct):
    group_id: str = string("0+")
    error_code: int = int16("0+")


class DeleteGroupsResponse(Response, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")

"""ListConfigResources (API key 74): versions 0-1, flexible.

The resources with their own configuration; version 0 has only client metrics (KIP-1000), the others were added in 1
(KIP-1142).
"""

from ..schema import Request, Response, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Request, api_key=74, versions="0-1", flexible="0+", listeners=("broker",)):
    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Struct):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Response, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")

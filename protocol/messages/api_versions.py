"""ApiVersions (API key 18): versions 0-4, flexible from 3.

The first request of every connection: the server's APIs and versions (KIP-35).

The response to an unknown version has version 0, with UNSUPPORTED_VERSION and the full list, because client and server
have not agreed on a version yet (KIP-511). For the same reason the response's header always has version 0.
Client name and version, and the cluster's features (KIP-584), since version 3. Before version 4 a feature whose
lowest version is 0 must be omitted (KAFKA-17011).
"""

from ..schema import Request, Response, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Request, api_key=18, versions="0-4", flexible="3+", listeners=("broker", "controller")):
    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


class ApiVersion(Struct):
    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


class SupportedFeatureKey(Struct):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Struct):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Response, api_key=18, versions="0-4", flexible="3+"):
    error_code: int = int16("0+")
    api_keys: list[ApiVersion] = array(ApiVersion, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)

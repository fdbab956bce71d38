"""ApiVersions: the APIs without which no client works."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.messages.api_versions import ApiVersionsRequest
from ..case import Layer, case, versions_of
from ..check import Check

_NEEDED_BY_ALL_CLIENTS = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.API_VERSIONS,
)


@case(
    "protocol.core-apis",
    "the APIs that each producer or consumer needs are listed",
    source="KIP-35",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.API_VERSIONS),
)
def core_apis(c: Check, version: int) -> None:
    """Sends: ApiVersions.

    Expects: Produce, Fetch, ListOffsets, Metadata, FindCoordinator and ApiVersions, each once and with a lowest version
    that is not above the highest.

    Why: a client that misses one of them ends with an error when it connects, or assumes that the server is very old.
    """
    request = ApiVersionsRequest(client_software_name="moldau-conformance", client_software_version="1")
    listed = c.call(request, version).api_keys
    for api in _NEEDED_BY_ALL_CLIENTS:
        found = [(each.min_version, each.max_version) for each in listed if each.api_key == api]
        c.equal(len(found), 1, f"api_keys (number of entries for {api.message_name})")
        ((lowest, highest),) = found
        c.true(
            0 <= lowest <= highest,
            f"min_version and max_version of {api.message_name}",
            expected="a range of versions",
            actual=found[0],
        )

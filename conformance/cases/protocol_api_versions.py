"""ApiVersions: the table by which clients choose versions, and how it is obtained before they agree on one."""

from __future__ import annotations

from ...protocol.api import ApiKey, request_class
from ...protocol.codec import decode_at
from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ...protocol.messages.headers import ResponseHeader
from .. import frames
from ..case import Layer, Level, Release, case, needs, versions_of
from ..check import Check

REQUEST = ApiVersionsRequest(client_software_name="moldau-conformance", client_software_version="1.0")
SOURCE = "KIP-35 and KIP-511"
METADATA_VERSION_OF_4_3 = 30


@case(
    "protocol.api-versions.exchange",
    "ApiVersions returns the same table in every version",
    source=SOURCE,
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.API_VERSIONS),
)
def exchange(c: Check, version: int) -> None:
    """Sends: ApiVersions in each version, and in version 0 for comparison.

    Expects: no error, each API once, lowest versions that are not above the highest, throttle time 0 or more, the same
    table as version 0; in it ApiVersions itself from version 0 to at least the version of the request.

    Why: a client uses this table to choose the version of each later request.
    """
    response = c.call(REQUEST, version)
    c.error(response.error_code, ErrorCode.NONE)
    table = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    c.equal(len(response.api_keys), len(table), "api_keys (number; an API must not occur twice)")
    wrong = {key: bounds for key, bounds in table.items() if not 0 <= bounds[0] <= bounds[1]}
    c.equal(wrong, {}, "api_keys whose min_version is negative or above max_version")
    own = table.get(ApiKey.API_VERSIONS, (-1, -1))
    c.true(own[0] == 0 and own[1] >= version, "the entry of ApiVersions", expected=f"0 to {version}", actual=own)
    c.true(ApiKey.METADATA in table, "api_keys", expected="an entry for Metadata (3)", actual=sorted(table))
    oldest = {each.api_key: (each.min_version, each.max_version) for each in c.call(ApiVersionsRequest(), 0).api_keys}
    c.equal(table, oldest, "api_keys, compared with those of version 0")
    if version >= 1:
        c.true(
            response.throttle_time_ms >= 0, "throttle_time_ms", expected="0 or more", actual=response.throttle_time_ms
        )


@case(
    "protocol.api-versions.features",
    "finalized features are supported, and have an epoch",
    source="KIP-584",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.API_VERSIONS, 3),
    level=Level.SHOULD,
)
def features(c: Check, version: int) -> None:
    """Sends: ApiVersions.

    Expects: each finalized feature has a level that is not above the highest supported one; in version 3 no supported
    feature with a lowest version of 0; if a feature is finalized, an epoch of 0 or more.

    Why: clients enable transactions of version 2 and other behavior by these levels, and old clients cannot parse a
    lowest version of 0 (KAFKA-17011).
    """
    response = c.call(REQUEST, version)
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    c.equal(len(response.supported_features), len(supported), "supported_features (a name must not occur twice)")
    if version == 3:
        zero = [name for name, (lowest, _) in supported.items() if lowest == 0]
        c.equal(zero, [], "supported_features with min_version 0")
    names = [each.name for each in response.finalized_features]
    c.equal(len(names), len(set(names)), "finalized_features (a name must not occur twice)")
    for each in response.finalized_features:
        low, high = each.min_version_level, each.max_version_level
        c.true(1 <= low <= high, f"levels of {each.name}", expected="1 or more, lowest first", actual=(low, high))
        if version >= 4:
            highest = supported.get(each.name, (0, -1))[1]
            c.true(high <= highest, f"max_version_level of {each.name}", expected=f"at most {highest}", actual=high)
    if names:
        epoch = response.finalized_features_epoch
        c.true(epoch >= 0, "finalized_features_epoch", expected="0 or more", actual=epoch)


@case(
    "protocol.api-versions.unknown-version",
    "an unknown version of ApiVersions gets a response in version 0",
    source="KIP-511",
    layer=Layer.WIRE,
    variants={str(version).replace("-", "minus-"): (version,) for version in (5, 6, 100, 32_767, -1)},
)
def unknown_version(c: Check, version: int) -> None:
    """Sends: ApiVersions in a version that does not exist, and ApiVersions version 0 on the same connection.

    Expects: a response in the format of version 0 with the correlation ID, UNSUPPORTED_VERSION, and at least the
    supported versions of ApiVersions; the connection stays open.

    Why: a client that is newer than the server reads this response and retries with a version that it finds there.
    """
    if c.target.supports(ApiKey.API_VERSIONS, version):
        version = c.target.apis[ApiKey.API_VERSIONS][1] + 1
    c.wire.send_frame(frames.header(ApiKey.API_VERSIONS, version, correlation_id=77) + b"\x01\x01\x00")
    data = c.wire.receive_frame()
    found, at = decode_at(ResponseHeader, data, 0, 0)
    c.equal(found.correlation_id, 77, "correlation_id")
    response, end = decode_at(ApiVersionsResponse, data, 0, at)
    c.equal(end, len(data), "the length of a response in version 0")
    c.error(response.error_code, ErrorCode.UNSUPPORTED_VERSION)
    table = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    own = c.target.apis[ApiKey.API_VERSIONS]
    c.equal(table.get(ApiKey.API_VERSIONS), own, "the versions of ApiVersions in the response")
    known = {key: tuple(c.target.apis.get(key, ())) for key in table}
    c.equal(table, known, "the versions of all APIs in the response")
    c.error(c.call(ApiVersionsRequest(), 0).error_code, ErrorCode.NONE, "ApiVersions v0 on the same connection")


@case(
    "protocol.api-versions.software-name",
    "an invalid name or version of the client software is rejected",
    source="KIP-511",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=versions_of(ApiKey.API_VERSIONS, 3),
    variants={
        "empty": ("", "1.0"),
        "no-version": ("name", ""),
        "space": ("two words", "1.0"),
        "leading-hyphen": ("-name", "1.0"),
        "trailing-hyphen": ("name-", "1.0"),
        "version-trailing-hyphen": ("name", "1.0-"),
        "version-slash": ("name", "1/0"),
    },
)
def software_name(c: Check, version: int, name: str, software_version: str) -> None:
    """Sends: ApiVersions with a client software name or version that does not match
    [a-zA-Z0-9](?:[a-zA-Z0-9-.]*[a-zA-Z0-9])?; then version 2, which does not have them.

    Expects: INVALID_REQUEST in the version of the request; the connection stays open.

    Why: the names become labels of metrics, and a client falls back to an older version without them.
    """
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    c.error(c.call(request, version).error_code, ErrorCode.INVALID_REQUEST)
    c.error(c.call(ApiVersionsRequest(), 2).error_code, ErrorCode.NONE, "ApiVersions v2 on the same connection")


@case(
    "protocol.api-versions.software-name-valid",
    "all characters of a valid software name are accepted",
    source="KIP-511",
    layer=Layer.WIRE,
    needs=needs(ApiKey.API_VERSIONS, 3),
    variants={
        "letter": ("x", "1"),
        "dots": ("org.apache.kafka", "4.3.1"),
        "hyphens": ("confluent-kafka-go", "v2.3.0-RC1"),
        "digits": ("007", "0-1.2-3"),
    },
)
def software_name_valid(c: Check, name: str, software_version: str) -> None:
    """Sends: ApiVersions version 3 with a valid name and version of the client software.

    Expects: no error, and the table of version 0.

    Why: clients have such names; one that is rejected cannot connect, or loses features that need a newer version.
    """
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    response = c.call(request, 3)
    c.error(response.error_code, ErrorCode.NONE)
    table = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    c.equal(table, dict(c.target.apis), "api_keys, compared with those of version 0")


@case(
    "protocol.api-versions.produce-minimum",
    "Produce is advertised from version 0",
    source="KAFKA-18659",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    needs=needs(ApiKey.PRODUCE, 9),
)
def produce_minimum(c: Check) -> None:
    """Sends: ApiVersions.

    Expects: Produce with a lowest version of 0, even if the server closes the connection on versions 0 to 2.

    Why: librdkafka before 2.11 takes a higher minimum for a server without compression, and sends uncompressed data.
    """
    table = {each.api_key: each.min_version for each in c.call(ApiVersionsRequest(), 0).api_keys}
    c.equal(table[ApiKey.PRODUCE], 0, "min_version of Produce")


@case(
    "protocol.api-versions.repeated",
    "ApiVersions may be sent at any time",
    source=SOURCE,
    needs=needs(ApiKey.API_VERSIONS, 3),
)
def repeated(c: Check) -> None:
    """Sends: ApiVersions version 3, 0, 3 and 2 without waiting, on one connection.

    Expects: four responses in order, each in the format of its version, with the same table.

    Why: a client repeats ApiVersions after a failed negotiation and when it refreshes features.
    """
    for version in (3, 0, 3, 2):
        c.wire.send(REQUEST, version)
    for number in range(4):
        response = c.wire.receive()
        c.error(response.error_code, ErrorCode.NONE, f"error_code of response {number}")
        table = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        c.equal(table, dict(c.target.apis), f"api_keys of response {number}")


@case(
    "protocol.api-versions.table",
    "the versions are those of Apache Kafka 4.3",
    source="Apache Kafka's behavior",
    layer=Layer.WIRE,
    level=Level.APACHE,
    since=Release(4, 3),
)
def table_of_4_3(c: Check) -> None:
    """Sends: ApiVersions to a server whose highest metadata.version is that of Apache Kafka 4.3 (30).

    Expects: for each API that the server has, the lowest and highest version of Apache Kafka 4.3.

    Why: clients choose their behavior by these versions; other bounds are combinations that no client was tested with.
    """
    if c.target.supported_features.get("metadata.version") != METADATA_VERSION_OF_4_3:
        c.not_applicable("the highest metadata.version of the server is not that of Apache Kafka 4.3")
    table = {each.api_key: (each.min_version, each.max_version) for each in c.call(ApiVersionsRequest(), 0).api_keys}
    for key, bounds in sorted(table.items()):
        try:
            api = ApiKey(key)
        except ValueError:
            c.not_applicable(f"the server has the API {key}, which is not in Apache Kafka 4.3")
        stable = request_class(api).STABLE_VERSIONS
        # Versions 0 to 2 of Produce are advertised and not served (KAFKA-18659).
        lowest = 0 if api is ApiKey.PRODUCE else stable.lowest
        c.equal(bounds, (lowest, stable.highest), f"the versions of {api.message_name}")

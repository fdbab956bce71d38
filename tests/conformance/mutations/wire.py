"""Defects of frames, headers, connections and ApiVersions."""

from __future__ import annotations

from typing import Any

from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersion
from moldau.protocol.messages.produce import ProduceResponse
from moldau.protocol.schema import Struct

from ..mutating_proxy import CloseConnection, Exchange, Mutation
from .changes import always, error_hidden, in_response, last_twice, plus

API_VERSIONS = ApiKey.API_VERSIONS
_FIRST_FLEXIBLE_FETCH = 12


def _next_correlation_id(exchange: Exchange, frame: bytes) -> bytes:
    return (exchange.correlation_id + 1).to_bytes(4, "big", signed=True) + frame[4:]


def _zero_correlation_id(exchange: Exchange, frame: bytes) -> bytes:
    return bytes(4) + frame[4:]


def _absolute_correlation_id(exchange: Exchange, frame: bytes) -> bytes:
    return abs(exchange.correlation_id).to_bytes(4, "big") + frame[4:]


def _without_tagged_fields(exchange: Exchange, frame: bytes) -> bytes:
    return frame[:4] + frame[5:] if exchange.version >= _FIRST_FLEXIBLE_FETCH else frame


def _with_tagged_fields(exchange: Exchange, frame: bytes) -> bytes:
    return frame[:4] + b"\0" + frame[4:] if exchange.version >= 3 else frame


def _with_one_byte_more(exchange: Exchange, frame: bytes) -> bytes:
    return frame + b"\0"


def _with_bodies_swapped(exchange: Exchange, frame: bytes) -> bytes:
    """A Produce response has the body of the previous response to the same connection's request."""
    previous: bytes = exchange.memory.get("body", frame[4:])
    exchange.memory["body"] = frame[4:]
    return frame[:4] + (previous if exchange.correlation_id % 2 else frame[4:])


def _has_unknown_tagged_fields(struct: Any) -> bool:
    if not isinstance(struct, Struct):
        return False
    if struct.unknown_tagged_fields:
        return True
    values = [getattr(struct, field.name) for field in struct.FIELDS]
    return any(
        _has_unknown_tagged_fields(each) for value in values for each in (value if isinstance(value, list) else [value])
    )


def _close_for_unknown_tagged_fields(exchange: Exchange, request: Any) -> None:
    if _has_unknown_tagged_fields(request) or exchange.header.unknown_tagged_fields:
        raise CloseConnection


def _close_for_unknown_header_fields(exchange: Exchange, request: Any) -> None:
    if exchange.header.unknown_tagged_fields:
        raise CloseConnection


def _close_for_null_client_id(exchange: Exchange, request: Any) -> None:
    if exchange.header.client_id is None:
        raise CloseConnection


def _without_acks_none(exchange: Exchange, request: Any) -> Any:
    return ProduceResponse() if request.acks == 0 else None


def _unsupported_version(frame: bytes) -> bool:
    return frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


def _unsupported_version_hidden(exchange: Exchange, frame: bytes) -> bytes:
    return frame[:4] + bytes(2) + frame[6:] if _unsupported_version(frame) else frame


def _unsupported_version_without_list(exchange: Exchange, frame: bytes) -> bytes:
    return frame[:6] + bytes(4) if _unsupported_version(frame) else frame


def _close_for_unsupported_version(exchange: Exchange, frame: bytes) -> bytes:
    if _unsupported_version(frame):
        raise CloseConnection
    return frame


def _lists(**change: Any) -> Any:
    """A change of the list of APIs: `fetch=(4, 17)` is another range of versions; None removes it."""

    def changed(old: list[ApiVersion]) -> list[ApiVersion]:
        result = []
        for api in old:
            try:
                name = ApiKey(api.api_key).name.lower()
            except ValueError:
                name = ""
            if name not in change:
                result.append(api)
            elif change[name] is not None:
                result.append(ApiVersion(api_key=api.api_key, min_version=change[name][0], max_version=change[name][1]))
        return result

    return changed


def _close_for_highest_version(exchange: Exchange, request: Any) -> None:
    if exchange.version == 13:
        raise CloseConnection


MUTATIONS = [
    Mutation(
        "protocol.correlation-id",
        "the correlation ID of Produce responses is one too high",
        ("produce.exchange",),
        (ApiKey.PRODUCE,),
        on_frame=_next_correlation_id,
    ),
    Mutation(
        "protocol.correlation-id.zero",
        "the correlation ID of ApiVersions responses is always 0",
        ("protocol.header.correlation-id",),
        (ApiKey.API_VERSIONS,),
        on_frame=_zero_correlation_id,
    ),
    Mutation(
        "protocol.correlation-id.negative",
        "negative correlation IDs lose their sign",
        ("protocol.header.correlation-id",),
        on_frame=_absolute_correlation_id,
    ),
    Mutation(
        "protocol.order.swapped",
        "two responses to pipelined requests are swapped",
        ("produce.order",),
        swaps_responses=True,
    ),
    Mutation(
        "protocol.order.bodies-swapped",
        "a response has the contents of the previous response",
        ("produce.order",),
        (ApiKey.PRODUCE,),
        on_frame=_with_bodies_swapped,
    ),
    Mutation(
        "protocol.header.without-tagged-fields",
        "the header of flexible Fetch responses has no tagged fields",
        ("fetch.exchange",),
        (ApiKey.FETCH,),
        on_frame=_without_tagged_fields,
    ),
    Mutation(
        "protocol.header.api-versions",
        "the header of ApiVersions responses has tagged fields",
        ("protocol.api-versions.exchange",),
        (ApiKey.API_VERSIONS,),
        on_frame=_with_tagged_fields,
    ),
    Mutation(
        "protocol.frame.too-long",
        "Metadata responses have one byte after their last field",
        ("metadata.cluster-operations",),
        (ApiKey.METADATA,),
        on_frame=_with_one_byte_more,
    ),
    Mutation(
        "protocol.tagged-fields.closed",
        "a request with a tagged field that the server does not know closes the connection",
        ("protocol.tagged-fields",),
        on_request=_close_for_unknown_tagged_fields,
    ),
    Mutation(
        "protocol.tagged-fields.header",
        "a request header with an unknown tagged field closes the connection",
        ("protocol.tagged-fields",),
        on_request=_close_for_unknown_header_fields,
    ),
    Mutation(
        "protocol.client-id.null",
        "a request without a client ID closes the connection",
        ("protocol.header.client-id",),
        on_request=_close_for_null_client_id,
    ),
    Mutation(
        "protocol.malformed.open",
        "the connection remains open after bytes that are not a request",
        ("protocol.malformed",),
        keeps_open=True,
    ),
    Mutation(
        "protocol.malformed.all-closed",
        "bytes that are not a request close the connections of all clients",
        ("protocol.malformed",),
        closes_all=True,
    ),
    Mutation(
        "produce.acks.none-response",
        "a request with acks=0 has a response",
        ("produce.acks.none",),
        (ApiKey.PRODUCE,),
        on_request=_without_acks_none,
    ),
    Mutation(
        "produce.acks.none-error-open",
        "the connection remains open after an error with acks=0",
        ("produce.acks.none-error",),
        (ApiKey.PRODUCE,),
        keeps_open=True,
    ),
    Mutation(
        "api-versions.unsupported.hidden",
        "an ApiVersions request of an unknown version has no error",
        ("protocol.api-versions.unknown-version",),
        (ApiKey.API_VERSIONS,),
        on_frame=_unsupported_version_hidden,
    ),
    Mutation(
        "api-versions.unsupported.without-list",
        "the response to an ApiVersions request of an unknown version lists no versions",
        ("protocol.api-versions.unknown-version",),
        (ApiKey.API_VERSIONS,),
        on_frame=_unsupported_version_without_list,
    ),
    Mutation(
        "api-versions.unsupported.closed",
        "an ApiVersions request of an unknown version closes the connection",
        ("protocol.api-versions.unknown-version",),
        (ApiKey.API_VERSIONS,),
        on_frame=_close_for_unsupported_version,
    ),
    error_hidden(
        "api-versions.client-name",
        "a client software name with invalid characters is accepted",
        API_VERSIONS, "error_code", ErrorCode.INVALID_REQUEST, "protocol.api-versions.software-name",
    ),
    in_response(
        "api-versions.missing",
        "ApiVersions does not list Fetch",
        API_VERSIONS, "api_keys", _lists(fetch=None), "protocol.core-apis",
    ),
    Mutation(
        "api-versions.too-high",
        "ApiVersions lists a version of Produce that the server does not have",
        ("produce.exchange",), (ApiKey.PRODUCE,), on_request=_close_for_highest_version,
    ),
    in_response(
        "api-versions.produce-from-3",
        "ApiVersions lists Produce from version 3, which librdkafka rejects",
        API_VERSIONS, "api_keys", _lists(produce=(3, 13)), "protocol.api-versions.produce-minimum",
    ),
    in_response(
        "api-versions.inverted",
        "the lowest version of ListOffsets is above the highest",
        API_VERSIONS, "api_keys", _lists(list_offsets=(11, 1)), "protocol.core-apis",
    ),
    in_response(
        "api-versions.twice",
        "ApiVersions lists an API twice",
        API_VERSIONS, "api_keys", last_twice, "protocol.api-versions.exchange",
    ),
    in_response(
        "api-versions.features.level",
        "the finalized levels are above the supported ones",
        API_VERSIONS, "finalized_features.max_version_level", plus(100), "protocol.api-versions.features",
    ),
    in_response(
        "api-versions.features.epoch",
        "the epoch of the finalized features is missing",
        API_VERSIONS, "finalized_features_epoch", always(-1), "protocol.api-versions.features",
    ),
]  # fmt: skip

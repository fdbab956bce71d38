"""The headers that stand before requests and responses.

`protocol.api` defines the header version for each version of an API.
"""

from ..schema import Message, int16, int32, string


class RequestHeader(Message, versions="1-2", flexible="2+"):
    """Before every request. Versions 1 and 2 differ only in the tagged fields: see `flexible` of `client_id`."""

    request_api_key: int = int16("0+")
    request_api_version: int = int16("0+")
    correlation_id: int = int32("0+")
    client_id: str | None = string("1+", nullable="1+", flexible="none")


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """Before every response; for ApiVersions always in version 0, for any version of the body."""

    correlation_id: int = int32("0+")

"""A request that ends inside its body, in every version of every API that clients can send.

This is the rejection that every version has: some APIs have no error for a well-formed request. The request never
reaches a handler, so that it is harmless even for APIs that change the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...protocol.api import ApiKey, request_class
from ...protocol.codec import encode
from .. import frames
from ..case import Layer, Level, Need, case, versions_of
from ..check import Check

_FIRST_VERSION_OF_PRODUCE: Final = 3
"""Versions 0 to 2 are advertised but do not exist: `protocol.unknown-version.produce-removed`."""


def _with_body(api: ApiKey) -> tuple[Need, ...]:
    """The versions whose request has at least one byte after its header."""
    lowest = _FIRST_VERSION_OF_PRODUCE if api is ApiKey.PRODUCE else 0
    return tuple(need for need in versions_of(api, lowest) if encode(request_class(api)(), need.version))


def _truncated(api: ApiKey) -> Callable[[Check, int], None]:
    def truncated(c: Check, version: int) -> None:
        """Sends: a request with default values, without the last byte of its body.

        Expects: the connection is closed without a response; other connections are served.

        Why: a server that takes the missing field for zero, or reads it from the next frame, does something that no
        client has requested.
        """
        body = encode(request_class(api)(), version)
        with frames.others_served(c) as wire:
            wire.send_frame(frames.header(api, version) + body[:-1])
            c.closed(wire)

    return truncated


for _api in ApiKey:
    _request = request_class(_api)
    if "broker" in _request.LISTENERS:
        case(
            f"protocol.malformed.body.{_api.name.lower().replace('_', '-')}",
            f"{_api.message_name} that ends too early closes the connection",
            source="Protocol: Types",
            layer=Layer.WIRE,
            level=Level.SHOULD,
            versions=_with_body(_api),
        )(_truncated(_api))

"""A recorded request as JSON, for tests in languages that have no decoder."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from ...protocol.api import ApiKey, request_class, request_header_version
from ...protocol.codec import decode_at
from ...protocol.errors import KafkaError, MalformedMessage
from ...protocol.messages.headers import RequestHeader
from ...protocol.struct_json import struct_as_json


def with_decoded(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """What is recorded, with `api`, `version`, `client_id` and `request`. The last two are null if the bytes are not
    valid, and the last one if the request was longer than what is recorded."""
    frame = base64.b64decode(recorded["data"])
    key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
    try:
        api = ApiKey(key).message_name
    except ValueError:
        api = str(key)
    client_id = request = None
    try:
        header, offset = decode_at(RequestHeader, frame, request_header_version(key, version), 0)
        client_id = header.client_id
        request = struct_as_json(decode_at(request_class(key), frame, version, offset)[0], version)
    except (MalformedMessage, KafkaError, ValueError):
        pass  # the frame is in the answer
    return {**recorded, "api": api, "version": version, "client_id": client_id, "request": request}

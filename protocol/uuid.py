"""Kafka's UUIDs: 16 bytes in messages and structs, 22 characters of URL-safe base64 as text.

Kafka never prints the dashed form of RFC 4122; topic ids, directory ids and cluster ids all look like
`vPeOCWypqUOSepEvx0cbog`.
"""

import os
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable

ZERO_UUID = bytes(16)
"""Means "no topic id" or "no directory id": the default of every uuid field."""

ONE_UUID = bytes(15) + b"\x01"
"""Reserved by Kafka: the topic id of the metadata log."""


def uuid_to_str(uuid: bytes) -> str:
    """The printed form: base64 with `-` and `_`, without padding."""
    if len(uuid) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(uuid)}")
    return urlsafe_b64encode(uuid)[:22].decode()


def uuid_from_str(text: str) -> bytes:
    """The 16 bytes of a printed uuid, with or without padding; ValueError for any other text."""
    if len(text) > 24 or "+" in text or "/" in text:
        raise ValueError(f"{text!r} is not a UUID in Kafka's format (22 characters of URL-safe base64)")
    try:
        uuid = b64decode(text.rstrip("=") + "==", altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a UUID in Kafka's format: {error}") from None
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a UUID in Kafka's format: it has {len(uuid)} bytes, not 16")
    return uuid


def random_uuid(random_bytes: Callable[[int], bytes] = os.urandom) -> bytes:
    """A new version 4 uuid whose printed form does not begin with a dash.

    Kafka avoids the dash so that a printed id is not mistaken for a command line option. Because of the version bits it
    differs from the ids that Kafka reserves, which are all below 100.
    """
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        uuid = bytes(raw)
        if not uuid_to_str(uuid).startswith("-"):
            return uuid

"""Kafka's UUIDs: 16 bytes on the wire and in our structs, 22 characters of URL-safe base64 for people.

Kafka never prints the dashed form of RFC 4122; topic ids, directory ids and cluster ids all look like
`vPeOCWypqUOSepEvx0cbog`.
"""

import os
from base64 import b64decode, urlsafe_b64encode

ZERO_UUID = bytes(16)
"""Says "no topic id", "no directory id": the default of every uuid field."""

ONE_UUID = bytes(15) + b"\x01"
"""Reserved by Kafka: the topic id of the metadata log."""


def uuid_to_str(uuid: bytes) -> str:
    """The printed form: base64 with `-` and `_`, without padding."""
    if len(uuid) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(uuid)}")
    return urlsafe_b64encode(uuid)[:22].decode()


def uuid_from_str(text: str) -> bytes:
    """The 16 bytes of a printed uuid, with or without padding; ValueError for anything else."""
    if len(text) > 24 or "+" in text or "/" in text:
        raise ValueError(f"{text!r} is not a uuid in Kafka's form (22 characters of URL-safe base64)")
    try:
        uuid = b64decode(text.rstrip("=") + "==", altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a uuid in Kafka's form: {error}") from None
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a uuid in Kafka's form: it holds {len(uuid)} bytes, not 16")
    return uuid


def random_uuid() -> bytes:
    """A new version 4 uuid whose printed form does not begin with a dash.

    Kafka avoids the dash so that a printed id is never taken for a command line option. The version bits alone keep it
    away from the ids that Kafka reserves, which all lie below 100.
    """
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        uuid = bytes(raw)
        if not uuid_to_str(uuid).startswith("-"):
            return uuid

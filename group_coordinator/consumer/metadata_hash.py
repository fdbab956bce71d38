"""A hash of the topics that a group subscribes to: when it changes, the group needs a new assignment.

It is kept in the group's record, so that a change of the coordinator causes no new assignment. Only equality matters:
Apache Kafka uses another hash (XXH3 with the racks), so a group from there gets one new assignment.
"""

from __future__ import annotations

import struct
from collections.abc import Set
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..states import Topics

_HASH: Final = struct.Struct("<q")
_PARTITIONS: Final = struct.Struct("<i")


def metadata_hash(names: Set[str], topics: Topics) -> int:
    """64 bits of the IDs, names and partition counts of the existing topics among these; 0 if there are none."""
    hashed = blake2b(digest_size=_HASH.size)
    there = sorted(topics.names() & names)
    for name in there:
        topic_id = topics.id_of(name)
        assert topic_id is not None
        hashed.update(topic_id)
        hashed.update(_PARTITIONS.pack(topics.partition_count(name)))
        hashed.update(name.encode())
        hashed.update(b"\0")
    value: int = _HASH.unpack(hashed.digest())[0]
    return value if there else 0

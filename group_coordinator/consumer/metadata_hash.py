"""A hash of the topics that a group subscribes to: when it changes, the group needs another assignment.

It is kept in the group's record, so that nothing is assigned anew because the coordinator has moved. Only equality
counts: Apache Kafka hashes otherwise (XXH3 with the racks), so a group that it has left behind is looked at once more.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..states import Topics

_HASH: Final = struct.Struct("<q")
_PARTITIONS: Final = struct.Struct("<i")


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """64 bits of the ids, names and numbers of partitions of those topics that there are; 0 when there are none."""
    hashed = blake2b(digest_size=_HASH.size)
    any_there = False
    for name in sorted(names):
        topic_id = topics.id_of(name)
        if topic_id is None:
            continue
        any_there = True
        hashed.update(topic_id)
        hashed.update(_PARTITIONS.pack(topics.partition_count(name)))
        hashed.update(name.encode())
        hashed.update(b"\0")
    value: int = _HASH.unpack(hashed.digest())[0]
    return value if any_there else 0

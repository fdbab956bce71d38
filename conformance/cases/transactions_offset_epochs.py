"""TxnOffsetCommit: the leader epoch of a committed offset."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from .. import partitions as p
from ..case import case, needs, versions_of
from ..check import Check
from ..record_batches import batch
from ..transactional_producer import FEATURE, Producer

_EPOCH = 0


@case(
    "transactions.offset-commit.leader-epoch",
    "an offset that is committed in a transaction keeps its leader epoch",
    source="KIP-320",
    needs=needs(ApiKey.OFFSET_FETCH, 8, ApiKey.END_TXN, 1, ApiKey.ADD_OFFSETS_TO_TXN, 1),
    versions=versions_of(ApiKey.TXN_OFFSET_COMMIT, 2),
)
def leader_epoch(c: Check, version: int) -> None:
    """Sends: TxnOffsetCommit of offset 1 with leader epoch 0, EndTxn (commit), and OffsetFetch.

    Expects: no errors; offset 1 with leader epoch 0 and the metadata of the commit.

    Why: a consumer that continues at this offset finds out with the epoch whether its records were lost.
    """
    topic, group = c.topic(), c.group()
    p.append(c, topic, batch(b"a", b"b"))
    producer = Producer(c).begin()
    producer.write_offsets(group, topic, {0: 1}, version=version, leader_epoch=_EPOCH, metadata="text")
    # A coordinator whose transactions have the format of level 0 cannot end one with a new epoch.
    new_epoch = version >= 5 and c.target.features.get(FEATURE, 0) >= 1
    producer.commit(c.version(ApiKey.END_TXN, None if new_epoch else 4))

    wanted = OffsetFetchRequestTopics(name=topic.name, partition_indexes=[0])
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])], require_stable=True)

    def committed() -> tuple[int, int, str | None] | None:
        fetched = c.call(fetch, c.version(ApiKey.OFFSET_FETCH, 9), to=producer.group_coordinator(group))
        result = fetched.groups[0]
        if result.error_code or not result.topics:
            return None
        (found,) = result.topics[0].partitions
        if found.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            return None
        c.error(found.error_code, ErrorCode.NONE, "OffsetFetch error_code")
        return found.committed_offset, found.committed_leader_epoch, found.metadata

    c.equal(c.until(committed, "a stable offset"), (1, _EPOCH, "text"), "offset, leader epoch and metadata")

"""Fetch: the last fetched epoch, by which a consumer learns that its position no longer exists (KIP-595)."""

from __future__ import annotations

from typing import cast

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.fetch import PartitionData
from .. import partitions as p
from ..case import Layer, case, versions_of
from ..check import Check, Topic
from ..record_batches import batch

_DIVERGENCE = versions_of(ApiKey.FETCH, 12)


def _fetch(c: Check, topic: Topic, version: int, offset: int, last_fetched_epoch: int) -> PartitionData:
    request = p.fetch_request(topic, {0: offset}, version=version)
    request.topics[0].partitions[0].last_fetched_epoch = last_fetched_epoch
    response = c.call(request, version)
    c.error(response.error_code, ErrorCode.NONE)
    c.equal([len(each.partitions) for each in response.responses], [1], "responses[].partitions (number)")
    return cast(PartitionData, response.responses[0].partitions[0])


@case(
    "fetch.divergence.behind-end",
    "an offset that its epoch never had is reported as a divergence",
    source="KIP-595",
    layer=Layer.WIRE,
    versions=_DIVERGENCE,
)
def behind_end(c: Check, version: int) -> None:
    """Sends: Fetch from offset 7 of a partition whose epoch 0 ends at offset 2, with last_fetched_epoch 0.

    Expects: no error, no records, and the diverging epoch 0 with end offset 2, instead of OFFSET_OUT_OF_RANGE.

    Why: records that the consumer has seen were lost with their leader; it continues at offset 2 and reports the loss.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a", b"b"))
    data = _fetch(c, topic, version, 7, 0)
    c.error(data.error_code, ErrorCode.NONE, "partitions[0].error_code")
    found = (data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
    c.equal(found, (0, 2), "partitions[0].diverging_epoch (epoch and end_offset)")
    c.equal(p.batches_of(data), [], "partitions[0].records")


@case(
    "fetch.divergence.future-epoch",
    "a last fetched epoch that the partition never had has no end",
    source="KIP-595",
    layer=Layer.WIRE,
    versions=_DIVERGENCE,
)
def future_epoch(c: Check, version: int) -> None:
    """Sends: Fetch from offset 1 of a partition of epoch 0 with two records, with last_fetched_epoch 9.

    Expects: OFFSET_OUT_OF_RANGE and no diverging epoch.

    Why: the consumer resets its position, as there is no common point from which it could continue.
    """
    topic = c.topic()
    p.append(c, topic, batch(b"a", b"b"))
    data = _fetch(c, topic, version, 1, 9)
    c.error(data.error_code, ErrorCode.OFFSET_OUT_OF_RANGE, "partitions[0].error_code")
    found = (data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
    c.equal(found, (-1, -1), "partitions[0].diverging_epoch (epoch and end_offset)")

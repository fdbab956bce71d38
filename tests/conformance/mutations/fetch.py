"""Defects of Fetch, ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any

from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import AbortedTransaction

from ..mutating_proxy import Exchange, Mutation
from . import batches
from .changes import (
    ZERO_ID,
    always,
    another_id,
    becomes,
    each,
    empty,
    in_request,
    in_response,
    last_twice,
    plus,
    positive_plus,
    upper,
    without_first,
    without_last,
)

FETCH, LIST_OFFSETS, EPOCHS = ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH
_PARTITIONS = "responses.partitions"
_ERROR = f"{_PARTITIONS}.error_code"
_UNLIMITED = 0x7FFFFFFF


def _stable_offset_is_high_watermark(exchange: Exchange, response: Any) -> None:
    for partition in each(response, _PARTITIONS):
        partition.last_stable_offset = partition.high_watermark


def _records_of_partitions_swapped(exchange: Exchange, response: Any) -> None:
    for topic in response.responses:
        records = [partition.records for partition in topic.partitions]
        for partition, others in zip(topic.partitions, records[::-1], strict=True):
            partition.records = others


def _without_session(exchange: Exchange, request: Any) -> None:
    request.session_id, request.session_epoch = 0, -1


def _batches_above_limit_missing(exchange: Exchange, response: Any) -> None:
    """KIP-74 the other way round: a batch above the limits of the request is never sent."""
    request = exchange.request
    limits = [partition.partition_max_bytes for topic in request.topics for partition in topic.partitions]
    limit = min([request.max_bytes, *limits])
    for partition in each(response, _PARTITIONS):
        if partition.records and len(bytes(partition.records)) > limit:
            partition.records = b""


def _diverging_epoch_missing(exchange: Exchange, response: Any) -> None:
    for partition in each(response, _PARTITIONS):
        if partition.diverging_epoch.end_offset >= 0:
            partition.diverging_epoch.epoch = partition.diverging_epoch.end_offset = -1


def _listed(timestamp: int, change: Any) -> Any:
    """A change of the offset of partitions for which this timestamp was requested; 0 for any real one."""

    def on_response(exchange: Exchange, response: Any) -> None:
        requested = [p.timestamp for p in each(exchange.request, "topics.partitions")]
        for partition, wanted in zip(each(response, "topics.partitions"), requested, strict=False):
            if (wanted == timestamp or (timestamp == 0 and wanted >= 0)) and not partition.error_code:
                change(partition)

    return on_response


def _offset_plus_one(partition: Any) -> None:
    partition.offset += partition.offset >= 0


def _not_found_is_zero(partition: Any) -> None:
    partition.offset = max(partition.offset, 0)


def _without_timestamp(partition: Any) -> None:
    partition.timestamp = -1


def _without_leader_epoch(partition: Any) -> None:
    partition.leader_epoch = -1


def _with_timestamp(partition: Any) -> None:
    partition.timestamp = 1


FETCH_MUTATIONS = [
    in_response(
        "fetch.high-watermark.plus-one", "the high watermark is one too high",
        FETCH, f"{_PARTITIONS}.high_watermark", plus(1), "fetch.exchange",
    ),
    in_response(
        "fetch.high-watermark.minus-one", "the high watermark is one too low",
        FETCH, f"{_PARTITIONS}.high_watermark", positive_plus(-1), "fetch.exchange",
    ),
    in_response(
        "fetch.last-stable-offset.plus-one", "the last stable offset is one too high",
        FETCH, f"{_PARTITIONS}.last_stable_offset", plus(1), "fetch.exchange",
    ),
    in_response(
        "fetch.last-stable-offset.missing", "the last stable offset is unknown",
        FETCH, f"{_PARTITIONS}.last_stable_offset", always(-1), "fetch.exchange",
    ),
    Mutation(
        "fetch.last-stable-offset.high-watermark",
        "the last stable offset ignores open transactions",
        ("transactions.fetch",), (FETCH,), on_response=_stable_offset_is_high_watermark,
    ),
    in_response(
        "fetch.log-start-offset.plus-one", "the log start offset is one too high",
        FETCH, f"{_PARTITIONS}.log_start_offset", plus(1), "fetch.exchange",
    ),
    in_response(
        "fetch.log-start-offset.missing", "the log start offset is unknown from version 5 on",
        FETCH, f"{_PARTITIONS}.log_start_offset", always(-1), "fetch.exchange",
    ),
    in_response(
        "fetch.log-start-offset.zero", "the log start offset is 0 after records were deleted",
        FETCH, f"{_PARTITIONS}.log_start_offset", always(0), "fetch.position",
    ),
    in_response(
        "fetch.partition-index", "the partition of the response is one too high",
        FETCH, f"{_PARTITIONS}.partition_index", plus(1), "fetch.exchange",
    ),
    in_response(
        "fetch.topic-id.zero", "the topic ID is missing from version 13 on",
        FETCH, "responses.topic_id", always(ZERO_ID), "fetch.exchange",
    ),
    in_response(
        "fetch.topic-id.other", "the topic ID is that of another topic",
        FETCH, "responses.topic_id", another_id, "fetch.exchange",
    ),
    in_response(
        "fetch.topic-name", "the topic name is in upper case before version 13",
        FETCH, "responses.topic", upper, "fetch.exchange",
    ),
    in_response(
        "fetch.preferred-read-replica", "each partition names another replica to read from, from version 11 on",
        FETCH, f"{_PARTITIONS}.preferred_read_replica", always(1), "fetch.exchange",
    ),
    in_response(
        "fetch.records.last-batch-missing", "the last batch of a response is missing",
        FETCH, f"{_PARTITIONS}.records", batches.without_last_batch, "fetch.exchange",
    ),
    in_response(
        "fetch.records.first-batch-missing", "the first batch of a response is missing",
        FETCH, f"{_PARTITIONS}.records", batches.without_first_batch, "fetch.exchange",
    ),
    in_response(
        "fetch.records.truncated", "the last byte of the records is missing",
        FETCH, f"{_PARTITIONS}.records", lambda old: bytes(old)[:-1] if old else old, "fetch.exchange",
    ),
    in_response(
        "fetch.records.null", "records are null instead of empty",
        FETCH, f"{_PARTITIONS}.records", lambda old: old or None, "fetch.empty-partition",
    ),
    in_response(
        "fetch.records.damaged", "the last byte of each batch is changed, and the CRC is not",
        FETCH, f"{_PARTITIONS}.records", batches.per_batch(batches.last_byte_inverted), "fetch.exchange",
    ),
    in_response(
        "fetch.records.base-offset", "the base offset of batches is one too high",
        FETCH, f"{_PARTITIONS}.records", batches.field("q", 0, lambda old: old + 1), "fetch.exchange",
    ),
    in_response(
        "fetch.records.relative-offset", "the base offset of batches is always 0",
        FETCH, f"{_PARTITIONS}.records", batches.field("q", 0, lambda old: 0), "produce.exchange", "fetch.exchange",
    ),
    in_response(
        "fetch.records.leader-epoch", "batches have no partition leader epoch",
        FETCH, f"{_PARTITIONS}.records", batches.field("i", batches.LEADER_EPOCH_AT, lambda old: -1),
        "fetch.exchange",
    ),
    in_response(
        "fetch.records.max-timestamp", "the largest timestamp of batches is one too high",
        FETCH, f"{_PARTITIONS}.records", batches.field("q", batches.MAX_TIMESTAMP_AT, lambda old: old + 1),
        "fetch.batch-header",
    ),
    in_response(
        "fetch.records.sequence", "batches lose their sequence numbers",
        FETCH, f"{_PARTITIONS}.records", batches.field("i", batches.SEQUENCE_AT, lambda old: -1),
        "produce.idempotent",
    ),
    in_response(
        "fetch.records.not-transactional", "batches of transactions are not marked as such",
        FETCH, f"{_PARTITIONS}.records", batches.field("h", 21, lambda old: old & ~0x10),
        "transactions.fetch", "transactions.end.exchange",
    ),
    in_response(
        "fetch.records.control-as-data", "control batches are not marked as such",
        FETCH, f"{_PARTITIONS}.records", batches.field("h", 21, lambda old: old & ~0x20),
        "transactions.fetch", "transactions.end.exchange",
    ),
    Mutation(
        "fetch.records.swapped", "two partitions have the records of each other",
        ("fetch.session.exchange", "fetch.order"), (FETCH,), on_response=_records_of_partitions_swapped,
    ),
    in_response(
        "fetch.partition.missing", "the last partition is missing in the response",
        FETCH, _PARTITIONS, without_last, "fetch.exchange",
    ),
    in_response(
        "fetch.partition.twice", "the last partition is twice in the response",
        FETCH, _PARTITIONS, last_twice, "fetch.exchange",
    ),
    in_response(
        "fetch.aborted.missing", "the list of aborted transactions is empty",
        FETCH, f"{_PARTITIONS}.aborted_transactions", lambda old: [] if old else old, "transactions.fetch",
    ),
    in_response(
        "fetch.aborted.first-offset", "the first offset of aborted transactions is one too high",
        FETCH, f"{_PARTITIONS}.aborted_transactions.first_offset", plus(1), "transactions.fetch",
    ),
    in_response(
        "fetch.aborted.producer-id", "aborted transactions have the ID of another producer",
        FETCH, f"{_PARTITIONS}.aborted_transactions.producer_id", plus(1), "transactions.fetch",
    ),
    in_response(
        "fetch.aborted.uncommitted", "a fetch with read_uncommitted has aborted transactions",
        FETCH, f"{_PARTITIONS}.aborted_transactions", lambda old: [AbortedTransaction()] if old is None else old,
        "fetch.exchange",
    ),
    in_request(
        "fetch.isolation.ignored", "read_committed is ignored",
        FETCH, "isolation_level", always(0), "fetch.read-committed", "transactions.fetch",
    ),
    in_request(
        "fetch.isolation.always", "each fetch is read_committed",
        FETCH, "isolation_level", always(1), "transactions.fetch",
    ),
    in_request(
        "fetch.offset.ignored", "each fetch starts at offset 0",
        FETCH, "topics.partitions.fetch_offset", lambda old: min(old, 0), "fetch.exchange", "fetch.position",
    ),
    in_request(
        "fetch.offset.plus-one", "each fetch starts one offset too late",
        FETCH, "topics.partitions.fetch_offset", plus(1), "fetch.exchange",
    ),
    in_request(
        "fetch.max-bytes.ignored", "max_bytes is ignored",
        FETCH, "max_bytes", always(_UNLIMITED), "fetch.limit",
    ),
    in_request(
        "fetch.partition-max-bytes.ignored", "partition_max_bytes is ignored",
        FETCH, "topics.partitions.partition_max_bytes", always(_UNLIMITED), "fetch.limit",
    ),
    Mutation(
        "fetch.max-bytes.first-batch", "a first batch above the limit is never sent",
        ("fetch.limit",), (FETCH,), on_response=_batches_above_limit_missing,
    ),
    in_request(
        "fetch.min-bytes.ignored", "min_bytes is ignored",
        FETCH, "min_bytes", always(0), "fetch.wait",
    ),
    in_request(
        "fetch.max-wait.ignored", "max_wait_ms is ignored: an empty response is sent immediately",
        FETCH, "max_wait_ms", always(0), "fetch.wait",
    ),
    in_response(
        "fetch.error.offset-out-of-range.hidden", "an offset outside the log has no error",
        FETCH, _ERROR, becomes({ErrorCode.OFFSET_OUT_OF_RANGE: 0}), "fetch.out-of-range",
    ),
    in_response(
        "fetch.error.offset-out-of-range.other", "an offset outside the log has the error of an unknown partition",
        FETCH, _ERROR, becomes({ErrorCode.OFFSET_OUT_OF_RANGE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        "fetch.out-of-range",
    ),
    in_response(
        "fetch.error.unknown-partition", "a partition that does not exist has no error",
        FETCH, _ERROR, becomes({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 0}), "fetch.unknown-partition",
    ),
    in_response(
        "fetch.error.unknown-topic-id.other", "an unknown topic ID has the error of an unknown name",
        FETCH, (_ERROR, "error_code"),
        becomes({ErrorCode.UNKNOWN_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        "fetch.unknown-topic", "fetch.topic-id",
    ),
    in_request(
        "fetch.epoch.ignored", "the current leader epoch is ignored: no fencing",
        FETCH, "topics.partitions.current_leader_epoch", always(-1), "fetch.leader-epoch",
    ),
    in_response(
        "fetch.epoch.unknown-other", "a future leader epoch has the error of an old one",
        FETCH, _ERROR, becomes({ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorCode.FENCED_LEADER_EPOCH}), "fetch.leader-epoch",
    ),
    in_request(
        "fetch.epoch.last-fetched-ignored", "the last fetched epoch is ignored: no diverging epoch",
        FETCH, "topics.partitions.last_fetched_epoch", always(-1), "fetch.divergence",
    ),
    Mutation(
        "fetch.epoch.divergence-missing", "the response has no diverging epoch",
        ("fetch.divergence",), (FETCH,), on_response=_diverging_epoch_missing,
    ),
    Mutation(
        "fetch.session.missing", "there are no fetch sessions",
        ("fetch.session",), (FETCH,), on_request=_without_session,
    ),
    in_response(
        "fetch.session.id-zero", "a new session has ID 0",
        FETCH, "session_id", always(0), "fetch.session",
    ),
    in_response(
        "fetch.session.id-changes", "the session ID of each response is one too high",
        FETCH, "session_id", positive_plus(1), "fetch.session",
    ),
    in_response(
        "fetch.session.epoch-hidden", "a wrong session epoch has no error",
        FETCH, "error_code", becomes({ErrorCode.INVALID_FETCH_SESSION_EPOCH: 0}), "fetch.session",
    ),
    in_response(
        "fetch.session.unknown-other", "an unknown session has the error of a wrong epoch",
        FETCH, "error_code",
        becomes({ErrorCode.FETCH_SESSION_ID_NOT_FOUND: ErrorCode.INVALID_FETCH_SESSION_EPOCH}), "fetch.session",
    ),
    in_request(
        "fetch.session.forgotten-ignored", "forgotten topics remain in the session",
        FETCH, "forgotten_topics_data", empty, "fetch.session",
    ),
    in_response(
        "fetch.session.first-topic-missing", "the first topic of a response is missing",
        FETCH, "responses", without_first, "fetch.exchange",
    ),
]  # fmt: skip

_LISTED = "topics.partitions"
LIST_OFFSETS_MUTATIONS = [
    Mutation(
        "listoffsets.latest.plus-one", "the latest offset is one too high",
        ("listoffsets.exchange", "listoffsets.after-deletion"),
        (LIST_OFFSETS,), on_response=_listed(-1, _offset_plus_one),
    ),
    Mutation(
        "listoffsets.earliest.plus-one", "the earliest offset is one too high",
        ("listoffsets.exchange", "listoffsets.after-deletion"),
        (LIST_OFFSETS,), on_response=_listed(-2, _offset_plus_one),
    ),
    Mutation(
        "listoffsets.timestamp.plus-one", "the offset of a timestamp is one too high",
        ("listoffsets.exchange", "listoffsets.after-deletion"),
        (LIST_OFFSETS,), on_response=_listed(0, _offset_plus_one),
    ),
    Mutation(
        "listoffsets.timestamp.not-found", "the offset of a timestamp after all records is 0 instead of -1",
        ("listoffsets.empty-partition", "listoffsets.grid"),
        (LIST_OFFSETS,), on_response=_listed(0, _not_found_is_zero),
    ),
    Mutation(
        "listoffsets.timestamp.missing", "the response to a timestamp has no timestamp",
        ("listoffsets.exchange", "listoffsets.after-deletion"),
        (LIST_OFFSETS,), on_response=_listed(0, _without_timestamp),
    ),
    Mutation(
        "listoffsets.latest.with-timestamp", "the latest offset has a timestamp",
        ("listoffsets.exchange", "listoffsets.after-deletion"),
        (LIST_OFFSETS,), on_response=_listed(-1, _with_timestamp),
    ),
    Mutation(
        "listoffsets.timestamp.leader-epoch", "the offset of a timestamp has no leader epoch",
        ("listoffsets.exchange", "listoffsets.after-deletion"),
        (LIST_OFFSETS,), on_response=_listed(0, _without_leader_epoch),
    ),
    Mutation(
        "listoffsets.max-timestamp.plus-one", "the offset of the largest timestamp is one too high",
        ("listoffsets.max-timestamp",), (LIST_OFFSETS,), on_response=_listed(-3, _offset_plus_one),
    ),
    Mutation(
        "listoffsets.max-timestamp.missing", "the response to -3 has no timestamp",
        ("listoffsets.max-timestamp",), (LIST_OFFSETS,), on_response=_listed(-3, _without_timestamp),
    ),
    in_request(
        "listoffsets.max-timestamp.latest", "-3 is taken for -1",
        LIST_OFFSETS, f"{_LISTED}.timestamp", becomes({-3: -1}), "listoffsets.max-timestamp",
    ),
    in_request(
        "listoffsets.earliest-local.latest", "-4 is taken for -1",
        LIST_OFFSETS, f"{_LISTED}.timestamp", becomes({-4: -1}), "listoffsets.grid", "listoffsets.empty-partition",
    ),
    in_request(
        "listoffsets.tiered.earliest", "-5 is taken for -2",
        LIST_OFFSETS, f"{_LISTED}.timestamp", becomes({-5: -2}), "listoffsets.grid", "listoffsets.empty-partition",
    ),
    in_request(
        "listoffsets.earliest.latest", "-2 is taken for -1",
        LIST_OFFSETS, f"{_LISTED}.timestamp", becomes({-2: -1}), "listoffsets.exchange", "listoffsets.after-deletion",
    ),
    in_request(
        "listoffsets.timestamp.greater", "the search for a timestamp finds later records only",
        LIST_OFFSETS, f"{_LISTED}.timestamp", plus(1), "listoffsets.exchange", "listoffsets.after-deletion",
    ),
    in_request(
        "listoffsets.isolation.ignored", "read_committed is ignored",
        LIST_OFFSETS, "isolation_level", always(0), "transactions.list-offsets",
    ),
    in_request(
        "listoffsets.isolation.always", "each request is read_committed",
        LIST_OFFSETS, "isolation_level", always(1), "transactions.list-offsets",
    ),
    in_request(
        "listoffsets.epoch.ignored", "the current leader epoch is ignored: no fencing",
        LIST_OFFSETS, f"{_LISTED}.current_leader_epoch", always(-1), "listoffsets.leader-epoch",
    ),
    in_response(
        "listoffsets.leader-epoch.plus-one", "the leader epoch is one too high",
        LIST_OFFSETS, f"{_LISTED}.leader_epoch", plus(1), "listoffsets.exchange", "listoffsets.after-deletion",
    ),
    in_response(
        "listoffsets.partition-index", "the partition of the response is one too high",
        LIST_OFFSETS, f"{_LISTED}.partition_index", plus(1), "listoffsets.exchange",
    ),
    in_response(
        "listoffsets.topic-name", "the topic name of the response is in upper case",
        LIST_OFFSETS, "topics.name", upper, "listoffsets.exchange",
    ),
    in_response(
        "listoffsets.error.unknown-partition", "a partition that does not exist has no error",
        LIST_OFFSETS, f"{_LISTED}.error_code", becomes({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 0}),
        "listoffsets.unknown",
    ),
    in_response(
        "listoffsets.partition.missing", "the last of several partitions is missing in the response",
        LIST_OFFSETS, _LISTED, lambda old: old[:-1] if len(old) > 1 else old, "listoffsets.several",
    ),
]  # fmt: skip

EPOCH_MUTATIONS = [
    in_response(
        "epochs.end-offset.plus-one", "the end offset of a leader epoch is one too high",
        EPOCHS, "topics.partitions.end_offset", plus(1), "listoffsets.epoch-end",
    ),
    in_response(
        "epochs.leader-epoch.missing", "the response has no leader epoch",
        EPOCHS, "topics.partitions.leader_epoch", always(-1), "listoffsets.epoch-end",
    ),
    in_response(
        "epochs.partition", "the partition of the response is one too high",
        EPOCHS, "topics.partitions.partition", plus(1), "listoffsets.epoch-end",
    ),
    in_response(
        "epochs.error.unknown-partition", "a partition that does not exist has no error",
        EPOCHS, "topics.partitions.error_code", becomes({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 0}),
        "listoffsets.epoch-end",
    ),
    in_request(
        "epochs.current.ignored", "the current leader epoch is ignored: no fencing",
        EPOCHS, "topics.partitions.current_leader_epoch", always(-1), "listoffsets.epoch-end",
    ),
    in_request(
        "epochs.requested.plus-one", "the end offset is that of the next leader epoch",
        EPOCHS, "topics.partitions.leader_epoch", plus(1), "listoffsets.epoch-end",
    ),
]  # fmt: skip

MUTATIONS = FETCH_MUTATIONS + LIST_OFFSETS_MUTATIONS + EPOCH_MUTATIONS

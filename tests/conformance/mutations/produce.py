"""Defects of Produce, and of how records are stored."""

from __future__ import annotations

from typing import Any

from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from moldau.protocol.records import Codec, iter_batches

from ..mutating_proxy import Exchange, Mutation
from . import batches
from .changes import (
    ZERO_ID,
    always,
    another_id,
    becomes,
    each,
    empty,
    error_hidden,
    in_request,
    in_response,
    last_twice,
    message_if_none,
    plus,
    upper,
    without_last,
)

PRODUCE = ApiKey.PRODUCE
_PARTITIONS = "responses.partition_responses"
_RECORDS = "topic_data.partition_data.records"
_ERROR = f"{_PARTITIONS}.error_code"


def _acknowledged_only(exchange: Exchange, request: Any) -> Any:
    """The response is that of a new partition, and the records are lost."""
    if request.acks == 0 or not any(topic.partition_data for topic in request.topic_data):
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=each.index, base_offset=0, log_start_offset=0)
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _lost_without_acks(exchange: Exchange, request: Any) -> None:
    if request.acks == 0:
        request.topic_data = []


def _last_partition_lost(exchange: Exchange, request: Any) -> None:
    for topic in request.topic_data:
        if len(topic.partition_data) > 1:
            topic.partition_data[-1].records = None


def _base_offset_of_error(exchange: Exchange, response: Any) -> None:
    for partition in each(response, _PARTITIONS):
        if partition.error_code:
            partition.base_offset = 0


def _last_offset(exchange: Exchange, response: Any) -> None:
    """The offset of the last record of the batch instead of the first."""
    for topic, requested in zip(response.responses, exchange.request.topic_data, strict=False):
        for partition, data in zip(topic.partition_responses, requested.partition_data, strict=False):
            if not partition.error_code:
                partition.base_offset += sum(b.last_offset_delta for b in iter_batches(bytes(data.records or b"")))


def _error_for_all(exchange: Exchange, response: Any) -> None:
    for topic in response.responses:
        errors = [partition.error_code for partition in topic.partition_responses if partition.error_code]
        for partition in topic.partition_responses:
            if errors:
                partition.error_code, partition.base_offset = errors[0], -1


def _new_offset_for_duplicate(exchange: Exchange, response: Any) -> None:
    """A batch that is sent twice has another base offset in the second response."""
    for topic, requested in zip(response.responses, exchange.request.topic_data, strict=False):
        for partition, data in zip(topic.partition_responses, requested.partition_data, strict=False):
            key = (topic.name, topic.topic_id, partition.index, bytes(data.records or b""))
            if not partition.error_code and key in exchange.memory:
                partition.base_offset += 1
            exchange.memory[key] = True


MUTATIONS = [
    in_response(
        "produce.base-offset.plus-one",
        "the base offset is one too high",
        PRODUCE, f"{_PARTITIONS}.base_offset", plus(1), "produce.exchange",
    ),
    in_response(
        "produce.base-offset.zero",
        "the base offset is always 0",
        PRODUCE, f"{_PARTITIONS}.base_offset", lambda old: min(old, 0), "produce.exchange",
    ),
    Mutation(
        "produce.base-offset.last",
        "the base offset is that of the last record",
        ("produce.exchange",), (PRODUCE,), on_response=_last_offset,
    ),
    Mutation(
        "produce.base-offset.error",
        "the base offset of a rejected batch is 0 instead of -1",
        ("produce.error-base-offset",), (PRODUCE,), on_response=_base_offset_of_error,
    ),
    Mutation(
        "produce.base-offset.duplicate",
        "a repeated batch of an idempotent producer has a new base offset",
        ("produce.idempotent",), (PRODUCE,), on_response=_new_offset_for_duplicate,
    ),
    in_response(
        "produce.partition-index",
        "the partition of the response is 0",
        PRODUCE, f"{_PARTITIONS}.index", always(0), "produce.exchange",
    ),
    in_response(
        "produce.topic-id.zero",
        "the topic ID is missing in version 13",
        PRODUCE, "responses.topic_id", always(ZERO_ID), "produce.exchange", versions=(13,),
    ),
    in_response(
        "produce.topic-id.other",
        "the topic ID is that of another topic in version 13",
        PRODUCE, "responses.topic_id", another_id, "produce.exchange", versions=(13,),
    ),
    in_response(
        "produce.topic-name",
        "the topic name is in upper case before version 13",
        PRODUCE, "responses.name", upper, "produce.exchange",
    ),
    in_response(
        "produce.log-append-time",
        "a topic with CreateTime has a log append time",
        PRODUCE, f"{_PARTITIONS}.log_append_time_ms", always(1), "produce.exchange",
    ),
    in_response(
        "produce.log-append-time.missing",
        "a topic with LogAppendTime has none",
        PRODUCE, f"{_PARTITIONS}.log_append_time_ms", always(-1), "produce.timestamps",
    ),
    in_response(
        "produce.log-start-offset",
        "the log start offset is unknown from version 5 on",
        PRODUCE, f"{_PARTITIONS}.log_start_offset", always(-1), "produce.exchange",
    ),
    in_response(
        "produce.log-start-offset.plus-one",
        "the log start offset is one too high",
        PRODUCE, f"{_PARTITIONS}.log_start_offset", plus(1), "produce.exchange",
    ),
    in_response(
        "produce.error-message",
        "a success has an error message from version 8 on",
        PRODUCE, f"{_PARTITIONS}.error_message", message_if_none, "produce.exchange",
    ),
    in_response(
        "produce.error-message.missing",
        "a rejected batch has no error message",
        PRODUCE, f"{_PARTITIONS}.error_message", always(None), "produce.record-errors",
    ),
    in_response(
        "produce.record-errors.missing",
        "a rejected batch has no list of its invalid records",
        PRODUCE, f"{_PARTITIONS}.record_errors", empty, "produce.record-errors",
    ),
    in_response(
        "produce.partition.missing",
        "the last partition is missing in the response",
        PRODUCE, _PARTITIONS, without_last, "produce.unknown-partition",
    ),
    in_response(
        "produce.topic.twice",
        "the last topic is twice in the response",
        PRODUCE, "responses", last_twice, "produce.exchange",
    ),
    in_response(
        "produce.error.unknown-partition.hidden",
        "a partition that does not exist has no error",
        PRODUCE, _ERROR, becomes({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 0}), "produce.unknown-partition",
    ),
    in_response(
        "produce.error.unknown-partition.other",
        "a partition that does not exist has the error of a missing leader",
        PRODUCE, _ERROR, becomes({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.LEADER_NOT_AVAILABLE}),
        "produce.unknown-partition",
    ),
    Mutation(
        "produce.error.for-all",
        "an error of one partition is that of all partitions",
        ("produce.unknown-partition",), (PRODUCE,), on_response=_error_for_all,
    ),
    error_hidden(
        "produce.error.unknown-topic-id",
        "an unknown topic ID has no error",
        PRODUCE, _ERROR, ErrorCode.UNKNOWN_TOPIC_ID, "produce.unknown-topic",
    ),
    error_hidden(
        "produce.error.acks",
        "invalid acks have no error",
        PRODUCE, _ERROR, ErrorCode.INVALID_REQUIRED_ACKS, "produce.acks.invalid",
    ),
    in_request(
        "produce.acks.invalid-accepted",
        "invalid acks are taken for -1",
        PRODUCE, "acks", lambda old: old if old in (-1, 0, 1) else -1, "produce.acks.invalid",
    ),
    error_hidden(
        "produce.error.corrupt",
        "a damaged batch has no error",
        PRODUCE, _ERROR, ErrorCode.CORRUPT_MESSAGE, "produce.batch.corrupt",
    ),
    error_hidden(
        "produce.error.invalid-record",
        "an invalid batch has no error",
        PRODUCE, _ERROR, ErrorCode.INVALID_RECORD, "produce.batch.corrupt",
    ),
    in_response(
        "produce.error.too-large",
        "a batch that is too large has the error of an unknown reason",
        PRODUCE, _ERROR, becomes({ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR}),
        "produce.batch.too-large",
    ),
    error_hidden(
        "produce.error.sequence",
        "a gap in the sequence numbers of an idempotent producer has no error",
        PRODUCE, _ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "produce.idempotent",
    ),
    error_hidden(
        "produce.error.epoch",
        "a fenced producer has no error",
        PRODUCE, _ERROR, ErrorCode.INVALID_PRODUCER_EPOCH, "transactions.fencing.produce",
    ),
    in_request(
        "produce.crc.ignored",
        "the CRC of a batch is not checked",
        PRODUCE, _RECORDS, batches.per_batch(batches.with_valid_crc, damaged=True), "produce.batch.corrupt.crc",
    ),
    in_request(
        "produce.idempotence.missing",
        "producer IDs are ignored, and repeated batches are stored again",
        PRODUCE, _RECORDS, batches.field("q", batches.PRODUCER_ID_AT, lambda old: -1),
        "produce.idempotent",
    ),
    in_request(
        "produce.epoch.ignored",
        "the epoch of an idempotent producer is ignored",
        PRODUCE, _RECORDS, batches.field("h", batches.PRODUCER_EPOCH_AT, lambda old: min(old, 0)),
        "produce.idempotent", "transactions.fencing.produce",
    ),
    Mutation(
        "produce.lost",
        "batches are acknowledged and not stored",
        ("produce.exchange",), (PRODUCE,), on_request=_acknowledged_only,
    ),
    Mutation(
        "produce.lost.acks-none",
        "batches with acks=0 are not stored",
        ("produce.acks.none",), (PRODUCE,), on_request=_lost_without_acks,
    ),
    Mutation(
        "produce.lost.last-partition",
        "the records of the last partition of a request are ignored",
        ("produce.partitions",), (PRODUCE,), on_request=_last_partition_lost,
    ),
    in_request(
        "records.codec.ignored",
        "batches are stored without compression",
        PRODUCE, _RECORDS, batches.per_record(lambda record: record, codec=Codec.NONE), "produce.compression",
    ),
    in_request(
        "records.codec.gzip-for-all",
        "batches are stored with gzip",
        PRODUCE, _RECORDS, batches.per_record(lambda record: record, codec=Codec.GZIP), "produce.compression",
    ),
    in_request(
        "records.value.changed",
        "the first byte of values is changed",
        PRODUCE, _RECORDS, batches.per_record(lambda r: r._replace(value=b"?" + r.value[1:]) if r.value else r),
        "produce.exchange",
    ),
    in_request(
        "records.value.null",
        "empty values become null",
        PRODUCE, _RECORDS, batches.per_record(lambda r: r._replace(value=r.value or None)), "produce.batch.fields",
    ),
    in_request(
        "records.key.lost",
        "records lose their keys",
        PRODUCE, _RECORDS, batches.per_record(lambda r: r._replace(key=None)), "produce.batch.fields",
    ),
    in_request(
        "records.headers.lost",
        "records lose their headers",
        PRODUCE, _RECORDS, batches.per_record(lambda r: r._replace(headers=())), "produce.batch.fields",
    ),
    in_request(
        "records.headers.reversed",
        "the headers of records are in the reverse order",
        PRODUCE, _RECORDS, batches.per_record(lambda r: r._replace(headers=list(r.headers)[::-1])),
        "produce.batch.fields",
    ),
    in_request(
        "records.timestamp.seconds",
        "timestamps are rounded to seconds",
        PRODUCE, _RECORDS, batches.per_record(lambda r: r._replace(timestamp=r.timestamp // 1000 * 1000)),
        "listoffsets.exchange",
    ),
    in_request(
        "records.order.reversed",
        "the values of a batch are stored in the reverse order",
        PRODUCE, _RECORDS, batches.per_batch(batches.reversed_values), "produce.exchange",
    ),
]  # fmt: skip

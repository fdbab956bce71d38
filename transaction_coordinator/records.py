"""The records of `__transaction_state`: the states of transactional IDs, in Apache Kafka's format.

Key and value of a record each begin with a number of two bytes, then the message:

    key      record type   int16   message, never flexible; 0 is the only type
    value    version       int16   message; no value (a tombstone) deletes the transactional ID

Version 1 of the value is written if `transaction.version` is at least 1. It has tagged fields, so that later versions
can add fields that older brokers ignore (KIP-915).
"""

from __future__ import annotations

import struct
from typing import Final

from ..coordinator.outcome import Record
from ..protocol.codec import decode_at, encode
from ..protocol.errors import MalformedMessage
from ..protocol.schema import ApiMessage, Struct, array, int8, int16, int32, int64, string

_NUMBER: Final = struct.Struct(">h")

_STATUSES: Final = range(6)
"""`transaction.TransactionStatus`. Kafka has two more, which are never written."""


class TransactionLogKey(ApiMessage, api_key=0, versions="0", flexible="none"):
    """A transactional id."""

    transactional_id: str = string("0")


class PartitionsSchema(Struct):
    topic: str = string("0+")
    partition_ids: list[int] = array(int32, "0+")


class TransactionLogValue(ApiMessage, api_key=0, versions="0-1", flexible="1+"):
    """The transaction of the ID.

    Version 0 lacks the tagged fields. Their values are lost when the coordinator moves.
    """

    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", default=-1, tag=0, ignorable=True)
    """The ID before this record: the same, unless its epochs were exhausted."""
    next_producer_id: int = int64("1+", default=-1, tag=1, ignorable=True)
    """The next ID of the producer, while a transaction ends that exhausts the epochs."""
    producer_epoch: int = int16("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, "0+", nullable="0+")
    """None before the first transaction."""
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", default=0, tag=2, ignorable=True)
    """2 if the client bumps its epoch with every transaction (KIP-890), otherwise 0."""


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value as in the log."""
    key, value, version = record
    encoded_key = _NUMBER.pack(TransactionLogKey.API_KEY) + encode(key, 0)
    if value is None:
        return encoded_key, None
    return encoded_key, _NUMBER.pack(version) + encode(value, version)


def decode_record(key: bytes, value: bytes | None) -> Record | None:
    """The record of these bytes; None for an unknown type.

    Raises:
        MalformedMessage: the bytes are incomplete, or the version of the value or the transaction's state is unknown.
    """
    if _number(key, "key") != TransactionLogKey.API_KEY:
        return None
    decoded_key, _ = decode_at(TransactionLogKey, key, 0, 2)
    if value is None:
        return Record(decoded_key, None)
    version = _number(value, "value")
    if version not in TransactionLogValue.VERSIONS:
        raise MalformedMessage(f"unknown version {version} of TransactionLogValue", 0)
    decoded_value, _ = decode_at(TransactionLogValue, value, version, 2)
    if decoded_value.transaction_status not in _STATUSES:
        raise MalformedMessage(f"unknown transaction state {decoded_value.transaction_status}", 0)
    return Record(decoded_key, decoded_value, version)


def _number(data: bytes, what: str) -> int:
    if len(data) < 2:
        raise MalformedMessage(f"a {what} of {len(data)} bytes has no version", 0)
    number: int = _NUMBER.unpack_from(data)[0]
    return number

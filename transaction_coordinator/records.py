"""The records of `__transaction_state`: what a transactional id is at, in Apache Kafka's format.

Key and value of a record each begin with a number of two bytes, then the message:

    key      record type   int16   message, never flexible; 0 is the only type there is
    value    version       int16   message, or no value at all: the transactional id is forgotten

Version 1 of the value is written once `transaction.version` is 1 or more. It has tagged fields; from then on fields can
be added that older brokers leave alone (KIP-915).
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
    """Everything about it.

    Version 0 has no place for the tagged fields. What is in them is known until the coordinator moves, then it is lost.
    """

    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", default=-1, tag=0, ignorable=True)
    """As it was before this record: the same, unless the epochs of that one were used up."""
    next_producer_id: int = int64("1+", default=-1, tag=1, ignorable=True)
    """While a transaction ends which uses up the epochs: what the producer goes on with."""
    producer_epoch: int = int16("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, "0+", nullable="0+")
    """None before the first transaction."""
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", default=0, tag=2, ignorable=True)
    """2 when the client bumps its epoch with every transaction (KIP-890), else 0."""


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log."""
    key, value, version = record
    encoded_key = _NUMBER.pack(TransactionLogKey.API_KEY) + encode(key, 0)
    if value is None:
        return encoded_key, None
    return encoded_key, _NUMBER.pack(version) + encode(value, version)


def decode_record(key: bytes, value: bytes | None) -> Record | None:
    """The record of these bytes; None for a type that is not known here.

    Raises:
        MalformedMessage: the bytes are cut short, or the value's version or the transaction's state is not known.
    """
    if _number(key, "key") != TransactionLogKey.API_KEY:
        return None
    decoded_key, _ = decode_at(TransactionLogKey, key, 0, 2)
    if value is None:
        return Record(decoded_key, None)
    version = _number(value, "value")
    if version not in TransactionLogValue.VERSIONS:
        raise MalformedMessage(f"version {version} of TransactionLogValue is not known", 0)
    decoded_value, _ = decode_at(TransactionLogValue, value, version, 2)
    if decoded_value.transaction_status not in _STATUSES:
        raise MalformedMessage(f"a transaction is never in state {decoded_value.transaction_status}", 0)
    return Record(decoded_key, decoded_value, version)


def _number(data: bytes, what: str) -> int:
    if len(data) < 2:
        raise MalformedMessage(f"a {what} of {len(data)} bytes has no version", 0)
    number: int = _NUMBER.unpack_from(data)[0]
    return number

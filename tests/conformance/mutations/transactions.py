"""Defects of producer IDs and transactions."""

from __future__ import annotations

from typing import Any

from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.end_txn import EndTxnResponse

from ..mutating_proxy import Exchange, Mutation
from .changes import (
    always,
    apply,
    becomes,
    empty,
    error_hidden,
    in_request,
    in_response,
    inverted,
    plus,
    positive_plus,
    upper,
    without_last,
)

INIT, ADD_PARTITIONS, ADD_OFFSETS = ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN
END, COMMIT = ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT
DESCRIBE, LIST, PRODUCERS = ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_PRODUCERS
_ADDED = (
    "results_by_topic_v3_and_below.results_by_partition.partition_error_code",
    "results_by_transaction.topic_results.results_by_partition.partition_error_code",
)
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


def _same_producer_id(exchange: Exchange, response: Any) -> None:
    """Producers without a transactional ID share one producer ID."""
    if exchange.request.transactional_id is None and not response.error_code:
        response.producer_id = exchange.memory.setdefault("id", response.producer_id)


def _epoch_not_bumped(exchange: Exchange, response: Any) -> None:
    if not response.error_code:
        response.producer_epoch = 0


def _fenced(path: str | tuple[str, ...], other: ErrorCode) -> Any:
    def on_response(exchange: Exchange, response: Any) -> None:
        apply(response, path, becomes(dict.fromkeys(_FENCED, other)))

    return on_response


def _never_ends(exchange: Exchange, request: Any) -> Any:
    """The transaction stays open."""
    return EndTxnResponse(producer_id=request.producer_id, producer_epoch=request.producer_epoch)


def _by_simple_consumer(exchange: Exchange, request: Any) -> None:
    request.generation_id, request.member_id, request.group_instance_id = -1, "", None


PRODUCER_ID_MUTATIONS = [
    Mutation(
        "transactions.init.same-id", "all producers have the same producer ID",
        ("transactions.init-producer-id.without-id",), (INIT,), on_response=_same_producer_id,
    ),
    Mutation(
        "transactions.init.epoch", "the epoch of a transactional ID is not bumped",
        ("transactions.init-producer-id",), (INIT,), on_response=_epoch_not_bumped,
    ),
    in_response(
        "transactions.init.epoch.plus-one", "the epoch is one too high",
        INIT, "producer_epoch", plus(1), "transactions.init-producer-id",
    ),
    in_response(
        "transactions.init.id.minus-one", "the producer ID is unknown",
        INIT, "producer_id", always(-1), "transactions.init-producer-id",
    ),
    in_response(
        "transactions.init.id.error", "the producer ID of an error is 0",
        INIT, "producer_id", becomes({-1: 0}), "transactions.init-producer-id",
    ),
    in_request(
        "transactions.init.without-transactional-id", "the transactional ID is ignored",
        INIT, "transactional_id", lambda old: None if old else old, "transactions.init-producer-id",
    ),
    in_request(
        "transactions.init.identity.ignored", "producer ID and epoch of the request are ignored from version 3 on",
        INIT, ("producer_id", "producer_epoch"), always(-1), "transactions.init-producer-id",
    ),
    in_request(
        "transactions.init.timeout.ignored", "the timeout of transactions is ignored",
        INIT, "transaction_timeout_ms", always(60_000),
        "transactions.init-producer-id", "transactions.describe.exchange",
    ),
    error_hidden(
        "transactions.init.timeout.error", "a timeout above the maximum has no error",
        INIT, "error_code", ErrorCode.INVALID_TRANSACTION_TIMEOUT, "transactions.init-producer-id",
    ),
    error_hidden(
        "transactions.init.invalid", "an empty transactional ID has no error",
        INIT, "error_code", ErrorCode.INVALID_REQUEST, "transactions.init-producer-id",
    ),
    error_hidden(
        "transactions.init.concurrent", "a transaction that is still being completed has no error",
        INIT, "error_code", ErrorCode.CONCURRENT_TRANSACTIONS, "transactions.fencing",
    ),
    Mutation(
        "transactions.init.fenced", "an old producer gets the next epoch",
        ("transactions.init-producer-id",), (INIT,), on_response=_fenced("error_code", ErrorCode.NONE),
    ),
]  # fmt: skip

TRANSACTION_MUTATIONS = [
    Mutation(
        "transactions.add-partitions.fenced", "a fenced producer can add partitions",
        ("transactions.add-partitions",), (ADD_PARTITIONS,), on_response=_fenced(_ADDED, ErrorCode.NONE),
    ),
    error_hidden(
        "transactions.add-partitions.mapping", "another producer ID than that of the transactional ID has no error",
        ADD_PARTITIONS, _ADDED, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactions.add-partitions",
    ),
    error_hidden(
        "transactions.add-partitions.unknown-topic", "an unknown topic has no error",
        ADD_PARTITIONS, _ADDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "transactions.add-partitions",
    ),
    error_hidden(
        "transactions.add-partitions.not-attempted", "partitions beside an unknown one have no error",
        ADD_PARTITIONS, _ADDED, ErrorCode.OPERATION_NOT_ATTEMPTED, "transactions.add-partitions",
    ),
    in_response(
        "transactions.add-partitions.partition", "the partition of the response is one too high",
        ADD_PARTITIONS,
        (
            "results_by_topic_v3_and_below.results_by_partition.partition_index",
            "results_by_transaction.topic_results.results_by_partition.partition_index",
        ),
        plus(1), "transactions.add-partitions",
    ),
    Mutation(
        "transactions.add-offsets.fenced", "a fenced producer can add a group",
        ("transactions.add-offsets",), (ADD_OFFSETS,), on_response=_fenced("error_code", ErrorCode.NONE),
    ),
    error_hidden(
        "transactions.add-offsets.mapping", "another producer ID than that of the transactional ID has no error",
        ADD_OFFSETS, "error_code", ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactions.add-offsets",
    ),
    in_request(
        "transactions.end.inverted", "a commit aborts, and an abort commits",
        END, "committed", inverted, "transactions.end",
    ),
    in_request(
        "transactions.end.always-commits", "an abort commits",
        END, "committed", always(True), "transactions.end",
    ),
    Mutation(
        "transactions.end.never", "transactions stay open",
        ("transactions.end",), (END,), on_request=_never_ends,
    ),
    Mutation(
        "transactions.end.fenced", "a fenced producer can end the transaction",
        ("transactions.end",), (END,), on_response=_fenced("error_code", ErrorCode.NONE),
    ),
    Mutation(
        "transactions.end.fenced.other", "a fenced producer has the error of an unknown producer",
        ("transactions.end",), (END,), on_response=_fenced("error_code", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ),
    error_hidden(
        "transactions.end.state", "the end of a transaction that does not exist has no error",
        END, "error_code", ErrorCode.INVALID_TXN_STATE, "transactions.end",
    ),
    in_response(
        "transactions.end.epoch", "the next epoch is missing in version 5",
        END, "producer_epoch", always(-1), "transactions.end",
    ),
    in_response(
        "transactions.end.epoch.minus-one", "the next epoch is the old one in version 5",
        END, "producer_epoch", positive_plus(-1), "transactions.end",
    ),
    in_response(
        "transactions.end.producer-id", "the producer ID is missing in version 5",
        END, "producer_id", always(-1), "transactions.end",
    ),
    in_request(
        "transactions.offsets.plus-one", "committed offsets are one too high",
        COMMIT, "topics.partitions.committed_offset", plus(1), "transactions.offset-commit",
    ),
    in_request(
        "transactions.offsets.metadata", "the metadata of committed offsets is lost",
        COMMIT, "topics.partitions.committed_metadata", empty, "transactions.offset-commit",
    ),
    in_request(
        "transactions.offsets.leader-epoch", "the leader epoch of committed offsets is lost",
        COMMIT, "topics.partitions.committed_leader_epoch", always(-1), "transactions.offset-commit",
    ),
    in_request(
        "transactions.offsets.last-partition", "the last partition is not committed",
        COMMIT, "topics.partitions", without_last, "transactions.offset-commit",
    ),
    Mutation(
        "transactions.offsets.member", "member and generation are ignored",
        ("transactions.offset-commit",), (COMMIT,), on_request=_by_simple_consumer,
    ),
    error_hidden(
        "transactions.offsets.generation", "an old generation has no error",
        COMMIT, "topics.partitions.error_code", ErrorCode.ILLEGAL_GENERATION, "transactions.offset-commit",
    ),
    error_hidden(
        "transactions.offsets.unknown-member", "an unknown member has no error",
        COMMIT, "topics.partitions.error_code", ErrorCode.UNKNOWN_MEMBER_ID, "transactions.offset-commit",
    ),
    error_hidden(
        "transactions.produce.without-add", "records of a partition that was not added have no error",
        ApiKey.PRODUCE, "responses.partition_responses.error_code", ErrorCode.INVALID_TXN_STATE, "transactions.produce",
    ),
]  # fmt: skip

ADMIN_MUTATIONS = [
    in_response(
        "transactions.describe.state", "each transaction is ongoing",
        DESCRIBE, "transaction_states.transaction_state", always("Ongoing"), "transactions.describe",
    ),
    in_response(
        "transactions.describe.id", "the transactional ID is in upper case",
        DESCRIBE, "transaction_states.transactional_id", upper, "transactions.describe",
    ),
    in_response(
        "transactions.describe.producer-id", "the producer ID is one too high",
        DESCRIBE, "transaction_states.producer_id", plus(1), "transactions.describe",
    ),
    in_response(
        "transactions.describe.epoch", "the epoch is one too high",
        DESCRIBE, "transaction_states.producer_epoch", plus(1), "transactions.describe",
    ),
    in_response(
        "transactions.describe.timeout", "the timeout is one millisecond too long",
        DESCRIBE, "transaction_states.transaction_timeout_ms", plus(1), "transactions.describe",
    ),
    in_response(
        "transactions.describe.start", "the start of an open transaction is missing",
        DESCRIBE, "transaction_states.transaction_start_time_ms", always(-1), "transactions.describe",
    ),
    in_response(
        "transactions.describe.partitions", "the last partition is missing",
        DESCRIBE, "transaction_states.topics.partitions", without_last, "transactions.describe",
    ),
    error_hidden(
        "transactions.describe.unknown", "an unknown transactional ID has no error",
        DESCRIBE, "transaction_states.error_code", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "transactions.describe",
    ),
    in_request(
        "transactions.list.states.ignored", "the filter of states is ignored",
        LIST, "state_filters", empty, "transactions.list",
    ),
    in_request(
        "transactions.list.producers.ignored", "the filter of producer IDs is ignored",
        LIST, "producer_id_filters", empty, "transactions.list",
    ),
    in_request(
        "transactions.list.duration.ignored", "the filter of durations is ignored in version 1",
        LIST, "duration_filter", always(-1), "transactions.list",
    ),
    in_request(
        "transactions.list.pattern.ignored", "the pattern of transactional IDs is ignored in version 2",
        LIST, "transactional_id_pattern", always(None), "transactions.list",
    ),
    in_response(
        "transactions.list.unknown-states", "unknown states are not reported",
        LIST, "unknown_state_filters", empty, "transactions.list",
    ),
    in_response(
        "transactions.list.missing", "no transaction is listed",
        LIST, "transaction_states", empty, "transactions.list",
    ),
    in_response(
        "transactions.list.producer-id", "the producer IDs are one too high",
        LIST, "transaction_states.producer_id", plus(1), "transactions.list",
    ),
    in_response(
        "transactions.list.state", "the states have other names",
        LIST, "transaction_states.transaction_state", upper, "transactions.list",
    ),
    in_response(
        "transactions.producers.epoch", "the epochs of producers are one too high",
        PRODUCERS, "topics.partitions.active_producers.producer_epoch", plus(1), "transactions.describe-producers",
    ),
    in_response(
        "transactions.producers.id", "the IDs of producers are one too high",
        PRODUCERS, "topics.partitions.active_producers.producer_id", plus(1), "transactions.describe-producers",
    ),
    in_response(
        "transactions.producers.sequence", "the last sequence numbers of producers are one too high",
        PRODUCERS, "topics.partitions.active_producers.last_sequence", plus(1), "transactions.describe-producers",
    ),
    in_response(
        "transactions.producers.start", "open transactions have no start offset",
        PRODUCERS, "topics.partitions.active_producers.current_txn_start_offset", always(-1),
        "transactions.describe-producers",
    ),
    in_response(
        "transactions.producers.missing", "the last producer is missing",
        PRODUCERS, "topics.partitions.active_producers", without_last, "transactions.describe-producers",
    ),
    error_hidden(
        "transactions.producers.unknown-partition", "an unknown partition has no error",
        PRODUCERS, "topics.partitions.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "transactions.describe-producers",
    ),
]  # fmt: skip

MUTATIONS = PRODUCER_ID_MUTATIONS + TRANSACTION_MUTATIONS + ADMIN_MUTATIONS

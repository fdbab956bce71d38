"""Defects of one broker of a cluster. They need several brokers, so they are not in the catalog."""

from __future__ import annotations

from typing import Any

from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatResponse

from ..mutating_proxy import Exchange, Mutation
from .changes import always, apply, becomes, each, empty, error_hidden, in_response, plus, without_last

NOT_LEADER, NOT_COORDINATOR = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR
PRODUCED, FETCHED = "responses.partition_responses", "responses.partitions"
THIS = 1
"""The broker behind the proxy."""


def _names_itself(exchange: Exchange, response: Any) -> None:
    """It takes itself for the coordinator of everything."""
    for found in each(response, "coordinators"):
        found.node_id = THIS


def _same_id(exchange: Exchange, response: Any) -> None:
    if not exchange.request.transactional_id and not response.error_code:
        response.producer_id = exchange.memory.setdefault("first", response.producer_id)


def _heartbeat(exchange: Exchange, request: Any) -> Any:
    return HeartbeatResponse()


def _unknown_coordinator(exchange: Exchange, response: Any) -> None:
    """Clients repeat the request at the same broker instead of finding the coordinator."""
    if exchange.version == 4:
        apply(response, "error_code", becomes({NOT_COORDINATOR: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}))


CLUSTER_MUTATIONS = [
    error_hidden(
        "brokers.produce.accepted", "records for another leader seem to be stored",
        ApiKey.PRODUCE, f"{PRODUCED}.error_code", NOT_LEADER, "brokers.not-leader.produce",
    ),
    in_response(
        "brokers.produce.unknown", "a partition with another leader is unknown",
        ApiKey.PRODUCE, f"{PRODUCED}.error_code", becomes({NOT_LEADER: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        "brokers.not-leader.mixed",
    ),
    in_response(
        "brokers.produce.leader", "the response names another leader",
        ApiKey.PRODUCE, f"{PRODUCED}.current_leader.leader_id", plus(1), "brokers.not-leader.produce",
    ),
    in_response(
        "brokers.produce.endpoints", "the address of the leader is missing",
        ApiKey.PRODUCE, "node_endpoints", empty, "brokers.not-leader.produce",
    ),
    error_hidden(
        "brokers.fetch.empty", "a partition with another leader seems to be empty",
        ApiKey.FETCH, f"{FETCHED}.error_code", NOT_LEADER, "brokers.not-leader.fetch",
    ),
    in_response(
        "brokers.fetch.epoch", "the leader epoch in the response is too high",
        ApiKey.FETCH, f"{FETCHED}.current_leader.leader_epoch", plus(1), "brokers.not-leader.fetch",
    ),
    in_response(
        "brokers.fetch.port", "the address of the leader has another port",
        ApiKey.FETCH, "node_endpoints.port", plus(1), "brokers.not-leader.fetch",
    ),
    error_hidden(
        "brokers.list-offsets.accepted", "offsets of partitions with another leader are listed",
        ApiKey.LIST_OFFSETS, "topics.partitions.error_code", NOT_LEADER, "brokers.not-leader.list-offsets",
    ),
    error_hidden(
        "brokers.delete-records.accepted", "records of partitions with another leader seem to be deleted",
        ApiKey.DELETE_RECORDS, "topics.partitions.error_code", NOT_LEADER, "brokers.not-leader.delete-records",
    ),
    in_response(
        "brokers.metadata.epoch", "the leader epochs are too high",
        ApiKey.METADATA, "topics.partitions.leader_epoch", plus(1), "brokers.metadata.same",
    ),
    in_response(
        "brokers.metadata.isr", "the in-sync replicas are missing",
        ApiKey.METADATA, "topics.partitions.isr_nodes", empty, "brokers.metadata.same",
    ),
    in_response(
        "brokers.describe-cluster.missing", "the last broker is missing",
        ApiKey.DESCRIBE_CLUSTER, "brokers", without_last, "brokers.describe-cluster.same",
    ),
    in_response(
        "brokers.describe-topic-partitions.leader", "the broker takes itself for the leader",
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, "topics.partitions.leader_id", always(THIS), "brokers.topic-partitions.same",
    ),
    in_response(
        "brokers.features.missing", "the last finalized feature is missing",
        ApiKey.API_VERSIONS, "finalized_features", without_last, "brokers.features.same",
    ),
    error_hidden(
        "brokers.configs.accepted", "configs of another broker seem to be changed",
        ApiKey.INCREMENTAL_ALTER_CONFIGS, "responses.error_code", ErrorCode.INVALID_REQUEST, "brokers.configs.other",
    ),
    Mutation(
        "brokers.find-coordinator.itself", "the broker names itself as the coordinator of all groups",
        ("brokers.coordinator.same",), (ApiKey.FIND_COORDINATOR,), on_response=_names_itself,
    ),
    Mutation(
        "brokers.heartbeat.accepted", "heartbeats for another coordinator are accepted",
        ("brokers.not-coordinator.heartbeat",), (ApiKey.HEARTBEAT,), on_request=_heartbeat,
    ),
    Mutation(
        "brokers.heartbeat.loading", "in version 4, another coordinator is one that is still loading",
        ("brokers.not-coordinator.heartbeat",), (ApiKey.HEARTBEAT,), on_response=_unknown_coordinator,
    ),
    in_response(
        "brokers.end-txn.fenced", "a producer of another coordinator is fenced",
        ApiKey.END_TXN, "error_code", becomes({NOT_COORDINATOR: ErrorCode.INVALID_PRODUCER_EPOCH}),
        "brokers.not-coordinator.end-txn",
    ),
    in_response(
        "brokers.list-groups.missing", "the last group is missing",
        ApiKey.LIST_GROUPS, "groups", without_last, "brokers.coordinator.list",
    ),
    Mutation(
        "brokers.producer-ids.same", "all producers have the first producer ID",
        ("brokers.producer-ids.unique",), (ApiKey.INIT_PRODUCER_ID,), on_response=_same_id,
    ),
]  # fmt: skip
"""Each is detected by the cases that it names."""

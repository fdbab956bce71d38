"""Defects of configs, log directories, quotas, ACLs, SCRAM credentials, features and the quorum."""

from __future__ import annotations

from typing import Any

from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode

from ..mutating_proxy import Exchange, Mutation
from .changes import (
    ZERO_ID,
    always,
    becomes,
    each,
    empty,
    error_hidden,
    in_request,
    in_response,
    inverted,
    last_twice,
    plus,
    without_last,
)

DESCRIBE, ALTER, REPLACE = ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS
RESOURCES = ApiKey.LIST_CONFIG_RESOURCES
LOG_DIRS, MOVE = ApiKey.DESCRIBE_LOG_DIRS, ApiKey.ALTER_REPLICA_LOG_DIRS
QUOTAS, ALTER_QUOTAS = ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS
ACLS, CREATE_ACLS, DELETE_ACLS = ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS
SCRAM, ALTER_SCRAM = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS
FEATURES, QUORUM = ApiKey.UPDATE_FEATURES, ApiKey.DESCRIBE_QUORUM
HANDSHAKE, AUTHENTICATE = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE
_SET, _APPEND, _SUBTRACT = 0, 2, 3


def _values_swapped(exchange: Exchange, response: Any) -> None:
    """Each config has the value of another one."""
    for result in response.results:
        values = [config.value for config in result.configs]
        for config, value in zip(result.configs, values[::-1], strict=True):
            config.value = value


def _results_swapped(exchange: Exchange, response: Any) -> None:
    names = [(result.resource_type, result.resource_name) for result in response.results]
    for result, (kind, name) in zip(response.results, names[::-1], strict=True):
        result.resource_type, result.resource_name = kind, name


def _all_keys(exchange: Exchange, request: Any) -> None:
    for resource in each(request, "resources"):
        resource.configuration_keys = None


def _only_overrides(exchange: Exchange, response: Any) -> None:
    """Defaults are not described."""
    for result in response.results:
        result.configs = [config for config in result.configs if config.config_source == 1]


CONFIG_MUTATIONS = [
    Mutation(
        "configs.describe.keys.ignored", "the requested keys are ignored",
        ("configs.describe",), (DESCRIBE,), on_request=_all_keys,
    ),
    in_request(
        "configs.describe.synonyms.ignored", "include_synonyms is ignored",
        DESCRIBE, "include_synonyms", always(False), "configs.describe",
    ),
    in_request(
        "configs.describe.synonyms.always", "synonyms are always included",
        DESCRIBE, "include_synonyms", always(True), "configs.describe",
    ),
    in_request(
        "configs.describe.documentation.ignored", "include_documentation is ignored from version 3 on",
        DESCRIBE, "include_documentation", always(False), "configs.describe",
    ),
    in_request(
        "configs.describe.documentation.always", "the documentation is always included from version 3 on",
        DESCRIBE, "include_documentation", always(True), "configs.describe",
    ),
    Mutation(
        "configs.describe.values-swapped", "configs have the values of others",
        ("configs.describe",), (DESCRIBE,), on_response=_values_swapped,
    ),
    Mutation(
        "configs.describe.results-swapped", "resources have the configs of others",
        ("configs.describe",), (DESCRIBE,), on_response=_results_swapped,
    ),
    Mutation(
        "configs.describe.only-overrides", "defaults are missing",
        ("configs.describe",), (DESCRIBE,), on_response=_only_overrides,
    ),
    in_response(
        "configs.describe.value", "configs have no values",
        DESCRIBE, "results.configs.value", always(None), "configs.describe",
    ),
    in_response(
        "configs.describe.source", "each config is a default",
        DESCRIBE, "results.configs.config_source", always(5), "configs.describe",
    ),
    in_response(
        "configs.describe.read-only", "read_only is inverted",
        DESCRIBE, "results.configs.read_only", inverted, "configs.describe",
    ),
    in_response(
        "configs.describe.sensitive", "each config is sensitive",
        DESCRIBE, "results.configs.is_sensitive", always(True), "configs.describe",
    ),
    in_response(
        "configs.describe.type", "each config has the type STRING from version 3 on",
        DESCRIBE, "results.configs.config_type", always(2), "configs.describe",
    ),
    in_response(
        "configs.describe.synonyms.order", "synonyms are in the reverse order",
        DESCRIBE, "results.configs.synonyms", lambda old: old[::-1], "configs.describe",
    ),
    in_response(
        "configs.describe.synonyms.last", "the last synonym is missing",
        DESCRIBE, "results.configs.synonyms", without_last, "configs.describe",
    ),
    in_response(
        "configs.describe.missing", "the last config is missing",
        DESCRIBE, "results.configs", without_last, "configs.describe",
    ),
    in_response(
        "configs.describe.resource-name", "the name of the resource is missing in the response",
        DESCRIBE, "results.resource_name", empty, "configs.describe",
    ),
    error_hidden(
        "configs.describe.unknown-topic", "an unknown topic has no error",
        DESCRIBE, "results.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "configs.describe",
    ),
    in_request(
        "configs.incremental.validate-only", "validate_only is ignored",
        ALTER, "validate_only", always(False), "configs.incremental",
    ),
    in_request(
        "configs.incremental.never", "nothing is changed",
        ALTER, "validate_only", always(True), "configs.incremental",
    ),
    in_request(
        "configs.incremental.append-is-set", "APPEND replaces the list",
        ALTER, "resources.configs.config_operation", becomes({_APPEND: _SET}), "configs.incremental",
    ),
    in_request(
        "configs.incremental.subtract-is-append", "SUBTRACT is taken for APPEND",
        ALTER, "resources.configs.config_operation", becomes({_SUBTRACT: _APPEND}), "configs.incremental",
    ),
    in_request(
        "configs.incremental.last-ignored", "the last config of a request is ignored",
        ALTER, "resources.configs", without_last, "configs.incremental",
    ),
    error_hidden(
        "configs.incremental.invalid", "an invalid config has no error",
        ALTER, "responses.error_code", ErrorCode.INVALID_CONFIG, "configs.incremental",
    ),
    error_hidden(
        "configs.incremental.unknown-topic", "an unknown topic has no error",
        ALTER, "responses.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "configs.incremental",
    ),
    error_hidden(
        "configs.incremental.duplicate", "a config that is twice in a request has no error",
        ALTER, "responses.error_code", ErrorCode.INVALID_REQUEST, "configs.incremental",
    ),
    in_response(
        "configs.incremental.resource-name", "the name of the resource is missing in the response",
        ALTER, "responses.resource_name", empty, "configs.incremental",
    ),
    in_request(
        "configs.replace.validate-only", "validate_only is ignored",
        REPLACE, "validate_only", always(False), "configs.replace",
    ),
    in_request(
        "configs.replace.never", "nothing is changed",
        REPLACE, "validate_only", always(True), "configs.replace",
    ),
    error_hidden(
        "configs.replace.invalid", "an invalid config has no error",
        REPLACE, "responses.error_code", ErrorCode.INVALID_CONFIG, "configs.replace",
    ),
    error_hidden(
        "configs.replace.unknown-topic", "an unknown topic has no error",
        REPLACE, "responses.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "configs.replace",
    ),
    in_response(
        "configs.resources.missing", "no resources are listed",
        RESOURCES, "config_resources", empty, "configs.list", "group-configs.list",
    ),
    in_request(
        "configs.resources.types.ignored", "the requested types are ignored in version 1",
        RESOURCES, "resource_types", empty, "configs.list", "group-configs.list",
    ),
]  # fmt: skip

_DIR_PARTITIONS = "results.topics.partitions"
LOG_DIR_MUTATIONS = [
    in_response(
        "log-dirs.size", "the sizes of partitions are 0",
        LOG_DIRS, f"{_DIR_PARTITIONS}.partition_size", always(0), "log-dirs.describe",
    ),
    in_response(
        "log-dirs.size.plus-one", "the sizes of partitions are one byte too large",
        LOG_DIRS, f"{_DIR_PARTITIONS}.partition_size", plus(1), "log-dirs.describe",
    ),
    in_response(
        "log-dirs.lag", "partitions lag",
        LOG_DIRS, f"{_DIR_PARTITIONS}.offset_lag", plus(1), "log-dirs.describe",
    ),
    in_response(
        "log-dirs.future", "partitions are being moved",
        LOG_DIRS, f"{_DIR_PARTITIONS}.is_future_key", inverted, "log-dirs.describe",
    ),
    in_response(
        "log-dirs.partition", "the last partition is missing",
        LOG_DIRS, _DIR_PARTITIONS, without_last, "log-dirs.describe",
    ),
    in_response(
        "log-dirs.partition.twice", "the last partition is listed twice",
        LOG_DIRS, _DIR_PARTITIONS, last_twice, "log-dirs.describe",
    ),
    in_response(
        "log-dirs.total", "the size of the directory is unknown from version 4 on",
        LOG_DIRS, "results.total_bytes", always(-1), "log-dirs.describe",
    ),
    in_response(
        "log-dirs.path", "directories have no path",
        LOG_DIRS, "results.log_dir", empty, "log-dirs.describe",
    ),
    in_request(
        "log-dirs.filter.ignored", "the requested topics are ignored",
        LOG_DIRS, "topics", always(None), "log-dirs.describe",
    ),
    error_hidden(
        "log-dirs.move.unknown-dir", "the move to an unknown directory has no error",
        MOVE, "results.partitions.error_code", ErrorCode.LOG_DIR_NOT_FOUND, "log-dirs",
    ),
    error_hidden(
        "log-dirs.move.unknown-partition", "the move of an unknown partition has no error",
        MOVE, "results.partitions.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "log-dirs",
    ),
]  # fmt: skip

QUOTA_MUTATIONS = [
    in_request(
        "quotas.filter.ignored", "the filter is ignored",
        QUOTAS, "components", empty, "quotas",
    ),
    in_request(
        "quotas.filter.match", "each filter matches any name",
        QUOTAS, "components.match_type", becomes({0: 2}), "quotas",
    ),
]  # fmt: skip

SECURITY_MUTATIONS = [
    in_response(
        "security.acls.create", "CreateAcls has no error without an authorizer",
        CREATE_ACLS, "results.error_code", always(0), "security",
    ),
    in_response(
        "security.acls.delete", "DeleteAcls has no error without an authorizer",
        DELETE_ACLS, "filter_results.error_code", always(0), "security",
    ),
    in_response(
        "security.scram.unknown", "an unknown user has no error",
        SCRAM, "results.error_code", always(0), "security",
    ),
    in_request(
        "security.scram.filter", "the requested users are ignored",
        SCRAM, "users", always(None), "security",
    ),
    in_response(
        "security.sasl.handshake", "an unknown mechanism has no error",
        HANDSHAKE, "error_code", always(0), "protocol.sasl-handshake",
    ),
]  # fmt: skip

CLUSTER_MUTATIONS = [
    in_response(
        "cluster.features.error", "an invalid update of features has no error",
        FEATURES, ("error_code", "results.error_code"), always(0), "cluster.features",
    ),
    in_request(
        "cluster.quorum.topics", "DescribeQuorum ignores the requested topics",
        QUORUM, "topics", empty, "cluster.quorum",
    ),
    in_response(
        "cluster.quorum.leader", "the leader of the quorum is not a voter",
        QUORUM, "topics.partitions.leader_id", plus(1000), "cluster.quorum",
    ),
    in_response(
        "cluster.quorum.voters", "the quorum has no voters",
        QUORUM, "topics.partitions.current_voters", empty, "cluster.quorum",
    ),
    in_response(
        "cluster.quorum.directory", "voters have no directory ID in version 2",
        QUORUM, "topics.partitions.current_voters.replica_directory_id", always(ZERO_ID), "cluster.quorum",
    ),
    in_response(
        "cluster.quorum.unknown", "an unknown partition has no error",
        QUORUM, "topics.partitions.error_code", always(0), "cluster.quorum",
    ),
]  # fmt: skip

MUTATIONS = CONFIG_MUTATIONS + LOG_DIR_MUTATIONS + QUOTA_MUTATIONS + SECURITY_MUTATIONS + CLUSTER_MUTATIONS

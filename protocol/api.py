"""The APIs of the protocol by key, and where their messages are declared.

Message modules are imported when their API is first used: a server without share groups does not pay for their
declarations.
"""

from __future__ import annotations

from enum import IntEnum
from importlib import import_module
from typing import Any, Final

from .schema import Message, Request, Response


class ApiKey(IntEnum):
    """Keys and names of Apache Kafka 4.3. Those marked as removed have no versions left."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4  # removed in Apache Kafka 4.0
    STOP_REPLICA = 5  # removed in Apache Kafka 4.0
    UPDATE_METADATA = 6  # removed in Apache Kafka 4.0
    CONTROLLED_SHUTDOWN = 7  # removed in Apache Kafka 4.0
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    @property
    def message_name(self) -> str:
        """`Fetch`, `ListOffsets`: the prefix of the names of requests and responses."""
        return "".join(word.title() for word in self.name.split("_"))

    @property
    def module_name(self) -> str:
        """The module below `messages` that declares request and response."""
        return "removed" if self in _REMOVED else self.name.lower()


_REMOVED: Final = frozenset(
    {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
)

_MODULES_WITHOUT_API: Final = ("headers", "control_records", "consumer_protocol", "default_principal")

_requests: dict[int, type[Request]] = {}
_responses: dict[int, type[Response]] = {}


def request_class(api_key: int) -> type[Request]:
    """The request class of an API; ValueError for an unknown key."""
    try:
        return _requests[api_key]
    except KeyError:
        cls: type[Request] = _load(ApiKey(api_key), "Request")
        return _requests.setdefault(api_key, cls)


def response_class(api_key: int) -> type[Response]:
    """The response class of an API; ValueError for an unknown key."""
    try:
        return _responses[api_key]
    except KeyError:
        cls: type[Response] = _load(ApiKey(api_key), "Response")
        return _responses.setdefault(api_key, cls)


def request_header_version(api_key: int, version: int) -> int:
    """The version of RequestHeader before this request: 2, with tagged fields, if the request is flexible.

    This also holds for future versions, so that the header of an unsupported request can be parsed before the request
    is rejected.
    """
    return 2 if version >= _first_flexible_version(request_class(api_key)) else 1


def response_header_version(api_key: int, version: int) -> int:
    """The version of ResponseHeader before this response.

    ApiVersions always uses version 0, because its client does not know the server's versions yet (KIP-511).
    """
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if version >= _first_flexible_version(response_class(api_key)) else 0


def message_class(name: str) -> type[Message]:
    """A message class by name, `FetchRequest` or `VotersRecord`; KeyError if unknown."""
    for kind in ("Request", "Response"):
        if name.endswith(kind):
            for api_key in ApiKey:
                if api_key.message_name + kind == name:
                    return request_class(api_key) if kind == "Request" else response_class(api_key)
    for module_name in _MODULES_WITHOUT_API:
        found = vars(_import(module_name)).get(name)
        if isinstance(found, type) and issubclass(found, Message) and found.VERSIONS:
            return found
    raise KeyError(name)


def message_classes() -> list[type[Message]]:
    """All message classes, including those of removed APIs. Imports every module."""
    classes: list[type[Message]] = []
    for api_key in ApiKey:
        classes += (request_class(api_key), response_class(api_key))
    for module_name in _MODULES_WITHOUT_API:
        for found in vars(_import(module_name)).values():
            if isinstance(found, type) and issubclass(found, Message) and found.VERSIONS:
                classes.append(found)
    return classes


def _first_flexible_version(cls: type[Message]) -> int:
    return cls.FLEXIBLE_VERSIONS.lowest if cls.FLEXIBLE_VERSIONS else 0x8000


def _load(api_key: ApiKey, kind: str) -> Any:
    return getattr(_import(api_key.module_name), api_key.message_name + kind)


def _import(module_name: str) -> Any:
    return import_module(f".messages.{module_name}", __package__)

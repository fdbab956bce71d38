"""The authorization checks of each API, before its handler and on its response.

A check sees the decoded request. It refuses the request as a whole, or removes the elements that the client may not
access. The handler then serves the rest, and the responses of the removed elements are added to its response
(`ServedRequest.amend`). So handlers need no knowledge of ACLs, and a resource that may not be described is refused
before its existence is looked at. `CHECKS` has an entry for each API; a test compares it with the table of APIs.

Checks are generators that yield once per element, because requests may be long.

- Fetches are checked by their handler, which knows the partitions of their sessions (`handlers.fetch_authorization`).
- Requests are checked when they arrive, not again when a waiting fetch wakes up, as in Apache Kafka.
- Produce requests of which a partition was refused with ``acks=0`` close the connection.
- Requests that a broker forwards to a remote controller are checked there, as in Apache Kafka
  (`controller_authorization`): the controller knows a new ACL first.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Generator, Iterable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...protocol.acl import AclOperation as Can
from ...protocol.acl import AclResource as On
from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.uuid import ZERO_UUID
from ..controller_apis import FORWARDABLE

if TYPE_CHECKING:
    from ..authorizer import Authorizer
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import ServedRequest
    from .dispatch import Route

Response = Any
Check = Callable[["Checked"], "Sliced[Response | None]"]
"""Returns the response if the request is refused as a whole, otherwise None."""

_ERRORS: Final = {
    On.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    On.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    On.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    On.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    On.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
_CONFIG_RESOURCES: Final = {2: On.TOPIC, 4: On.CLUSTER, 8: On.CLUSTER, 16: On.CLUSTER, 32: On.GROUP}


class Place(enum.Enum):
    """Where a response of Apache Kafka has the refused elements of a request."""

    FIRST = "first"
    LAST = "last"
    IN_ORDER = "in the order of the request"


class Checked:
    """A request that is being checked: who sent it, and how it is refused."""

    __slots__ = ("authorizer", "broker", "context", "host", "principal", "request", "route")

    def __init__(
        self, broker: Broker, authorizer: Authorizer, context: ServedRequest, route: Route, request: Any
    ) -> None:
        self.broker = broker
        self.authorizer = authorizer
        self.context = context
        self.route = route
        self.request = request
        self.principal = context.principal
        self.host = authorizer.host_of(context.client_host)

    def allows(self, operation: Can, kind: On, name: str = "kafka-cluster", *, logged: bool = True) -> bool:
        """Whether the client may perform an operation."""
        request = self.route.api.key.message_name
        return self.authorizer.allows(self.principal, self.host, operation, kind, name, request=request, logged=logged)

    def failed(self, kind: On, request: Any = None) -> Sliced[Response]:
        """The API's response for a refused request, or for a request with only the refused elements."""
        return (yield from self.failed_with(KafkaError(_ERRORS[kind]), self.request if request is None else request))

    def failed_with(self, error: KafkaError, request: Any) -> Sliced[Response]:
        """The API's response with an error."""
        answer = self.route.failed(request, error)
        return (yield from answer) if isinstance(answer, Generator) else answer

    def topic_name(self, topic: Any) -> str | None:
        """The name of a topic of a request, which may have an id instead. None: there is no such topic."""
        topic_id = getattr(topic, "topic_id", ZERO_UUID)
        if topic_id == ZERO_UUID:
            name: str | None = getattr(topic, "name", None) or getattr(topic, "topic", None)
            return name
        found = self.broker.metadata.image.topics_by_id.get(topic_id)
        return None if found is None else found.name

    def amend(self, change: Callable[[Any], None]) -> None:
        """Change the response before it is sent. Such a request is never repeated by a fast path."""
        self.context.amend(change)

    def add_refused(self, attribute: str, refused: list[Any], place: Place | list[bool] = Place.LAST) -> None:
        """Add elements to an array of the response. ``place``: where; or, for each element of the request, whether it
        was refused, if the response has the order of the request."""

        def add(response: Any) -> None:
            served = getattr(response, attribute)
            if place is Place.FIRST:
                served[:0] = refused
            elif isinstance(place, list) and len(place) == len(served) + len(refused):
                of_each = iter(served), iter(refused)
                setattr(response, attribute, [next(of_each[is_refused]) for is_refused in place])
            else:
                served.extend(refused)

        self.amend(add)


def authorized(broker: Broker, context: ServedRequest, route: Route, request: Any) -> Sliced[Any]:
    """Check a request, and call its handler if the check does not refuse it."""
    forwarded = broker.has_remote_controller and route.api.key in FORWARDABLE
    check = _nothing if forwarded else CHECKS[route.api.key]
    return (yield from checked_by(check, broker, context, route, request))


def checked_by(check: Check, broker: Broker, context: ServedRequest, route: Route, request: Any) -> Sliced[Any]:
    """Like `authorized`, with this check."""
    authorizer = broker.authorizer
    assert authorizer is not None
    context.acl_epoch = authorizer.epoch
    refused = yield from check(Checked(broker, authorizer, context, route, request))
    if refused is not None:
        context.acl_epoch = -1
        return refused
    if context.amendments is not None:
        context.acl_epoch = -1
    answer = route.handle(broker, context, request)
    if isinstance(answer, Generator):
        answer = yield from answer
    return answer


# -- parts of checks ---------------------------------------------------------------------------------------------------


def _nothing(_checked: Checked) -> Sliced[None]:
    yield from ()


def _whole(*needed: tuple[Can, On, str | None]) -> Check:
    """The operations on the resources that these fields of the request name; None is the cluster."""

    def check(checked: Checked) -> Sliced[Response | None]:
        for operation, kind, field in needed:
            allowed = (
                checked.allows(operation, kind)
                if field is None
                else checked.allows(operation, kind, getattr(checked.request, field))
            )
            if not allowed:
                return (yield from checked.failed(kind))
        return None

    return check


def on_cluster(*operations: Can) -> Check:
    """One of these operations on the cluster."""

    def check(checked: Checked) -> Sliced[Response | None]:
        yield from ()
        last = operations[-1]
        if any(checked.allows(each, On.CLUSTER, logged=each is last) for each in operations):
            return None
        return (yield from checked.failed(On.CLUSTER))

    return check


def _elements(
    operation: Can,
    kind: On,
    attribute: str,
    response_attribute: str,
    *,
    unless: Can | None = None,
    place: Place = Place.LAST,
) -> Check:
    """An operation on each resource of an array.

    ``unless``: an operation on the cluster that is sufficient. ``place``: where the response has the refused elements.
    """
    return partial(_check_elements, operation, kind, attribute, response_attribute, unless, place)


def _check_elements(
    operation: Can,
    kind: On,
    attribute: str,
    response_attribute: str,
    unless: Can | None,
    place: Place,
    checked: Checked,
) -> Sliced[Response | None]:
    if unless is not None and checked.allows(unless, On.CLUSTER, logged=False):
        return None
    elements = getattr(checked.request, attribute)

    def may(element: Any) -> bool:
        name = element if isinstance(element, str) else checked.topic_name(element)
        return name is None or checked.allows(operation, kind, name)

    allowed, denied, are_refused = yield from _split(elements or (), may)
    if not denied:
        return None
    response = yield from checked.failed(kind, _with(checked.request, attribute, denied))
    if not allowed:
        return response
    setattr(checked.request, attribute, allowed)
    refused = getattr(response, response_attribute)
    checked.add_refused(response_attribute, refused, are_refused if place is Place.IN_ORDER else place)
    return None


def _split(elements: Iterable[Any], may: Callable[[Any], bool]) -> Sliced[tuple[list[Any], list[Any], list[bool]]]:
    """The elements that the client may access, the others, and for each element whether it is one of the others."""
    allowed: list[Any] = []
    denied: list[Any] = []
    are_refused: list[bool] = []
    for element in elements:
        is_allowed = may(element)
        (allowed if is_allowed else denied).append(element)
        are_refused.append(not is_allowed)
        yield 0
    return allowed, denied, are_refused


def _with(request: Any, attribute: str, value: Any) -> Any:
    """A copy of a request with another value in a field."""
    changed = copy(request)
    setattr(changed, attribute, value)
    return changed


def _all(*checks: Check) -> Check:
    """Several checks, one after the other."""

    def check(checked: Checked) -> Sliced[Response | None]:
        for each in checks:
            refused = yield from each(checked)
            if refused is not None:
                return refused
        return None

    return check


def _filtered(operation: Can, kind: On, attribute: str, field: str, *, unless: Can | None = None) -> Check:
    """Omit elements of the response that the client may not access."""

    def check(checked: Checked) -> Sliced[None]:
        yield from ()
        if unless is None or not checked.allows(unless, On.CLUSTER, logged=False):

            def omit(response: Any) -> None:
                found = [
                    each
                    for each in getattr(response, attribute)
                    if checked.allows(operation, kind, getattr(each, field), logged=False)
                ]
                setattr(response, attribute, found)

            checked.amend(omit)

    return check


# -- records -----------------------------------------------------------------------------------------------------------


def _produce(checked: Checked) -> Sliced[Response | None]:
    request = checked.request
    if (yield from _has_transactional_records(request)):
        transactional_id = request.transactional_id
        if transactional_id is None or not checked.allows(Can.WRITE, On.TRANSACTIONAL_ID, transactional_id):
            if request.acks == 0:
                _close_unanswered(checked, [])
                return None
            return (yield from checked.failed(On.TRANSACTIONAL_ID))
    if request.acks != 0:
        return (yield from _TOPICS_OF_PRODUCE(checked))

    def may(topic: Any) -> bool:
        name = checked.topic_name(topic)
        return name is None or checked.allows(Can.WRITE, On.TOPIC, name)

    allowed, denied, _ = yield from _split(request.topic_data, may)
    if denied:
        _close_unanswered(checked, allowed)
    return None


def _close_unanswered(checked: Checked, allowed: list[Any]) -> None:
    """Without a response, the end of the connection is the only way to report an error. The rest is appended."""
    checked.context.close_connection("it may not write to a topic of a request with acks=0", level=logging.INFO)
    checked.request.topic_data = allowed


def _has_transactional_records(request: Any) -> Sliced[bool]:
    from ..handlers.produce import has_transactional_records

    for topic in request.topic_data:
        if has_transactional_records(topic):
            return True
        yield 0
    return False


_TOPICS_OF_PRODUCE: Final = _elements(Can.WRITE, On.TOPIC, "topic_data", "responses")


# -- topics ------------------------------------------------------------------------------------------------------------


def _metadata(checked: Checked) -> Sliced[Response | None]:
    from ...protocol.messages.metadata import MetadataResponseTopic

    request, version = checked.request, checked.route.version
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    image = checked.broker.metadata.image
    if request.topics is None or (version == 0 and not request.topics):

        def omit(response: Any) -> None:
            response.topics = [
                topic for topic in response.topics if checked.allows(Can.DESCRIBE, On.TOPIC, topic.name, logged=False)
            ]

        checked.amend(omit)
        return None
    creates = (version < 4 or request.allow_auto_topic_creation) and checked.broker.auto_create_topics

    def may(topic: Any) -> bool:
        name = checked.topic_name(topic)
        if name is None:
            return True
        if not checked.allows(Can.DESCRIBE, On.TOPIC, name):
            return False
        missing = name not in image.topics_by_name
        return not (missing and creates) or _may_create(checked, name)

    allowed, denied, _ = yield from _split(request.topics, may)
    if not denied:
        return None
    refused = [
        MetadataResponseTopic(
            name=topic.name if topic.topic_id == ZERO_UUID else None, topic_id=topic.topic_id, error_code=error
        )
        for topic in denied
    ]
    if version < 12:
        for topic in refused:
            topic.name = topic.name or ""
    request.topics = allowed
    if version == 0 and not allowed:  # an empty list would mean all topics
        request.topics = [_nameless_topic()]
        checked.amend(lambda response: response.topics.clear())
    checked.add_refused("topics", refused)
    return None


def _nameless_topic() -> Any:
    """A topic that cannot exist."""
    from ...protocol.messages.metadata import MetadataRequestTopic

    return MetadataRequestTopic(name="\0")


def _may_create(checked: Checked, name: str) -> bool:
    return checked.allows(Can.CREATE, On.CLUSTER, logged=False) or checked.allows(Can.CREATE, On.TOPIC, name)


def _describe_topic_partitions(checked: Checked) -> Sliced[Response | None]:
    from ...protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsResponse, TopicRequest

    request = checked.request
    if request.topics:
        allowed, denied, _ = yield from _split(
            request.topics, lambda topic: checked.allows(Can.DESCRIBE, On.TOPIC, topic.name)
        )
        if not denied:
            return None
        response = yield from checked.failed(On.TOPIC, _with(request, "topics", denied))
        if not allowed:
            return response
        request.topics = allowed
        checked.add_refused("topics", response.topics)
        return None
    # All topics: name those that may be described, so that pages have their sizes.
    names, _, _ = yield from _split(
        list(checked.broker.metadata.image.topics_by_name),
        lambda name: checked.allows(Can.DESCRIBE, On.TOPIC, name, logged=False),
    )
    if not names:
        return DescribeTopicPartitionsResponse()
    request.topics = [TopicRequest(name=name) for name in names]
    cursor = request.cursor
    if cursor is not None and cursor.topic_name not in names and cursor.partition_index >= 0:
        # The page begins with the next topic, whether the topic of the cursor exists or not.
        following = [name for name in names if name > cursor.topic_name]
        if not following:
            return DescribeTopicPartitionsResponse()
        request.cursor = Cursor(topic_name=min(following), partition_index=0)
    return None


def _describe_producers(checked: Checked) -> Sliced[Response | None]:
    """Invalid names are rejected as such, which tells nothing about topics."""
    from ...metadata.topic_names import invalid_reason

    request = checked.request
    allowed, denied, are_refused = yield from _split(
        request.topics,
        lambda topic: invalid_reason(topic.name) is not None or checked.allows(Can.READ, On.TOPIC, topic.name),
    )
    if denied:
        response = yield from checked.failed(On.TOPIC, _with(request, "topics", denied))
        request.topics = allowed
        checked.add_refused("topics", response.topics, are_refused)
    return None


def _create_topics(checked: Checked) -> Sliced[Response | None]:
    if not checked.allows(Can.CREATE, On.CLUSTER, logged=False):
        from ...metadata.topic_names import CLUSTER_METADATA

        request = checked.request
        allowed, denied, _ = yield from _split(
            request.topics,
            # The metadata log is rejected as such, for every client.
            lambda topic: topic.name == CLUSTER_METADATA or checked.allows(Can.CREATE, On.TOPIC, topic.name),
        )
        if denied:
            response = yield from checked.failed(On.TOPIC, _with(request, "topics", denied))
            request.topics = allowed
            if not allowed:
                return response
            checked.add_refused("topics", response.topics)
    if checked.route.version >= 5:
        checked.amend(partial(_hide_created_configs, checked))
    return None


def _hide_created_configs(checked: Checked, response: Any) -> None:
    for topic in response.topics:
        if not topic.error_code and not checked.allows(Can.DESCRIBE_CONFIGS, On.TOPIC, topic.name, logged=False):
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []


def _delete_topics(checked: Checked) -> Sliced[Response | None]:
    if checked.allows(Can.DELETE, On.CLUSTER, logged=False):
        return None
    request, has_ids = checked.request, checked.route.version >= 6
    attribute = "topics" if has_ids else "topic_names"
    existing = checked.broker.metadata.image.topics_by_name

    def may(topic: Any) -> bool:
        name = topic if isinstance(topic, str) else checked.topic_name(topic)
        if name is None or checked.allows(Can.DELETE, On.TOPIC, name):
            return True
        # Clients that may describe a topic learn that it does not exist.
        return name not in existing and checked.allows(Can.DESCRIBE, On.TOPIC, name, logged=False)

    allowed, denied, _ = yield from _split(getattr(request, attribute), may)
    if not denied:
        return None
    if has_ids:
        response = yield from _refused_deletions(checked, denied)
    else:
        response = yield from checked.failed(On.TOPIC, _with(request, attribute, denied))
    if not allowed:
        return response
    setattr(request, attribute, allowed)
    checked.add_refused("responses", response.responses)
    return None


def _refused_deletions(checked: Checked, topics: list[Any]) -> Sliced[Response]:
    from ...protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse

    response = DeleteTopicsResponse()
    for topic in topics:
        name = topic.name
        if topic.topic_id != ZERO_UUID:  # the name of an id is shown only to clients that may describe the topic
            found = checked.topic_name(topic)
            name = found if found is not None and checked.allows(Can.DESCRIBE, On.TOPIC, found, logged=False) else None
        response.responses.append(
            DeletableTopicResult(name=name, topic_id=topic.topic_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        )
        yield 1
    return response


# -- groups ------------------------------------------------------------------------------------------------------------


def _offset_fetch(checked: Checked) -> Sliced[Response | None]:
    request = checked.request
    if checked.route.version < 8:
        if not checked.allows(Can.DESCRIBE, On.GROUP, request.group_id):
            return (yield from checked.failed(On.GROUP))
        yield from _offset_fetch_of(checked, request, None)
        return None
    allowed, denied, are_refused = yield from _split(
        request.groups, lambda group: checked.allows(Can.DESCRIBE, On.GROUP, group.group_id)
    )
    refused = []
    if denied:
        response = yield from checked.failed(On.GROUP, _with(request, "groups", denied))
        refused = response.groups
    for group in allowed:
        yield from _offset_fetch_of(checked, group, group.group_id)
    request.groups = allowed
    if refused:
        checked.add_refused("groups", refused, are_refused)
    return None


def _offset_fetch_of(checked: Checked, request: Any, group_id: str | None) -> Sliced[None]:
    """The topics of one group; ``group_id`` is None in the old form, which has one group."""
    from ...protocol.messages import offset_fetch as messages

    def found(response: Any) -> Any:
        if group_id is None:
            return response
        return next((group for group in response.groups if group.group_id == group_id), None)

    if request.topics is None:

        def omit(response: Any) -> None:
            group = found(response)
            if group is not None:
                group.topics = [topic for topic in group.topics if _may_describe(checked, topic)]

        checked.amend(omit)
        return
    allowed, denied, _ = yield from _split(request.topics, lambda topic: _may_describe(checked, topic, logged=True))
    if not denied:
        return
    request.topics = allowed
    new_topic: Any = messages.OffsetFetchResponseTopic if group_id is None else messages.OffsetFetchResponseTopics
    new_partition: Any = (
        messages.OffsetFetchResponsePartition if group_id is None else messages.OffsetFetchResponsePartitions
    )
    refused = []
    for topic in denied:
        answer = new_topic(name=topic.name)
        if group_id is not None:
            answer.topic_id = topic.topic_id
        for index in topic.partition_indexes:
            answer.partitions.append(
                new_partition(
                    partition_index=index,
                    committed_offset=-1,
                    metadata="",
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                )
            )
            yield 1
        refused.append(answer)

    def add(response: Any) -> None:
        group = found(response)
        if group is not None and not group.error_code:
            group.topics.extend(refused)

    checked.amend(add)


def _may_describe(checked: Checked, topic: Any, *, logged: bool = False) -> bool:
    name = checked.topic_name(topic)
    return name is None or checked.allows(Can.DESCRIBE, On.TOPIC, name, logged=logged)


_GROUP_KEY, _TRANSACTION_KEY, _SHARE_KEY = 0, 1, 2


def _find_coordinator(checked: Checked) -> Sliced[Response | None]:
    request = checked.request
    kind = {_GROUP_KEY: On.GROUP, _TRANSACTION_KEY: On.TRANSACTIONAL_ID}.get(request.key_type)
    if kind is None:
        return None if request.key_type != _SHARE_KEY else (yield from on_cluster(Can.CLUSTER_ACTION)(checked))
    if checked.route.version >= 4:
        keys = _elements(Can.DESCRIBE, kind, "coordinator_keys", "coordinators", place=Place.IN_ORDER)
        return (yield from keys(checked))
    if checked.allows(Can.DESCRIBE, kind, request.key):
        return None
    return (yield from checked.failed(kind))


def _sync_group(checked: Checked) -> Sliced[Response | None]:
    request = checked.request
    if checked.route.version >= 5 and None in (request.protocol_type, request.protocol_name):
        return None  # the handler rejects it before the group is looked at
    return (yield from _whole((Can.READ, On.GROUP, "group_id"))(checked))


def _consumer_group_heartbeat(checked: Checked) -> Sliced[Response | None]:
    refused = yield from _whole((Can.READ, On.GROUP, "group_id"))(checked)
    if refused is not None:
        return refused
    for name in checked.request.subscribed_topic_names or ():
        if not checked.allows(Can.DESCRIBE, On.TOPIC, name):
            return (yield from checked.failed(On.TOPIC))
        yield 0
    return None


def _consumer_group_describe(checked: Checked) -> Sliced[Response | None]:
    refused = yield from _elements(Can.DESCRIBE, On.GROUP, "group_ids", "groups", place=Place.FIRST)(checked)
    if refused is None:
        checked.amend(partial(_hide_assignments, checked))
    return refused


def _hide_assignments(checked: Checked, response: Any) -> None:
    """Nothing is told about a group with a topic that the client may not describe."""
    for position, group in enumerate(response.groups):
        names = {
            assigned.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for assigned in assignment.topic_partitions
        }
        if not all(checked.allows(Can.DESCRIBE, On.TOPIC, name, logged=False) for name in names):
            response.groups[position] = type(group)(
                group_id=group.group_id,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message="The group has described topic(s) that the client is not authorized to describe.",
            )


def _offset_delete(checked: Checked) -> Sliced[Response | None]:
    refused = yield from _whole((Can.DELETE, On.GROUP, "group_id"))(checked)
    if refused is not None:
        return refused
    request = checked.request
    allowed, denied, _ = yield from _split(request.topics, lambda topic: checked.allows(Can.READ, On.TOPIC, topic.name))
    if denied:
        request.topics = allowed
        refusals = (yield from _refused_offset_deletions(denied)).topics

        def add(response: Any) -> None:
            if not response.error_code:  # that of the group
                response.topics[:0] = refusals

        checked.amend(add)
    return None


def _refused_offset_deletions(topics: list[Any]) -> Sliced[Response]:
    from ...protocol.messages.offset_delete import (
        OffsetDeleteResponse,
        OffsetDeleteResponsePartition,
        OffsetDeleteResponseTopic,
    )

    response = OffsetDeleteResponse()
    for topic in topics:
        refused = OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(refused)
        for wanted in topic.partitions:
            refused.partitions.append(
                OffsetDeleteResponsePartition(
                    partition_index=wanted.partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                )
            )
            yield 1
    return response


# -- transactions ------------------------------------------------------------------------------------------------------


def _init_producer_id(checked: Checked) -> Sliced[Response | None]:
    transactional_id = checked.request.transactional_id
    if transactional_id is not None:
        if checked.allows(Can.WRITE, On.TRANSACTIONAL_ID, transactional_id):
            return None
        return (yield from checked.failed(On.TRANSACTIONAL_ID))
    if checked.allows(Can.IDEMPOTENT_WRITE, On.CLUSTER, logged=False):
        return None
    if checked.authorizer.allows_any(checked.principal, checked.host, Can.WRITE, On.TOPIC):
        return None
    checked.allows(Can.IDEMPOTENT_WRITE, On.CLUSTER)  # for the audit log
    return (yield from checked.failed(On.CLUSTER))


def _add_partitions_to_txn(checked: Checked) -> Sliced[Response | None]:
    from ...protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnPartitionResult,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnTopicResult,
    )

    if checked.route.version >= 4:
        return (yield from on_cluster(Can.CLUSTER_ACTION)(checked))
    request = checked.request
    if not checked.allows(Can.WRITE, On.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return (yield from checked.failed(On.TRANSACTIONAL_ID))
    topics = request.v3_and_below_topics
    _, denied, _ = yield from _split(topics, lambda topic: checked.allows(Can.WRITE, On.TOPIC, topic.name))
    if not denied:
        return None
    hidden = {topic.name for topic in denied}
    image = checked.broker.metadata.image
    results = []
    for topic in topics:
        result = AddPartitionsToTxnTopicResult(name=topic.name)
        results.append(result)
        for index in topic.partitions:
            if topic.name in hidden:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image.partition(topic.name, index) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                error = ErrorCode.OPERATION_NOT_ATTEMPTED
            result.results_by_partition.append(
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
            )
            yield 1
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _describe_transactions(checked: Checked) -> Sliced[Response | None]:
    ids = _elements(Can.DESCRIBE, On.TRANSACTIONAL_ID, "transactional_ids", "transaction_states", place=Place.IN_ORDER)
    refused = yield from ids(checked)
    if refused is None:

        def omit(response: Any) -> None:
            for state in response.transaction_states:
                state.topics = [
                    each for each in state.topics if checked.allows(Can.DESCRIBE, On.TOPIC, each.topic, logged=False)
                ]

        checked.amend(omit)
    return refused


# -- delegation tokens -------------------------------------------------------------------------------------------------


def _create_delegation_token(checked: Checked) -> Sliced[Response | None]:
    from ...metadata.delegation_tokens import owner_of
    from ..handlers.delegation_tokens import refused

    yield from ()
    owner = owner_of(checked.request, checked.principal)
    if not checked.context.may_manage_tokens or owner == checked.principal:
        return None  # the handler rejects clients that may not
    if checked.allows(Can.CREATE_TOKENS, On.USER, owner):
        return None
    return refused(_ERRORS[On.USER], owner, checked.principal, checked.route.version)


def _describe_delegation_token(checked: Checked) -> Sliced[None]:
    """The owner, the requester and renewers may describe a token; others need DESCRIBE on it, or DESCRIBE_TOKENS on its
    owner."""
    yield from ()
    records = checked.broker.metadata.image.delegation_tokens

    def may(token: Any) -> bool:
        owner = f"{token.principal_type}:{token.principal_name}"
        renewers = (f"{each.principal_type}:{each.principal_name}" for each in token.renewers)
        record = records.get(token.token_id)  # older versions of the response have no requester
        return (
            checked.principal in (owner, *renewers)
            or (record is not None and record.requester == checked.principal)
            or checked.allows(Can.DESCRIBE, On.DELEGATION_TOKEN, token.token_id, logged=False)
            or checked.allows(Can.DESCRIBE_TOKENS, On.USER, owner, logged=False)
        )

    def omit(response: Any) -> None:
        response.tokens = list(filter(may, response.tokens))

    checked.amend(omit)


# -- configs -----------------------------------------------------------------------------------------------------------


def _configs(operation: Can, response_attribute: str, *, in_order: bool = False) -> Check:
    """An operation on the configs of each resource, whose type determines the error."""

    def check(checked: Checked) -> Sliced[Response | None]:
        request = checked.request

        def may(resource: Any) -> bool:
            kind = _CONFIG_RESOURCES.get(resource.resource_type)
            if kind is None:
                return True  # the handler rejects unknown types, but it may serve the other resources
            return checked.allows(operation, kind, "kafka-cluster" if kind is On.CLUSTER else resource.resource_name)

        allowed, denied, are_refused = yield from _split(request.resources, may)
        refused: list[Any] = []
        for resource in denied:
            kind = _CONFIG_RESOURCES[resource.resource_type]
            response = yield from checked.failed(kind, _with(request, "resources", [resource]))
            refused += getattr(response, response_attribute)
            yield 0
        if denied:
            request.resources = allowed
            checked.add_refused(response_attribute, refused, are_refused if in_order else Place.LAST)
        return None

    return check


def _types_of_configs(checked: Checked) -> Sliced[Response | None]:
    """DescribeConfigs with an unknown type is refused as a whole, before its other resources are looked at."""
    yield from ()
    request = checked.request
    unknown = [each.resource_type for each in request.resources if each.resource_type not in _CONFIG_RESOURCES]
    if not unknown:
        return None
    error = KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {unknown[0]}")
    return (yield from checked.failed_with(error, request))


def _describe_cluster(checked: Checked) -> Sliced[None]:
    """The response has no bit field without DESCRIBE on the cluster; see `handlers.authorized_operations`."""
    yield from ()


_ALTER_CLUSTER: Final = on_cluster(Can.ALTER)
_DESCRIBE_CLUSTER: Final = on_cluster(Can.DESCRIBE)
_READ_GROUP: Final = _whole((Can.READ, On.GROUP, "group_id"))
_WRITE_TRANSACTION: Final = _whole((Can.WRITE, On.TRANSACTIONAL_ID, "transactional_id"))

CHECKS: Final[dict[ApiKey, Check]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _nothing,
    ApiKey.LIST_OFFSETS: _elements(Can.DESCRIBE, On.TOPIC, "topics", "topics"),
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _all(_READ_GROUP, _elements(Can.READ, On.TOPIC, "topics", "topics", place=Place.FIRST)),
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _READ_GROUP,
    ApiKey.HEARTBEAT: _READ_GROUP,
    ApiKey.LEAVE_GROUP: _READ_GROUP,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.DESCRIBE_GROUPS: _elements(Can.DESCRIBE, On.GROUP, "groups", "groups", place=Place.FIRST),
    ApiKey.LIST_GROUPS: _filtered(Can.DESCRIBE, On.GROUP, "groups", "group_id", unless=Can.DESCRIBE),
    ApiKey.SASL_HANDSHAKE: _nothing,
    ApiKey.SASL_AUTHENTICATE: _nothing,
    ApiKey.API_VERSIONS: _nothing,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _elements(Can.DELETE, On.TOPIC, "topics", "topics", place=Place.FIRST),
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _elements(Can.DESCRIBE, On.TOPIC, "topics", "topics", unless=Can.CLUSTER_ACTION),
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _all(_WRITE_TRANSACTION, _READ_GROUP),
    ApiKey.END_TXN: _WRITE_TRANSACTION,
    ApiKey.WRITE_TXN_MARKERS: on_cluster(Can.ALTER, Can.CLUSTER_ACTION),
    ApiKey.TXN_OFFSET_COMMIT: _all(
        _WRITE_TRANSACTION, _READ_GROUP, _elements(Can.READ, On.TOPIC, "topics", "topics", place=Place.FIRST)
    ),
    ApiKey.DESCRIBE_ACLS: _DESCRIBE_CLUSTER,
    ApiKey.CREATE_ACLS: _ALTER_CLUSTER,
    ApiKey.DELETE_ACLS: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_CONFIGS: _all(_types_of_configs, _configs(Can.DESCRIBE_CONFIGS, "results")),
    ApiKey.ALTER_CONFIGS: _configs(Can.ALTER_CONFIGS, "responses", in_order=True),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE_CLUSTER,
    ApiKey.CREATE_PARTITIONS: _elements(Can.ALTER, On.TOPIC, "topics", "results", place=Place.FIRST),
    ApiKey.CREATE_DELEGATION_TOKEN: _create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _nothing,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _nothing,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _describe_delegation_token,
    ApiKey.DELETE_GROUPS: _elements(Can.DELETE, On.GROUP, "groups_names", "results"),
    ApiKey.ELECT_LEADERS: _ALTER_CLUSTER,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(Can.ALTER_CONFIGS, "responses", in_order=True),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER_CLUSTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE_CLUSTER,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: on_cluster(Can.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: on_cluster(Can.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE_CLUSTER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_QUORUM: _DESCRIBE_CLUSTER,
    ApiKey.UPDATE_FEATURES: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.UNREGISTER_BROKER: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _filtered(Can.DESCRIBE, On.TRANSACTIONAL_ID, "transaction_states", "transactional_id"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _nothing,
    ApiKey.PUSH_TELEMETRY: _nothing,
    ApiKey.LIST_CONFIG_RESOURCES: on_cluster(Can.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
}
"""The check of each API of the table."""

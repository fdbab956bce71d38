"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources (API keys 32, 33, 44, 74).

- DescribeConfigs 1 to 4 of topics, groups, subscriptions of client metrics, this broker and the default of all brokers,
  with synonyms and documentation.
  No keys mean all keys. An unknown key is omitted, and a key that is named twice is returned once, as in Apache Kafka.
  The same applies to a resource that is named twice.
- The controller makes the changes of AlterConfigs and IncrementalAlterConfigs. A change of topic or broker settings is
  in effect when the response is sent. Settings of another broker are INVALID_REQUEST: only that broker can check them.
- ListConfigResources 0 to 1: version 0 lists only client metrics subscriptions (KIP-714), version 1 lists every type
  (KIP-1142).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...metadata.alter_configs import configs_after, unsupported_resource
from ...metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigResource,
)
from ...metadata.outcome import ApiError
from ...metadata.topic_names import validate_topic_name
from ...protocol.acl import AclOperation, AclResource
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ...protocol.messages.alter_configs import AlterConfigsResourceResponse as AlterResult
from ...protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ...protocol.messages.incremental_alter_configs import AlterConfigsResourceResponse as IncrementalAlterResult
from ...protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ...protocol.messages.list_config_resources import ConfigResource as ListedResource
from ...protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ...protocol.steps import each
from ..cluster.forwarded_configs import forward_checked
from ..concurrency.slices import outcome
from . import config_entries

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...config.broker_config import BrokerConfig
    from ...protocol.schema import Request
    from ..broker import Broker
    from ..cluster.forwarded_configs import ConfigsRequest
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

R = TypeVar("R", DescribeConfigsResult, AlterResult, IncrementalAlterResult)

_KEYS_PER_STEP = 512

_RESOURCE_TYPES = (TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, GROUP_RESOURCE, CLIENT_METRICS_RESOURCE)


def handle_describe_configs(
    broker: Broker, context: RequestContext, request: DescribeConfigsRequest
) -> Sliced[DescribeConfigsResponse]:
    """Describe every named resource. Raises INVALID_REQUEST if the type of one is unknown, as in Apache Kafka."""
    results = []
    for resource in request.resources:
        yield 0
        if resource.resource_type not in _RESOURCE_TYPES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    for resource in (yield from _each_resource_once(request.resources)):
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            names = yield from _names(broker.config, resource.configuration_keys)
            entries = _entries(broker, resource, names)
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.message
        else:
            result.configs = [_describe(entry, request) for entry in entries]
            yield len(entries)
        results.append(result)
        yield 0
    return DescribeConfigsResponse(results=results)


def _each_resource_once(resources: list[DescribeConfigsResource]) -> Sliced[list[DescribeConfigsResource]]:
    """Merge resources that are named twice: each is described once, with the keys of both."""
    once: dict[tuple[int, str], DescribeConfigsResource] = {}
    for resource in resources:
        yield 0
        first = once.setdefault((resource.resource_type, resource.resource_name), resource)
        if first is resource:
            continue
        if first.configuration_keys and resource.configuration_keys:
            first.configuration_keys += resource.configuration_keys
        else:
            first.configuration_keys = None
    return list(once.values())


def _names(config: BrokerConfig, keys: list[str] | None) -> Sliced[list[str] | None]:
    """The keys without repetitions and, if there are many, without keys that cannot exist.

    No keys, whether null or an empty list, mean all keys (None).
    """
    if not keys:
        return None
    if len(keys) <= _KEYS_PER_STEP:
        return list(dict.fromkeys(keys))
    describable = config_entries.describable(config)
    names: dict[str, None] = {}
    for first in range(0, len(keys), _KEYS_PER_STEP):
        names |= dict.fromkeys(key for key in keys[first : first + _KEYS_PER_STEP] if key in describable)
        yield 0
    return list(names)


def failed_describe_configs(request: DescribeConfigsRequest, error: KafkaError) -> Sliced[DescribeConfigsResponse]:
    """The same error for every resource."""
    return DescribeConfigsResponse(
        results=(yield from each(partial(_failed_resource, DescribeConfigsResult, error), request.resources))
    )


def _failed_resource(result: type[R], error: KafkaError, resource: Any) -> R:
    return result(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _entries(broker: Broker, resource: DescribeConfigsResource, names: list[str] | None) -> list[config_entries.Entry]:
    image = broker.metadata.image
    name = resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        validate_topic_name(name)
        if name not in image.topics_by_name:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return config_entries.topic_entries(image.config(TOPIC_RESOURCE, name), broker.config, names)
    if resource.resource_type == BROKER_RESOURCE:
        if name == "":
            return config_entries.default_broker_entries(broker.config, names)
        if name != str(broker.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"This is broker {broker.node_id}; it cannot describe broker {name!r}."
            )
        return config_entries.broker_entries(broker.config, names)
    if resource.resource_type == GROUP_RESOURCE:
        if name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "There are no default configs for groups; specify a group id.")
        return config_entries.group_entries(image.config(GROUP_RESOURCE, name), broker.config, names)
    if resource.resource_type == CLIENT_METRICS_RESOURCE:
        if name == "":
            message = "There are no default configs for client metrics; specify a subscription."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        return config_entries.client_metrics_entries(image.config(CLIENT_METRICS_RESOURCE, name), names)
    raise unsupported_resource(resource.resource_type)


def _describe(entry: config_entries.Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    described = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
    if request.include_synonyms:
        described.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
    return described


def handle_alter_configs(
    broker: Broker, context: RequestContext, request: AlterConfigsRequest
) -> Sliced[AlterConfigsResponse]:
    """Versions 0 to 2: replace all overrides of a resource."""
    return _altered(broker, context, request)


def _altered(broker: Broker, context: RequestContext, request: ConfigsRequest) -> Sliced[Any]:
    def forward(valid: Request) -> Sliced[Any]:
        return broker.controller.request(valid, context.api_version, context.origin())

    refused: tuple[ConfigResource, ApiError] | None = None
    if broker.has_own_configs and broker.listener_reload is not None:
        reload = broker.listener_reload
        own_broker = ConfigResource(BROKER_RESOURCE, str(broker.node_id))
        after = yield from configs_after(broker.metadata.image, request, own_broker)
        if after is not None and reload.concerns(after[0]) and not _may_alter_brokers(broker, context):
            # The check below opens files. A remote controller would only refuse the change afterwards.
            refused = own_broker, ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        elif after is not None and reload.concerns(after[0]):
            wanted = broker.config.with_dynamic(
                default=broker.metadata.image.config(BROKER_RESOURCE, ""), broker_specific=after[1]
            )
            problem = yield from outcome(broker.slices, reload.check(wanted))
            if problem is None:
                response = yield from _forwarded(broker, request, forward, None)
                yield from outcome(broker.slices, reload.reload(broker.metadata.broker_config))
                return response
            refused = own_broker, ApiError(ErrorCode.INVALID_REQUEST, wanted.without_values(problem))
    return (yield from _forwarded(broker, request, forward, refused))


def _may_alter_brokers(broker: Broker, context: RequestContext) -> bool:
    authorizer = broker.authorizer
    if authorizer is None:
        return True
    host = authorizer.host_of(context.client_host)
    return authorizer.allows(context.principal, host, AclOperation.ALTER_CONFIGS, AclResource.CLUSTER, logged=False)


def _forwarded(
    broker: Broker,
    request: ConfigsRequest,
    forward: Callable[[Request], Sliced[Any]],
    refused: tuple[ConfigResource, ApiError] | None,
) -> Sliced[Any]:
    """The response of the controller, and the errors of resources that are not forwarded."""
    image, context = broker.metadata.image, broker.metadata.context
    if refused is not None:
        return (yield from forward_checked(image, context, request, forward, refused))
    own = ("", str(broker.node_id))
    for resource in request.resources if broker.has_own_configs else ():
        if resource.resource_type == BROKER_RESOURCE and resource.resource_name not in own:
            return (yield from forward_checked(image, context, request, forward))
        yield 0
    return (yield from forward(request))


def failed_alter_configs(request: AlterConfigsRequest, error: KafkaError) -> Sliced[AlterConfigsResponse]:
    """The same error for every resource."""
    return AlterConfigsResponse(
        responses=(yield from each(partial(_failed_resource, AlterResult, error), request.resources))
    )


def handle_incremental_alter_configs(
    broker: Broker, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Sliced[IncrementalAlterConfigsResponse]:
    """Versions 0 to 1: set, delete, append to or subtract from single overrides (KIP-339)."""
    return _altered(broker, context, request)


def failed_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, error: KafkaError
) -> Sliced[IncrementalAlterConfigsResponse]:
    """The same error for every resource."""
    return IncrementalAlterConfigsResponse(
        responses=(yield from each(partial(_failed_resource, IncrementalAlterResult, error), request.resources))
    )


def handle_list_config_resources(
    broker: Broker, context: RequestContext, request: ListConfigResourcesRequest
) -> Sliced[ListConfigResourcesResponse]:
    """List every resource of the requested types. No types mean all types."""
    if context.api_version == 0:
        types = {CLIENT_METRICS_RESOURCE}
    else:
        types = set(request.resource_types) or set(_RESOURCE_TYPES)
        if not types <= set(_RESOURCE_TYPES):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    image = broker.metadata.image
    names: list[tuple[int, str]] = []
    if TOPIC_RESOURCE in types:
        names += [(TOPIC_RESOURCE, name) for name in image.topics_by_name]
    for resource_type in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        if resource_type in types:
            names += [(resource_type, str(broker_id)) for broker_id in image.brokers]
    for resource_type in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
        if resource_type in types:
            names += [(resource_type, resource.name) for resource in image.configs if resource.type == resource_type]
    response = ListConfigResourcesResponse()
    for resource_type, name in names:
        yield 1
        response.config_resources.append(ListedResource(resource_name=name, resource_type=resource_type))
    return response


def failed_list_config_resources(request: ListConfigResourcesRequest, error: KafkaError) -> ListConfigResourcesResponse:
    """The error for the whole request."""
    return ListConfigResourcesResponse(error_code=error.code)

"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources (API keys 32, 33, 44, 74).

- DescribeConfigs 1 to 4 of topics, groups, this broker and the default of all brokers, with synonyms and documentation.
  No keys mean all; an unknown key is left out, and one that is named twice comes once, as Apache Kafka does. So does a
  resource.
- The two ways of changing are the controller's; a change of topic or broker settings is in force when the answer
  leaves.
- ListConfigResources 0 to 1: version 0 lists client metrics subscriptions only (KIP-714), version 1 every type
  (KIP-1142).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...metadata.alter_configs import unsupported_resource
from ...metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from ...metadata.topic_names import validate_topic_name
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
from ...protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from .. import config_entries

if TYPE_CHECKING:
    from ..broker import Broker
    from ..request import RequestContext
    from ..slices import Sliced

_RESOURCE_TYPES = (TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, GROUP_RESOURCE, CLIENT_METRICS_RESOURCE)


def handle_describe_configs(
    broker: Broker, context: RequestContext, request: DescribeConfigsRequest
) -> Sliced[DescribeConfigsResponse]:
    """Describe every resource that is named."""
    results = []
    for resource in _each_resource_once(request.resources):
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            entries = _entries(broker, resource)
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.message
        else:
            result.configs = [_describe(entry, request) for entry in entries]
            yield len(entries)
        results.append(result)
        yield 0
    return DescribeConfigsResponse(results=results)


def _each_resource_once(resources: list[DescribeConfigsResource]) -> list[DescribeConfigsResource]:
    """One that is named twice is described once, with the keys of both."""
    once: dict[tuple[int, str], DescribeConfigsResource] = {}
    for resource in resources:
        first = once.setdefault((resource.resource_type, resource.resource_name), resource)
        if first is resource:
            continue
        if first.configuration_keys and resource.configuration_keys:
            first.configuration_keys += resource.configuration_keys
        else:
            first.configuration_keys = None
    return list(once.values())


def failed_describe_configs(request: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    """The same error for every resource."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _entries(broker: Broker, resource: DescribeConfigsResource) -> list[config_entries.Entry]:
    image = broker.metadata.image
    name = resource.resource_name
    # No keys are all of them, whether null or empty.
    names = list(dict.fromkeys(resource.configuration_keys or ())) or None
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
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Groups have no common configs: a group has to be named.")
        return config_entries.group_entries(image.config(GROUP_RESOURCE, name), broker.config, names)
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


def handle_alter_configs(broker: Broker, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Versions 0 to 2: replace all overrides of a resource."""
    return broker.metadata.alter_configs(request, now_ms=broker.now_ms())


def failed_alter_configs(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    """The same error for every resource."""
    return AlterConfigsResponse(
        responses=[
            AlterResult(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def handle_incremental_alter_configs(
    broker: Broker, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Versions 0 to 1: set, delete, append to or subtract from single overrides (KIP-339)."""
    return broker.metadata.incremental_alter_configs(request, now_ms=broker.now_ms())


def failed_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    """The same error for every resource."""
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterResult(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def handle_list_config_resources(
    broker: Broker, context: RequestContext, request: ListConfigResourcesRequest
) -> Sliced[ListConfigResourcesResponse]:
    """Name every resource of the types that were asked for; no types means all."""
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
        response.config_resources.append(ConfigResource(resource_name=name, resource_type=resource_type))
    return response


def failed_list_config_resources(request: ListConfigResourcesRequest, error: KafkaError) -> ListConfigResourcesResponse:
    """The error for the whole request."""
    return ListConfigResourcesResponse(error_code=error.code)

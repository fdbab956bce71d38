"""The responses of a server without security to the security APIs, which tools and user interfaces call immediately.

- SaslHandshake (17): ILLEGAL_SASL_STATE on a listener without SASL.
- DescribeAcls, CreateAcls, DeleteAcls (29 to 31): SECURITY_DISABLED, because there is no authorizer.
- DescribeClientQuotas (48): no quota is set.
- DescribeUserScramCredentials (50): no user has credentials, so named users do not exist.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ...protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from ...protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ...protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ...protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from ..broker import Broker
    from ..context import RequestContext

# How a component of a quota filter matches: an exact name, the default, or any name.
_MATCH_EXACT, _MATCH_DEFAULT, _MATCH_SPECIFIED = 0, 1, 2

_NO_AUTHORIZER = "No Authorizer is configured."


def handle_sasl_handshake(
    broker: Broker, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """The listener has no SASL."""
    return failed_sasl_handshake(request, KafkaError(ErrorCode.ILLEGAL_SASL_STATE))


def failed_sasl_handshake(request: SaslHandshakeRequest, error: KafkaError) -> SaslHandshakeResponse:
    """The error, without mechanisms."""
    return SaslHandshakeResponse(error_code=error.code)


def handle_describe_acls(broker: Broker, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """There is no authorizer."""
    return failed_describe_acls(request, KafkaError(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER))


def failed_describe_acls(request: DescribeAclsRequest, error: KafkaError) -> DescribeAclsResponse:
    """The error for the whole request."""
    return DescribeAclsResponse(error_code=error.code, error_message=error.message)


def handle_create_acls(broker: Broker, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """There is no authorizer."""
    return failed_create_acls(request, KafkaError(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER))


def failed_create_acls(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    """The same error for every creation."""
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=error.code, error_message=error.message) for _ in request.creations]
    )


def handle_delete_acls(broker: Broker, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """There is no authorizer."""
    return failed_delete_acls(request, KafkaError(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER))


def failed_delete_acls(request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    """The same error for every filter."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=error.code, error_message=error.message) for _ in request.filters
        ]
    )


def handle_describe_client_quotas(
    broker: Broker, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Return no quotas, because none can be set yet. The request must still be valid."""
    entity_types: set[str] = set()
    for component in request.components:
        entity_type = component.entity_type
        if not entity_type:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "An entity type is empty.")
        if entity_type in entity_types:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate entity type {entity_type}.")
        entity_types.add(entity_type)
        if component.match_type not in (_MATCH_EXACT, _MATCH_DEFAULT, _MATCH_SPECIFIED):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}.")
        if (component.match is not None) != (component.match_type == _MATCH_EXACT):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "A match must be set for the exact match type, and only for it."
            )
    custom = entity_types - {"user", "client-id", "ip"}
    if custom:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type {min(custom)} is not supported.")
    if "ip" in entity_types and len(entity_types) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "An ip entity cannot be combined with user or client-id.")
    return DescribeClientQuotasResponse(entries=[])


def failed_describe_client_quotas(
    request: DescribeClientQuotasRequest, error: KafkaError
) -> DescribeClientQuotasResponse:
    """The error, without entries."""
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)


def handle_describe_user_scram_credentials(
    broker: Broker, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """No user has credentials yet, so named users are not found."""
    counts = Counter(user.name for user in request.users or [])
    results = []
    for name, count in counts.items():
        if count > 1:
            error, message = ErrorCode.DUPLICATE_RESOURCE, f"The user {name} is in the request more than once."
        else:
            error, message = ErrorCode.RESOURCE_NOT_FOUND, f"The user {name} has no SCRAM credentials."
        results.append(DescribeUserScramCredentialsResult(user=name, error_code=error, error_message=message))
    return DescribeUserScramCredentialsResponse(results=results)


def failed_describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, error: KafkaError
) -> DescribeUserScramCredentialsResponse:
    """The error for the whole request."""
    return DescribeUserScramCredentialsResponse(error_code=error.code, error_message=error.message)

"""The APIs of security, which tools and user interfaces also use if a server has no authorizer and no quotas.

- SaslHandshake, SaslAuthenticate (17, 36): ILLEGAL_SASL_STATE on a listener without SASL, and after authentication.
- DescribeAcls, CreateAcls, DeleteAcls (29 to 31): see `metadata.acls`; SECURITY_DISABLED without an authorizer.
- DescribeClientQuotas (48): no quota is set.
- DescribeUserScramCredentials, AlterUserScramCredentials (50, 51): see `metadata.scram_descriptions` and
  `metadata.scram_credentials`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...metadata.acls import describe_acls_in_steps, has_unknown_code
from ...metadata.scram_descriptions import describe_user_scram_credentials
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ...protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ...protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from ...protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ...protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ...protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ...protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

# How a component of a quota filter matches: an exact name, the default, or any name.
_MATCH_EXACT, _MATCH_DEFAULT, _MATCH_SPECIFIED = 0, 1, 2

_NO_AUTHORIZER = "No Authorizer is configured."
_UNKNOWN_CODE = "an ACL or a filter of its request has the code 0 (unknown)"


def handle_sasl_handshake(
    broker: Broker, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """The listener has no SASL."""
    return failed_sasl_handshake(request, KafkaError(ErrorCode.ILLEGAL_SASL_STATE))


def failed_sasl_handshake(request: SaslHandshakeRequest, error: KafkaError) -> SaslHandshakeResponse:
    """The error, without mechanisms."""
    return SaslHandshakeResponse(error_code=error.code)


def handle_sasl_authenticate(
    broker: Broker, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """The client is authenticated, or the listener has no SASL. Before that, `requests.sasl` serves the request."""
    message = "SaslAuthenticate request received after successful authentication"
    return failed_sasl_authenticate(request, KafkaError(ErrorCode.ILLEGAL_SASL_STATE, message))


def failed_sasl_authenticate(request: SaslAuthenticateRequest, error: KafkaError) -> SaslAuthenticateResponse:
    """The error, without a token."""
    return SaslAuthenticateResponse(error_code=error.code, error_message=error.message)


def handle_describe_acls(
    broker: Broker, context: RequestContext, request: DescribeAclsRequest
) -> Sliced[DescribeAclsResponse] | DescribeAclsResponse | None:
    """The ACLs that match a filter. A code of 0 closes the connection."""
    if broker.authorizer is None:
        return failed_describe_acls(request, KafkaError(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER))
    if has_unknown_code(request):
        context.close_connection(_UNKNOWN_CODE)
        return None
    return describe_acls_in_steps(broker.metadata.image, request)


def failed_describe_acls(request: DescribeAclsRequest, error: KafkaError) -> DescribeAclsResponse:
    """The error for the whole request."""
    return DescribeAclsResponse(error_code=error.code, error_message=error.message)


def handle_create_acls(
    broker: Broker, context: RequestContext, request: CreateAclsRequest
) -> Sliced[CreateAclsResponse] | CreateAclsResponse | None:
    """Add ACLs, which are in effect when the response is sent. A code of 0 closes the connection."""
    if broker.authorizer is None:
        return failed_create_acls(request, KafkaError(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER))
    if any(map(has_unknown_code, request.creations)):
        context.close_connection(_UNKNOWN_CODE)
        return None
    return broker.controller.request(request, context.api_version, context.origin())


def failed_create_acls(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    """The same error for every creation."""
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=error.code, error_message=error.message) for _ in request.creations]
    )


def handle_delete_acls(
    broker: Broker, context: RequestContext, request: DeleteAclsRequest
) -> Sliced[DeleteAclsResponse] | DeleteAclsResponse | None:
    """Remove the ACLs that match filters. A code of 0 closes the connection."""
    if broker.authorizer is None:
        return failed_delete_acls(request, KafkaError(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER))
    if any(has_unknown_code(each) for each in request.filters if each.resource_type_filter):
        context.close_connection(_UNKNOWN_CODE)
        return None
    return broker.controller.request(request, context.api_version, context.origin())


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
    """Version 0: which users have credentials, without secrets."""
    return describe_user_scram_credentials(broker.metadata.image, request)


def failed_describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, error: KafkaError
) -> DescribeUserScramCredentialsResponse:
    """The error for the whole request."""
    return DescribeUserScramCredentialsResponse(error_code=error.code, error_message=error.message)


def handle_alter_user_scram_credentials(
    broker: Broker, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> Sliced[AlterUserScramCredentialsResponse]:
    """Version 0: set and remove credentials (KIP-554)."""
    return broker.controller.request(request, context.api_version, context.origin())


def failed_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    """The same error for every user."""
    names = [*(deletion.name for deletion in request.deletions), *(change.name for change in request.upsertions)]
    users = dict.fromkeys(names)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
            for user in users
        ]
    )

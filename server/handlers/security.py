"""The APIs of security, which tools and user interfaces also use if a server has no authorizer and no quotas.

- SaslHandshake, SaslAuthenticate (17, 36): ILLEGAL_SASL_STATE on a listener without SASL, and after authentication.
- DescribeAcls, CreateAcls, DeleteAcls (29 to 31): see `metadata.acls`; SECURITY_DISABLED without an authorizer.
- DescribeClientQuotas, AlterClientQuotas (48, 49): see `metadata.client_quotas`.
- DescribeUserScramCredentials, AlterUserScramCredentials (50, 51): see `metadata.scram_descriptions` and
  `metadata.scram_credentials`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...metadata.acls import describe_acls_in_steps, has_unknown_code
from ...metadata.client_quotas import describe_client_quotas
from ...metadata.scram_descriptions import describe_user_scram_credentials
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ResponseEntryData,
)
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
    DescribeUserScramCredentialsResult,
)
from ...protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

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
) -> Sliced[DescribeClientQuotasResponse]:
    """The quotas that match a filter."""
    return describe_client_quotas(broker.metadata.image, request)


def failed_describe_client_quotas(
    request: DescribeClientQuotasRequest, error: KafkaError
) -> DescribeClientQuotasResponse:
    """The error, without entries."""
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)


def handle_alter_client_quotas(
    broker: Broker, context: RequestContext, request: AlterClientQuotasRequest
) -> Sliced[AlterClientQuotasResponse]:
    """Set and remove quotas (KIP-546)."""
    return broker.controller.request(request, context.api_version, context.origin())


def failed_alter_client_quotas(request: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    """The same error for every entry."""
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(error_code=error.code, error_message=error.message, entity=entry.entity)
            for entry in request.entries
        ]
    )


def handle_describe_user_scram_credentials(
    broker: Broker, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Version 0: which users have credentials, without secrets."""
    return describe_user_scram_credentials(broker.metadata.image, request)


def failed_describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, error: KafkaError
) -> DescribeUserScramCredentialsResponse:
    """The error for the whole request, and once for each user, without names, as in Apache Kafka."""
    refused = DescribeUserScramCredentialsResult(error_code=error.code, error_message=error.message)
    return DescribeUserScramCredentialsResponse(
        error_code=error.code, error_message=error.message, results=[refused] * len(request.users or ())
    )


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

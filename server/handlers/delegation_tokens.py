"""Delegation tokens (KIP-48, KIP-373): see `metadata.delegation_tokens`.

- CreateDelegationToken (38): versions 1-3; for another owner since version 3.
- RenewDelegationToken, ExpireDelegationToken (39, 40): versions 1-2.
- DescribeDelegationToken (41): versions 1-3, with the requester of a token since version 3.

Clients without a principal of their own (PLAINTEXT, or SSL without a certificate), and clients that have authenticated
with a token, get DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. An error that the controller has not decided has timestamps of
-1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...metadata.delegation_tokens import created, describe_delegation_tokens, has_invalid_renewer, owner_of
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ...protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ...protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ...protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ..network.authentication import ANONYMOUS

if TYPE_CHECKING:
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

_NOT_ALLOWED = KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def handle_create_delegation_token(
    broker: Broker, context: RequestContext, request: CreateDelegationTokenRequest
) -> Sliced[CreateDelegationTokenResponse] | CreateDelegationTokenResponse:
    """Create a token of the client or, if that is authorized, of another principal."""
    requester = context.principal
    owner = owner_of(request, requester)
    if not context.may_manage_tokens:
        return refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, owner, requester, context.api_version)
    if has_invalid_renewer(request):
        return refused(ErrorCode.INVALID_PRINCIPAL_TYPE, owner, requester, context.api_version)
    return broker.controller.request(request, context.api_version, context.origin())


def refused(error: ErrorCode, owner: str, requester: str, version: int) -> CreateDelegationTokenResponse:
    """An error with the principals of the request."""
    response = created(error, owner, requester, version)
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = -1
    return response


def failed_create_delegation_token(
    request: CreateDelegationTokenRequest, error: KafkaError
) -> CreateDelegationTokenResponse:
    """The error, without a token. The principals of the request are not known here."""
    return refused(error.code, ANONYMOUS.principal, "", 1)


def handle_renew_delegation_token(
    broker: Broker, context: RequestContext, request: RenewDelegationTokenRequest
) -> Sliced[RenewDelegationTokenResponse] | RenewDelegationTokenResponse:
    """Move the expiration of a token."""
    if not context.may_manage_tokens:
        return failed_renew_delegation_token(request, _NOT_ALLOWED)
    return broker.controller.request(request, context.api_version, context.origin())


def failed_renew_delegation_token(
    request: RenewDelegationTokenRequest, error: KafkaError
) -> RenewDelegationTokenResponse:
    """The error, without an expiration."""
    return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)


def handle_expire_delegation_token(
    broker: Broker, context: RequestContext, request: ExpireDelegationTokenRequest
) -> Sliced[ExpireDelegationTokenResponse] | ExpireDelegationTokenResponse:
    """Remove a token, or move its expiration. Clients that have authenticated with it stay connected."""
    if not context.may_manage_tokens:
        return failed_expire_delegation_token(request, _NOT_ALLOWED)
    return broker.controller.request(request, context.api_version, context.origin())


def failed_expire_delegation_token(
    request: ExpireDelegationTokenRequest, error: KafkaError
) -> ExpireDelegationTokenResponse:
    """The error, without an expiration."""
    return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)


def handle_describe_delegation_token(
    broker: Broker, context: RequestContext, request: DescribeDelegationTokenRequest
) -> Sliced[DescribeDelegationTokenResponse] | DescribeDelegationTokenResponse:
    """The tokens of the requested owners, with their HMACs."""
    if not context.may_manage_tokens:
        return failed_describe_delegation_token(request, _NOT_ALLOWED)
    return describe_delegation_tokens(broker.metadata.image, request, context.api_version, broker.config.token_secret)


def failed_describe_delegation_token(
    request: DescribeDelegationTokenRequest, error: KafkaError
) -> DescribeDelegationTokenResponse:
    """The error, without tokens."""
    return DescribeDelegationTokenResponse(error_code=error.code)

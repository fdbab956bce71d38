"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken (KIP-48, KIP-373).

- A token exists until it is expired explicitly, or until the sweep after its expiration (`expire_tokens`). It must be
  renewed before its expiration, and cannot be renewed beyond its maximum lifetime.
- The owner and the renewers may renew and expire a token. The requester of a token for another owner may only
  describe it.
- Requests name a token by its HMAC, which is computed again for each known token.
- Without `delegation.token.secret.key`, all requests are DELEGATION_TOKEN_AUTH_DISABLED.
- An error of these decisions has the expiration 0.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Final

from ..protocol.errors import ErrorCode
from ..protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ..protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ..protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ..protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ..protocol.uuid import uuid_to_str
from .features import DELEGATION_TOKENS_SINCE
from .outcome import MAX_RECORDS_PER_REQUEST, Outcome, Versioned
from .records import DelegationTokenRecord, RemoveDelegationTokenRecord

if TYPE_CHECKING:
    from ..config.sources import BrokerConfig
    from ..protocol.steps import Steps
    from .context import ControllerContext
    from .image import MetadataImage

REQUESTER_SINCE: Final = 3
"""Since this version, responses of CreateDelegationToken and DescribeDelegationToken have the requester."""
_USER: Final = "User"


def owner_of(request: CreateDelegationTokenRequest, requester: str) -> str:
    """The owner of a new token: the principal in the request, otherwise the requester."""
    if not request.owner_principal_name:
        return requester
    return f"{request.owner_principal_type or ''}:{request.owner_principal_name}"


def has_invalid_renewer(request: CreateDelegationTokenRequest) -> bool:
    """Whether a renewer is not a user: INVALID_PRINCIPAL_TYPE."""
    return any(renewer.principal_type != _USER for renewer in request.renewers)


def created(error: ErrorCode, owner: str, requester: str, version: int) -> CreateDelegationTokenResponse:
    """A response of a version with the principals of a token."""
    response = CreateDelegationTokenResponse(error_code=error)
    response.principal_type, _, response.principal_name = owner.partition(":")
    if version >= REQUESTER_SINCE:
        kind, _, name = requester.partition(":")
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    return response


def create_delegation_token(
    image: MetadataImage,
    request: CreateDelegationTokenRequest,
    version: int,
    requester: str,
    context: ControllerContext,
    now_ms: int,
) -> Outcome[CreateDelegationTokenResponse]:
    """Decide on a CreateDelegationTokenRequest."""
    owner = owner_of(request, requester)
    secret = context.config.token_secret
    error = _unavailable(image, secret)
    if not error and has_invalid_renewer(request):
        error = ErrorCode.INVALID_PRINCIPAL_TYPE
    response = created(error, owner, requester, version)
    if error or secret is None:
        return Outcome(response, [])
    lifetime_ms = context.config.int("delegation.token.max.lifetime.ms")
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    record = DelegationTokenRecord(
        owner=owner,
        requester=requester,
        renewers=[f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers],
        issue_timestamp=now_ms,
        max_timestamp=now_ms + lifetime_ms,
        expiration_timestamp=now_ms + min(lifetime_ms, _renewal_ms(context.config)),
        token_id=uuid_to_str(context.random_uuid()),
    )
    response.issue_timestamp_ms = record.issue_timestamp
    response.expiry_timestamp_ms = record.expiration_timestamp
    response.max_timestamp_ms = record.max_timestamp
    response.token_id = record.token_id
    response.hmac = _hmac_of(secret, record.token_id)
    return Outcome(response, [Versioned(record)])


def renew_delegation_token(
    image: MetadataImage, request: RenewDelegationTokenRequest, principal: str, context: ControllerContext, now_ms: int
) -> Steps[Outcome[RenewDelegationTokenResponse]]:
    """Decide on a RenewDelegationTokenRequest, in steps. The new expiration may be earlier than the previous one."""
    record, error = yield from _token_of(image, bytes(request.hmac), context)
    if record is not None and is_expired(record, now_ms):
        error = ErrorCode.DELEGATION_TOKEN_EXPIRED
    elif record is not None and not _may_change(record, principal):
        error = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    if record is None or error:
        return Outcome(RenewDelegationTokenResponse(error_code=error), [])
    period_ms = _renewal_ms(context.config)
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    changed = _expiring(record, now_ms + period_ms)
    return Outcome(RenewDelegationTokenResponse(expiry_timestamp_ms=changed.expiration_timestamp), [Versioned(changed)])


def expire_delegation_token(
    image: MetadataImage, request: ExpireDelegationTokenRequest, principal: str, context: ControllerContext, now_ms: int
) -> Steps[Outcome[ExpireDelegationTokenResponse]]:
    """Decide on an ExpireDelegationTokenRequest, in steps. A negative period removes the token."""
    record, error = yield from _token_of(image, bytes(request.hmac), context)
    removes = request.expiry_time_period_ms < 0
    if record is not None and not _may_change(record, principal):
        error = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    elif record is not None and not removes and is_expired(record, now_ms):
        error = ErrorCode.DELEGATION_TOKEN_EXPIRED
    if record is None or error:
        return Outcome(ExpireDelegationTokenResponse(error_code=error), [])
    if removes:
        removal = RemoveDelegationTokenRecord(token_id=record.token_id)
        return Outcome(ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms), [Versioned(removal)])
    changed = _expiring(record, now_ms + request.expiry_time_period_ms)
    return Outcome(
        ExpireDelegationTokenResponse(expiry_timestamp_ms=changed.expiration_timestamp), [Versioned(changed)]
    )


def expire_tokens(image: MetadataImage, now_ms: int) -> Steps[Outcome[int]]:
    """Remove the tokens that have expired. The response is their number."""
    records: list[Versioned] = []
    for record in image.delegation_tokens.values():
        yield 0
        if is_expired(record, now_ms) and len(records) < MAX_RECORDS_PER_REQUEST:
            records.append(Versioned(RemoveDelegationTokenRecord(token_id=record.token_id)))
    return Outcome(len(records), records)


def describe_delegation_tokens(
    image: MetadataImage, request: DescribeDelegationTokenRequest, version: int, secret: str | None
) -> Steps[DescribeDelegationTokenResponse]:
    """The tokens that one of the requested principals owns, has requested or may renew, in steps; null: all tokens."""
    if secret is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    wanted = None
    if request.owners is not None:
        wanted = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    tokens = []
    for record in image.delegation_tokens.values():
        yield 0
        if wanted is None or not wanted.isdisjoint((record.owner, record.requester, *record.renewers)):
            tokens.append(_described(record, version, secret))
            yield 1
    return DescribeDelegationTokenResponse(tokens=tokens)


def end_of(record: DelegationTokenRecord) -> int:
    """When the token can neither be used nor renewed any more, unless it is renewed before."""
    return min(record.expiration_timestamp, record.max_timestamp)


def is_expired(record: DelegationTokenRecord, now_ms: int) -> bool:
    """Whether the token can neither be used nor renewed any more."""
    return end_of(record) < now_ms


def _described(record: DelegationTokenRecord, version: int, secret: str) -> DescribedDelegationToken:
    owner_type, _, owner_name = record.owner.partition(":")
    requester = record.requester if version >= REQUESTER_SINCE else ""
    requester_type, _, requester_name = requester.partition(":")
    renewers = [renewer.partition(":") for renewer in record.renewers]
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=record.issue_timestamp,
        expiry_timestamp=record.expiration_timestamp,
        max_timestamp=record.max_timestamp,
        token_id=record.token_id,
        hmac=_hmac_of(secret, record.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name) for kind, _, name in renewers
        ],
    )


def _unavailable(image: MetadataImage, secret: str | None) -> ErrorCode:
    if secret is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if image.metadata_version < DELEGATION_TOKENS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def _token_of(
    image: MetadataImage, token_hmac: bytes, context: ControllerContext
) -> Steps[tuple[DelegationTokenRecord | None, ErrorCode]]:
    """The token with this HMAC, otherwise the error."""
    secret = context.config.token_secret
    error = _unavailable(image, secret)
    if error or secret is None:
        return None, error
    for record in image.delegation_tokens.values():
        yield 0
        if _is_hmac_of(secret, record.token_id, token_hmac):
            return record, ErrorCode.NONE
    return None, ErrorCode.DELEGATION_TOKEN_NOT_FOUND


# `hashlib` loads OpenSSL, 4 MB of memory that a server without tokens does not need.


def _hmac_of(secret: str, token_id: str) -> bytes:
    from ..security.delegation_tokens import hmac_of

    return hmac_of(secret, token_id)


def _is_hmac_of(secret: str, token_id: str, token_hmac: bytes) -> bool:
    from hmac import compare_digest

    return compare_digest(_hmac_of(secret, token_id), token_hmac)


def _may_change(record: DelegationTokenRecord, principal: str) -> bool:
    return principal == record.owner or principal in record.renewers


def _expiring(record: DelegationTokenRecord, expiration_timestamp: int) -> DelegationTokenRecord:
    """The same token with another expiration."""
    changed = copy(record)
    changed.expiration_timestamp = min(record.max_timestamp, expiration_timestamp)
    return changed


def _renewal_ms(config: BrokerConfig) -> int:
    return config.int("delegation.token.expiry.time.ms")

"""Delegation tokens: created, used, renewed and expired by an authenticated user (KIP-48, KIP-373)."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ...protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ...protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ...protocol.messages.metadata import MetadataRequest
from ...protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest
from ..case import Layer, case, needs, versions_of
from ..check import Check
from ..exchange import Connection
from ..sasl import AuthenticationError, Credentials, authenticator

TOKENS = needs(
    ApiKey.CREATE_DELEGATION_TOKEN, 1, ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, ApiKey.EXPIRE_DELEGATION_TOKEN, 1
)
token_case = partial(case, source="KIP-48 and KIP-373", layer=Layer.WIRE, needs=TOKENS)
UNKNOWN_HMAC = b"no such token"
DAY_MS = 86_400_000


def create(c: Check, version: int | None = None, max_lifetime_ms: int = DAY_MS) -> Any:
    """A token of the suite's own user, which expires at the end of the case."""
    if c.target.security.credentials is None:
        c.not_applicable("the connection does not use SASL")
    renewer = CreatableRenewers(principal_type="User", principal_name=c.name("renewer"))
    request = CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=max_lifetime_ms)
    answer = c.call(request, version)
    if answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
        c.not_applicable("the server has no delegation tokens (delegation.token.secret.key)")
    if answer.error_code == ErrorCode.NONE:
        c.at_end(ExpireDelegationTokenRequest(hmac=bytes(answer.hmac), expiry_time_period_ms=-1))
    return answer


def created(c: Check) -> Any:
    """The same, as a step of the setup."""
    with c.setup("CreateDelegationToken"):
        answer = create(c)
        c.error(answer.error_code, ErrorCode.NONE, "CreateDelegationToken error_code")
        return answer


def described(c: Check, version: int | None = None) -> dict[str, Any]:
    """The tokens of the suite's own user, by ID."""
    credentials = c.target.security.credentials
    assert credentials is not None
    owner = DescribeDelegationTokenOwner(principal_type="User", principal_name=credentials.username)
    answer = c.call(DescribeDelegationTokenRequest(owners=[owner]), version)
    c.error(answer.error_code, ErrorCode.NONE, "DescribeDelegationToken error_code")
    return {each.token_id: each for each in answer.tokens}


def created_and_described(c: Check, version: int | None = None) -> Any:
    """A token that every broker knows."""
    token = created(c)
    c.until(lambda: token.token_id in described(c, version), "the token in DescribeDelegationToken")
    return token


@token_case(
    "security.tokens.create.exchange",
    "an authenticated user gets a token",
    versions=versions_of(ApiKey.CREATE_DELEGATION_TOKEN),
)
def create_exchange(c: Check, version: int) -> None:
    """Sends: CreateDelegationToken with a lifetime of one day and one renewer.

    Expects: no error; the principal of the connection, since version 3 also as the requester; an ID and an HMAC; the
    token ends at most one day after it was issued.

    Why: a job obtains a token with its user's password once, and passes the token to its workers.
    """
    credentials = c.target.security.credentials
    answer = create(c, version)
    c.error(answer.error_code, ErrorCode.NONE)
    assert credentials is not None
    principal = ("User", credentials.username)
    c.equal((answer.principal_type, answer.principal_name), principal, "principal")
    if version >= 3:
        requester = (answer.token_requester_principal_type, answer.token_requester_principal_name)
        c.equal(requester, principal, "token requester")
    c.true(answer.token_id and answer.hmac, "token_id and hmac", expected="both", actual=answer.token_id)
    c.equal(answer.max_timestamp_ms - answer.issue_timestamp_ms, DAY_MS, "max_timestamp_ms - issue_timestamp_ms")
    c.true(
        answer.issue_timestamp_ms < answer.expiry_timestamp_ms <= answer.max_timestamp_ms,
        "expiry_timestamp_ms",
        expected=f"after {answer.issue_timestamp_ms}, at most {answer.max_timestamp_ms}",
        actual=answer.expiry_timestamp_ms,
    )


@token_case(
    "security.tokens.describe.exchange",
    "the owner sees its token",
    versions=versions_of(ApiKey.DESCRIBE_DELEGATION_TOKEN),
)
def describe_exchange(c: Check, version: int) -> None:
    """Sends: CreateDelegationToken; DescribeDelegationToken of the owner.

    Expects: the token with its ID, HMAC, times and renewers.

    Why: an administrator finds out which tokens exist.
    """
    token = created_and_described(c, version)
    found = described(c, version)[token.token_id]
    for name in ("principal_type", "principal_name"):
        c.equal(getattr(found, name), getattr(token, name), name)
    c.equal(bytes(found.hmac), bytes(token.hmac), "hmac")
    times = (found.issue_timestamp, found.expiry_timestamp, found.max_timestamp)
    expected = (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms)
    c.equal(times, expected, "issue_timestamp, expiry_timestamp, max_timestamp")
    c.equal([each.principal_type for each in found.renewers], ["User"], "renewers (principal_type)")


@token_case(
    "security.tokens.renew.exchange",
    "the owner renews its token",
    versions=versions_of(ApiKey.RENEW_DELEGATION_TOKEN),
)
def renew_exchange(c: Check, version: int) -> None:
    """Sends: CreateDelegationToken; RenewDelegationToken for one hour.

    Expects: no error, and a new end of the token, which DescribeDelegationToken has, too.

    Why: a long job renews its token before it ends.
    """
    token = created_and_described(c)
    request = RenewDelegationTokenRequest(hmac=bytes(token.hmac), renew_period_ms=3_600_000)
    answer = c.call(request, version)
    c.error(answer.error_code, ErrorCode.NONE)
    c.true(
        token.issue_timestamp_ms + 3_600_000 <= answer.expiry_timestamp_ms <= token.max_timestamp_ms,
        "expiry_timestamp_ms",
        expected=f"one hour or more after {token.issue_timestamp_ms}",
        actual=answer.expiry_timestamp_ms,
    )
    c.until(
        lambda: described(c)[token.token_id].expiry_timestamp == answer.expiry_timestamp_ms,
        "the new end in DescribeDelegationToken",
    )


@token_case(
    "security.tokens.expire.exchange",
    "the owner expires its token",
    versions=versions_of(ApiKey.EXPIRE_DELEGATION_TOKEN),
)
def expire_exchange(c: Check, version: int) -> None:
    """Sends: CreateDelegationToken; ExpireDelegationToken with a negative period, which means immediately.

    Expects: no error; DescribeDelegationToken no longer has the token.

    Why: a token that has leaked must become useless.
    """
    token = created_and_described(c)
    request = ExpireDelegationTokenRequest(hmac=bytes(token.hmac), expiry_time_period_ms=-1)
    c.error(c.call(request, version).error_code, ErrorCode.NONE)
    c.until(lambda: token.token_id not in described(c), "no token in DescribeDelegationToken")


@token_case(
    "security.tokens.renew.unknown",
    "a token that does not exist cannot be renewed",
    versions=versions_of(ApiKey.RENEW_DELEGATION_TOKEN),
)
def renew_unknown(c: Check, version: int) -> None:
    """Sends: RenewDelegationToken with an HMAC that no token has.

    Expects: DELEGATION_TOKEN_NOT_FOUND.

    Why: a job whose token was expired must obtain a new one.
    """
    created(c)
    answer = c.call(RenewDelegationTokenRequest(hmac=UNKNOWN_HMAC, renew_period_ms=1_000), version)
    c.error(answer.error_code, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


@token_case(
    "security.tokens.expire.unknown",
    "a token that does not exist cannot be expired",
    versions=versions_of(ApiKey.EXPIRE_DELEGATION_TOKEN),
)
def expire_unknown(c: Check, version: int) -> None:
    """Sends: ExpireDelegationToken with an HMAC that no token has.

    Expects: DELEGATION_TOKEN_NOT_FOUND.

    Why: an administrator who has mistyped it must not believe that the token is useless.
    """
    created(c)
    answer = c.call(ExpireDelegationTokenRequest(hmac=UNKNOWN_HMAC, expiry_time_period_ms=-1), version)
    c.error(answer.error_code, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


@case("security.tokens.login", "a token authenticates with SCRAM", source="KIP-48", needs=TOKENS)
def login(c: Check) -> None:
    """Sends: CreateDelegationToken; on a new connection SCRAM-SHA-256 with `tokenauth=true`, the ID as user and the
    HMAC in Base64 as password; then Metadata, CreateDelegationToken, and SCRAM after the token has expired.

    Expects: the authentication succeeds; Metadata gets a response; a token cannot create tokens
    (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED); the expired token is rejected.

    Why: this is what a token is for; otherwise its workers would need the password.
    """
    token = created(c)
    probe = c.connect(authenticated=False)
    if "SCRAM-SHA-256" not in probe.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).mechanisms:
        c.not_applicable("the listener does not have SCRAM-SHA-256")
    password = base64.b64encode(bytes(token.hmac)).decode()
    authenticate = authenticator(Credentials("SCRAM-SHA-256", token.token_id, password, with_token=True))

    def log_in() -> Connection | None:
        wire = c.connect(authenticated=False)
        try:
            authenticate(wire)
        except AuthenticationError:
            return None
        return wire

    wire = c.until(log_in, "an authentication with the token")
    metadata = c.call(MetadataRequest(topics=[]), to=wire)
    c.true(metadata.brokers, "brokers of Metadata", expected="at least one", actual=metadata.brokers)
    answer = c.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), to=wire)
    c.error(answer.error_code, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "CreateDelegationToken error_code")
    c.call(ExpireDelegationTokenRequest(hmac=bytes(token.hmac), expiry_time_period_ms=-1))
    c.until(lambda: log_in() is None, "the rejection of the expired token")

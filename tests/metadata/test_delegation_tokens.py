"""The decisions on requests about delegation tokens."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.metadata.context import ControllerContext
from moldau.metadata.delegation_tokens import (
    create_delegation_token,
    describe_delegation_tokens,
    expire_delegation_token,
    expire_tokens,
    renew_delegation_token,
)
from moldau.metadata.image import MetadataImage
from moldau.metadata.outcome import Outcome
from moldau.metadata.records import FeatureLevelRecord
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from moldau.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from moldau.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from moldau.protocol.steps import completed
from moldau.security.delegation_tokens import hmac_of

SECRET = "the secret of the cluster"
NOW = 1_700_000_000_000
DAY = 86_400_000
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"


class Tokens:
    """A cluster without anything but tokens, at a moment that the test moves."""

    def __init__(self, *, secret: str | None = SECRET, metadata_version: int = 14) -> None:
        settings = {} if secret is None else {"delegation.token.secret.key": StaticValue(secret, "test")}
        self.context = ControllerContext(1, BrokerConfig(settings))
        level = FeatureLevelRecord(name="metadata.version", feature_level=metadata_version)
        self.image = MetadataImage().replayed([level])
        self.secret = secret
        self.now = NOW

    def apply(self, outcome: Outcome[Any]) -> Any:
        self.image = self.image.replayed(versioned.record for versioned in outcome.records)
        return outcome.response

    def create(
        self, requester: str = ALICE, *, owner: str = "", renewers: list[str] | None = None, life: int = -1
    ) -> Any:
        owner_type, _, owner_name = owner.partition(":")
        request = CreateDelegationTokenRequest(
            owner_principal_type=owner_type, owner_principal_name=owner_name, max_lifetime_ms=life
        )
        for renewer in renewers or ():
            kind, _, name = renewer.partition(":")
            request.renewers.append(CreatableRenewers(principal_type=kind, principal_name=name))
        return self.apply(create_delegation_token(self.image, request, 3, requester, self.context, self.now))

    def renew(self, token_hmac: bytes, period: int = -1, principal: str = ALICE) -> tuple[int, int]:
        request = RenewDelegationTokenRequest(hmac=token_hmac, renew_period_ms=period)
        outcome = completed(renew_delegation_token(self.image, request, principal, self.context, self.now))
        response = self.apply(outcome)
        return response.error_code, response.expiry_timestamp_ms

    def expire(self, token_hmac: bytes, period: int = -1, principal: str = ALICE) -> tuple[int, int]:
        request = ExpireDelegationTokenRequest(hmac=token_hmac, expiry_time_period_ms=period)
        outcome = completed(expire_delegation_token(self.image, request, principal, self.context, self.now))
        response = self.apply(outcome)
        return response.error_code, response.expiry_timestamp_ms

    def sweep(self) -> Any:
        return self.apply(completed(expire_tokens(self.image, self.now)))

    def describe(self, *owners: str, everything: bool = False) -> list[Any]:
        principals = [owner.partition(":") for owner in owners]
        request = DescribeDelegationTokenRequest(
            owners=None
            if everything
            else [
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, _, name in principals
            ]
        )
        response = completed(describe_delegation_tokens(self.image, request, 3, self.secret))
        assert response.error_code == 0
        return response.tokens


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


def test_a_token_has_an_id_and_the_hmac_of_it(tokens: Tokens) -> None:
    token = tokens.create(renewers=[BOB])
    assert (token.error_code, len(token.token_id), len(token.hmac)) == (0, 22, 64)
    assert token.hmac == hmac_of(SECRET, token.token_id)
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    times = (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms)
    assert times == (NOW, NOW + DAY, NOW + 7 * DAY)
    record = tokens.image.delegation_tokens[token.token_id]
    assert (record.owner, record.requester, record.renewers) == (ALICE, ALICE, [BOB])
    assert tokens.create().token_id != token.token_id


def test_a_known_hmac() -> None:
    """HMAC-SHA512 with the secret as the key; computed by OpenSSL."""
    found = b64encode(hmac_of("secret", "bS2Pl3UCRCOYaZKYD5HTeg")).decode()
    assert found == "L0hDH8Kn8hCRLLy5qakyYNllXgCNQWQ5HsaB87FKOLwhCt4gJQr7cva8ek4zLXpPYnu3GTFMo4XF/qWoPaZyEg=="


@pytest.mark.parametrize(
    ("life", "expires", "ends"),
    [(0, DAY, 7 * DAY), (1000, 1000, 1000), (2 * DAY, DAY, 2 * DAY), (30 * DAY, DAY, 7 * DAY)],
)
def test_the_lifetime_is_limited_by_the_request_and_by_the_server(
    tokens: Tokens, life: int, expires: int, ends: int
) -> None:
    token = tokens.create(life=life)
    assert (token.expiry_timestamp_ms - NOW, token.max_timestamp_ms - NOW) == (expires, ends)


def test_a_token_for_another_owner_belongs_to_the_owner(tokens: Tokens) -> None:
    token = tokens.create(CAROL, owner=ALICE)
    assert (token.principal_name, token.token_requester_principal_name) == ("alice", "carol")
    assert tokens.renew(token.hmac, principal=CAROL) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert tokens.renew(token.hmac, principal=ALICE)[0] == 0


def test_renewers_are_users(tokens: Tokens) -> None:
    token = tokens.create(renewers=["Group:g"])
    assert (token.error_code, token.token_id, tokens.image.delegation_tokens) == (
        ErrorCode.INVALID_PRINCIPAL_TYPE, "", {},
    )  # fmt: skip


@pytest.mark.parametrize("secret", [None, "", " "])
def test_without_a_secret_there_are_no_tokens(secret: str | None) -> None:
    tokens = Tokens(secret=secret)
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert tokens.create().error_code == disabled
    assert tokens.renew(b"x") == tokens.expire(b"x") == (disabled, 0)
    response = completed(describe_delegation_tokens(tokens.image, DescribeDelegationTokenRequest(), 3, None))
    assert response.error_code == disabled


def test_an_older_metadata_version_has_no_records_of_tokens() -> None:
    tokens = Tokens(metadata_version=13)
    assert tokens.create().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert tokens.renew(b"x") == tokens.expire(b"x") == (ErrorCode.UNSUPPORTED_VERSION, 0)


@pytest.mark.parametrize("principal", [ALICE, BOB])
def test_owner_and_renewer_renew(tokens: Tokens, principal: str) -> None:
    token = tokens.create(renewers=[BOB])
    tokens.now += 3 * DAY // 4
    assert tokens.renew(token.hmac, principal=principal) == (0, tokens.now + DAY)
    assert tokens.renew(token.hmac, 1000, principal) == (0, tokens.now + 1000)  # earlier than before
    assert tokens.renew(token.hmac, 2 * DAY, principal) == (0, tokens.now + DAY)
    tokens.now += DAY - 1
    tokens.renew(token.hmac)
    for _ in range(6):
        tokens.now += DAY - 1
        tokens.renew(token.hmac)
    assert tokens.image.delegation_tokens[token.token_id].expiration_timestamp == token.max_timestamp_ms


def test_which_renewals_are_refused(tokens: Tokens) -> None:
    token = tokens.create(life=1000)
    assert tokens.renew(b"unknown") == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert tokens.renew(token.hmac, principal=BOB) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    tokens.now += 1000
    assert tokens.renew(token.hmac)[0] == 0
    tokens.now += 1
    assert tokens.renew(token.hmac) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert tokens.renew(token.hmac, principal=BOB) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)


def test_a_token_is_removed_by_a_negative_period(tokens: Tokens) -> None:
    token, other = tokens.create(), tokens.create()
    assert tokens.expire(token.hmac, principal=BOB) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert tokens.expire(token.hmac) == (0, NOW)
    assert list(tokens.image.delegation_tokens) == [other.token_id]
    assert tokens.expire(token.hmac) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)


def test_a_token_expires_later(tokens: Tokens) -> None:
    token = tokens.create(renewers=[BOB])
    assert tokens.expire(token.hmac, 5000, BOB) == (0, NOW + 5000)
    assert tokens.expire(token.hmac, 30 * DAY) == (0, NOW + 7 * DAY)
    assert tokens.expire(token.hmac, 0) == (0, NOW)


def test_an_expired_token_can_only_be_removed(tokens: Tokens) -> None:
    token = tokens.create(life=1000)
    tokens.now += 1001
    assert tokens.expire(token.hmac, 5000) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert tokens.expire(token.hmac, 5000, BOB) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert tokens.expire(token.hmac) == (0, tokens.now)
    assert tokens.image.delegation_tokens == {}


def test_the_sweep_removes_expired_tokens(tokens: Tokens) -> None:
    tokens.create(life=1000)
    kept = tokens.create()
    tokens.now += 1000
    assert tokens.sweep() == 0
    tokens.now += 1
    assert tokens.sweep() == 1
    assert list(tokens.image.delegation_tokens) == [kept.token_id]


def test_tokens_are_described_by_owner_requester_and_renewer(tokens: Tokens) -> None:
    first = tokens.create(ALICE, renewers=[BOB])
    second = tokens.create(CAROL, owner=BOB)

    def ids(*owners: str, everything: bool = False) -> set[str]:
        return {token.token_id for token in tokens.describe(*owners, everything=everything)}

    assert ids(everything=True) == ids(ALICE, BOB) == ids(BOB) == {first.token_id, second.token_id}
    assert ids(ALICE) == {first.token_id}
    assert ids(CAROL) == {second.token_id}
    assert ids("User:dave") == ids() == set()
    (described,) = tokens.describe(ALICE)
    assert described.hmac == first.hmac
    assert [(each.principal_type, each.principal_name) for each in described.renewers] == [("User", "bob")]
    assert (described.issue_timestamp, described.expiry_timestamp, described.max_timestamp) == (
        first.issue_timestamp_ms, first.expiry_timestamp_ms, first.max_timestamp_ms,
    )  # fmt: skip

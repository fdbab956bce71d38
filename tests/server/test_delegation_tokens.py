"""Delegation tokens of a server with SASL and ACLs: who may create and see them, logins, expiration, a restart."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.protocol.acl import AclOperation as Can
from moldau.protocol.acl import AclResource as On
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from moldau.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from moldau.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from moldau.security.scram import MECHANISMS, SHA_256, SHA_512, ScramMechanism
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .test_authorization import SETTINGS, Secured
from .test_sasl import authenticate, handshake, is_served

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
WITH_TOKENS = SETTINGS | {"delegation.token.secret.key": "the secret of the cluster"}
DAY = 86_400_000


def create(wire: WireClient, *, owner: str | None = None, renewer: str | None = None, life: int = -1) -> Any:
    request = CreateDelegationTokenRequest(max_lifetime_ms=life)
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = "User", owner
    if renewer is not None:
        request.renewers.append(CreatableRenewers(principal_type="User", principal_name=renewer))
    return wire.call(request, 3)


def described(wire: WireClient, *owners: str) -> set[str]:
    wanted = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
    response = wire.call(DescribeDelegationTokenRequest(owners=wanted or None), 3)
    assert response.error_code == 0
    return {token.token_id for token in response.tokens}


def expire(wire: WireClient, token: Any, period: int = -1) -> int:
    return int(wire.call(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period), 2).error_code)


def log_in(
    wire: WireClient, token: Any, mechanism: ScramMechanism = SHA_256, *, extension: str = ",tokenauth=true"
) -> Any:
    """The last response of an exchange."""
    handshake(wire, mechanism.name)
    bare = f"n={token.token_id},r=client{extension}"
    server_first = authenticate(wire, f"n,,{bare}".encode()).auth_bytes.decode()
    fields = dict(each.split("=", 1) for each in server_first.split(","))
    password = b64encode(token.hmac)
    salted = hashlib.pbkdf2_hmac(mechanism.digest, password, b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    without_proof = f"c=biws,r={fields['r']}"
    signature = hmac.digest(stored_key, f"{bare},{server_first},{without_proof}".encode(), mechanism.digest)
    proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    return authenticate(wire, f"{without_proof},p={proof}".encode())


def is_accepted(server: Secured, token: Any) -> bool:
    with server.wire() as wire:
        return not log_in(wire, token).error_code


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    from .conftest import RunningServer

    running = RunningServer([tmp_path_factory.mktemp("tokens")], WITH_TOKENS).start()
    try:
        yield Secured(running)
    finally:
        running.stop()


@pytest.fixture
def server(module_server: Secured) -> Secured:
    """A server without ACLs. Tokens of earlier tests may exist."""
    module_server.clear()
    return module_server


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
def test_a_token_authenticates_its_owner(server: Secured, mechanism: ScramMechanism) -> None:
    with server.login() as alice:
        token = create(alice, life=DAY)
    for _ in range(2):  # the credential is computed, and is then known
        with server.wire() as wire:
            response = log_in(wire, token, mechanism)
            assert response.error_code == 0, response
            assert 0 < response.session_lifetime_ms <= DAY
            assert server.principal_of(wire) == "User:alice"
            assert is_served(wire)


def test_requests_behind_the_first_message_wait_for_the_computation(server: Secured) -> None:
    """The server computes the credential in a thread; the order of responses stays."""
    with server.login() as alice:
        token = create(alice)
    with server.wire() as wire:
        handshake(wire, "SCRAM-SHA-512")
        from moldau.protocol.messages.metadata import MetadataRequest
        from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest

        first = f"n,,n={token.token_id},r=client,tokenauth=true".encode()
        wire.send(SaslAuthenticateRequest(auth_bytes=first), 2)
        wire.send(MetadataRequest(topics=None), 9)  # during the exchange, which it ends
        assert wire.receive().auth_bytes.startswith(b"r=client")
        assert wire.receive().topics == []  # ILLEGAL_SASL_STATE would be the error of each topic
        assert wire.closed_by_server()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_each_version_has_its_fields(server: Secured, version: int) -> None:
    with server.login() as alice:
        token = alice.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), version)
        assert (token.error_code, token.principal_name) == (0, "alice")
        assert token.token_requester_principal_name == ("alice" if version >= 3 else "")
        tokens = alice.call(DescribeDelegationTokenRequest(owners=None), version).tokens
        (found,) = (each for each in tokens if each.token_id == token.token_id)
        assert found.token_requester_principal_name == token.token_requester_principal_name
    with WireClient(server.plain) as wire:
        assert wire.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), version).error_code == NOT_ALLOWED


def test_a_token_cannot_manage_tokens(server: Secured) -> None:
    with server.login() as alice:
        token = create(alice)
    with server.wire() as wire:
        log_in(wire, token)
        refused = create(wire)
        assert (refused.error_code, refused.issue_timestamp_ms, refused.token_id) == (NOT_ALLOWED, -1, "")
        assert refused.principal_name == refused.token_requester_principal_name == "alice"
        renewed = wire.call(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=1000), 2)
        assert (renewed.error_code, renewed.expiry_timestamp_ms) == (NOT_ALLOWED, -1)
        assert expire(wire, token) == NOT_ALLOWED
        assert wire.call(DescribeDelegationTokenRequest(owners=None), 3).error_code == NOT_ALLOWED


def test_a_client_without_a_principal_cannot_manage_tokens(server: Secured) -> None:
    with WireClient(server.plain) as wire:
        assert create(wire).error_code == NOT_ALLOWED
        assert wire.call(DescribeDelegationTokenRequest(owners=None), 3).error_code == NOT_ALLOWED


@pytest.mark.parametrize("extension", ["", ",tokenauth=false"])
def test_a_token_without_the_extension_is_no_user(server: Secured, extension: str) -> None:
    with server.login() as alice:
        token = create(alice)
    with server.wire() as wire:
        assert log_in(wire, token, extension=extension).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_wrong_hmac_and_an_unknown_token_are_refused(server: Secured) -> None:
    with server.login() as alice:
        token = create(alice)
    token.hmac = bytes(64)
    assert not is_accepted(server, token)
    token.token_id = "AAAAAAAAAAAAAAAAAAAAAA"
    assert not is_accepted(server, token)


def test_an_expired_token_is_refused_before_it_is_removed(server: Secured) -> None:
    with server.login() as alice:
        token = create(alice)
        assert is_accepted(server, token)
        assert expire(alice, token, 0) == 0
        assert not is_accepted(server, token)
        assert token.token_id in described(alice)


def test_a_removed_token_is_refused(server: Secured) -> None:
    with server.login() as alice:
        token = create(alice)
        assert is_accepted(server, token)
        assert expire(alice, token) == 0
        assert token.token_id not in described(alice)
    assert not is_accepted(server, token)


def test_a_token_for_another_owner_needs_create_tokens(server: Secured) -> None:
    with server.login() as alice:
        refused = create(alice, owner="bob")
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        names = (refused.principal_name, refused.token_requester_principal_name)
        assert (names, refused.max_timestamp_ms) == (("bob", "alice"), -1)
        server.acl(Can.CREATE_TOKENS, On.USER, "User:bob")
        token = create(alice, owner="bob")
        assert token.error_code == 0
        assert create(alice, owner="carol").error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert expire(alice, token) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        # The requester may describe it, also as a token of its own, as in Apache Kafka.
        assert token.token_id in described(alice)
        assert token.token_id in described(alice, "alice")
    with server.wire() as wire:
        log_in(wire, token)
        assert server.principal_of(wire) == "User:bob"


def test_others_do_not_see_a_token_without_an_acl(server: Secured) -> None:
    with server.login("bob") as bob, server.login() as alice:
        shared, hidden = create(bob, renewer="alice"), create(bob)
        assert described(bob) >= {shared.token_id, hidden.token_id}
        assert described(alice) >= {shared.token_id}
        assert hidden.token_id not in described(alice)
        server.acl(Can.DESCRIBE, On.DELEGATION_TOKEN, hidden.token_id)
        assert hidden.token_id in described(alice, "bob")
        server.clear()
        assert hidden.token_id not in described(alice)
        server.acl(Can.DESCRIBE_TOKENS, On.USER, "User:bob")
        assert hidden.token_id in described(alice)


def test_the_hmac_is_in_no_record_and_no_log(server: Secured, caplog: pytest.LogCaptureFixture) -> None:
    with server.login() as alice:
        token = create(alice)
    with server.wire() as wire:
        log_in(wire, token)
    assert b64encode(token.hmac).decode() not in caplog.text
    files = [each for path in server.running.log_dirs for each in _files(path)]
    assert not any(token.hmac in data for data in files)
    assert any(token.token_id.encode() in data for data in files)


def _files(path: str) -> list[bytes]:
    from pathlib import Path

    return [each.read_bytes() for each in Path(path).rglob("*") if each.is_file()]


def test_tokens_survive_a_restart_and_expire_while_the_server_runs(make_server: Any) -> None:
    server = Secured(make_server(config=WITH_TOKENS | {"delegation.token.expiry.check.interval.ms": "20"}))
    with server.login() as alice:
        token, short = create(alice), create(alice, life=1000)
    server = Secured(server.running.restart())
    with server.wire() as wire:
        assert log_in(wire, token, SHA_512).error_code == 0
    server.running.call(lambda: server.running.clock.advance(1001))
    with server.login() as alice:
        wait_until(lambda: described(alice) == {token.token_id}, "the removal of the expired token")
    assert not is_accepted(server, short)


def test_a_server_without_a_secret_has_no_tokens(make_server: Any) -> None:
    server = Secured(make_server(config=SETTINGS))
    with server.login() as alice:
        assert create(alice).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        response = alice.call(DescribeDelegationTokenRequest(owners=None), 3)
        assert response.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED

"""One data directory with ACLs, SCRAM users, quotas and delegation tokens, two servers: each finds what the other has
written.

A server adds, changes and removes some of each. The next one describes the same, and it is in effect: a user logs in
with the password that the other server has stored, or with a token that the other one has issued, and may write to the
topics that its ACLs allow. A token that was removed is refused.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_user_scram_credentials,
)
from moldau.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from moldau.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from moldau.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.security.acl_arguments import creation_of, parse_acl
from moldau.security.jaas import SCRAM_MODULE
from moldau.security.sasl_client import Credentials, new_client
from moldau.security.scram import MECHANISMS, salted_password
from moldau.testing import Broker
from moldau.testing import topic_requests as w
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.builders import batch, produce
from moldau.testing.servers import Server
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

pytestmark = [pytest.mark.usefixtures("both_servers"), pytest.mark.full]

CONFIG: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "the secret of both servers",
    "listener.name.secure.sasl.enabled.mechanisms": ",".join(MECHANISMS),
    **{f"listener.name.secure.{name.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;" for name in MECHANISMS},
}
Quotas = dict[tuple[tuple[str, str | None], ...], dict[str, float]]


class SecuredServer(Server, Protocol):
    """A server with the listener SECURE for users, and another one for a super user."""

    def address_of(self, listener: str) -> str:
        """``host:port`` of a listener."""


def moldau(directory: Path) -> AbstractContextManager[SecuredServer]:
    listeners = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
    }
    return Broker(config={**CONFIG, **listeners}, data_dir=directory)


def apache(directory: Path) -> AbstractContextManager[SecuredServer]:
    return ApacheKafka(CONFIG, data_dir=directory, listeners={"SECURE": "SASL_PLAINTEXT"})


class Admin:
    """A super user of a server."""

    def __init__(self, server: SecuredServer) -> None:
        self._server = server

    def call(self, request: Any) -> Any:
        with WireClient(self._server.bootstrap_servers) as wire:
            return wire.call(request)

    def add_acls(self, *texts: str) -> None:
        creations = [creation_of(parse_acl(text)) for text in texts]
        for result in self.call(create_acls.CreateAclsRequest(creations=creations)).results:
            assert result.error_code == ErrorCode.NONE, result.error_message

    def remove_acls(self, principal: str) -> None:
        wanted = delete_acls.DeleteAclsFilter(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1,
            resource_name_filter=None, principal_filter=principal, host_filter=None,
        )  # fmt: skip
        (result,) = self.call(delete_acls.DeleteAclsRequest(filters=[wanted])).filter_results
        assert len(result.matching_acls) == 1

    def acls(self) -> set[tuple[Any, ...]]:
        response = self.call(
            describe_acls.DescribeAclsRequest(
                resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1,
                resource_name_filter=None, principal_filter=None, host_filter=None,
            )
        )  # fmt: skip
        return {
            (each.resource_type, each.resource_name, each.pattern_type,
             acl.principal, acl.host, acl.operation, acl.permission_type)
            for each in response.resources
            for acl in each.acls
        }  # fmt: skip

    def set_password(self, user: str, password: str, mechanism: str) -> None:
        found = MECHANISMS[mechanism]
        change = alter_user_scram_credentials.ScramCredentialUpsertion(
            name=user,
            mechanism=found.code,
            iterations=8192,
            salt=b"salt",
            salted_password=salted_password(found, password, b"salt", 8192),
        )
        request = alter_user_scram_credentials.AlterUserScramCredentialsRequest(upsertions=[change])
        assert [each.error_code for each in self.call(request).results] == [ErrorCode.NONE]

    def remove_user(self, user: str, mechanism: str) -> None:
        change = alter_user_scram_credentials.ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism].code)
        request = alter_user_scram_credentials.AlterUserScramCredentialsRequest(deletions=[change])
        assert [each.error_code for each in self.call(request).results] == [ErrorCode.NONE]

    def users(self) -> dict[str, set[tuple[int, int]]]:
        response = self.call(describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None))
        return {
            each.user: {(info.mechanism, info.iterations) for info in each.credential_infos}
            for each in response.results
        }

    def set_quota(self, entity: Iterable[tuple[str, str | None]], key: str, value: float | None) -> None:
        entry = alter_client_quotas.EntryData(
            entity=[alter_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[alter_client_quotas.OpData(key=key, value=value or 0, remove=value is None)],
        )
        (result,) = self.call(alter_client_quotas.AlterClientQuotasRequest(entries=[entry])).entries
        assert result.error_code == ErrorCode.NONE, result.error_message

    def quotas(self) -> Quotas:
        response = self.call(describe_client_quotas.DescribeClientQuotasRequest())
        return {
            tuple(sorted((each.entity_type, each.entity_name) for each in entry.entity)): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries
        }


def log_in(wire: WireClient, user: str, password: str, mechanism: str, *, by_token: bool = False) -> int:
    """The error of the last response."""
    client = new_client(Credentials(mechanism, user, password, by_token), "nonce")
    assert wire.call(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    token: bytes | None = client.first()
    while token is not None:
        response = wire.call(SaslAuthenticateRequest(auth_bytes=token), 2)
        if response.error_code:
            return int(response.error_code)
        token = client.next(bytes(response.auth_bytes))
    return 0


def may_log_in(server: SecuredServer, password: str) -> bool:
    """Whether the server knows the password of alice."""
    with WireClient(server.address_of("SECURE")) as wire:
        return log_in(wire, "alice", password, "SCRAM-SHA-256") == 0


class Token(NamedTuple):
    """A delegation token."""

    token_id: str
    hmac: bytes

    def error(self, address: str, mechanism: str) -> int:
        """The error of a login with it."""
        with WireClient(address) as wire:
            return log_in(wire, self.token_id, b64encode(self.hmac).decode(), mechanism, by_token=True)


class Directory:
    """What should be in the directory, and what is in effect."""

    def __init__(self) -> None:
        self.acls: set[tuple[Any, ...]] = set()
        self.users: dict[str, set[tuple[int, int]]] = {}
        self.quotas: Quotas = {}
        self.password = ""
        self.old_password: str | None = None
        self.tokens: dict[str, tuple[Any, ...]] = {}
        self.token = Token("", b"")  # of alice
        self.removed: Token | None = None

    def begin(self, server: SecuredServer) -> None:
        """The first server: everything is new."""
        w.create_topic(server.bootstrap_servers, "events-1", 1, {})
        w.create_topic(server.bootstrap_servers, "others", 1, {})
        admin = Admin(server)
        admin.add_acls(
            "alice write topic events- --prefix",
            "alice write topic events-2 --deny",
            "bob read group * --host 10.0.0.1",
            "User:carol alter cluster",
        )
        admin.set_password("alice", "first", "SCRAM-SHA-256")
        admin.set_password("alice", "first", "SCRAM-SHA-512")
        admin.set_password("bob", "of bob", "SCRAM-SHA-512")
        admin.set_quota([("user", "alice")], "producer_byte_rate", 1e9)
        admin.set_quota([("user", None), ("client-id", "c")], "consumer_byte_rate", 2e9)
        admin.set_quota([("client-id", None)], "controller_mutation_rate", 3.5)
        self.password = "first"
        self._change_tokens(server)
        self._describe(admin, server)
        assert (len(self.acls), len(self.users), len(self.quotas)) == (4, 2, 3)
        self._is_in_effect(server)

    def check(self, server: SecuredServer) -> None:
        """The next server: the same is described, and in effect."""
        admin = Admin(server)
        assert admin.acls() == self.acls
        assert admin.users() == self.users
        assert admin.quotas() == self.quotas
        assert self._described_tokens(server) == self.tokens
        self._is_in_effect(server)

    def change(self, server: SecuredServer, number: int) -> None:
        """Add, change and remove some."""
        admin = Admin(server)
        admin.add_acls(f"dave-{number} read topic events-{number} --host 10.0.0.{number}")
        admin.remove_acls("User:bob" if number == 1 else f"User:dave-{number - 1}")
        self.old_password, self.password = self.password, f"password-{number}"
        admin.set_password("alice", self.password, "SCRAM-SHA-256")
        admin.set_password("alice", self.password, "SCRAM-SHA-512")
        if number > 1:
            admin.remove_user(f"erin-{number - 1}", "SCRAM-SHA-256")
        admin.set_password(f"erin-{number}", "x", "SCRAM-SHA-256")
        admin.set_quota([("user", "alice")], "producer_byte_rate", 1e9 + number)
        admin.set_quota([("user", f"frank-{number}")], "consumer_byte_rate", 4e9)
        if number > 1:
            admin.set_quota([("user", f"frank-{number - 1}")], "consumer_byte_rate", None)
        self._change_tokens(server)
        self._describe(admin, server)
        self._is_in_effect(server)

    def _describe(self, admin: Admin, server: SecuredServer) -> None:
        self.acls, self.users, self.quotas = admin.acls(), admin.users(), admin.quotas()
        self.tokens = self._described_tokens(server)

    def _as_alice(self, server: SecuredServer, request: Any) -> Any:
        """The response to alice, with the password."""
        wait_until(lambda: may_log_in(server, self.password))  # a broker knows a password a moment later
        with WireClient(server.address_of("SECURE")) as wire:
            assert log_in(wire, "alice", self.password, "SCRAM-SHA-256") == 0
            response = wire.call(request)
        assert response.error_code == ErrorCode.NONE, response
        return response

    def _described_tokens(self, server: SecuredServer) -> dict[str, tuple[Any, ...]]:
        found = self._as_alice(server, DescribeDelegationTokenRequest(owners=None)).tokens
        return {
            each.token_id: (
                each.principal_name, each.token_requester_principal_name, each.hmac, each.issue_timestamp,
                each.expiry_timestamp, each.max_timestamp, [renewer.principal_name for renewer in each.renewers],
            )
            for each in found
        }  # fmt: skip

    def _change_tokens(self, server: SecuredServer) -> None:
        """Renew and remove the token that the other server has issued, and issue two new ones."""
        if self.token.token_id:
            self._as_alice(server, RenewDelegationTokenRequest(hmac=self.token.hmac, renew_period_ms=3_600_000))
            self._as_alice(server, ExpireDelegationTokenRequest(hmac=self.token.hmac, expiry_time_period_ms=-1))
            self.removed = self.token
        renewers = [CreatableRenewers(principal_type="User", principal_name="bob")]
        for each in renewers, []:
            created = self._as_alice(server, CreateDelegationTokenRequest(renewers=each, max_lifetime_ms=7_200_000))
            self.token = Token(created.token_id, bytes(created.hmac))
        address, expected = server.address_of("SECURE"), len(self.tokens) + (1 if self.removed else 2)
        wait_until(lambda: len(self._described_tokens(server)) == expected)
        wait_until(lambda: self.token.error(address, "SCRAM-SHA-512") == 0)

    def _is_in_effect(self, server: SecuredServer) -> None:
        address = server.address_of("SECURE")
        for mechanism in MECHANISMS:
            if self.old_password is not None:
                with WireClient(address) as wire:
                    failed = log_in(wire, "alice", self.old_password, mechanism)
                    assert failed == ErrorCode.SASL_AUTHENTICATION_FAILED
            with WireClient(address) as wire:
                assert log_in(wire, "alice", self.password, mechanism) == 0
                assert produce(wire, "events-1", batch(b"x")).error_code == 0
                refused = produce(wire, "others", batch(b"x"))
                assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert self.token.error(address, mechanism) == 0
            if self.removed is not None:
                assert self.removed.error(address, mechanism) == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("first", ["moldau", "apache"])
def test_to_and_fro(tmp_path: Path, first: str) -> None:
    directory, expected = tmp_path / "data", Directory()
    one, other = (moldau, apache) if first == "moldau" else (apache, moldau)
    with one(directory) as server:
        expected.begin(server)
        server.kill()
    for number, start in enumerate((other, one), 1):
        with start(directory) as server:
            expected.check(server)
            expected.change(server, number)
    with other(directory) as server:
        expected.check(server)

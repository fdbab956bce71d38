"""Listeners with GSSAPI: exchanges with a real KDC, failures, settings that are refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.cli.client_security import security_of
from moldau.cli.connection import Connection, PeerError
from moldau.config.broker_config import BrokerConfig, StaticValue
from moldau.config.definition import ConfigError
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.security.sasl_client import SaslClientError
from moldau.server.network.link_security import HANDSHAKE_VERSION, LinkSecurity, SaslLogin
from moldau.server.nodes.listener_reload import ListenerReload
from moldau.server.nodes.node_server import StartError
from moldau.server.nodes.outgoing_security import to_brokers
from moldau.testing.kerberos import REALM, KerberosRealm
from moldau.testing.requirements import require_gssapi
from moldau.testing.wire import WireClient

from .test_sasl import Sasl, authenticate, handshake, is_served

NAME = "listener.name.sasl_plaintext"
JAAS = f"{NAME}.gssapi.sasl.jaas.config"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
SERVICE = f"kafka/localhost@{REALM}"
CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    f"{NAME}.sasl.enabled.mechanisms": "GSSAPI",
    "sasl.kerberos.service.name": "kafka",
    "connection.failed.authentication.delay.ms": "0",
}


def jaas(keytab: Path, principal: str = SERVICE) -> dict[str, str]:
    return {JAAS: f'{MODULE} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}";'}


class Kerberos:
    """A realm with the service and users, in the environment of this process."""

    def __init__(self, realm: KerberosRealm) -> None:
        self.realm = realm
        self.keytab = realm.add(SERVICE, "server.keytab")
        self.users = {name: realm.add(name, f"{name.replace('/', '-')}.keytab") for name in ("alice", "bob/admin")}

    def context(self, user: str = "alice", service: str = SERVICE, flags: int | None = None) -> Any:
        """The client's side of a security context."""
        import gssapi

        store = {"client_keytab": str(self.users[user]), "ccache": f"MEMORY:{user}"}
        credentials = gssapi.Credentials(
            name=gssapi.Name(user, gssapi.NameType.kerberos_principal), usage="initiate", store=store
        )
        name = gssapi.Name(service, gssapi.NameType.kerberos_principal)
        return gssapi.SecurityContext(name=name, creds=credentials, usage="initiate", flags=flags)


@pytest.fixture(scope="module")
def kerberos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kerberos]:
    require_gssapi()
    with pytest.MonkeyPatch.context() as patch, KerberosRealm(tmp_path_factory.mktemp("realm")) as realm:
        for name, value in realm.environment.items():
            patch.setenv(name, value)
        yield Kerberos(realm)


@pytest.fixture
def serve(make_server: Any, kerberos: Kerberos) -> Any:
    return lambda config=None: Sasl(make_server(config=CONFIG | jaas(kerberos.keytab) | (config or {})))


def log_in(wire: WireClient, context: Any, *, layer: int = 1, authzid: bytes = b"") -> Any:
    """The last response of an exchange."""
    assert handshake(wire, "GSSAPI").mechanisms == ["GSSAPI"]
    token = context.step()
    while True:
        response = authenticate(wire, token or b"")
        if response.error_code:
            return response
        if context.complete:
            break
        token = context.step(response.auth_bytes)
    if token is not None or not response.auth_bytes:  # the server continues after an empty token
        response = authenticate(wire)
    offer = context.unwrap(response.auth_bytes).message
    assert offer == b"\x01\0\0\0"
    return authenticate(wire, context.wrap(bytes([layer, 0, 0, 0]) + authzid, False).message)


@pytest.mark.full
def test_a_client_with_a_ticket(serve: Any, kerberos: Kerberos) -> None:
    server = serve()
    with server.wire() as wire:
        response = log_in(wire, kerberos.context())
        assert (response.error_code, response.auth_bytes) == (0, b"")
        assert server.principal_of(wire) == "User:alice"
        assert is_served(wire)


@pytest.mark.full
def test_names_of_principals(serve: Any, kerberos: Kerberos) -> None:
    server = serve({"sasl.kerberos.principal.to.local.rules": "RULE:[2:$1-$2@$0](.*)s/@.*//,DEFAULT"})
    for user, principal in (("alice", "User:alice"), ("bob/admin", "User:bob-admin")):
        with server.wire() as wire:
            # The authorization id is ignored, as by Apache Kafka.
            assert log_in(wire, kerberos.context(user), authzid=b"root").error_code == 0
            assert server.principal_of(wire) == principal


@pytest.mark.full
def test_without_mutual_authentication_the_server_continues_immediately(serve: Any, kerberos: Kerberos) -> None:
    import gssapi

    server = serve()
    with server.wire() as wire:
        context = kerberos.context(flags=gssapi.RequirementFlag.integrity)
        assert handshake(wire, "GSSAPI").error_code == 0
        response = authenticate(wire, context.step())
        assert context.complete
        assert context.unwrap(response.auth_bytes).message == b"\x01\0\0\0"
        assert authenticate(wire, context.wrap(b"\x01\0\0\0", False).message).error_code == 0
        assert is_served(wire)


def links_of(kerberos: Kerberos, changes: dict[str, str] | None = None) -> LinkSecurity:
    settings = CONFIG | jaas(kerberos.keytab) | {"sasl.mechanism.inter.broker.protocol": "GSSAPI"} | (changes or {})
    settings |= {
        "process.roles": "broker",
        "controller.quorum.bootstrap.servers": "localhost:1",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
    }
    config = BrokerConfig({name: StaticValue(text, "test") for name, text in settings.items()})

    def no_reload() -> ListenerReload:
        raise AssertionError("without TLS")

    return to_brokers(config, no_reload)


@pytest.mark.full
def test_a_node_authenticates_at_another_one(serve: Any, kerberos: Kerberos) -> None:
    security = links_of(kerberos)
    server = serve()
    for _ in range(2):  # the second time with the ticket of the first
        login = SaslLogin(security, "nonce", "localhost")
        assert login.waits_for_token
        with server.wire() as wire:
            token: bytes | None = login.after_handshake(wire.call(login.first(), HANDSHAKE_VERSION))()
            while token is not None:
                token = login.after_token(authenticate(wire, token))()
            assert server.principal_of(wire) == "User:kafka"
            assert is_served(wire)
    unknown = SaslLogin(security, "nonce", "elsewhere.example")
    with server.wire() as wire:
        first = unknown.after_handshake(wire.call(unknown.first(), HANDSHAKE_VERSION))
        with pytest.raises(SaslClientError, match=r"Kerberos: .* not found in Kerberos database"):
            first()


@pytest.mark.full
def test_a_command_authenticates(serve: Any, kerberos: Kerberos, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a keytab, and with the tickets of the user, which are of a client here."""
    port = int(serve().address.rpartition(":")[2])

    def listed(options: str) -> Connection:
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": f"{MODULE} {options};",
        }
        return Connection("localhost", port, timeout_s=60, security=security_of(properties))

    with listed(f'useKeyTab=true keyTab="{kerberos.users["alice"]}" principal="alice"') as connection:
        assert connection.ask(MetadataRequest(topics=[])).brokers
    monkeypatch.setenv("KRB5CCNAME", "MEMORY:of-the-user")
    with pytest.raises(PeerError, match="the authentication failed: Kerberos: "):
        listed("useTicketCache=true")
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(kerberos.users["bob/admin"]))
    with listed("useTicketCache=true") as connection:
        assert connection.ask(MetadataRequest(topics=[])).brokers


@pytest.mark.full
def test_a_node_without_a_usable_key_does_not_start(kerberos: Kerberos) -> None:
    for changes, words in (
        ({JAAS: f"{MODULE} useKeyTab=true keyTab=/missing principal=x;"}, "the keytab /missing cannot be read"),
        (jaas(kerberos.keytab, "kafka/other@X"), "cannot be used for the principal kafka/other@X"),
        ({"sasl.kerberos.service.name": "moldau", JAAS: "a.B required;"}, "the login module of GSSAPI must be"),
    ):
        with pytest.raises(ConfigError, match=words):
            links_of(kerberos, changes)


def assert_fails(response: Any) -> None:
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message.endswith("due to invalid credentials with SASL mechanism GSSAPI")


@pytest.mark.full
def test_failures_are_answered_alike_and_logged(
    serve: Any, kerberos: Kerberos, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="moldau")
    kerberos.realm.add("other/localhost", "other.keytab")
    first = serve()
    with first.wire() as wire:
        assert_fails(log_in(wire, kerberos.context(), layer=4))
    first.running.stop()
    assert "it did not authenticate: GSSAPI: it requires a security layer" in caplog.text
    server = serve({"sasl.kerberos.principal.to.local.rules": "RULE:[1:$1]"})
    with server.wire() as wire:
        assert_fails(log_in(wire, kerberos.context("bob/admin")))
    assert f"no rule of sasl.kerberos.principal.to.local.rules applies to bob/admin@{REALM}" in caplog.text
    caplog.clear()
    with server.wire() as wire:
        assert_fails(log_in(wire, kerberos.context(service=f"other/localhost@{REALM}")))
    good = kerberos.context().step()
    damaged = bytearray(good)
    damaged[-1] ^= 1
    for token in (b"", b"x", good[:100], good + b"x", bytes(damaged)):
        with server.wire() as wire:
            handshake(wire, "GSSAPI")
            assert_fails(authenticate(wire, token))
    assert not caplog.text  # they are one line after a minute
    with server.wire() as wire:
        assert log_in(wire, kerberos.context()).error_code == 0


@pytest.mark.full
def test_a_token_that_was_sent_twice_closes_the_connection(serve: Any, kerberos: Kerberos) -> None:
    """As with Apache Kafka: clients try again, because two new clients may have had the same time."""
    server = serve()
    token = kerberos.context().step()
    with server.wire() as wire:
        handshake(wire, "GSSAPI")
        assert authenticate(wire, token).error_code == 0
    with server.wire() as wire:
        handshake(wire, "GSSAPI")
        with pytest.raises(ConnectionError):
            authenticate(wire, token)


@pytest.mark.full
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({JAAS: f"{MODULE} principal=x;"}, "set the options useKeyTab=true and keyTab"),
        ({JAAS: f"{MODULE} useKeyTab=true keyTab=x;"}, "the option principal is missing"),
        (jaas(Path("/missing/keytab")), "the keytab /missing/keytab cannot be read: No such file or directory"),
        (
            {"sasl.kerberos.service.name": "other", JAAS: f"{MODULE} serviceName=kafka;"},
            "serviceName of the JAAS entry",
        ),
        ({"sasl.kerberos.principal.to.local.rules": "RULE:x"}, "'RULE:x' is neither DEFAULT nor RULE:"),
        ({f"{NAME}.sasl.server.callback.handler.class": "x.Y"}, "Java classes are not loaded"),
    ],
)
def test_settings_that_are_refused(serve: Any, settings: dict[str, str], message: str) -> None:
    with pytest.raises(StartError, match=message):
        serve(settings)


@pytest.mark.full
def test_keytabs_that_are_refused(serve: Any, kerberos: Kerberos, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"cannot be used for the principal kafka/other@"):
        serve(jaas(kerberos.keytab, f"kafka/other@{REALM}"))
    damaged = tmp_path / "keytab"
    damaged.write_bytes(b"damaged")
    with pytest.raises(StartError, match=f"{damaged} cannot be used for the principal {SERVICE}"):
        serve(jaas(damaged))


def test_without_the_package_the_error_says_what_to_install(make_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "moldau.server.nodes.kerberos", raising=False)
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(StartError, match=r'pip install "moldau\[gssapi\]"'):
        make_server(config=CONFIG | jaas(Path("/missing")))


@pytest.mark.full
def test_a_missing_service_name_is_refused(make_server: Any, kerberos: Kerberos) -> None:
    config = {name: value for name, value in CONFIG.items() if name != "sasl.kerberos.service.name"}
    with pytest.raises(StartError, match=r"sasl.kerberos.service.name: it is missing"):
        make_server(config=config | jaas(kerberos.keytab))

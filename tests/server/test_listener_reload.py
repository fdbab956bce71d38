"""Changes of key stores, trust stores and users of PLAIN on a running server, seen through handshakes."""

from __future__ import annotations

import logging
import ssl
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from moldau.metadata.image import BROKER_RESOURCE
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import alter_configs as legacy
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.testing.authority import Authority, Issued
from moldau.testing.clients.java import JavaClient
from moldau.testing.wire import WireClient

AUTHORITY = Authority()
OTHER = Authority("Another one")
REFUSED = (ssl.SSLError, ConnectionError)
LOCATION = "listener.name.ssl.ssl.keystore.location"


class Reloading:
    """A server with the listeners PLAINTEXT, over which it is configured, and SSL."""

    def __init__(self, running: Any, folder: Path) -> None:
        self.running = running
        self.folder = folder
        self.store = folder / "server.pem"

    @property
    def tls(self) -> tuple[str, int]:
        return (*self.running.server.addresses[1],)

    def alter(self, changes: Mapping[str, str | None], *, validate_only: bool = False) -> tuple[int, str]:
        """Set settings of the broker, or delete them (None). The error of the response."""
        resource = AlterConfigsResource(
            resource_type=BROKER_RESOURCE,
            resource_name=str(self.running.broker.node_id),
            configs=[
                AlterableConfig(name=name, config_operation=1 if value is None else 0, value=value)
                for name, value in changes.items()
            ],
        )
        with self.running.wire() as wire:
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
            (response,) = wire.call(request, 1).responses
        return response.error_code, response.error_message or ""

    def certificate(self) -> bytes | None:
        """The certificate that a new connection gets."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with TlsWire(self.tls, context) as wire:
            return wire.served_certificate()

    def connect(self, issued: Issued) -> None:
        """Connect with a certificate, and be served."""
        context = ssl.create_default_context(cadata=AUTHORITY.certificate)
        context.load_cert_chain(issued.write(self.folder / "client.pem"))
        with TlsWire(self.tls, context) as wire:
            wire.served_certificate()


class TlsWire(WireClient):
    """A connection with TLS."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        super().__init__(f"{address[0]}:{address[1]}")
        try:
            self._tls = self._socket = context.wrap_socket(self._socket, server_hostname="127.0.0.1")
        except BaseException:
            self.close()
            raise

    def served_certificate(self) -> bytes | None:
        """The certificate of the server, after a request that it has served."""
        assert self.call(ApiVersionsRequest(), 0).error_code == 0
        return self._tls.getpeercert(binary_form=True)


def der(issued: Issued) -> bytes:
    return ssl.PEM_cert_to_DER_cert(issued.certificate)


@pytest.fixture
def serve(make_server: Any, tmp_path: Path) -> Callable[..., Reloading]:
    """``serve(issued, {...})``: a server with this certificate and more settings."""

    def start(issued: Issued, settings: dict[str, str] | None = None) -> Reloading:
        store = issued.write(tmp_path / "server.pem")
        config = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl.keystore.location": str(store)}
        return Reloading(make_server(config=config | (settings or {})), tmp_path)

    return start


@pytest.fixture
def first() -> Issued:
    return AUTHORITY.server()


def test_a_new_store_is_for_new_connections(serve: Any, first: Issued, tmp_path: Path) -> None:
    server, second = serve(first), AUTHORITY.server()
    context = ssl.create_default_context(cadata=AUTHORITY.certificate)
    with TlsWire(server.tls, context) as existing:
        assert existing.served_certificate() == der(first)
        path = tmp_path / "second.p12"
        path.write_bytes(second.pkcs12("outer"))
        assert server.alter({LOCATION: str(path), "listener.name.ssl.ssl.keystore.password": "outer"}) == (0, "")
        assert server.certificate() == der(second)
        assert existing.served_certificate() == der(first)
    assert server.alter({LOCATION: None, "listener.name.ssl.ssl.keystore.password": None}) == (0, "")
    assert server.certificate() == der(first)


def test_a_file_that_changed_is_read_when_its_path_is_set_again(serve: Any, first: Issued) -> None:
    server, second, third = serve(first), AUTHORITY.server(), AUTHORITY.server()
    second.write(server.store)
    assert server.certificate() == der(first)
    assert server.alter({LOCATION: str(server.store)}) == (0, "")
    assert server.certificate() == der(second)
    third.write(server.store)
    assert server.alter({LOCATION: str(server.store)}) == (0, "")
    assert server.certificate() == der(third)


def test_a_key_as_a_value_excludes_a_file(serve: Any, first: Issued) -> None:
    server, second = serve(first), AUTHORITY.server()
    names = ("key", "certificate.chain")
    changes = {f"listener.name.ssl.ssl.keystore.{name}": value for name, value in zip(names, second, strict=True)}
    code, message = server.alter(changes | {"listener.name.ssl.ssl.keystore.type": "PEM"})
    assert code == ErrorCode.INVALID_REQUEST
    assert "exclude each other" in message


def test_inline_keys_replace_inline_keys(make_server: Any, first: Issued, tmp_path: Path) -> None:
    names = ("key", "certificate.chain")
    static = {f"ssl.keystore.{name}": value for name, value in zip(names, first, strict=True)}
    static |= {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl.keystore.type": "PEM"}
    server, second = Reloading(make_server(config=static), tmp_path), AUTHORITY.server()
    changes = {"key": second.encrypted_key("inner"), "certificate.chain": second.certificate}
    prefixed = {f"listener.name.ssl.ssl.keystore.{name}": value for name, value in changes.items()}
    code, message = server.alter(prefixed)
    assert code == ErrorCode.INVALID_REQUEST
    assert "set ssl.key.password" in message
    assert server.alter(prefixed | {"listener.name.ssl.ssl.key.password": "inner"}) == (0, "")
    assert server.certificate() == der(second)


@pytest.mark.parametrize("case", ["another name", "an alternative name less", "no file", "no key", "two entries"])
def test_a_store_that_may_not_replace_the_old_one(serve: Any, first: Issued, tmp_path: Path, case: str) -> None:
    server, path = serve(first), tmp_path / "new.pem"
    names = ("localhost", "127.0.0.1")
    expected = "cannot be read"
    if case == "another name":
        AUTHORITY.issue("elsewhere", alternative_names=names).write(path)
        expected = "the certificate is for 'CN=elsewhere', the previous one for 'CN=localhost'"
    elif case == "an alternative name less":
        AUTHORITY.issue("localhost", alternative_names=names[:1]).write(path)
        expected = "lacks alternative names"
    elif case == "no key":
        path.write_text(AUTHORITY.certificate)
        expected = "contains 0"
    elif case == "two entries":
        path.write_text(first.key + AUTHORITY.server().pem)
        expected = "contains 2"
    for validate_only in (True, False):
        code, message = server.alter({LOCATION: str(path)}, validate_only=validate_only)
        assert code == ErrorCode.INVALID_REQUEST
        assert expected in message
    assert server.certificate() == der(first)
    assert not server.running.call(lambda: dict(server.running.broker.metadata.image.configs))


def test_other_names_can_be_allowed(serve: Any, first: Issued, tmp_path: Path) -> None:
    server = serve(first, {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"})
    second = AUTHORITY.issue("elsewhere")
    assert server.alter({LOCATION: str(second.write(tmp_path / "new.pem"))}) == (0, "")
    assert server.certificate() == der(second)


def test_an_alternative_name_can_be_added(serve: Any, first: Issued, tmp_path: Path) -> None:
    server = serve(first)
    second = AUTHORITY.issue("localhost", alternative_names=("localhost", "127.0.0.1", "kafka.example"))
    path = second.write(tmp_path / "new.pem")
    assert server.alter({LOCATION: str(path)}, validate_only=True) == (0, "")
    assert server.certificate() == der(first)
    assert server.alter({LOCATION: str(path)}) == (0, "")
    assert server.certificate() == der(second)


def test_a_trust_store_is_replaced(serve: Any, first: Issued, tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(OTHER.certificate)
    server = serve(first, {"ssl.truststore.location": str(trusted), "ssl.client.auth": "required"})
    alice, bob = AUTHORITY.issue("alice"), OTHER.issue("bob")
    server.connect(bob)
    with pytest.raises(REFUSED):
        server.connect(alice)
    trusted.write_text(AUTHORITY.certificate)
    assert server.alter({"listener.name.ssl.ssl.truststore.location": str(trusted)}) == (0, "")
    server.connect(alice)
    with pytest.raises(REFUSED):
        server.connect(bob)


def test_brokers_must_be_able_to_connect_with_old_and_new_stores(serve: Any, first: Issued, tmp_path: Path) -> None:
    """The stores of the inter-broker listener: a key store that its trust store does not verify is refused."""
    second = OTHER.server()
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(AUTHORITY.certificate)
    trust = {"ssl.truststore.location": str(trusted)}
    server = serve(first, {"inter.broker.listener.name": "SSL", **trust})
    path = second.write(tmp_path / "second.pem")
    code, message = server.alter({LOCATION: str(path)})
    assert code == ErrorCode.INVALID_REQUEST
    assert "other brokers could not verify the new key store, with the trust store of before" in message
    assert server.certificate() == der(first)

    # A trust store without the authority of the present certificate is refused, too.
    only_other = tmp_path / "only-other.pem"
    only_other.write_text(OTHER.certificate)
    name = "listener.name.ssl.ssl.truststore.location"
    code, message = server.alter({name: str(only_other)})
    assert code == ErrorCode.INVALID_REQUEST
    assert "other brokers could not verify the key store of before, with the new trust store" in message

    # In steps: both authorities, then the key store.
    both = tmp_path / "both.pem"
    both.write_text(AUTHORITY.certificate + OTHER.certificate)
    assert server.alter({name: str(both)}) == (0, "")
    assert server.alter({LOCATION: str(path)}) == (0, "")
    assert server.certificate() == der(second)
    assert server.alter({name: str(only_other)}) == (0, "")


def test_other_listeners_may_have_certificates_that_they_do_not_trust(
    serve: Any, first: Issued, tmp_path: Path
) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(AUTHORITY.certificate)
    server = serve(first, {"ssl.truststore.location": str(trusted)})
    second = OTHER.server()
    assert server.alter({LOCATION: str(second.write(tmp_path / "second.pem"))}) == (0, "")
    assert server.certificate() == der(second)


def test_a_trust_store_cannot_be_added(serve: Any, first: Issued, tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(OTHER.certificate)
    code, message = serve(first).alter({"listener.name.ssl.ssl.truststore.location": str(trusted)})
    assert code == ErrorCode.INVALID_REQUEST
    assert "a trust store cannot be added" in message


def test_a_refused_broker_does_not_refuse_other_resources(serve: Any, first: Issued) -> None:
    server = serve(first)
    broker = str(server.running.broker.node_id)
    resources = [
        legacy.AlterConfigsResource(
            resource_type=BROKER_RESOURCE,
            resource_name=name,
            configs=[legacy.AlterableConfig(name=setting, value=value)],
        )
        for name, setting, value in ((broker, LOCATION, "/missing"), ("", "log.cleaner.backoff.ms", "12345"))
    ]
    with server.running.wire() as wire:
        refused, done = wire.call(legacy.AlterConfigsRequest(resources=resources), 2).responses
    assert (refused.resource_name, refused.error_code) == (broker, ErrorCode.INVALID_REQUEST)
    assert (done.resource_name, done.error_code) == ("", 0)
    assert server.running.call(lambda: server.running.broker.config.int("log.cleaner.backoff.ms")) == 12345


def test_dynamic_stores_are_in_effect_after_a_restart(
    serve: Any, first: Issued, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, second = serve(first), AUTHORITY.server()
    path = second.write(tmp_path / "second.pem")
    assert server.alter({LOCATION: str(path)}) == (0, "")
    server.running.restart()
    assert server.certificate() == der(second)
    path.unlink()
    with caplog.at_level(logging.ERROR):
        server.running.restart()
    assert server.certificate() == der(first)
    assert (
        f"The listener SSL: the previous settings stay in effect: The listener SSL cannot use {LOCATION}" in caplog.text
    )


def test_a_client_continues_over_a_reload(serve: Any, first: Issued, tmp_path: Path) -> None:
    server, second = serve(first), AUTHORITY.server()
    server.running.create_topic("t")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(AUTHORITY.certificate)
    host, port = server.tls
    options = {
        "bootstrap_servers": f"{host}:{port}",
        "security_protocol": "SSL",
        "ssl_cafile": str(trusted),
        "api_version": (2, 6),
    }
    producer = KafkaProducer(**options)
    try:
        for number in range(20):
            if number == 10:
                assert server.alter({LOCATION: str(second.write(tmp_path / "second.pem"))}) == (0, "")
            producer.send("t", str(number).encode()).get(60)
    finally:
        producer.close()
    assert server.certificate() == der(second)
    consumer = KafkaConsumer("t", auto_offset_reset="earliest", consumer_timeout_ms=60_000, **options)
    try:
        assert [next(consumer).value for _ in range(20)] == [str(number).encode() for number in range(20)]
    finally:
        consumer.close()


def test_a_password_may_come_from_a_provider(first: Issued, tmp_path: Path) -> None:
    """The metadata log has the reference. A value that cannot be used does not appear in the error."""
    from moldau.testing import Broker

    store = tmp_path / "store.p12"
    store.write_bytes(first.pkcs12("right-password"))
    passwords = tmp_path / "passwords.properties"
    passwords.write_text("right=right-password\nwrong=wrong-password\n")
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.location": str(first.write(tmp_path / "server.pem")),
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    }

    with Broker(config=config) as broker, WireClient(broker.bootstrap_servers) as wire:

        def alter(changes: Mapping[str, str]) -> tuple[int, str]:
            configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in changes.items()]
            resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configs=configs)
            (response,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
            return response.error_code, response.error_message or ""

        name = "listener.name.ssl.ssl.keystore.password"
        for key, expected in (
            ("wrong", ErrorCode.INVALID_REQUEST),
            ("missing", ErrorCode.INVALID_REQUEST),
            ("right", 0),
        ):
            code, message = alter({LOCATION: str(store), name: f"${{file:{passwords}:{key}}}"})
            assert (code, "-password" in message) == (expected, False), message
        code, message = alter({"message.max.bytes": f"${{file:{passwords}:right}}"})
        assert code == ErrorCode.INVALID_REQUEST
        assert message.startswith(f"Invalid value ${{file:{passwords}:right}} for configuration message.max.bytes")
        logs = b"".join(path.read_bytes() for path in broker.data_dir.glob("__cluster_metadata-0/*.log"))
        assert f"${{file:{passwords}:right}}".encode() in logs
        assert b"right-password" not in logs
        assert "right-password" not in broker.log()


def test_other_users_cannot_read_the_metadata_log(serve: Any, first: Issued) -> None:
    (directory,) = serve(first).running.log_dirs
    assert stat.S_IMODE((Path(directory) / "__cluster_metadata-0").stat().st_mode) == 0o700
    assert stat.S_IMODE((Path(directory) / "bootstrap.checkpoint").stat().st_mode) == 0o600


@pytest.mark.slow
def test_kafka_configs(serve: Any, first: Issued, tmp_path: Path) -> None:
    server, second = serve(first), AUTHORITY.server()
    stores = {"new": second, "foreign": AUTHORITY.issue("elsewhere")}
    paths = {name: issued.write(tmp_path / f"{name}.pem") for name, issued in stores.items()}
    broker = ["--entity-type", "brokers", "--entity-name", str(server.running.broker.node_id)]
    options = ["--bootstrap-server", server.running.bootstrap_servers, "--alter", *broker, "--add-config"]
    with JavaClient(server.running.bootstrap_servers) as java:
        refused = java.tool("kafka.admin.ConfigCommand", [*options, f"{LOCATION}={paths['foreign']}"])
        assert "the certificate is for 'CN=elsewhere', the previous one for 'CN=localhost'" in refused.stderr
        assert server.certificate() == der(first)
        done = java.tool("kafka.admin.ConfigCommand", [*options, f"{LOCATION}={paths['new']}"])
        assert done.exit_code == 0, done
    assert server.certificate() == der(second)


def jaas(**passwords: str) -> str:
    users = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"


def login(address: str, user: str, password: str) -> int:
    """The error code of an authentication."""
    with WireClient(address) as wire:
        assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        request = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())
        return int(wire.call(request, 2).error_code)


def test_users_of_plain_are_replaced(make_server: Any, tmp_path: Path) -> None:
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        name: jaas(alice="old"),
    }
    server = Reloading(make_server(config=config), tmp_path)
    host, port = server.running.server.addresses[1]
    address = f"{host}:{port}"
    assert login(address, "alice", "old") == 0
    code, message = server.alter({name: "org.example.Other required;"})
    assert code == ErrorCode.INVALID_REQUEST
    assert "the login module of PLAIN must be" in message
    assert login(address, "alice", "old") == 0
    assert server.alter({name: jaas(alice="new", bob="secret")}) == (0, "")
    assert login(address, "alice", "old") == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert login(address, "alice", "new") == 0
    assert login(address, "bob", "secret") == 0


SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
OAUTH_JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
SASL = "listener.name.sasl_plaintext"


@pytest.fixture
def with_plain(make_server: Any, tmp_path: Path) -> Reloading:
    """A server with PLAIN."""
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        f"{SASL}.sasl.enabled.mechanisms": "PLAIN",
        f"{SASL}.plain.sasl.jaas.config": jaas(alice="old"),
        "connection.failed.authentication.delay.ms": "0",
    }
    return Reloading(make_server(config=config), tmp_path)


def handshake(wire: WireClient, mechanism: str) -> tuple[int, list[str]]:
    response = wire.call(SaslHandshakeRequest(mechanism=mechanism), 1)
    return int(response.error_code), response.mechanisms


def test_mechanisms_are_enabled_and_disabled(with_plain: Reloading) -> None:
    server = with_plain
    host, port = server.running.server.addresses[1]
    address = f"{host}:{port}"
    code, message = server.alter({f"{SASL}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"})
    assert (code, f"{SASL}.scram-sha-512.sasl.jaas.config: it is missing" in message) == (42, True)
    with WireClient(address) as wire:
        assert handshake(wire, "PLAIN") == (0, ["PLAIN"])
        authenticated = wire.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0old"), 2)
        assert authenticated.error_code == 0
        both = {
            f"{SASL}.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            f"{SASL}.scram-sha-512.sasl.jaas.config": SCRAM_JAAS,
        }
        assert server.alter(both) == (0, "")
        with WireClient(address) as scram:
            assert handshake(scram, "SCRAM-SHA-512") == (0, ["SCRAM-SHA-512", "PLAIN"])
            began = scram.call(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=nonce"), 2)
            assert began.error_code == 0
            assert server.alter({f"{SASL}.sasl.enabled.mechanisms": "PLAIN"}) == (0, "")
            # An exchange that has begun ends as it would have.
            ended = scram.call(SaslAuthenticateRequest(auth_bytes=b"c=biws,r=x,p=YQ=="), 2)
            assert ended.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with WireClient(address) as scram:
            assert handshake(scram, "SCRAM-SHA-512")[0] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert server.alter(both) == (0, "")
        assert server.alter({f"{SASL}.sasl.enabled.mechanisms": "SCRAM-SHA-512"}) == (0, "")
        with WireClient(address) as plain:
            assert handshake(plain, "PLAIN")[0] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert wire.call(ApiVersionsRequest(), 0).error_code == 0  # it stays authenticated
    server.running.restart()
    with WireClient("{}:{}".format(*server.running.server.addresses[1])) as wire:
        assert handshake(wire, "SCRAM-SHA-512") == (0, ["SCRAM-SHA-512"])


def test_a_mechanism_whose_settings_are_equal_stays_the_same(with_plain: Reloading) -> None:
    server = with_plain

    def mechanisms() -> Mapping[str, Any]:
        security: Any = server.running.network.listeners[1].security
        return dict(security.mechanisms)

    plain = mechanisms()["PLAIN"]
    assert server.alter({"log.retention.ms": "1000", "ssl.allow.dn.changes": None})[0] == 0
    oauth = {
        f"{SASL}.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        f"{SASL}.oauthbearer.sasl.jaas.config": OAUTH_JAAS,
    }
    code, message = server.alter(oauth)
    assert (code, "every client can be any user" in message) == (ErrorCode.INVALID_REQUEST, True)
    assert server.alter(oauth | {f"{SASL}.moldau.allow.unsecured.tokens": "true"}) == (0, "")
    first = mechanisms()
    assert first["PLAIN"] is not plain  # the setting is that of all mechanisms
    scope = f'{OAUTH_JAAS[:-1]} unsecuredValidatorRequiredScope="kafka";'
    assert server.alter({f"{SASL}.oauthbearer.sasl.jaas.config": scope}) == (0, "")
    second = mechanisms()
    assert second["PLAIN"] is first["PLAIN"]
    assert second["OAUTHBEARER"] is not first["OAUTHBEARER"]
    assert server.alter({f"{SASL}.plain.connections.max.reauth.ms": "60000"}) == (0, "")
    third = mechanisms()
    assert third["OAUTHBEARER"] is second["OAUTHBEARER"]
    assert third["PLAIN"].max_session_ms == 60_000

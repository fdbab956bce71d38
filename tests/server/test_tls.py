"""Listeners with TLS beside plaintext ones: sessions, principals, failed handshakes, startup errors."""

from __future__ import annotations

import logging
import select
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.security.key_stores import pem_key_store
from moldau.server.network.tls import TlsSecurity, server_context
from moldau.server.network.transport import TurnFirst
from moldau.server.nodes.node_server import StartError
from moldau.testing.authority import Authority, Issued
from moldau.testing.builders import batch, fetch, produce, values
from moldau.testing.client_hello import client_hello
from moldau.testing.wire import WireClient

AUTHORITY = Authority()
FOREIGN = Authority("Another one")
SERVER = AUTHORITY.server()
REFUSED = (ssl.SSLError, ConnectionError)


class TlsClient(WireClient):
    """A connection with TLS, whose certificate is ``issued``."""

    def __init__(
        self,
        address: str,
        folder: Path,
        issued: Issued | None = None,
        *,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        trusted: Authority = AUTHORITY,
        ciphers: str | None = None,
    ) -> None:
        context = ssl.create_default_context(cadata=trusted.certificate)
        context.minimum_version = context.maximum_version = version
        if ciphers is not None:
            context.set_ciphers(ciphers)
        if issued is not None:
            context.load_cert_chain(issued.write(folder / "client.pem"))
        super().__init__(address)
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname="127.0.0.1")
        except BaseException:
            self.close()
            raise


class Listeners:
    """A server with the listeners PLAINTEXT and SSL."""

    def __init__(self, running: Any, folder: Path) -> None:
        self.running = running
        self.folder = folder
        self.plain, self.tls = (f"{host}:{port}" for host, port in running.server.addresses[:2])

    def client(self, issued: Issued | None = None, **options: Any) -> TlsClient:
        return TlsClient(self.tls, self.folder, issued, **options)

    def principal_of(self, wire: WireClient) -> str:
        """The principal of a connection."""
        wire.call(ApiVersionsRequest(), 0)
        peer = "{}:{}".format(*wire._socket.getsockname())

        def find() -> str:
            (found,) = (each for each in self.running.network.connections if each.peer == peer)
            return str(found.authentication.principal)

        return str(self.running.call(find))

    def is_served(self) -> None:
        """Other clients are served."""
        with WireClient(self.plain) as wire:
            assert wire.call(ApiVersionsRequest(), 0).error_code == 0

    def wait_for_no_connections(self) -> None:
        self.running.wait_until(lambda: not self.running.network.connections)


@pytest.fixture
def serve(make_server: Any, tmp_path: Path) -> Any:
    """``serve({"ssl.client.auth": ...})``: a server with these settings."""

    def start(config: dict[str, str] | None = None, *, with_key: bool = True) -> Listeners:
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **(KEY if with_key else {})}
        return Listeners(make_server(config=settings | (config or {})), tmp_path)

    return start


KEY = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": SERVER.key,
    "ssl.keystore.certificate.chain": SERVER.certificate,
}
TRUSTED = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": AUTHORITY.certificate}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_listeners_serve_the_same_topics(serve: Any, version: ssl.TLSVersion) -> None:
    listeners = serve()
    listeners.running.create_topic("t")
    with listeners.client(version=version) as secure, WireClient(listeners.plain) as plain:
        assert produce(secure, "t", batch(b"by TLS")).error_code == 0
        assert produce(plain, "t", batch(b"without")).error_code == 0
        for wire in (secure, plain):
            assert values(fetch(wire, "t", 0)) == [b"by TLS", b"without"]


def test_each_listener_reports_its_own_address(serve: Any) -> None:
    listeners = serve()
    with listeners.client() as secure, WireClient(listeners.plain) as plain:
        for wire, address in ((secure, listeners.tls), (plain, listeners.plain)):
            (broker,) = wire.call(MetadataRequest(topics=None), 9).brokers
            assert f"{broker.host}:{broker.port}" == address


def test_without_client_authentication_all_clients_are_anonymous(serve: Any) -> None:
    listeners = serve()
    with listeners.client(AUTHORITY.issue("alice")) as wire:
        assert listeners.principal_of(wire) == "User:ANONYMOUS"


@pytest.mark.parametrize("client_auth", ["requested", "required"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_determines_the_principal(serve: Any, client_auth: str, version: ssl.TLSVersion) -> None:
    listeners = serve(TRUSTED | {"ssl.client.auth": client_auth})
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Vltava"), x509.NameAttribute(NameOID.COMMON_NAME, "alice")]
    )
    with listeners.client(AUTHORITY.issue(subject), version=version) as wire:
        assert listeners.principal_of(wire) == "User:CN=alice,O=Vltava"


def test_a_requested_certificate_may_be_missing(serve: Any) -> None:
    listeners = serve(TRUSTED | {"ssl.client.auth": "requested"})
    with listeners.client() as wire:
        assert listeners.principal_of(wire) == "User:ANONYMOUS"


def test_rules_map_names_to_principals(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    rules = r"RULE:^CN=([a-z]+)$/$1/U"
    listeners = serve(TRUSTED | {"ssl.client.auth": "required", "ssl.principal.mapping.rules": rules})
    with listeners.client(AUTHORITY.issue("alice")) as wire:
        assert listeners.principal_of(wire) == "User:ALICE"
    with pytest.raises(REFUSED), listeners.client(AUTHORITY.issue("R2D2")) as wire:
        wire.call(ApiVersionsRequest(), 0)
    listeners.wait_for_no_connections()
    assert "no rule of ssl.principal.mapping.rules matches the client's name 'CN=R2D2'" in caplog.text


@pytest.mark.parametrize("client_auth", ["requested", "required"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("issued", "reason"),
    [
        (None, "the client has no certificate"),
        (FOREIGN.issue("alice"), "unable to get local issuer certificate"),
        (AUTHORITY.issue("alice", days=(-3, -1)), "certificate has expired"),
        (AUTHORITY.issue("alice", days=(1, 2)), "certificate is not yet valid"),
    ],
    ids=["none", "foreign", "expired", "not yet valid"],
)
def test_invalid_certificates_are_refused(
    serve: Any,
    caplog: pytest.LogCaptureFixture,
    client_auth: str,
    version: ssl.TLSVersion,
    issued: Issued | None,
    reason: str,
) -> None:
    if issued is None and client_auth == "requested":
        return
    listeners = serve(TRUSTED | {"ssl.client.auth": client_auth})
    with pytest.raises(REFUSED), listeners.client(issued, version=version) as wire:
        wire.call(ApiVersionsRequest(), 0)
    listeners.is_served()
    listeners.wait_for_no_connections()
    (line,) = (record.message for record in caplog.records if "handshake" in record.message)
    assert reason in line
    assert "(SSL)" in line


def test_a_client_that_does_not_trust_the_server_is_logged(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    listeners = serve()
    with pytest.raises(ssl.SSLCertVerificationError):
        listeners.client(trusted=FOREIGN)
    listeners.wait_for_no_connections()
    assert "does not trust the certificate of this server" in caplog.text


def test_many_failed_handshakes_are_one_line(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    listeners = serve()
    for _ in range(30):
        with pytest.raises(ssl.SSLCertVerificationError):
            listeners.client(trusted=FOREIGN)
    listeners.wait_for_no_connections()
    assert caplog.text.count("does not trust") == 1


@pytest.mark.parametrize("data", [b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100_000])
def test_a_peer_without_tls_is_closed_and_logged(serve: Any, caplog: pytest.LogCaptureFixture, data: bytes) -> None:
    listeners = serve()
    with WireClient(listeners.tls) as wire:
        wire.send_bytes(data)
        assert wire.closed_by_server()
    assert "the peer does not speak TLS, which this listener requires" in caplog.text
    assert "Set security.protocol to SSL or SASL_SSL in the client" in caplog.text


def test_a_tls_client_of_a_plaintext_listener_is_closed_and_logged(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    listeners = serve()
    with pytest.raises(REFUSED):
        TlsClient(listeners.plain, listeners.folder)
    listeners.wait_for_no_connections()
    assert "the peer speaks TLS, which this listener does not" in caplog.text


def test_bytes_of_a_handshake_may_arrive_one_by_one(serve: Any) -> None:
    listeners = serve(TRUSTED | {"ssl.client.auth": "required"})
    context = ssl.create_default_context(cadata=AUTHORITY.certificate)
    context.load_cert_chain(AUTHORITY.issue("alice").write(listeners.folder / "client.pem"))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with WireClient(listeners.tls) as wire:

        def send() -> None:
            for byte in outgoing.read():
                wire.send_bytes(bytes([byte]))

        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                send()
                incoming.write(wire._socket.recv(65_536))
        tls.write(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
        send()
        response = b""
        while len(response) < 8:
            try:
                response += tls.read(8 - len(response))
            except ssl.SSLWantReadError:
                incoming.write(wire._socket.recv(65_536))
        assert response[4:] == b"\0\0\0\1"


def test_handshakes_that_end_anywhere_leave_nothing(serve: Any) -> None:
    listeners = serve()
    hello = client_hello()
    for length in range(0, len(hello), 7):
        with WireClient(listeners.tls) as wire:
            wire.send_bytes(hello[:length])
    listeners.is_served()
    listeners.wait_for_no_connections()


def test_damaged_handshakes_are_closed(serve: Any) -> None:
    listeners = serve()
    hello = client_hello()
    for position in range(0, len(hello), 11):
        damaged = bytearray(hello)
        damaged[position] ^= 0xFF
        with WireClient(listeners.tls) as wire:
            wire.send_bytes(bytes(damaged))
            wire._socket.shutdown(socket.SHUT_WR)
            while not wire.closed_by_server():
                pass
    listeners.is_served()
    listeners.wait_for_no_connections()


def test_a_peer_that_does_not_finish_its_handshake_is_closed(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    listeners = serve({"moldau.authentication.timeout.ms": "50"})
    with WireClient(listeners.tls) as wire, WireClient(listeners.plain) as plain:
        assert wire.closed_by_server()
        assert plain.call(ApiVersionsRequest(), 0).error_code == 0
    assert "it did not authenticate within 50 ms ('moldau.authentication.timeout.ms')" in caplog.text


def test_the_timeout_does_not_apply_after_the_handshake(serve: Any) -> None:
    listeners = serve({"moldau.authentication.timeout.ms": "20000"})
    with listeners.client() as wire:
        wire.call(ApiVersionsRequest(), 0)
        (connection,) = listeners.running.network.connections
        assert not connection.authentication.pending_authentication


def test_versions_and_cipher_suites(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    suite = "ECDHE-ECDSA-AES128-GCM-SHA256"
    listeners = serve(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,NEW://127.0.0.1:0,OLD://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,NEW:SSL,OLD:SSL",
            "listener.name.new.ssl.enabled.protocols": "TLSv1.3",
            "listener.name.old.ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "listener.name.old.ssl.enabled.protocols": "TLSv1.2,TLSv1.1,TLSv1",
        }
    )
    assert "The listener OLD does not use TLSv1.1 and TLSv1 of ssl.enabled.protocols" in caplog.text
    new, old = (f"{host}:{port}" for host, port in listeners.running.server.addresses[1:])
    with TlsClient(new, listeners.folder) as wire:
        assert wire._socket.version() == "TLSv1.3"  # type: ignore[attr-defined]
    with TlsClient(old, listeners.folder, version=ssl.TLSVersion.TLSv1_2) as wire:
        assert wire._socket.cipher()[0] == suite  # type: ignore[attr-defined]
    for address, version, ciphers in (
        (new, ssl.TLSVersion.TLSv1_2, None),
        (old, ssl.TLSVersion.TLSv1_3, None),
        (old, ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ):
        with pytest.raises(REFUSED):
            TlsClient(address, listeners.folder, version=version, ciphers=ciphers)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Paths of stores."""
    paths = {
        "pem": SERVER.pem.encode(),
        "encrypted": (SERVER.encrypted_key("inner") + SERVER.certificate).encode(),
        "p12": SERVER.pkcs12("outer"),
        "trusted.pem": AUTHORITY.certificate.encode(),
        "trusted.p12": AUTHORITY.pkcs12("outer"),
        "jks": b"\xfe\xed\xfe\xed\0\0\0\2",
        "empty": b"",
    }
    for name, data in paths.items():
        (tmp_path / name).write_bytes(data)
    return {name: str(tmp_path / name) for name in paths}


@pytest.mark.parametrize(
    "config",
    [
        {"ssl.keystore.location": "{pem}", "ssl.truststore.location": "{trusted.pem}"},
        {
            "ssl.keystore.location": "{encrypted}",
            "ssl.key.password": "inner",
            "ssl.truststore.location": "{trusted.pem}",
        },
        {
            "ssl.keystore.location": "{p12}",
            "ssl.keystore.password": "outer",
            "ssl.truststore.location": "{trusted.p12}",
            "ssl.truststore.password": "outer",
        },
        {
            "listener.name.ssl.ssl.keystore.location": "{p12}",
            "listener.name.ssl.ssl.keystore.password": "outer",
            "ssl.keystore.location": "{empty}",
            "ssl.truststore.location": "{trusted.pem}",
        },
    ],
    ids=["PEM", "encrypted PEM", "PKCS12", "settings of the listener"],
)
def test_stores_in_files(serve: Any, files: dict[str, str], config: dict[str, str]) -> None:
    listeners = serve_without_key(serve, files, config | {"ssl.client.auth": "required"})
    with listeners.client(AUTHORITY.issue("alice")) as wire:
        assert listeners.principal_of(wire) == "User:CN=alice"


def serve_without_key(serve: Any, files: dict[str, str], config: dict[str, str]) -> Listeners:
    """Start a server whose key is not that of the fixture. ``{name}`` is the path of a file."""
    texts = {name: files[text[1:-1]] if text.startswith("{") else text for name, text in config.items()}
    started: Listeners = serve(texts, with_key=False)
    return started


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, "ssl.keystore.location: it is missing"),
        ({"ssl.keystore.location": "/nowhere"}, "/nowhere cannot be read: No such file or directory"),
        ({"ssl.keystore.location": "{empty}"}, "it is neither PEM, PKCS12 nor JKS"),
        ({"ssl.keystore.location": "{jks}", "ssl.keystore.password": "x"}, "it is no store in the format JKS"),
        ({"ssl.keystore.location": "{p12}"}, "set ssl.keystore.password"),
        ({"ssl.keystore.location": "{p12}", "ssl.keystore.password": "wrong"}, "the password is wrong"),
        ({"ssl.keystore.location": "{encrypted}"}, "set ssl.key.password"),
        (
            {"ssl.keystore.location": "{encrypted}", "ssl.key.password": "wrong"},
            "is not valid: ssl.key.password does not decrypt the private key",
        ),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": AUTHORITY.issue("other").key,
                "ssl.keystore.certificate.chain": SERVER.certificate,
            },
            "the private key does not belong to the first certificate",
        ),
        ({"ssl.keystore.location": "{pem}", "ssl.keystore.key": "x"}, "exclude each other"),
        ({"ssl.keystore.key": SERVER.key}, "ssl.keystore.certificate.chain: it is missing"),
        ({"ssl.keystore.key": SERVER.key, "ssl.keystore.certificate.chain": SERVER.certificate}, "it must be PEM"),
        ({"ssl.keystore.location": "{pem}", "ssl.client.auth": "required"}, "so ssl.truststore.location or"),
        ({"ssl.keystore.location": "{pem}", "ssl.truststore.location": "/nowhere"}, "/nowhere cannot be read"),
        ({"ssl.keystore.location": "{pem}", "ssl.truststore.location": "{empty}"}, "neither PEM, PKCS12 nor JKS"),
        ({"ssl.keystore.location": "{pem}", "ssl.enabled.protocols": "TLSv1"}, "TLSv1 is not supported"),
        ({"ssl.keystore.location": "{pem}", "ssl.enabled.protocols": "TLSv1.2,SSLv3"}, "SSLv3 is not supported"),
        ({"ssl.keystore.location": "{pem}", "ssl.cipher.suites": "X"}, "X is not IANA's name"),
        ({"ssl.keystore.location": "{pem}", "ssl.principal.mapping.rules": "RULE:a"}, "is neither DEFAULT nor RULE"),
        (
            {"ssl.keystore.location": "{pem}", "listener.name.ssl.ssl.engine.factory.class": "a.B"},
            "listener.name.ssl.ssl.engine.factory.class: Java classes are not loaded",
        ),
        (
            {"listener.name.ssl.ssl.keystore.location": "/nowhere"},
            "listener.name.ssl.ssl.keystore.location: /nowhere cannot be read",
        ),
    ],
)
def test_settings_that_cannot_be_used_prevent_startup(
    serve: Any, files: dict[str, str], config: dict[str, str], problem: str
) -> None:
    with pytest.raises(StartError) as raised:
        serve_without_key(serve, files, config)
    assert "The listener SSL" in str(raised.value) or "TLS of the listener SSL" in str(raised.value)
    assert problem in str(raised.value)
    assert "PRIVATE" not in str(raised.value)
    assert "wrong" not in str(raised.value).replace("the password is wrong", "")


def test_a_failed_startup_can_be_repeated(serve: Any, files: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(StartError):
        serve_without_key(serve, files, {"ssl.keystore.location": "/nowhere"})
    serve_without_key(serve, files, {"ssl.keystore.location": "{pem}"}).is_served()


class _RecordingSocket(socket.socket):
    """Records the options that are set."""

    options: list[tuple[int, int]] = []  # noqa: RUF012 - one for the test

    def setsockopt(self, level: int, option: int, *rest: Any) -> None:
        self.options.append((level, option))


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="an option of Linux")
def test_the_end_of_the_handshake_is_acknowledged_immediately() -> None:
    """Otherwise the first request of a client with Nagle's algorithm waits for the delayed acknowledgment."""
    authority = Authority()
    issued = authority.server()
    store = pem_key_store(issued.key, issued.certificate, None)
    versions = ("TLSv1.2", "TLSv1.3")
    context = server_context(store, trusted=None, client_auth="none", versions=versions, ciphers=None)
    accepted, client = socket.socketpair()
    with client:
        client.settimeout(60)
        server = _RecordingSocket(fileno=accepted.detach())
        server.setblocking(False)
        transport, _ = TlsSecurity(context, None).accept(server)
        with ThreadPoolExecutor(1) as threads:
            of_client = ssl.create_default_context(cadata=authority.certificate)
            connecting = threads.submit(of_client.wrap_socket, client, server_hostname="localhost")
            while transport.pending_authentication:
                try:
                    transport.receive_into(memoryview(bytearray(100)))
                except TurnFirst:
                    continue
                except BlockingIOError:
                    if transport.pending_authentication:
                        select.select([server], [], [], 60)
            connecting.result(60).close()
        assert server.options == [(socket.IPPROTO_TCP, socket.TCP_QUICKACK)]
        transport.close()

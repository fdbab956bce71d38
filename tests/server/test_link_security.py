"""Links with SASL over connections in memory, and with TLS and SASL over TCP to a real server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.config.definition import ConfigError
from moldau.config.sources import load
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorResponse
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from moldau.security.sasl import Identity
from moldau.security.sasl_client import Credentials
from moldau.security.scram import MECHANISMS, ScramExchange, credential, salted_password
from moldau.server.network.dialing import Address
from moldau.server.network.link_security import LinkSecurity
from moldau.server.network.links import Link, LinkError, LinkSettings
from moldau.server.network.tls import client_context
from moldau.server.network.tls_client import TlsClientTransport, TlsDialing
from moldau.server.nodes.listener_reload import ListenerReload
from moldau.server.nodes.outgoing_security import to_brokers
from moldau.testing import Broker
from moldau.testing.authority import Authority

from .test_links import PEER, ScriptedPeer, Simulation, TcpNode, on_tcp

PLAIN = LinkSecurity(
    credentials=Credentials("PLAIN", "broker", "a secret"),
    login_setting="the.jaas.setting",
    mechanism_setting="the.mechanism.setting",
)
SETTINGS = LinkSettings(backoff_ms=50, max_backoff_ms=400, setup_timeout_ms=1000)
APIS = (
    (ApiKey.FIND_COORDINATOR, 0, 5),
    (ApiKey.API_VERSIONS, 0, 4),
    (ApiKey.SASL_HANDSHAKE, 0, 1),
    (ApiKey.SASL_AUTHENTICATE, 0, 2),
)
LIFETIME_MS = 10_000


class SaslSimulation(Simulation):
    """A link that authenticates at scripted peers, in steps."""

    def __init__(self, security: LinkSecurity = PLAIN) -> None:
        super().__init__(SETTINGS)
        self.link = self.links.open(PEER, "broker-1", SETTINGS, security)

    def connect_to_sasl(self) -> ScriptedPeer:
        """The first request was sent, and the peer has responded to ApiVersions."""
        self.listen()
        self.send()
        self.run()
        peer = self.peers[-1]
        peer.negotiate(*APIS)
        self.run()
        return peer

    def shake_hands(self, peer: ScriptedPeer, **response: Any) -> list[tuple[Any, Any]]:
        """Respond to SaslHandshake; returns the requests after it."""
        [(header, request)] = peer.requests()
        assert isinstance(request, SaslHandshakeRequest)
        assert (header.request_api_version, request.mechanism) == (1, "PLAIN")
        peer.respond(header, SaslHandshakeResponse(**response))
        self.run()
        return peer.requests()

    def log_in(self, peer: ScriptedPeer, *, lifetime_ms: int = 0) -> list[tuple[Any, Any]]:
        """Authenticate with PLAIN; returns the requests after it."""
        [(header, request)] = self.shake_hands(peer, mechanisms=["PLAIN"])
        assert isinstance(request, SaslAuthenticateRequest)
        assert (header.request_api_version, bytes(request.auth_bytes)) == (2, b"\0broker\0a secret")
        peer.respond(header, SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms))
        self.run()
        return peer.requests()

    def answer(self, peer: ScriptedPeer, requests: list[tuple[Any, Any]]) -> None:
        for header, _ in requests:
            peer.respond(header, FindCoordinatorResponse())
        self.run()


@pytest.fixture
def sasl() -> SaslSimulation:
    return SaslSimulation()


def reason_of(result: Any) -> str:
    assert isinstance(result, LinkError)
    assert not result.maybe_processed
    return str(result)


def test_requests_are_sent_after_the_authentication(sasl: SaslSimulation) -> None:
    peer = sasl.connect_to_sasl()
    sent = sasl.log_in(peer)
    assert [request.coordinator_keys for _, request in sent] == [["t"]]
    sasl.answer(peer, sent)
    assert sasl.results == [FindCoordinatorResponse()]
    sasl.advance(3_600_000)
    sasl.send("later")
    sasl.run()
    assert [request.coordinator_keys for _, request in peer.requests()] == [["later"]], "the session has no end"


def test_scram_is_completed_with_the_signature_of_the_server() -> None:
    mechanism = MECHANISMS["SCRAM-SHA-512"]
    salted = salted_password(mechanism, "a secret", b"salt", 4096)
    stored = credential(mechanism, salted, b"salt", 4096)
    server = ScramExchange(mechanism, lambda user: stored, server_nonce="server", secret=b"s" * 32)
    sasl = SaslSimulation(PLAIN._replace(credentials=Credentials("SCRAM-SHA-512", "broker", "a secret")))
    peer = sasl.connect_to_sasl()
    [(header, _)] = peer.requests()
    peer.respond(header, SaslHandshakeResponse())
    for _ in range(2):
        sasl.run()
        [(header, request)] = peer.requests()
        answer = server.evaluate(bytes(request.auth_bytes))
        assert isinstance(answer, bytes)
        peer.respond(header, SaslAuthenticateResponse(auth_bytes=answer))
    sasl.run()
    assert server.identity == Identity("broker")
    assert [request.coordinator_keys for _, request in peer.requests()] == [["t"]]


def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    sasl = SaslSimulation(PLAIN._replace(credentials=Credentials("SCRAM-SHA-256", "broker", "a secret")))
    peer = sasl.connect_to_sasl()
    [(header, _)] = peer.requests()
    peer.respond(header, SaslHandshakeResponse())
    sasl.run()
    [(header, _)] = peer.requests()
    peer.respond(header, SaslAuthenticateResponse(auth_bytes=b"r=forged,s=AAAA,i=4096"))
    sasl.run()
    assert "the server's first SCRAM message is not valid. Check the.jaas.setting" in reason_of(sasl.results[0])


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (
            {"error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": ["SCRAM-SHA-512"]},
            "does not enable the SASL mechanism PLAIN, only SCRAM-SHA-512. Change the.mechanism.setting",
        ),
        ({"error_code": ErrorCode.ILLEGAL_SASL_STATE}, "the listener of the peer has no SASL"),
        ({"error_code": ErrorCode.UNKNOWN_SERVER_ERROR}, "rejects SaslHandshake with UNKNOWN_SERVER_ERROR"),
    ],
)
def test_a_refused_handshake_says_what_to_change(sasl: SaslSimulation, response: Any, expected: str) -> None:
    peer = sasl.connect_to_sasl()
    assert sasl.shake_hands(peer, **response) == []
    assert expected in reason_of(sasl.results[0])
    assert sasl.link.is_pausing


def test_a_refused_password_is_logged_once_a_second(sasl: SaslSimulation, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    refusal = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no")
    for lines in (1, 1, 2):
        peer = sasl.connect_to_sasl()
        [(header, _)] = sasl.shake_hands(peer)
        peer.respond(header, refusal)
        sasl.run()
        assert len(caplog.records) == lines
        sasl.advance(600)  # above the maximum pause
    assert len(sasl.peers) == 3
    for result in sasl.results:
        assert "as broker: no. Check the.jaas.setting" in reason_of(result)
    assert "a secret" not in caplog.text


def test_a_session_is_renewed_before_it_ends(sasl: SaslSimulation) -> None:
    peer = sasl.connect_to_sasl()
    sasl.answer(peer, sasl.log_in(peer, lifetime_ms=LIFETIME_MS))
    sasl.advance(0.8 * LIFETIME_MS)
    sasl.send("slow")
    sasl.run()
    [slow] = peer.requests()
    sasl.advance(0.16 * LIFETIME_MS)
    sasl.send("waits")
    sasl.run()
    assert sasl.results[1:] == [None, None]
    sasl.answer(peer, [slow])  # it was sent before
    assert sasl.results[1:] == [FindCoordinatorResponse(), None]
    sent = sasl.log_in(peer, lifetime_ms=LIFETIME_MS)
    assert [request.coordinator_keys for _, request in sent] == [["waits"]]
    sasl.answer(peer, sent)
    assert len(sasl.peers) == 1
    sasl.advance(0.8 * LIFETIME_MS)
    sasl.send("new session")
    sasl.run()
    assert [request.coordinator_keys for _, request in peer.requests()] == [["new session"]]


def test_a_session_that_has_ended_without_requests_is_renewed_with_the_next_one(sasl: SaslSimulation) -> None:
    peer = sasl.connect_to_sasl()
    sasl.answer(peer, sasl.log_in(peer, lifetime_ms=LIFETIME_MS))
    sasl.advance(3 * LIFETIME_MS)
    assert peer.requests() == []
    sasl.send("next")
    sasl.run()
    assert [request.coordinator_keys for _, request in sasl.log_in(peer)] == [["next"]]


def test_a_peer_that_does_not_answer_a_renewal_is_given_up(sasl: SaslSimulation) -> None:
    peer = sasl.connect_to_sasl()
    sasl.answer(peer, sasl.log_in(peer, lifetime_ms=LIFETIME_MS))
    sasl.advance(LIFETIME_MS)
    sasl.send("waits")
    sasl.run()
    sasl.advance(SETTINGS.setup_timeout_ms + 10)
    assert "not authenticated again within 1000 ms" in reason_of(sasl.results[1])


def test_a_refused_renewal_closes_the_connection_and_the_next_one_authenticates(sasl: SaslSimulation) -> None:
    peer = sasl.connect_to_sasl()
    sasl.answer(peer, sasl.log_in(peer, lifetime_ms=LIFETIME_MS))
    sasl.advance(LIFETIME_MS)
    sasl.send("fails")
    sasl.run()
    sasl.shake_hands(peer, error_code=ErrorCode.ILLEGAL_SASL_STATE)
    assert "the listener of the peer has no SASL" in reason_of(sasl.results[1])
    sasl.advance(SETTINGS.max_backoff_ms)
    other = sasl.connect_to_sasl()
    assert other is not peer
    assert len(sasl.log_in(other)) == 1


# -- a real server -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    config = {"listener.name.sasl_ssl.connections.max.reauth.ms": "3600000"}
    with Broker(tls=True, users={"broker": "a secret"}, config=config) as broker:
        yield broker


def address_of(text: str, host: str = "127.0.0.1") -> Address:
    return Address(host, int(text.rpartition(":")[2]))


def security_to(
    broker: Broker, mechanism: str | None = "SCRAM-SHA-512", *, trusted: str | None = None, checks_host: bool = True
) -> LinkSecurity:
    certificate = Path(broker.client_config("broker", client="java")["ssl.truststore.location"]).read_text()
    context = client_context(None, trusted=trusted or certificate, checks_host=checks_host)
    credentials = None if mechanism is None else Credentials(mechanism, "broker", "a secret")
    return LinkSecurity(TlsDialing(context, "The hint"), credentials, "jaas", "mechanism")


class UnusedReload(ListenerReload):
    """Nothing changes."""

    def __init__(self) -> None:
        self._listeners = []


async def described(node: TcpNode, link: Link) -> None:
    response = await node.call(link, MetadataRequest(topics=[]), 9)
    assert response.cluster_id


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_link_with_tls_and_sasl(broker: Broker, mechanism: str, host: str) -> None:
    async def test(node: TcpNode) -> None:
        address = address_of(broker.bootstrap_servers, host)
        link = node.links.open(address, "test", security=security_to(broker, mechanism))
        for _ in range(3):
            await described(node, link)
        await described(node, node.links.open(address, "test", security=security_to(broker, mechanism)))

    on_tcp(test)


def test_a_large_response_is_received_completely(broker: Broker) -> None:
    """TLS decrypts more than one read of the link takes, and the selector does not see the rest."""
    names = {f"{number:04}-{'n' * 200}" for number in range(600)}
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]

    async def test(node: TcpNode) -> None:
        link = node.links.open(address_of(broker.bootstrap_servers), "test", security=security_to(broker))
        await node.call(link, CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
        requests = [MetadataRequest(topics=None, allow_auto_topic_creation=False) for _ in range(20)]
        for response in await asyncio.gather(*(node.call(link, request, 9) for request in requests)):
            assert {topic.name for topic in response.topics} == names

    on_tcp(test)


def test_a_session_of_a_real_server_is_renewed(broker: Broker) -> None:
    async def test(node: TcpNode) -> None:
        link = node.links.open(address_of(broker.bootstrap_servers), "test", security=security_to(broker))
        await described(node, link)
        stream, renewed_at_ms = link._stream, link._log_in_again_at_ms
        assert renewed_at_ms is not None
        link._log_in_again_at_ms = node.timers.now_ms()
        await described(node, link)
        assert link._stream is stream
        assert link._log_in_again_at_ms > renewed_at_ms

    on_tcp(test)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"trusted": Authority("Another one").certificate}, "the certificate of the peer is not accepted: .*The hint"),
        ({"mechanism": None}, "connection"),
    ],
)
def test_what_is_wrong_is_in_the_error(broker: Broker, options: Any, expected: str) -> None:
    async def test(node: TcpNode) -> None:
        security = security_to(broker, **options)
        link = node.links.open(address_of(broker.bootstrap_servers), "test", security=security)
        with pytest.raises(LinkError, match=expected):
            await described(node, link)

    on_tcp(test)


def test_a_listener_without_tls_is_recognized(broker: Broker) -> None:
    with Broker() as plain:

        async def test(node: TcpNode) -> None:
            link = node.links.open(address_of(plain.bootstrap_servers), "test", security=security_to(broker))
            with pytest.raises(LinkError, match="may be a listener without TLS"):
                await described(node, link)
            link = node.links.open(
                address_of(plain.bootstrap_servers), "test", security=security_to(broker)._replace(secure=None)
            )
            with pytest.raises(LinkError, match="the listener of the peer has no SASL"):
                await described(node, link)

        on_tcp(test)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"ssl.enabled.protocols": "TLSv1.2"}, ("TLSv1.2", None)),
        ({"ssl.enabled.protocols": "TLSv1.3"}, ("TLSv1.3", None)),
        (
            {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
            ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ),
    ],
)
def test_versions_and_cipher_suites_of_links(broker: Broker, settings: Any, expected: tuple[str, str | None]) -> None:
    """The broker allows all of them, so those of the link decide."""
    listeners = {"listeners": "SSL://127.0.0.1:0", "inter.broker.listener.name": "SSL"}
    trust = {"ssl.truststore.location": str(broker.ca_file)}
    config = load(overrides=[f"{name}={value}" for name, value in {**listeners, **trust, **settings}.items()])
    secure = to_brokers(config, UnusedReload).secure
    credentials = Credentials("SCRAM-SHA-512", "broker", "a secret")

    async def test(node: TcpNode) -> None:
        security = LinkSecurity(secure, credentials, "jaas", "mechanism")
        link = node.links.open(address_of(broker.bootstrap_servers), "test", security=security)
        await described(node, link)
        assert link._stream is not None
        transport = link._stream.transport
        assert isinstance(transport, TlsClientTransport)
        version, cipher = transport._tls.version(), transport._tls.cipher()
        assert cipher is not None
        assert (version, cipher[0] if expected[1] else None) == expected

    on_tcp(test)


def test_other_brokers_must_be_able_to_use_the_mechanism_between_brokers() -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    }
    config = load(overrides=[f"{name}={value}" for name, value in settings.items()])
    with pytest.raises(ConfigError, match=r"protocol is SCRAM-SHA-512, but its .* are PLAIN, SCRAM-SHA-256$"):
        to_brokers(config, UnusedReload)

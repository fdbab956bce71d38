"""Listeners with SASL: byte scripts of connections, failures, sessions, and users that are changed meanwhile."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.security.scram import SHA_256, SHA_512, ScramMechanism, salted_password
from moldau.server.nodes.node_server import StartError
from moldau.testing.builders import batch, fetch, produce, produce_request, values
from moldau.testing.wire import WireClient

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
NAME = "listener.name.sasl_plaintext"
GOOD = b"\0alice\0alice-secret"
BAD = b"\0alice\0wrong"
CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    f"{NAME}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{NAME}.plain.sasl.jaas.config": f"{PLAIN} user_alice=alice-secret user_bob=bob-secret;",
    f"{NAME}.scram-sha-256.sasl.jaas.config": SCRAM,
    f"{NAME}.scram-sha-512.sasl.jaas.config": SCRAM,
    "connection.failed.authentication.delay.ms": "0",
}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class Sasl:
    """A server with the listeners PLAINTEXT and SASL_PLAINTEXT."""

    def __init__(self, running: Any) -> None:
        self.running = running
        self.plain, self.address = (f"{host}:{port}" for host, port in running.server.addresses[:2])

    def wire(self) -> WireClient:
        return WireClient(self.address)

    def principal_of(self, wire: WireClient) -> str:
        peer = "{}:{}".format(*wire._socket.getsockname())

        def find() -> str:
            (found,) = (each for each in self.running.network.connections if each.peer == peer)
            return str(found.authentication.principal)

        return str(self.running.call(find))

    def add_user(self, name: str, password: str, mechanism: ScramMechanism = SHA_256) -> None:
        salted = salted_password(mechanism, password, b"salt", 4096)
        change = ScramCredentialUpsertion(
            name=name, mechanism=mechanism.code, iterations=4096, salt=b"salt", salted_password=salted
        )
        with WireClient(self.plain) as wire:
            (result,) = wire.call(AlterUserScramCredentialsRequest(upsertions=[change]), 0).results
        assert result.error_code == 0, result

    def remove_user(self, name: str, mechanism: ScramMechanism = SHA_256) -> None:
        change = ScramCredentialDeletion(name=name, mechanism=mechanism.code)
        with WireClient(self.plain) as wire:
            (result,) = wire.call(AlterUserScramCredentialsRequest(deletions=[change]), 0).results
        assert result.error_code == 0, result


def handshake(wire: WireClient, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return wire.call(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(wire: WireClient, token: bytes = GOOD, version: int = 2) -> Any:
    return wire.call(SaslAuthenticateRequest(auth_bytes=token), version)


def scram(wire: WireClient, mechanism: ScramMechanism, user: str, password: str) -> Any:
    """The last response of an exchange."""
    handshake(wire, mechanism.name)
    first = authenticate(wire, f"n,,n={user},r=client".encode())
    if first.error_code:
        return first
    server_first = first.auth_bytes.decode()
    fields = dict(each.split("=", 1) for each in server_first.split(","))
    salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    without_proof = f"c=biws,r={fields['r']}"
    signed = f"n={user},r=client,{server_first},{without_proof}".encode()
    signature = hmac.digest(stored_key, signed, mechanism.digest)
    proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    return authenticate(wire, f"{without_proof},p={proof}".encode())


def is_served(wire: WireClient) -> bool:
    return not wire.call(MetadataRequest(topics=None), 9).topics


@pytest.fixture
def serve(make_server: Any) -> Any:
    """``serve({...})``: a server with these settings over `CONFIG`."""
    return lambda config=None: Sasl(make_server(config=CONFIG | (config or {})))


@pytest.fixture
def sasl(serve: Any) -> Sasl:
    started: Sasl = serve()
    return started


# -- successes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", [True, False], ids=["after ApiVersions", "without ApiVersions"])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain(sasl: Sasl, versions: bool, version: int) -> None:
    with sasl.wire() as wire:
        if versions:
            keys = {api.api_key for api in wire.call(ApiVersionsRequest(), 0).api_keys}
            assert {17, 36} < keys
        assert handshake(wire).mechanisms == MECHANISMS
        response = authenticate(wire, version=version)
        assert (response.error_code, response.auth_bytes, response.session_lifetime_ms) == (0, b"", 0)
        assert sasl.principal_of(wire) == "User:alice"
        assert is_served(wire)


def test_tokens_without_headers(sasl: Sasl) -> None:
    with sasl.wire() as wire:
        assert handshake(wire, version=0).error_code == 0
        wire.send_frame(GOOD)
        assert wire.receive_frame() == b""
        assert sasl.principal_of(wire) == "User:alice"
        assert is_served(wire)


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_scram(sasl: Sasl, mechanism: ScramMechanism) -> None:
    sasl.add_user("carol", "carol-secret", mechanism)
    with sasl.wire() as wire:
        response = scram(wire, mechanism, "carol", "carol-secret")
        assert response.error_code == 0
        assert response.auth_bytes.startswith(b"v=")
        assert sasl.principal_of(wire) == "User:carol"
        assert is_served(wire)


def test_requests_that_are_sent_with_the_last_token_are_served(sasl: Sasl) -> None:
    sasl.running.create_topic("t")
    with sasl.wire() as wire:
        wire.send(ApiVersionsRequest(), 0)
        wire.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        wire.send(SaslAuthenticateRequest(auth_bytes=GOOD), 1)
        wire.send(produce_request("t", batch(b"x")), 9)
        assert [wire.receive().error_code for _ in range(3)] == [0, 0, 0]
        assert wire.receive().responses[0].partition_responses[0].error_code == 0


def test_a_large_request_is_served_only_after_authentication(sasl: Sasl) -> None:
    sasl.running.create_topic("t")
    with sasl.wire() as wire:
        wire.send_bytes((524_289).to_bytes(4, "big"))
        assert wire.closed_by_server()
    with sasl.wire() as wire:
        handshake(wire)
        authenticate(wire)
        assert produce(wire, "t", batch(bytes(700_000))).error_code == 0


def test_bytes_may_arrive_one_by_one(sasl: Sasl) -> None:
    with sasl.wire() as wire:
        send = wire.send_bytes
        wire.send_bytes = lambda data: [send(bytes([byte])) for byte in data]  # type: ignore[assignment]
        wire.call(ApiVersionsRequest(), 0)
        handshake(wire)
        assert authenticate(wire).error_code == 0
        assert is_served(wire)


def test_the_frames_of_an_exchange_may_end_anywhere(sasl: Sasl) -> None:
    frames = [
        b"\0\x11\0\1\0\0\0\0\xff\xff\0\5PLAIN",
        b"\0\x24\0\0\0\0\0\1\xff\xff\0\0\0\x14\0alice\0alice-secret",
    ]
    data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    for length in range(len(data)):
        with sasl.wire() as wire:
            wire.send_bytes(data[:length])
    sasl.running.wait_until(lambda: not sasl.running.network.connections)


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_wrong_password_is_answered_and_the_connection_closed(sasl: Sasl, version: int) -> None:
    with sasl.wire() as wire:
        handshake(wire)
        response = authenticate(wire, BAD, version)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert response.error_message == "Authentication failed: Invalid username or password"
        assert wire.closed_by_server()


def test_a_wrong_token_without_header_closes_the_connection(sasl: Sasl) -> None:
    with sasl.wire() as wire:
        handshake(wire, version=0)
        wire.send_frame(BAD)
        assert wire.closed_by_server()


@pytest.mark.parametrize(("user", "password"), [("carol", "wrong"), ("mallory", "x"), ("alice", "alice-secret")])
def test_scram_failures_are_all_alike(sasl: Sasl, user: str, password: str) -> None:
    sasl.add_user("carol", "carol-secret")
    with sasl.wire() as wire:
        response = scram(wire, SHA_256, user, password)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert response.error_message.endswith("due to invalid credentials with SASL mechanism SCRAM-SHA-256")
        assert wire.closed_by_server()


def test_a_failure_is_answered_after_the_delay_and_nothing_is_read_meanwhile(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sasl = serve({"connection.failed.authentication.delay.ms": "1000000"})
    with sasl.wire() as wire:
        handshake(wire)
        wire.send(SaslAuthenticateRequest(auth_bytes=BAD), 1)
        wire.send(SaslAuthenticateRequest(auth_bytes=GOOD), 1)
        sasl.running.wait_until(lambda: "did not authenticate" in caplog.text)
        (connection,) = sasl.running.network.connections
        assert not sasl.running.call(lambda: connection._reading or connection.closed)
        # A shutdown does not wait for the delay.
        sasl.running.stop()
        assert wire.receive().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.closed_by_server()
    assert "wrong" not in caplog.text


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", ""])
def test_a_mechanism_that_is_not_enabled(sasl: Sasl, mechanism: str) -> None:
    with sasl.wire() as wire:
        response = handshake(wire, mechanism)
        assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert response.mechanisms == MECHANISMS
        assert wire.closed_by_server()


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0",
        b"\0\3\0\1\0\0\0\0\xff\xff\0\0\0\0",  # Metadata
        b"\0\x11\0\7\0\0\0\0\xff\xff\0\5PLAIN",  # SaslHandshake of an unknown version
        b"\0\x11\0\1\0\0\0\0\xff\xff\0\7PLAIN",  # SaslHandshake that ends too early
        b"\0\x24\0\0\0\0\0\0\xff\xff\0\0\0\0",  # SaslAuthenticate
        b"\x7f\xff\0\0\0\0\0\0\xff\xff",
        GOOD,
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_other_frames_before_authentication_close_the_connection(sasl: Sasl, frame: bytes, first: bool) -> None:
    with sasl.wire() as wire:
        if not first:
            wire.call(ApiVersionsRequest(), 0)
        wire.send_frame(frame)
        assert wire.closed_by_server()


def test_api_versions_may_be_repeated_only_after_an_error(sasl: Sasl) -> None:
    with sasl.wire() as wire:
        wire.send_frame(b"\0\x12\0\x63\0\0\0\0\xff\xff\0")
        assert wire.receive_frame()[4:6] == b"\0\x23"  # UNSUPPORTED_VERSION
        assert wire.call(ApiVersionsRequest(client_software_name="?"), 3).error_code == ErrorCode.INVALID_REQUEST
        assert wire.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3).error_code == 0
        wire.send(ApiVersionsRequest(), 0)
        assert wire.closed_by_server()


def test_requests_during_an_exchange(sasl: Sasl) -> None:
    with sasl.wire() as wire:
        handshake(wire)
        response = wire.call(ApiVersionsRequest(), 0)
        assert (response.error_code, response.api_keys) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert wire.closed_by_server()
    with sasl.wire() as wire:
        handshake(wire)
        response = handshake(wire)
        assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert wire.closed_by_server()
    with sasl.wire() as wire:
        handshake(wire)
        response = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", ErrorCode.ILLEGAL_SASL_STATE)]
        assert (response.brokers, response.cluster_id) == ([], None)
        assert wire.closed_by_server()


def test_a_connection_authenticates_once(sasl: Sasl) -> None:
    with sasl.wire() as wire:
        handshake(wire)
        authenticate(wire)
        assert handshake(wire).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert authenticate(wire).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert is_served(wire)


def test_listeners_without_sasl_reject_its_requests(sasl: Sasl) -> None:
    with WireClient(sasl.plain) as wire:
        assert handshake(wire).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert authenticate(wire).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert is_served(wire)


def test_a_client_that_does_not_authenticate_is_closed(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    sasl = serve({"moldau.authentication.timeout.ms": "50"})
    with sasl.wire() as wire:
        assert wire.closed_by_server()
    assert "it did not authenticate within 50 ms" in caplog.text


# -- users -------------------------------------------------------------------------------------------------------------


def test_users_are_changed_while_the_server_runs(sasl: Sasl) -> None:
    sasl.add_user("carol", "first")
    with sasl.wire() as old:
        assert scram(old, SHA_256, "carol", "first").error_code == 0
        sasl.add_user("carol", "second")
        for password, error in (("first", ErrorCode.SASL_AUTHENTICATION_FAILED), ("second", ErrorCode.NONE)):
            with sasl.wire() as wire:
                assert scram(wire, SHA_256, "carol", password).error_code == error
        sasl.remove_user("carol")
        with sasl.wire() as wire:
            assert scram(wire, SHA_256, "carol", "second").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert is_served(old)  # existing connections are not closed


def test_users_survive_a_restart(sasl: Sasl) -> None:
    sasl.add_user("carol", "carol-secret")
    again = Sasl(sasl.running.restart())
    with again.wire() as wire:
        assert scram(wire, SHA_256, "carol", "carol-secret").error_code == 0


# -- sessions with a lifetime ------------------------------------------------------------------------------------------


class Clock:
    """The clock of the sessions, which the test moves."""

    def __init__(self, sasl: Sasl) -> None:
        self._timers = sasl.running.network.timers
        self._now_ms = self._timers.now_ms
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return int(self._now_ms()) + self.ahead_ms


@pytest.fixture
def session(serve: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Sasl, Clock]:
    """A server whose sessions last an hour, and a clock."""
    sasl = serve({f"{NAME}.plain.connections.max.reauth.ms": "3600000", "connections.max.reauth.ms": "1"})
    clock = Clock(sasl)
    monkeypatch.setattr(type(sasl.running.network.timers), "now_ms", lambda _self: clock.now_ms())
    return sasl, clock


def test_the_lifetime_of_a_session_is_reported(session: tuple[Sasl, Clock]) -> None:
    sasl, _ = session
    for version, lifetime_ms in ((0, 0), (1, 3_600_000), (2, 3_600_000)):
        with sasl.wire() as wire:
            handshake(wire)
            assert authenticate(wire, version=version).session_lifetime_ms == lifetime_ms
            assert is_served(wire)


def test_a_client_authenticates_again(session: tuple[Sasl, Clock]) -> None:
    sasl, clock = session
    sasl.running.create_topic("t")
    with sasl.wire() as wire:
        handshake(wire)
        authenticate(wire)
        for attempt in range(3):
            assert produce(wire, "t", batch(b"x")).error_code == 0
            if attempt:  # the first time, there is no lower limit
                assert handshake(wire).error_code == ErrorCode.ILLEGAL_SASL_STATE  # within a second
                clock.ahead_ms += 3_599_000
                assert produce(wire, "t", batch(b"x")).error_code == 0
            assert handshake(wire).error_code == 0
            assert authenticate(wire).session_lifetime_ms == 3_600_000


@pytest.mark.parametrize("request_", [MetadataRequest(topics=None), ApiVersionsRequest()])
def test_after_the_end_of_a_session_a_request_closes_the_connection(session: tuple[Sasl, Clock], request_: Any) -> None:
    sasl, clock = session
    with sasl.wire() as wire, sasl.wire() as renewed:
        for each in (wire, renewed):
            handshake(each)
            authenticate(each)
            assert is_served(each)
        clock.ahead_ms = 3_600_001
        wire.send(request_, 1)
        assert wire.closed_by_server()
        assert handshake(renewed).error_code == 0
        assert authenticate(renewed).error_code == 0


def test_the_fast_path_ends_with_the_session(session: tuple[Sasl, Clock]) -> None:
    sasl, clock = session
    sasl.running.create_topic("t")
    with sasl.wire() as wire:
        handshake(wire)
        authenticate(wire)
        for _ in range(3):
            assert produce(wire, "t", batch(b"x")).error_code == 0
        (connection,) = sasl.running.network.connections
        assert connection.produce_fast_path is not None
        clock.ahead_ms = 3_600_001
        sasl.running.call(lambda: connection.authentication._session_ended(connection))  # as the timer does
        wire.send(produce_request("t", batch(b"x")), 9)
        assert wire.closed_by_server()
    with WireClient(sasl.plain) as wire:
        assert values(fetch(wire, "t", 0)) == [b"x"] * 3


def test_another_principal_cannot_take_over_a_session(session: tuple[Sasl, Clock]) -> None:
    sasl, clock = session
    with sasl.wire() as wire:
        handshake(wire)
        authenticate(wire)
        clock.ahead_ms = 1000
        assert handshake(wire).error_code == 0
        response = authenticate(wire, b"\0bob\0bob-secret")
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.closed_by_server()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "GSSAPI"])
def test_a_session_continues_with_the_same_mechanism(session: tuple[Sasl, Clock], mechanism: str) -> None:
    sasl, clock = session
    with sasl.wire() as wire:
        handshake(wire)
        authenticate(wire)
        clock.ahead_ms = 1000
        if mechanism == "GSSAPI":
            wire.send(SaslHandshakeRequest(mechanism=mechanism), 1)
        else:
            assert handshake(wire, mechanism).error_code == 0
            wire.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"), 1)
        assert wire.closed_by_server()


def test_other_requests_during_a_new_authentication_close_the_connection(session: tuple[Sasl, Clock]) -> None:
    sasl, clock = session
    with sasl.wire() as wire:
        handshake(wire)
        authenticate(wire)
        clock.ahead_ms = 1000
        handshake(wire)
        assert wire.call(MetadataRequest(topics=None), 13).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wire.closed_by_server()


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({f"{NAME}.sasl.enabled.mechanisms": "DIGEST-MD5"}, "DIGEST-MD5 is not supported, only PLAIN, SCRAM-SHA-256"),
        ({f"{NAME}.sasl.enabled.mechanisms": ""}, "it is empty"),
        ({f"{NAME}.plain.sasl.jaas.config": f"{PLAIN} user_a=SECRET"}, "the semicolon at the end is missing"),
        ({f"{NAME}.plain.sasl.jaas.config": SCRAM}, "must be org.apache.kafka.common.security.plain.PlainLoginModule"),
        (
            {"listeners": "OTHER://127.0.0.1:0", "listener.security.protocol.map": "OTHER:SASL_PLAINTEXT",
             "sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": f"{PLAIN} user_a=SECRET;"},
            "listener.name.other.plain.sasl.jaas.config: it is missing",
        ),
        ({f"{NAME}.plain.sasl.server.callback.handler.class": "a.B"}, "Java classes are not loaded"),
        ({"sasl.server.callback.handler.class": "a.B"}, "Java classes are not loaded"),
        ({"principal.builder.class": "a.B"}, "principal.builder.class"),
        ({"listeners": "SASL_SSL://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"}, "ssl.keystore.location"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used_prevent_startup(serve: Any, config: dict[str, str], problem: str) -> None:
    with pytest.raises(StartError) as raised:
        serve(config)
    assert problem in str(raised.value)
    assert "SECRET" not in str(raised.value)


def test_jaas_configurations_in_a_file(make_server: Any, tmp_path: Path) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(f'KafkaServer {{ {PLAIN} user_alice="alice-secret"; {SCRAM} }};')
    settings = {name: value for name, value in CONFIG.items() if not name.endswith("jaas.config")}
    server = Sasl(make_server(config=settings | {"moldau.jaas.file": str(path)}))
    with server.wire() as wire:
        handshake(wire)
        assert authenticate(wire, GOOD).error_code == 0
        assert server.principal_of(wire) == "User:alice"
    server.running.stop()
    for text, problem in (
        (None, "No such file or directory"),
        ("KafkaServer { x required SECRET };", "the value of an option is missing"),
        (f"KafkaServer {{ {SCRAM} }};", "plain.sasl.jaas.config: it is missing"),
    ):
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        with pytest.raises(StartError, match=problem) as raised:
            make_server(config=settings | {"moldau.jaas.file": str(path)})
        assert "SECRET" not in str(raised.value)


def test_passwords_without_encryption_beyond_this_machine_are_a_warning(
    make_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    make_server(config=CONFIG | {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}).stop()
    assert "without encryption" not in caplog.text
    make_server(config=CONFIG | {"listeners": "SASL_PLAINTEXT://0.0.0.0:0"})
    assert "accepts passwords (PLAIN) without encryption beyond this machine" in caplog.text


def test_sasl_over_tls(make_server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from .test_tls import AUTHORITY, KEY, TRUSTED, TlsClient

    settings = {name.replace("sasl_plaintext", "sasl_ssl"): value for name, value in CONFIG.items()}
    settings |= KEY | TRUSTED | {"ssl.client.auth": "required"}
    running = make_server(config=settings | {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0"})
    assert "does not ask clients for certificates: ssl.client.auth=required applies to listeners without" in caplog.text
    sasl = Sasl(running)
    with TlsClient(sasl.address, tmp_path, AUTHORITY.issue("other")) as wire:
        handshake(wire)
        assert authenticate(wire).error_code == 0
        assert sasl.principal_of(wire) == "User:alice"
        assert is_served(wire)

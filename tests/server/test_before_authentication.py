"""Invalid input before authentication: exchanges that are cut, replayed and too long, stolen tokens, random bytes.

One server has a listener of each security protocol. `tests/abuse` has the attacks with thousands of connections.
"""

from __future__ import annotations

import logging
import random
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.headers import RequestHeader
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.security.sasl_client import Credentials, new_client
from moldau.security.scram import SHA_256, SHA_512
from moldau.server.network.peer_log import LINES_OF_A_PEER
from moldau.testing.client_hello import client_hello
from moldau.testing.wire import WireClient

from .test_oauthbearer import KEYS, document, signed
from .test_sasl import CONFIG, GOOD, Sasl, authenticate, handshake, is_served
from .test_tls import AUTHORITY
from .test_tls import KEY as SERVER_KEY

OAUTH = "org.apache.kafka.common.security.oauthbearer"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
LIMIT = 524_288
"""``sasl.server.max.receive.size``."""


def settings_of(listener: str, keys: Path) -> dict[str, str]:
    """The settings of `CONFIG` for another listener, with OAUTHBEARER."""
    prefix = f"listener.name.{listener}"
    found = {name.replace("listener.name.sasl_plaintext", prefix): value for name, value in CONFIG.items()}
    return found | {
        f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
        f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }


class Exposed(Sasl):
    """A server with a listener of each protocol."""

    def __init__(self, running: Any) -> None:
        super().__init__(running)
        self.addresses = {
            name: f"{host}:{port}" for name, (host, port) in zip(PROTOCOLS, running.server.addresses, strict=True)
        }
        self.address = self.addresses["SASL_PLAINTEXT"]
        self.context = ssl.create_default_context(cadata=AUTHORITY.certificate)

    def wire_to(self, protocol: str) -> WireClient:
        wire = WireClient(self.addresses[protocol])
        if protocol.endswith("SSL"):
            wire._socket = self.context.wrap_socket(wire._socket, server_hostname="127.0.0.1")
        return wire

    def serves_others(self) -> None:
        with WireClient(self.plain) as wire:
            assert is_served(wire)

    def wait_for_no_connections(self) -> None:
        self.running.wait_until(lambda: not self.running.network.connections)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    path.write_bytes(document("first"))
    return path


@pytest.fixture
def exposed(make_server: Any, keys: Path) -> Exposed:
    config = {
        **CONFIG,
        **settings_of("sasl_plaintext", keys),
        **settings_of("sasl_ssl", keys),
        **SERVER_KEY,
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in PROTOCOLS),
        "sasl.oauthbearer.expected.audience": "moldau",
        "org.apache.kafka.sasl.oauthbearer.allowed.files": keys.as_uri(),
    }
    server = Exposed(make_server(config=config))
    for mechanism in (SHA_256, SHA_512):
        server.add_user("carol", "carol-secret", mechanism)
    return server


class _OAuthClient:
    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {signed()}\x01\x01".encode()

    def next(self, token: bytes) -> None:
        assert not token


def client_of(mechanism: str) -> Any:
    """A client of `sasl_client.SaslClient` with the right credentials."""
    if mechanism == "OAUTHBEARER":
        return _OAuthClient()
    user = "alice" if mechanism == "PLAIN" else "carol"
    return new_client(Credentials(mechanism, user, f"{user}-secret"), "nonce")


def tokens_of(mechanism: str, answer: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """The tokens of a client. ``answer`` returns the response to the latest one."""
    client = client_of(mechanism)
    token = client.first()
    while token is not None:
        yield token
        token = client.next(answer(token))


def log_in(wire: WireClient, mechanism: str, cut: Callable[[int, bytes], bytes] = lambda _, token: token) -> Any:
    """Authenticate with the tokens that ``cut`` returns, until one fails; the last response."""
    handshake(wire, mechanism)
    client = client_of(mechanism)
    token, step = client.first(), 0
    while True:
        sent = cut(step, token)
        response = authenticate(wire, sent)
        if response.error_code:
            return response
        answer = bytes(response.auth_bytes)
        if sent != token and answer.startswith(b"r="):
            # A shorter nonce is a nonce. The client continues with the one that it has meant.
            answer = answer.replace(nonce := sent.rpartition(b",")[2], nonce + token[len(sent) :], 1)
        token, step = client.next(answer), step + 1
        if token is None:
            return response


def recording(sent: list[bytes]) -> Callable[[int, bytes], bytes]:
    """Changes no token, and appends each to ``sent``."""

    def keep(_: int, token: bytes) -> bytes:
        sent.append(token)
        return token

    return keep


def lengths_below(size: int, mechanism: str) -> list[int]:
    """Where data is cut: at every byte. Tokens of a provider are long, and only what is around them is of the
    mechanism, so they are cut at some bytes."""
    inside = range(40, size - 40) if mechanism == "OAUTHBEARER" else ()
    return [length for length in range(size) if length not in inside or not length % 17]


# -- exchanges that are cut --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_token_that_is_cut_at_any_byte_does_not_authenticate(exposed: Exposed, mechanism: str) -> None:
    sent: list[bytes] = []
    with exposed.wire() as wire:
        assert log_in(wire, mechanism, recording(sent)).error_code == 0
        assert is_served(wire)
    for step, complete in enumerate(sent):
        for length in lengths_below(len(complete), mechanism):
            with exposed.wire() as wire:

                def cut(at: int, token: bytes, step: int = step, length: int = length) -> bytes:
                    return token[:length] if at == step else token

                response = log_in(wire, mechanism, cut)
                assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, (step, length)
                assert not response.auth_bytes
                assert wire.closed_by_server()
    exposed.serves_others()
    exposed.wait_for_no_connections()


@pytest.mark.parametrize("version", [0, 1], ids=["tokens without headers", "SaslAuthenticate"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_connection_that_ends_at_any_byte_of_an_exchange_leaves_nothing(
    exposed: Exposed, mechanism: str, version: int
) -> None:
    def frame_of(token: bytes) -> bytes:
        if version == 0:
            return len(token).to_bytes(4, "big") + token
        body = b"\0\x24\0\0\0\0\0\1\xff\xff" + len(token).to_bytes(4, "big") + token
        return len(body).to_bytes(4, "big") + body

    def answer(wire: WireClient, token: bytes) -> bytes:
        if version:
            return bytes(authenticate(wire, token, 0).auth_bytes)
        wire.send_frame(token)
        return wire.receive_frame()

    def begin(steps: int) -> tuple[WireClient, bytes]:
        """A connection after a number of tokens, and the frame of the next one."""
        wire = exposed.wire()
        assert handshake(wire, mechanism, version).error_code == 0
        for step, token in enumerate(tokens_of(mechanism, lambda token: answer(wire, token))):
            if step == steps:
                return wire, frame_of(token)
        raise AssertionError("there are fewer tokens")

    for steps in (0, 1) if mechanism.startswith("SCRAM") else (0,):
        wire, complete = begin(steps)
        wire.close()
        for length in lengths_below(len(complete), mechanism):
            wire, data = begin(steps)
            with wire:
                wire.send_bytes(data[:length])
                match length % 3:
                    case 0:
                        wire._socket.shutdown(socket.SHUT_WR)
                        assert wire.closed_by_server()
                    case 1:
                        reset = b"\1\0\0\0\0\0\0\0"
                        wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    exposed.serves_others()
    exposed.wait_for_no_connections()


# -- tokens that are stolen, replayed, expired or too long -------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_recorded_messages_of_an_exchange_authenticate_nobody(exposed: Exposed, mechanism: str) -> None:
    recorded: list[bytes] = []
    with exposed.wire() as wire:
        log_in(wire, mechanism, recording(recorded))
        assert is_served(wire)
    with exposed.wire() as wire:
        handshake(wire, mechanism)
        assert authenticate(wire, recorded[0]).error_code == 0
        assert authenticate(wire, recorded[1]).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.closed_by_server()
    with exposed.wire() as wire:  # in one connection, the last message again
        log_in(wire, mechanism)
        assert authenticate(wire, recorded[1]).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert is_served(wire)


@pytest.mark.parametrize(
    ("token", "authorization_id"),
    [
        pytest.param(lambda: signed(), "mallory", id="of alice, for another user"),
        pytest.param(lambda: signed(aud="another service"), "", id="for another service"),
        pytest.param(lambda: signed(exp=1_700_000_001), "", id="expired"),
        pytest.param(lambda: signed("second"), "", id="with a key that the provider does not have"),
        pytest.param(lambda: signed().rpartition(".")[0] + ".", "", id="without its signature"),
        pytest.param(
            lambda: ".".join((signed().split(".")[0], signed(sub="mallory").split(".")[1], signed().split(".")[2])),
            "",
            id="with the claims of another",
        ),
    ],
)
def test_a_stolen_or_expired_token_is_refused(
    exposed: Exposed, token: Callable[[], str], authorization_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert set(KEYS) == {"first", "second"}
    stolen = token()
    with exposed.wire() as wire:
        handshake(wire, "OAUTHBEARER")
        name = f"a={authorization_id}" if authorization_id else ""
        response = authenticate(wire, f"n,{name},\x01auth=Bearer {stolen}\x01\x01".encode())
        if not authorization_id:
            assert (response.error_code, response.auth_bytes) == (0, b'{"status":"invalid_token"}')
            response = authenticate(wire, b"\x01")
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.closed_by_server()
    assert stolen not in caplog.text


def test_invalid_tokens_cause_few_and_short_lines(exposed: Exposed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with exposed.wire() as wire:
        handshake(wire, "OAUTHBEARER")
        for number in range(100):
            token = signed(aud=f"{number}" + "x" * 20_000)
            response = authenticate(wire, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
            assert response.auth_bytes == b'{"status":"invalid_token"}'
        # A valid token is accepted after them.
        assert authenticate(wire, client_of("OAUTHBEARER").first()).error_code == 0
    lines = [record.getMessage() for record in caplog.records if "its token is not valid" in record.getMessage()]
    assert len(lines) == 1
    assert len(lines[0]) < 1000


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("size", [LIMIT - 100, LIMIT + 1], ids=["at the limit", "above the limit"])
def test_a_huge_token_is_refused(exposed: Exposed, mechanism: str, size: int) -> None:
    beginning = {"PLAIN": b"\0alice\0", "OAUTHBEARER": b"n,,\x01auth=Bearer "}.get(mechanism, b"n,,n=carol,r=")
    token = beginning + b"x" * (size - len(beginning))
    with exposed.wire() as wire:
        handshake(wire, mechanism)
        wire.send(SaslAuthenticateRequest(auth_bytes=token), 0)
        if size > LIMIT:
            assert wire.closed_by_server()
        else:
            assert wire.receive().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert wire.closed_by_server()
    exposed.serves_others()


@pytest.mark.parametrize(("size", "first_part"), [(200_000, 190_000), (40_000, 30_000)])
def test_huge_tokens_of_strangers_take_no_memory_from_others(
    make_server: Any, caplog: pytest.LogCaptureFixture, size: int, first_part: int
) -> None:
    """One of them is received. Meanwhile further ones are refused, and other clients do not wait."""
    limits = {"socket.request.max.bytes": "1048576", "queued.max.request.bytes": "1048576"}
    limits["moldau.authentication.timeout.ms"] = "60000"
    server = Sasl(make_server(config=CONFIG | limits))
    request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + b"x" * size)
    large = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 20_000) for _ in range(40)])
    with server.wire() as first, server.wire() as second, server.wire() as third, WireClient(server.plain) as plain:
        header = RequestHeader(request_api_key=request.API_KEY, correlation_id=1)
        frame = encode(header, 1) + encode(request, 0)
        frame = len(frame).to_bytes(4, "big") + frame
        for wire in (first, second, third):
            handshake(wire, "PLAIN")
        first.send_bytes(frame[:first_part])
        server.running.wait_until(lambda: server.running.network.budget.used_bytes >= first_part)
        for wire in (second, third):
            wire.send_bytes(frame[:first_part])
            assert wire.closed_by_server()
        assert plain.call(large).topics
        first.send_bytes(frame[first_part:])
        assert first.receive_frame().endswith(b"Invalid username or password" + b"\0\0\0\0")
    assert "large requests of peers that are not authenticated take too much memory" in caplog.text


# -- random input ------------------------------------------------------------------------------------------------------


def valid_streams() -> list[bytes]:
    """What clients send first."""

    def framed(*frames: bytes) -> bytes:
        return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)

    versions = b"\0\x12\0\0\0\0\0\0\xff\xff"
    metadata = b"\0\3\0\1\0\0\0\2\xff\xff\xff\xff\xff\xff"
    streams = [framed(versions, metadata)]
    for mechanism in MECHANISMS:
        name = mechanism.encode()
        token = client_of(mechanism).first()
        shake = b"\0\x11\0%c\0\0\0\0\xff\xff" + len(name).to_bytes(2, "big") + name
        authentication = b"\0\x24\0\0\0\0\0\1\xff\xff" + len(token).to_bytes(4, "big") + token
        streams += [
            framed(versions, shake.replace(b"%c", b"\1"), authentication, metadata),
            framed(shake.replace(b"%c", b"\0"), token, metadata),
            framed(shake.replace(b"%c", b"\1"), metadata),
        ]
    return streams


def changed(data: bytes, dice: random.Random) -> bytes:
    """The bytes with a few changes."""
    made = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 5))):
        at = dice.randrange(len(made)) if made else 0
        match dice.randrange(5):
            case 0 if made:
                made[at] = dice.choice((0, 1, 127, 128, 255, dice.randrange(256)))
            case 1:
                del made[at : at + dice.randrange(1, 9)]
            case 2:
                made[at:at] = dice.randbytes(dice.randrange(1, 9))
            case 3:
                del made[at:]
            case _:
                made[at:at] = bytes(made[at : at + 40])
    return bytes(made)


def send_and_read(wire: WireClient, data: bytes) -> None:
    """Send, end the stream, and read to the end: the server closes the connection in any case."""
    try:
        wire.send_bytes(data)
        if not isinstance(wire._socket, ssl.SSLSocket):
            wire._socket.shutdown(socket.SHUT_WR)
            while wire._socket.recv(65_536):
                pass
    except OSError:
        pass  # it was closed before


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_random_input_is_closed_with_few_lines_and_does_not_affect_others(
    exposed: Exposed, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    dice = random.Random(protocol)
    streams = valid_streams()
    hello = client_hello()
    caplog.clear()
    for round_ in range(100):
        if protocol.endswith("SSL") and round_ % 2:  # below TLS
            with WireClient(exposed.addresses[protocol]) as wire:
                send_and_read(wire, changed(hello, dice))
        else:
            with exposed.wire_to(protocol) as wire:
                send_and_read(wire, changed(dice.choice(streams), dice))
    lines = [record.getMessage() for record in caplog.records]
    assert not [line for line in lines if "unexpected error" in line]
    assert len(lines) <= LINES_OF_A_PEER, lines
    exposed.serves_others()
    exposed.wait_for_no_connections()


def test_each_request_during_an_exchange_is_refused(exposed: Exposed, caplog: pytest.LogCaptureFixture) -> None:
    """All APIs, in versions that are served: nothing is done, and the connection is closed."""
    from moldau.protocol.api import request_class
    from moldau.protocol.samples import Samples
    from moldau.server.apis import APIS

    samples = Samples(1)
    for api in APIS:
        for version in {max(api.min_version, api.lowest_served), api.max_version}:
            request: Any = samples.message(request_class(api.key), version)
            if api.key.name == "SASL_AUTHENTICATE":
                continue
            with exposed.wire() as wire:
                handshake(wire)
                wire.send(request, version)
                while not wire.closed_by_server():
                    pass
    assert "unexpected error" not in caplog.text
    exposed.serves_others()
    exposed.wait_for_no_connections()


def test_what_a_request_during_an_exchange_asks_for_is_not_done(exposed: Exposed) -> None:
    exposed.running.create_topic("secret")
    with exposed.wire() as wire:
        wire.call(ApiVersionsRequest(), 0)
        wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        response = wire.call(MetadataRequest(topics=None), 13)
        assert (response.error_code, response.topics, response.brokers) == (ErrorCode.ILLEGAL_SASL_STATE, [], [])
        wire._socket.settimeout(60)
        try:
            wire.send(SaslAuthenticateRequest(auth_bytes=GOOD), 2)
        except OSError:
            pass
        else:
            assert wire.closed_by_server()

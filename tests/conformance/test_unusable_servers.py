"""What `moldau conformance` prints if there is no Kafka server at the address, or another one than expected."""

from __future__ import annotations

import contextlib
import http.server
import io
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.cli.main import main
from moldau.testing import Broker
from moldau.testing.certificates import certificate

from .fake_servers import Proxy, fake_server

SECONDS = 30.0


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def conformance(*arguments: str) -> Ended:
    """Run the command in this process, within seconds."""
    out, err = io.StringIO(), io.StringIO()
    began = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(["conformance", *arguments])
    assert time.monotonic() - began < SECONDS
    assert "Traceback" not in err.getvalue()
    code = ended.value.code
    assert isinstance(code, int)
    return Ended(code, out.getvalue(), err.getvalue())


def check_unusable(address: str, *expected: str, options: tuple[str, ...] = ("--patience", "0.2")) -> None:
    code, out, err = conformance(address, *options)
    assert (code, out) == (2, ""), err
    assert err.startswith("moldau: "), err
    assert err.count("\n") == 1, err
    for text in (*expected, address):
        assert text in err, err


def test_an_address_without_a_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

    check_unusable(address, "nothing listens", "Start the server")


def test_the_host_does_not_exist() -> None:
    check_unusable("no-such-host.invalid:9092", "cannot be resolved")


def test_the_host_is_not_a_name() -> None:
    check_unusable(f"{'a' * 70}.example:9092", "Check the name")


def closes(peer: socket.socket) -> None:
    """Closes immediately."""


def closes_after_the_request(peer: socket.socket) -> None:
    peer.recv(1)


def never_responds(peer: socket.socket) -> None:
    while peer.recv(4096):
        pass


def sends_one_byte_now_and_then(peer: socket.socket) -> None:
    peer.settimeout(0.3)
    while True:
        peer.sendall(b"\0")
        try:
            if not peer.recv(4096):
                return
        except TimeoutError:
            pass


def says(data: bytes) -> Callable[[socket.socket], None]:
    def serve(peer: socket.socket) -> None:
        peer.recv(4096)
        peer.sendall(data)
        never_responds(peer)

    return serve


@pytest.mark.parametrize(
    ("serve", "expected"),
    [
        (closes, "closed the connection"),
        (closes_after_the_request, "closed the connection"),
        (never_responds, "does not respond within 2 s"),
        (sends_one_byte_now_and_then, "not a Kafka server"),
        (says(b"\xde\xad\xbe\xef" * 16), "not a Kafka server: its first bytes are de ad be ef"),
        (says(b"\x7f\xff\xff\xff\0\0\0\0"), "not a Kafka server"),
        (says(b"\0\0\0\x05\0\0\0\x01"), "not a Kafka server"),
        (says(b"\0\0\0\x0a\0\0\0\0\0\0\0\0\0\x09"), "not a response to ApiVersions"),
        (says(b"\0\0\0\x0a\0\0\0\0\0\0\0\0\0\0"), "lists no APIs"),
        # Some servers send bytes after the response, which cases report; the reason is in the response.
        (says(b"\0\0\0\x0b\0\0\0\0\0\0\0\0\0\0\x07"), "lists no APIs"),
        (says(b"SSH-2.0-OpenSSH_9.2\r\n"), "an SSH server"),
        (says(b"\x15\x03\x01\0\x02\x02\x46"), "a TLS listener. Use --tls."),
        (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "an HTTP server"),
        (says(b"\0\0\0\x0a\0\0\0\0\0\x23\0\0\0\0"), "UNSUPPORTED_VERSION"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_another_server(serve: Callable[[socket.socket], None], expected: str) -> None:
    with fake_server(serve) as address:
        check_unusable(address, expected)


@pytest.mark.parametrize("threads", [True, False], ids=["threads", "one connection at a time"])
def test_an_http_server_that_waits_for_a_line(threads: bool) -> None:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer if threads else http.server.HTTPServer):  # type: ignore[misc]
        def handle_error(self, request: object, client_address: object) -> None:
            """The suite may leave while the server responds. The default prints to the same standard error."""

    with Server(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        check_unusable(f"127.0.0.1:{server.server_port}", "an HTTP server")
        server.shutdown()


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, with its key."""
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(thread=True, memory=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def tls_address(pem: Path, broker: Broker) -> Iterator[str]:
    """A TLS listener before a broker."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)

    def serve(peer: socket.socket) -> None:
        host, port = broker.bootstrap_servers.split(":")
        with (
            context.wrap_socket(peer, server_side=True) as client,
            socket.create_connection((host, int(port))) as server,
        ):

            def back() -> None:
                while data := server.recv(65_536):
                    client.sendall(data)

            thread = threading.Thread(target=lambda: _ignoring_errors(back), daemon=True)
            thread.start()
            while data := client.recv(65_536):
                server.sendall(data)

    with fake_server(serve) as address:
        yield address


def _ignoring_errors(action: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        action()


def test_a_tls_listener_without_tls(tls_address: str) -> None:
    check_unusable(tls_address, "a TLS listener. Use --tls.")


def test_a_tls_listener_whose_certificate_is_unknown(tls_address: str) -> None:
    check_unusable(tls_address, "not trusted", "--tls-ca", options=("--tls",))


@pytest.mark.parametrize("verified", [True, False])
def test_a_tls_listener(tls_address: str, pem: Path, verified: bool) -> None:
    options = ("--tls-ca", str(pem)) if verified else ("--tls-no-verify",)
    code, out, err = conformance(tls_address, *options, "--case", "produce.exchange")
    assert code == 0, out + err


def test_a_server_with_an_extra_byte_in_each_response_is_tested_and_fails(broker: Broker) -> None:
    """Most clients do not notice it, so the remaining behavior of such a server can be tested."""
    with Proxy(broker.bootstrap_servers) as proxy:
        proxy.extra = b"\x07"
        code, out, err = conformance(proxy.address, "--case", "produce.exchange")
    assert (code, err) == (1, ""), out
    assert "1 bytes too many at the end of ProduceResponse" in out
    assert "lost" not in out


def test_tls_for_a_plaintext_listener(broker: Broker) -> None:
    check_unusable(broker.bootstrap_servers, "does not use TLS", "Omit --tls", options=("--tls",))


def test_sasl_for_a_listener_without_sasl(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    options = ("--sasl-mechanism", "PLAIN", "--username", "ann", "--password-file", str(tmp_path / "password"))
    check_unusable(broker.bootstrap_servers, "does not use SASL", options=options)


# Options


@pytest.mark.parametrize(
    "address", ["localhost", "localhost:", ":9092", "localhost:0", "localhost:65536", "localhost:-1", "localhost:kafka"]
)
def test_an_address_that_is_none(address: str) -> None:
    code, _, err = conformance(address)
    assert code == 2
    assert f"'{address}' is not HOST:PORT" in err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("127.0.0.1:9", "--area", "prodcue"), "There is no area 'prodcue'. Did you mean produce?"),
        (("127.0.0.1:9", "--case", "produce.acks.nine"), "Did you mean produce.acks.none"),
        (("explain", "produce.acks.nine"), "Did you mean produce.acks.none"),
        (("explain", "produce.acks"), "produce.acks is a group of cases"),
        (("list", "--area", "prodcue"), "Did you mean produce?"),
        (("explian", "produce.acks.none"), "Did you mean explain?"),
        (("127.0.0.1:9", "--html", "no/such/folder/report.html"), "the folder no/such/folder does not exist"),
        (("127.0.0.1:9", "--kill-command", "true"), "both --kill-command and --restart-command"),
        (("127.0.0.1:9", "--sasl-mechanism", "PLAIN"), "needs --username"),
        (("127.0.0.1:9", "--username", "ann"), "need --sasl-mechanism"),
        (("127.0.0.1:9", "--sasl-mechanism", "PLAIN", "--username", "ann"), "--password-file"),
        (("127.0.0.1:9", "--sasl-mechanism", "GSSAPI"), "SCRAM-SHA-256"),
    ],
)
def test_a_wrong_option(arguments: tuple[str, ...], expected: str) -> None:
    code, out, err = conformance(*arguments)
    assert (code, out) == (2, "")
    assert expected in err


def test_a_file_that_is_no_certificate(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("not PEM")
    for option in ("--tls-ca", "--tls-certificate"):
        code, _, err = conformance("127.0.0.1:9", option, str(wrong))
        assert code == 1
        assert f"{wrong}" in err
        assert "PEM" in err

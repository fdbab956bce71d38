"""Metrics that are pushed with OTLP. The receiver of most tests decodes requests with opentelemetry-proto."""

from __future__ import annotations

import gzip
import http.server
import logging
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moldau.server.metrics.families import Family, Kind, Sample, labels
from moldau.server.metrics.listener import MetricsError
from moldau.server.metrics.otlp import MAX_POINTS, Endpoint, Pusher, endpoint_of
from moldau.server.nodes.server import StartError
from moldau.testing.authority import Authority
from moldau.testing.builders import batch, produce
from moldau.testing.topic_requests import create_topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .conftest import MakeServer

service = pytest.importorskip(
    "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2", reason="needs pip install 'moldau[otlp]'"
)

Respond = Callable[[Any], tuple[int, bytes]]


class Receiver:
    """An HTTP server that keeps the requests that it has received."""

    def __init__(self, respond: Respond | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, Mapping[str, str], Any]] = []
        self.respond: Respond = respond or (lambda _: (200, b""))
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
                request = service.ExportMetricsServiceRequest.FromString(body)
                receiver.requests.append((self.path, dict(self.headers), request))
                status, text = receiver.respond(request)
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.port = self._server.server_port
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}/v1/metrics"

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def metrics(self) -> dict[str, Any]:
        """The received metrics by name; of those that came several times, the last."""
        return {
            metric.name: metric
            for _, _, request in list(self.requests)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def points_of(metric: Any) -> dict[tuple[tuple[str, str], ...], float]:
    """The values of a metric by attributes."""
    points = metric.sum.data_points or metric.gauge.data_points
    return {
        tuple((each.key, each.value.string_value) for each in point.attributes): (
            point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
        )
        for point in points
    }


class Fixed:
    """A source with these metrics."""

    def __init__(self, *families: Family | None) -> None:
        self._families = families
        self.is_ready = True

    def identity(self) -> Mapping[str, str] | None:
        return {"service.name": "moldau"} if self.is_ready else None

    def families(self) -> Iterator[Family | None]:
        yield from self._families


ONE = Family("a_metric", Kind.GAUGE, "Help.", [Sample("", 1)])


def endpoint(url: str, interval_s: float = 0.05) -> Endpoint:
    return endpoint_of(url, "", interval_s)


@contextmanager
def pushing(url: str, source: Fixed) -> Iterator[Pusher]:
    pusher = Pusher(endpoint(url), source)
    pusher.start()
    try:
        yield pusher
    finally:
        pusher.close()


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "moldau.server.metrics.otlp"]


def test_a_server_pushes_the_metrics_that_it_serves(make_server: MakeServer) -> None:
    with Receiver() as receiver:
        server = make_server(
            config={
                "moldau.metrics.otlp.endpoint": receiver.url,
                "moldau.metrics.otlp.interval.ms": "1000",
                "moldau.metrics.otlp.headers": "Authorization=Bearer%20secret, x-tenant=a",
            }
        )
        create_topic(server.bootstrap_servers, "orders")
        with WireClient(server.bootstrap_servers) as wire:
            assert produce(wire, "orders", batch(b"a", b"b")).error_code == 0
        name = "kafka_server_brokertopicmetrics_messagesin_total"
        topic = (("topic", "orders"),)
        requests, produced = "kafka_network_requestmetrics_totaltimems_count_total", (("request", "Produce"),)
        # A push may be between the creation of the topic and the request, or between the two metrics.
        wait_until(
            lambda: (
                points_of(receiver.metrics()[name]).get(topic) == 2
                and points_of(receiver.metrics()[requests]).get(produced) == 1
                if {name, requests} <= receiver.metrics().keys()
                else False
            )
        )
        metric = receiver.metrics()[name]
        assert metric.sum.is_monotonic
        assert metric.sum.aggregation_temporality == 2  # cumulative
        assert all(0 < point.start_time_unix_nano < point.time_unix_nano for point in metric.sum.data_points)
        assert points_of(receiver.metrics()["kafka_server_kafkaserver_brokerstate"]) == {(): 3}
        path, headers, request = receiver.requests[-1]
        assert path == "/v1/metrics"
        assert (headers["Authorization"], headers["x-tenant"]) == ("Bearer secret", "a")
        broker = server.server.broker
        assert broker is not None
        attributes = {each.key: each.value.string_value for each in request.resource_metrics[0].resource.attributes}
        assert attributes["service.name"] == "moldau"
        assert attributes["service.instance.id"] == f"{broker.cluster_id}-{broker.node_id}"


def test_a_server_that_stops_pushes_once_more(make_server: MakeServer) -> None:
    with Receiver() as receiver:
        server = make_server(
            config={
                "moldau.metrics.otlp.endpoint": receiver.url,
                "moldau.metrics.otlp.interval.ms": "3600000",
            }
        )
        create_topic(server.bootstrap_servers, "orders")
        with WireClient(server.bootstrap_servers) as wire:
            assert produce(wire, "orders", batch(b"a", b"b")).error_code == 0
        assert receiver.requests == []
        server.stop()
        found = receiver.metrics()
        counted = points_of(found["kafka_server_brokertopicmetrics_messagesin_total"])
        assert counted[("topic", "orders"),] == 2
        assert points_of(found["kafka_server_kafkaserver_brokerstate"]) == {(): 7}


def test_many_numbers_are_split_into_requests_and_none_is_lost() -> None:
    samples = [Sample(labels(topic=f"t{number}"), number) for number in range(2 * MAX_POINTS + 500)]
    with Receiver() as receiver, pushing(receiver.url, Fixed(ONE, None, Family("many", Kind.COUNTER, "", samples))):
        wait_until(lambda: len(receiver.requests) >= 3)
        first = receiver.requests[:3]
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for _, _, request in first:
        metrics = list(request.resource_metrics[0].scope_metrics[0].metrics)
        assert sum(len(points_of(metric)) for metric in metrics) <= MAX_POINTS
        for metric in metrics:
            if metric.name == "many":
                found |= points_of(metric)
    assert found == {(("topic", f"t{number}"),): number for number in range(2 * MAX_POINTS + 500)}


def test_names_in_labels_arrive_unchanged() -> None:
    name = 'a "quoted"\\ \n name, x="y"'
    family = Family("m", Kind.GAUGE, "", [Sample(labels(group=name, topic="t"), 1.5)])
    with Receiver() as receiver, pushing(receiver.url, Fixed(family)):
        wait_until(lambda: "m" in receiver.metrics())
        assert points_of(receiver.metrics()["m"]) == {(("group", name), ("topic", "t")): 1.5}


def test_nothing_is_pushed_until_the_broker_serves() -> None:
    source = Fixed(ONE)
    source.is_ready = False
    asked = threading.Event()
    source.identity = lambda: asked.set()  # type: ignore[method-assign]
    with Receiver() as receiver, pushing(receiver.url, source):
        assert asked.wait(60)
        assert receiver.requests == []


def test_a_receiver_that_is_down_and_returns_is_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Receiver() as receiver:
        status = 503
        receiver.respond = lambda _: (status, b"")
        with pushing(receiver.url, Fixed(ONE)):
            wait_until(lambda: len(receiver.requests) >= 3)
            status = 200
            wait_until(lambda: any("again" in line for line in messages(caplog)))
            count = len(receiver.requests)
            wait_until(lambda: len(receiver.requests) >= count + 2)
    started, failed, returned = messages(caplog)
    assert started == f"Metrics are pushed to {receiver.url} every 0.05 s"
    assert failed == (
        f"Metrics cannot be pushed to {receiver.url}: the receiver responded 503 Service Unavailable. "
        "The next attempt is in 0.05 s"
    )
    assert returned.startswith(f"Metrics are pushed to {receiver.url} again, after ")


@pytest.mark.parametrize("bad", ["refuses", "hangs up", "is not HTTP", "rejects numbers"])
def test_a_bad_receiver_is_explained(bad: str, caplog: pytest.LogCaptureFixture) -> None:
    def rejecting(_: Any) -> tuple[int, bytes]:
        rejected = service.ExportMetricsPartialSuccess(rejected_data_points=1, error_message="too\nold")
        return 200, service.ExportMetricsServiceResponse(partial_success=rejected).SerializeToString()

    expected = {
        "refuses": "connection refused",
        "hangs up": "remote end closed connection without response",
        "is not HTTP": "the response is not HTTP (BadStatusLine)",
        "rejects numbers": r"the receiver rejected 1 numbers: 'too\nold'",
    }[bad]
    if bad == "rejects numbers":
        with Receiver(rejecting) as receiver, pushing(receiver.url, Fixed(ONE)):
            wait_until(lambda: any(expected in line for line in messages(caplog)), state=lambda: messages(caplog))
        return
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def answer() -> None:
            while True:
                try:
                    peer, _ = listening.accept()
                except OSError:  # closed
                    return
                with peer:
                    peer.recv(65_536)
                    if bad == "is not HTTP":
                        peer.sendall(b"\0\1\2\3\r\n")

        thread = threading.Thread(target=answer)
        if bad == "refuses":
            listening.close()
        else:
            thread.start()
        with pushing(f"http://127.0.0.1:{port}/v1/metrics", Fixed(ONE)):
            wait_until(lambda: any(expected in line for line in messages(caplog)), state=lambda: messages(caplog))
        if bad != "refuses":
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_the_certificate_of_a_receiver_is_checked_with_the_authorities_of_the_setting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority, other = Authority(), Authority("others")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server().write(tmp_path / "server.pem"))
    trusted, untrusted = tmp_path / "ca.pem", tmp_path / "other.pem"
    trusted.write_text(authority.certificate, encoding="ascii")
    untrusted.write_text(other.certificate, encoding="ascii")
    with Receiver(tls=context) as receiver:
        for file, count in ((untrusted, 0), (trusted, 1)):
            pusher = Pusher(endpoint_of(receiver.url, "", 3600, str(file)), Fixed(ONE))
            pusher.start()
            pusher.finish()
            wait_until(lambda pusher=pusher: not pusher.is_pushing())  # type: ignore[misc]
            assert len(receiver.requests) == count, messages(caplog)
    (refused,) = [line for line in messages(caplog) if "cannot be pushed" in line]
    assert "the certificate of the receiver is not valid: " in refused
    assert refused.endswith("This was the last attempt")


@pytest.mark.parametrize(
    ("url", "content", "message"),
    [
        ("http://host/", "", "needs an https URL"),
        ("https://host/", None, "cannot be read: no such file or directory"),
        ("https://host/", "no certificate", "has no certificates in PEM"),
    ],
)
def test_an_unusable_file_of_authorities_is_refused(
    url: str, content: str | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content, encoding="ascii")
    with pytest.raises(MetricsError, match=message):
        endpoint_of(url, "", 60, str(file))


def test_a_receiver_that_does_not_respond_does_not_delay_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with pushing(f"http://127.0.0.1:{listening.getsockname()[1]}/", Fixed(ONE)) as pusher:
            peer, _ = listening.accept()
            assert peer.recv(65_536)
        assert not pusher._thread.is_alive()
        peer.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/metrics"),
        ("https://otlp.example/api/v1/otlp/v1/metrics?a=b", "https://otlp.example:443/api/v1/otlp/v1/metrics?a=b"),
        ("http://[::1]:4318/v1/metrics", "http://[::1]:4318/v1/metrics"),
    ],
)
def test_an_endpoint_is_a_url(url: str, expected: str) -> None:
    assert str(endpoint(url)) == expected


@pytest.mark.parametrize(
    ("url", "headers", "message"),
    [
        ("localhost:4318", "", "is not a URL such as http://localhost:4318/v1/metrics"),
        ("grpc://localhost:4317", "", "is not a URL such as"),
        ("http://a b/", "", "is not a URL such as"),
        ("http://host:port/", "", "is not a URL"),
        ("http://host:0/", "", "is not a URL such as"),
        (f"http://{'h' * 64}.example/", "", "is not a URL"),
        ("http://host/m\N{LATIN SMALL LETTER E WITH ACUTE}trics", "", "must be percent-encoded"),
        ("http://user:secret@host/", "", "Set moldau.metrics.otlp.headers instead"),
        ("http://host/", "a=b,secret", "headers: entry 2 is not NAME=VALUE"),
        ("http://host/", "a=secret%0d%0aX: y", "headers: entry 1 is not NAME=VALUE"),
        ("http://host/", "a b=secret", "headers: entry 1 is not NAME=VALUE"),
    ],
)
def test_invalid_settings_are_refused_without_secrets(url: str, headers: str, message: str) -> None:
    with pytest.raises(MetricsError, match=message) as refused:
        endpoint_of(url, headers, 60)
    assert "secret" not in str(refused.value)


def test_a_server_with_an_invalid_endpoint_does_not_start(make_server: MakeServer) -> None:
    with pytest.raises(StartError, match="is not a URL such as"):
        make_server(config={"moldau.metrics.otlp.endpoint": "localhost:4318"})


COLLECTOR = """
receivers:
  otlp:
    protocols:
      http:
        endpoint: 127.0.0.1:{port}
exporters:
  debug:
    verbosity: detailed
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    metrics:
      receivers: [otlp]
      exporters: [debug]
"""


def test_the_collector_of_opentelemetry_receives_the_metrics(make_server: MakeServer, tmp_path: Path) -> None:
    program = shutil.which("otelcol")
    if program is None:
        pytest.skip("needs otelcol: the collector of OpenTelemetry (https://opentelemetry.io/docs/collector/install)")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (tmp_path / "collector.yaml").write_text(COLLECTOR.format(port=port), encoding="utf-8")
    log = tmp_path / "collector.log"
    with log.open("wb") as output:
        collector = subprocess.Popen(
            [program, f"--config=file:{tmp_path / 'collector.yaml'}"], stdout=output, stderr=output
        )
    try:
        server = make_server(
            config={
                "moldau.metrics.otlp.endpoint": f"http://127.0.0.1:{port}/v1/metrics",
                "moldau.metrics.otlp.interval.ms": "1000",
            }
        )
        create_topic(server.bootstrap_servers, "orders")
        wait_until(
            lambda: "-> topic: Str(orders)" in log.read_text(encoding="utf-8") or collector.poll() is not None,
            "the collector has the metrics of a topic",
            state=lambda: log.read_text(encoding="utf-8")[-2000:],
        )
        text = log.read_text(encoding="utf-8")
        assert collector.poll() is None, text
        assert "-> Name: kafka_server_brokertopicmetrics_bytesin_total" in text
        assert "-> service.name: Str(moldau)" in text
        assert "-> AggregationTemporality: Cumulative" in text
    finally:
        collector.terminate()
        collector.wait()

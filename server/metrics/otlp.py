"""Pushing metrics to a receiver of OpenTelemetry: OTLP over HTTP with Protobuf (opentelemetry-proto, `metrics.proto`).

A thread builds the metrics at an interval, with the names of `/metrics`, and sends them in requests of at most
`MAX_POINTS` numbers, so neither the event loop nor the memory depends on the receiver. Nothing is kept for a receiver
that is down: counters are cumulative, so the next push has all that the missed ones had. The log has one line when
pushes begin to fail, one when the reason changes, and one when they succeed again. A broker that stops pushes once
more.

Building takes turns with the event loop of the server (`pace`). Needs `opentelemetry-proto` (the extra `moldau[otlp]`).
"""

from __future__ import annotations

import contextlib
import gzip
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from ... import __version__
from ..concurrency.clock import wall_clock
from .families import DIALECTS, Family, Kind, labels_in, name_in
from .listener import MetricsError
from .pace import PAUSE_S, WORK_S, monotonic, pause

if TYPE_CHECKING:
    import ssl

    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

logger = logging.getLogger(__name__)

MAX_POINTS: Final = 2000
"""The numbers of one request."""
TIMEOUT_S: Final = 10.0
"""How long the receiver may take to accept a connection, to take a request, and to respond."""

_CLOSE_S: Final = 5.0
_NS_PER_MS: Final = 1_000_000
_MAX_RESPONSE_BYTES: Final = 64 * 1024
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Endpoint(NamedTuple):
    """Where metrics are pushed, and how often."""

    tls: ssl.SSLContext | None
    """For https."""
    host: str
    port: int
    path: str
    headers: Mapping[str, str]
    interval_s: float

    def __str__(self) -> str:
        """Without the headers, which may be secrets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}{self.path}"


def endpoint_of(url: str, headers: str, interval_s: float, ca_file: str | None = None) -> Endpoint:
    """The endpoint of these settings. ``ca_file`` None: the authorities of the system. Raises MetricsError, without the
    headers."""
    name = "moldau.metrics.otlp.endpoint"
    try:
        parts = urlsplit(url)
        port = parts.port
        (parts.hostname or "").encode("idna")  # as when its address is looked up, which refuses long labels
    except ValueError:
        raise MetricsError(f"{name} is not a URL.") from None
    if "@" in parts.netloc:
        raise MetricsError(f"{name} has a user or a password. Set moldau.metrics.otlp.headers instead.")
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url or port == 0:
        raise MetricsError(f"{name}={url} is not a URL such as http://localhost:4318/v1/metrics.")
    if not url.isascii():
        raise MetricsError(f"{name}={url} has characters outside ASCII, which must be percent-encoded.")
    tls = _tls(parts.scheme == "https", ca_file)
    path = f"{parts.path or '/v1/metrics'}{f'?{parts.query}' if parts.query else ''}"
    return Endpoint(tls, parts.hostname, port or (443 if tls else 80), path, _headers(headers), interval_s)


def _tls(is_https: bool, ca_file: str | None) -> ssl.SSLContext | None:
    name = "moldau.metrics.otlp.ca.file"
    if not is_https:
        if ca_file is not None:
            raise MetricsError(f"{name} needs an https URL in moldau.metrics.otlp.endpoint.")
        return None
    import ssl  # other servers do not need it

    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        raise MetricsError(f"{name}={ca_file} has no certificates in PEM.") from None
    except OSError as error:
        raise MetricsError(f"{name}={ca_file} cannot be read: {(error.strerror or str(error)).lower()}.") from None


def _headers(text: str) -> dict[str, str]:
    """``name=value,...``, where values are percent-encoded, as in OTEL_EXPORTER_OTLP_HEADERS."""
    found = {}
    for number, entry in enumerate(filter(None, (part.strip() for part in text.split(","))), 1):
        name, equals, value = (part.strip() for part in entry.partition("="))
        value = unquote(value)
        if not equals or not _HEADER_NAME.fullmatch(name) or not value.isprintable() or not value.isascii():
            raise MetricsError(f"moldau.metrics.otlp.headers: entry {number} is not NAME=VALUE.")
        found[name] = value
    return found


class Source(Protocol):
    """What is pushed. Its methods are called in the pushing thread."""

    def identity(self) -> Mapping[str, str] | None:
        """Attributes that identify the broker; None if it does not serve clients yet."""

    def families(self) -> Iterator[Family | None]:
        """All metrics. None: a moment to pause."""


class _PushError(Exception):
    """The metrics could not be pushed; the message is a short reason."""


class Pusher:
    """See the module docstring."""

    def __init__(self, endpoint: Endpoint, source: Source) -> None:
        """Raises MetricsError if opentelemetry-proto is missing."""
        try:
            from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
        except ImportError as error:
            raise MetricsError(
                f"moldau.metrics.otlp.endpoint needs opentelemetry-proto; install with: pip install 'moldau[otlp]' "
                f"({error})"
            ) from None
        self._new_request = metrics_service_pb2.ExportMetricsServiceRequest
        self._parse_response = metrics_service_pb2.ExportMetricsServiceResponse.FromString
        self.endpoint = endpoint
        self._source = source
        self._started_ns = wall_clock() * _NS_PER_MS
        self._closing = threading.Event()
        self._finishing = threading.Event()
        self._woken = threading.Event()
        self._connection: HTTPConnection | None = None
        self._problem: str | None = None
        self._failures = 0
        self._worked_from = 0.0
        self._thread = threading.Thread(target=self._run, name="metrics-otlp", daemon=True)

    def start(self) -> None:
        """Push at the interval. Raises MetricsError if no thread can be started."""
        try:
            self._thread.start()
        except RuntimeError as error:
            raise MetricsError(f"Pushing metrics needs a thread: {error}") from error
        logger.info("Metrics are pushed to %s every %g s", self.endpoint, self.endpoint.interval_s)

    def finish(self) -> None:
        """Push once more and then no longer, without waiting for it."""
        self._finishing.set()
        self._woken.set()

    def is_pushing(self) -> bool:
        """Whether the thread has not ended."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Push no longer. A push in progress is canceled."""
        self._closing.set()
        self._woken.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)  # it may be resolving a name, which cannot be canceled

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        due = monotonic() + self.endpoint.interval_s
        try:
            while True:
                self._woken.wait(min(max(0.0, due - monotonic()), threading.TIMEOUT_MAX))
                if self._closing.is_set():
                    return
                is_last = self._finishing.is_set()
                due = max(due + self.endpoint.interval_s, monotonic())
                identity = self._source.identity()
                if identity is not None:
                    self._push_and_log(identity, is_last)
                if is_last:
                    return
        except Exception:
            logger.exception("Metrics are no longer pushed because of an unexpected error")

    def _push_and_log(self, identity: Mapping[str, str], is_last: bool) -> None:
        try:
            self._push(identity)
        except _PushError as problem:
            if self._closing.is_set():
                return
            self._failures += 1
            if str(problem) != self._problem:
                self._problem = str(problem)
                attempt = (
                    "This was the last attempt" if is_last else f"The next attempt is in {self.endpoint.interval_s:g} s"
                )
                logger.warning("Metrics cannot be pushed to %s: %s. %s", self.endpoint, problem, attempt)
        else:
            if self._problem is not None:
                logger.info("Metrics are pushed to %s again, after %d failures", self.endpoint, self._failures)
            self._problem = None
            self._failures = 0

    def _push(self, identity: Mapping[str, str]) -> None:
        self._connection = connection = self._connect()
        try:
            for request in self._requests(identity):
                if self._closing.is_set():
                    return
                self._send(connection, request)
        finally:
            self._connection = None
            connection.close()

    def _connect(self) -> HTTPConnection:
        if self.endpoint.tls is None:
            return HTTPConnection(self.endpoint.host, self.endpoint.port, timeout=TIMEOUT_S)
        from http.client import HTTPSConnection

        return HTTPSConnection(self.endpoint.host, self.endpoint.port, timeout=TIMEOUT_S, context=self.endpoint.tls)

    def _send(self, connection: HTTPConnection, request: ExportMetricsServiceRequest) -> None:
        body = gzip.compress(request.SerializeToString(), 1)
        headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "User-Agent": f"moldau/{__version__}",
            **self.endpoint.headers,
        }
        try:
            connection.request("POST", self.endpoint.path, body, headers)
            response = connection.getresponse()
            text = response.read(_MAX_RESPONSE_BYTES)
        except TimeoutError:
            raise _PushError(f"no response within {TIMEOUT_S:g} seconds") from None
        except OSError as error:  # before HTTPException, because a connection that the receiver closes is both
            raise _PushError(_reason(error)) from None
        except HTTPException as error:
            raise _PushError(f"the response is not HTTP ({type(error).__name__})") from None
        if not 200 <= response.status < 300:
            raise _PushError(f"the receiver responded {response.status} {response.reason}")
        self._check_accepted(text)

    def _check_accepted(self, text: bytes) -> None:
        from google.protobuf.message import DecodeError

        try:
            rejected = self._parse_response(text).partial_success
        except DecodeError:
            return  # the status says that the metrics are accepted
        if rejected.rejected_data_points:
            raise _PushError(
                f"the receiver rejected {rejected.rejected_data_points} numbers: {rejected.error_message[:500]!r}"
            )

    # -- building ------------------------------------------------------------------------------------------------------

    def _requests(self, identity: Mapping[str, str]) -> Iterator[ExportMetricsServiceRequest]:
        """The metrics in requests of at most `MAX_POINTS` numbers."""
        now_ns = wall_clock() * _NS_PER_MS
        written: set[str] = set()
        request, add = self._empty(identity)
        points = 0
        self._worked_from = monotonic()
        for family in self._source.families():
            self._take_turns()
            if family is None:
                continue
            name = name_in(family, DIALECTS[0])
            if name in written:
                continue
            written.add(name)
            metric: Metric | None = None
            for text, value in family.samples:
                if points >= MAX_POINTS:
                    yield request
                    self._worked_from = monotonic()
                    request, add = self._empty(identity)
                    points = 0
                    metric = None
                if metric is None:
                    metric = _described(add(), family, name)
                self._add_point(metric, family.kind, text, value, now_ns)
                points += 1
                self._take_turns()
        if points:
            yield request

    def _empty(self, identity: Mapping[str, str]) -> tuple[ExportMetricsServiceRequest, Callable[[], Metric]]:
        request = self._new_request()
        resource = request.resource_metrics.add()
        for key, value in identity.items():
            attribute = resource.resource.attributes.add()
            attribute.key = key
            attribute.value.string_value = value
        scope = resource.scope_metrics.add()
        scope.scope.name = "moldau"
        scope.scope.version = __version__
        return request, scope.metrics.add

    def _add_point(self, metric: Metric, kind: Kind, text: str, value: float, now_ns: int) -> None:
        if kind is Kind.COUNTER:
            point = metric.sum.data_points.add()
            point.start_time_unix_nano = self._started_ns
        else:
            point = metric.gauge.data_points.add()
        point.time_unix_nano = now_ns
        if isinstance(value, int):
            point.as_int = value
        else:
            point.as_double = value
        for key, label in labels_in(text).items():
            attribute = point.attributes.add()
            attribute.key = key
            attribute.value.string_value = label

    def _take_turns(self) -> None:
        if monotonic() - self._worked_from >= WORK_S:
            pause(PAUSE_S)
            self._worked_from = monotonic()


def _reason(error: OSError) -> str:
    certificate = getattr(error, "verify_message", None)  # of ssl.SSLCertVerificationError
    if certificate is not None:
        return f"the certificate of the receiver is not valid: {certificate}"
    return (error.strerror or str(error)).lower()


def _described(metric: Metric, family: Family, name: str) -> Metric:
    metric.name = name
    metric.description = family.help
    if family.kind is Kind.COUNTER:
        from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
    return metric

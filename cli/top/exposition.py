"""What an endpoint of metrics says: the text format of Prometheus, with the names of Kafka's metrics.

The names are those of ``moldau serve --metrics`` and of a JMX exporter with Strimzi's rules at Apache Kafka
(docs/metrics.md); those of the other dialects of rates are accepted, too. Lines with other names are ignored.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from typing import Final, NamedTuple

from ...server.metrics.families import labels_in

PATH: Final = "/metrics"
_TIMEOUT_S: Final = 10.0
_MAX_BYTES: Final = 256 << 20

_SAMPLE: Final = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)(?: -?\d+)?$")

_TOPIC_PREFIX: Final = "kafka_server_brokertopicmetrics_"
_RATE_SUFFIX: Final = re.compile(r"(persec)?(_total|_count)?$")
_TOPIC_COUNTERS: Final = {
    "messagesin": "records_in",
    "bytesin": "bytes_in",
    "bytesout": "bytes_out",
    "totalproducerequests": "produce_requests",
    "totalfetchrequests": "fetch_requests",
    "failedproducerequests": "failed_requests",
    "failedfetchrequests": "failed_requests",
}
_REQUEST_PREFIX: Final = "kafka_network_requestmetrics_"
_TIMES: Final = {"totaltimems": "total", "localtimems": "local", "remotetimems": "wait"}
SOFTWARE: Final = "kafka_server_socket_server_metrics_connections_software"
_IDLE: Final = (
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_network_socketserver_networkprocessoravgidlepercent",
)
# Both are counted as Fetch, too.
_PARTS_OF_FETCH: Final = ("FetchConsumer", "FetchFollower")


class ScrapeError(Exception):
    """An endpoint does not serve metrics; the message is a short reason."""


class Software(NamedTuple):
    """The software of clients."""

    name: str
    version: str


class Number(NamedTuple):
    """The present number of a series; its labels are the text between the braces."""

    name: str
    labels: str
    value: float


class Scrape:
    """The metrics of one broker."""

    def __init__(self, taken_s: float) -> None:
        self.taken_s = taken_s
        """Of a monotonic clock."""
        self.topics: Counter[tuple[str, str]] = Counter()
        """Counters, by their name in `_TOPIC_COUNTERS` and by topic; the topic "" has the sum of all."""
        self.requests: Counter[str] = Counter()
        """Counters of requests, by API."""
        self.errors: Counter[str] = Counter()
        """Counters of errors in responses, by API."""
        self.times_ms: dict[tuple[str, str, str], float] = {}
        """Durations in ms, by API, ``total``, ``local`` or ``wait``, and quantile."""
        self.software: Counter[Software] = Counter()
        """Open connections."""
        self.idle: float | None = None
        """The smallest share of time for which threads of the broker were idle, from 0 to 1."""

    @property
    def is_of_kafka(self) -> bool:
        return bool(self.topics or self.requests or self.times_ms)


def fetch(host: str, port: int) -> str:
    """The text that an endpoint serves. Raises ScrapeError."""
    connection = HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", PATH)
        response = connection.getresponse()
        if response.status != 200:
            raise ScrapeError(f"the response to {PATH} is {response.status} {response.reason}")
        body = response.read(_MAX_BYTES + 1)
    except TimeoutError:
        raise ScrapeError(f"no response within {_TIMEOUT_S:g} seconds") from None
    except HTTPException:
        raise ScrapeError("the response is not HTTP") from None
    except OSError as error:
        raise ScrapeError((error.strerror or str(error)).lower()) from None
    finally:
        connection.close()
    if len(body) > _MAX_BYTES:
        raise ScrapeError(f"the response has more than {_MAX_BYTES >> 20} MiB")
    return body.decode(errors="replace")


def parse(text: str, taken_s: float) -> Scrape:
    """The metrics in a text. Raises ScrapeError if it has none of Kafka's."""
    scrape = Scrape(taken_s)
    for number in numbers(text):
        _add(scrape, *number)
    if not scrape.is_of_kafka:
        raise ScrapeError("the response has no metrics of Kafka; is it the address of a metrics listener?")
    return scrape


def numbers(text: str, prefixes: tuple[str, ...] = ("kafka_",)) -> Iterator[Number]:
    """The finite numbers of series whose names begin with a prefix; other lines are ignored."""
    for line in text.splitlines():
        found = _SAMPLE.match(line) if line.startswith(prefixes) else None
        if found is None:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        if math.isfinite(value):
            yield Number(found[1], found[2] or "", value)


def _add(scrape: Scrape, name: str, labels: str, value: float) -> None:
    if name.startswith(_TOPIC_PREFIX):
        counter = _TOPIC_COUNTERS.get(_RATE_SUFFIX.sub("", name.removeprefix(_TOPIC_PREFIX)))
        if counter is not None:
            scrape.topics[counter, labels_in(labels).get("topic", "")] += value  # type: ignore[assignment]
    elif name.startswith(_REQUEST_PREFIX):
        _add_request(scrape, name.removeprefix(_REQUEST_PREFIX), labels_in(labels), value)
    elif name == SOFTWARE:
        found = labels_in(labels)
        software = Software(found.get("clientSoftwareName", "unknown"), found.get("clientSoftwareVersion", "unknown"))
        scrape.software[software] += int(value)
    elif name in _IDLE:
        scrape.idle = value if scrape.idle is None else min(scrape.idle, value)


def _add_request(scrape: Scrape, name: str, labels: dict[str, str], value: float) -> None:
    request = labels.get("request", "")
    if not request or request in _PARTS_OF_FETCH:
        return
    if name in _TIMES and "quantile" in labels:
        scrape.times_ms[request, _TIMES[name], labels["quantile"]] = value
        return
    match _RATE_SUFFIX.sub("", name):
        case "requests":
            scrape.requests[request] += value  # type: ignore[assignment]
        case "errors" if labels.get("error", "NONE") != "NONE":
            scrape.errors[request] += value  # type: ignore[assignment]

"""Metrics over HTTP: `moldau.metrics.listener`."""

from __future__ import annotations

import http.client
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import pytest

from moldau.metadata.image import MetadataImage
from moldau.metadata.quorum import Metadata
from moldau.metadata.registrations import PartitionRegistration, TopicImage
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.replication.replicas import Replicas
from moldau.server.metrics.errors import CountedErrors
from moldau.server.metrics.families import DIALECTS, Family, Kind, Sample, labels, name_in, text_of
from moldau.server.metrics.listener import (
    MAX_CONNECTIONS,
    MAX_REQUEST_BYTES,
    MetricsError,
    MetricsListener,
    parse_address,
)
from moldau.server.metrics.rates import Rates
from moldau.server.metrics.times import SENDS_SAMPLED, WINDOW_S, Durations, RequestTimes
from moldau.server.metrics.topics import topic_families
from moldau.server.nodes.server import StartError
from moldau.testing.builders import batch, fetch, produce, produce_request, values
from moldau.testing.topic_requests import create_topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from ..replication.partitions import lead, new_partition
from .conftest import MakeServer, RunningServer
from .expected_metrics import EXPECTED, ON_LINUX

METRICS = {"moldau.metrics.listener": "127.0.0.1:0"}
LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


class Scraped(NamedTuple):
    types: dict[str, str]
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]]

    def value(self, name: str, **wanted: str) -> float | None:
        return self.samples.get(name, {}).get(tuple(wanted.items()))

    def labels(self, name: str) -> set[tuple[str, ...]]:
        return {tuple(key for key, _ in found) for found in self.samples[name]}


def parsed(text: str) -> Scraped:
    types: dict[str, str] = {}
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types, f"{name} occurs twice"
            types[name] = kind
        elif not line.startswith("#"):
            head, value = line.rsplit(" ", 1)
            name, _, rest = head.partition("{")
            found = tuple((key, text) for key, text in LABEL.findall(rest))
            assert name in types, f"{name} has no type"
            assert found not in samples.setdefault(name, {}), f"{head} occurs twice"
            samples[name][found] = float(value)
    return Scraped(types, samples)


def ask(server: RunningServer, path: str, method: str = "GET") -> tuple[int, str]:
    assert server.server.metrics_address is not None
    connection = http.client.HTTPConnection(server.server.metrics_address, timeout=60)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def scrape(server: RunningServer, query: str = "") -> Scraped:
    status, text = ask(server, f"/metrics{query}")
    assert status == 200
    return parsed(text)


def raw(server: RunningServer) -> socket.socket:
    assert server.server.metrics_address is not None
    host, _, port = server.server.metrics_address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def received(sock: socket.socket) -> bytes:
    data = b""
    while more := sock.recv(65_536):
        data += more
    return data


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that clients have used."""
    server = RunningServer([tmp_path_factory.mktemp("metrics")], METRICS).start()
    try:
        create_topic(server.bootstrap_servers, "orders", partitions=2)
        with WireClient(server.bootstrap_servers) as wire:
            software = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")
            wire.call(software, 3)
            for _ in range(3):  # the third one takes the fast path
                assert produce(wire, "orders", batch(b"a", b"b")).error_code == 0
            assert produce(wire, "orders", batch(b"a"), partition=7).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert len(values(fetch(wire, "orders"))) == 6
            wait_until(lambda: commit(wire, "readers", "orders", 4) == 0, "the group has committed")
            yield server
    finally:
        server.stop()


def commit(wire: WireClient, group: str, topic: str, offset: int) -> int:
    wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)  # creates the coordinator's topic
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])
    return int(wire.call(request, 8).topics[0].partitions[0].error_code)


# -- names and values --------------------------------------------------------------------------------------------------


def test_names_types_and_labels_are_those_of_kafka_with_strimzis_rules(used: RunningServer) -> None:
    scraped = scrape(used)
    expected = EXPECTED | (ON_LINUX if sys.platform == "linux" else {})
    found = {name: (scraped.types[name], scraped.labels(name)) for name in expected if name in scraped.types}
    assert found == expected


def test_responses_are_measured_while_they_are_sent(used: RunningServer) -> None:
    scraped = scrape(used)
    for request in ("ApiVersions", "Produce", "Fetch"):
        assert scraped.value("kafka_network_requestmetrics_responsesendtimems_count_total", request=request)
    longest = scraped.value("kafka_network_requestmetrics_responsesendtimems", request="Fetch", quantile="0.999")
    assert longest is not None
    assert longest > 0


def test_unclean_elections_are_those_of_the_controller(used: RunningServer) -> None:
    name = "kafka_controller_controllerstats_uncleanleaderelections_total"
    assert scrape(used).value(name) == 0
    broker = used.server.broker
    assert broker is not None
    metadata = broker.metadata
    assert isinstance(metadata, Metadata)
    metadata.controller.unclean_elections = 3
    wait_until(lambda: scrape(used).value(name) == 3)


def test_quantiles_are_kafkas(used: RunningServer) -> None:
    found = scrape(used).samples["kafka_network_requestmetrics_totaltimems"]
    quantiles = {dict(each)["quantile"] for each in found if dict(each)["request"] == "Produce"}
    assert quantiles == {"0.50", "0.75", "0.95", "0.98", "0.99", "0.999"}


def test_traffic_of_a_topic_is_counted_on_both_paths(used: RunningServer) -> None:
    size = len(batch(b"a", b"b"))

    def of_orders(name: str) -> float | None:
        return scrape(used).value(f"kafka_server_brokertopicmetrics_{name}_total", topic="orders")

    wait_until(lambda: of_orders("messagesin") == 6, "all records are counted")
    assert of_orders("bytesin") == 3 * size
    assert of_orders("bytesout") == 3 * size
    assert of_orders("totalproducerequests") == 3
    assert of_orders("totalfetchrequests") == 1
    assert of_orders("failedproducerequests") == 0


def test_requests_and_errors_are_counted_by_name(used: RunningServer) -> None:
    scraped = scrape(used)
    requests = scraped.samples["kafka_network_requestmetrics_requests_total"]
    assert sum(number for found, number in requests.items() if found[0] == ("request", "Produce")) == 4
    name = "kafka_network_requestmetrics_errors_total"
    assert scraped.value(name, request="Produce", error="NONE") == 3
    assert scraped.value(name, request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1


def test_offsets_and_lags_of_groups(used: RunningServer) -> None:
    where = {"topic": "orders", "partition": "0"}
    wait_until(
        lambda: scrape(used).value("kafka_consumergroup_lag", consumergroup="readers", **where) == 2, "the lag is 2"
    )
    scraped = scrape(used)
    assert scraped.value("kafka_consumergroup_current_offset", consumergroup="readers", **where) == 4
    assert scraped.value("kafka_topic_partition_current_offset", **where) == 6
    assert scraped.value("kafka_topic_partitions", topic="orders") == 2


def test_connections_are_counted_by_software(used: RunningServer) -> None:
    name = "kafka_server_socket_server_metrics_connections_software"
    wanted = {
        "clientSoftwareName": "tests",
        "clientSoftwareVersion": "1.0",
        "listener": "PLAINTEXT",
        "networkProcessor": "0",
    }
    assert scrape(used).value(name, **wanted) == 1


def test_totals_keep_the_traffic_of_deleted_topics(make_server: MakeServer) -> None:
    server = make_server(config=METRICS)
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    create_topic(server.bootstrap_servers, "short")
    with WireClient(server.bootstrap_servers) as wire:
        produce(wire, "short", batch(b"a", b"b"))
        wait_until(lambda: scrape(server).value(name, topic="short") == 2, "the records are counted")
        (deleted,) = wire.call(DeleteTopicsRequest(topic_names=["short"], timeout_ms=60_000), 5).responses
        assert deleted.error_code == 0, deleted
    wait_until(lambda: scrape(server).value(name, topic="short") is None, "the topic has no metrics")
    assert scrape(server).value(name) == 2


def test_the_bytes_of_a_rejected_batch_count_once(make_server: MakeServer) -> None:
    server = make_server(config=METRICS)
    server.create_topic("small", max_message_bytes=100)
    request, records = produce_request("small", batch(b"x" * 200)), batch(b"x" * 200)
    request.topic_data[0].partition_data *= 2
    with server.wire() as wire:
        (topic,) = wire.call(request, 9).responses
    assert [each.error_code for each in topic.partition_responses] == [ErrorCode.MESSAGE_TOO_LARGE] * 2
    rejected = scrape(server).value("kafka_server_brokertopicmetrics_bytesrejected_total", topic="small")
    assert rejected == 2 * len(records)


def test_partitions_above_the_limit_have_no_metrics_of_their_own(make_server: MakeServer) -> None:
    server = make_server(config={**METRICS, "moldau.metrics.max.partitions": "3"})
    create_topic(server.bootstrap_servers, "many", partitions=5)
    wait_until(lambda: scrape(server).value("kafka_server_replicamanager_partitioncount") == 5, "all are counted")
    scraped = scrape(server)
    assert len(scraped.samples["kafka_log_log_size"]) == 3
    assert scraped.value("moldau_metrics_omitted_partitions") == 2


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_dialect_has_the_same_metrics(used: RunningServer, dialect: str) -> None:
    scraped = scrape(used, f"?dialect={dialect}")
    assert "kafka_server_replicamanager_leadercount" in scraped.types
    assert "kafka_consumergroup_lag" in scraped.types


def test_an_unknown_dialect_is_an_error(used: RunningServer) -> None:
    assert ask(used, "/metrics?dialect=latin") == (400, "the dialects are strimzi, reporter, confluent\n")


@pytest.mark.parametrize(
    ("dialect", "bytes_in", "idle"),
    [
        (
            "strimzi",
            "kafka_server_brokertopicmetrics_bytesin_total",
            "kafka_network_socketserver_networkprocessoravgidle_percent",
        ),
        (
            "reporter",
            "kafka_server_brokertopicmetrics_bytesinpersec_total",
            "kafka_network_socketserver_networkprocessoravgidlepercent",
        ),
        (
            "confluent",
            "kafka_server_brokertopicmetrics_bytesinpersec",
            "kafka_network_socketserver_networkprocessoravgidlepercent",
        ),
    ],
)
def test_names_in_each_dialect(dialect: str, bytes_in: str, idle: str) -> None:
    assert name_in(Family("kafka.server:BrokerTopicMetrics:BytesInPerSec", Kind.COUNTER, "", ()), dialect) == bytes_in
    bean = "kafka.network:SocketServer:NetworkProcessorAvgIdlePercent"
    assert name_in(Family(bean, Kind.GAUGE, "", ()), dialect) == idle
    assert name_in(Family("kafka_brokers", Kind.GAUGE, "", ()), dialect) == "kafka_brokers"


def test_values_of_labels_are_escaped() -> None:
    family = Family("a", Kind.GAUGE, "Help.", [Sample(labels(path='x"\\\n'), 1.5)])
    assert "".join(text_of([family], "strimzi")) == '# HELP a Help.\n# TYPE a gauge\na{path="x\\"\\\\\\n"} 1.5\n'


# -- the listener ------------------------------------------------------------------------------------------------------


def test_health_and_readiness(used: RunningServer) -> None:
    assert ask(used, "/healthz") == (200, "ok\n")
    assert ask(used, "/readyz") == (200, "ok\n")


def test_head_has_no_body(used: RunningServer) -> None:
    assert ask(used, "/metrics", "HEAD") == (200, "")


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/metrics", 405), ("GET", "/", 404)])
def test_other_requests_are_rejected(used: RunningServer, method: str, path: str, status: int) -> None:
    assert ask(used, path, method)[0] == status


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /" + MAX_REQUEST_BYTES * b"x", 431),
        (b"\x00\x00\x00\x10\x00\x12\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET http://[/ HTTP/1.1\r\n\r\n", 400),
    ],
)
def test_invalid_requests_are_rejected(used: RunningServer, request_bytes: bytes, status: int) -> None:
    with raw(used) as sock:
        sock.sendall(request_bytes)
        assert received(sock).startswith(f"HTTP/1.1 {status} ".encode())


def test_idle_connections_do_not_exclude_others(used: RunningServer) -> None:
    idle = [raw(used) for _ in range(2 * MAX_CONNECTIONS)]
    try:
        assert ask(used, "/readyz") == (200, "ok\n")
        assert received(idle[0]) == b"", "the oldest one is closed"
    finally:
        for sock in idle:
            sock.close()


class _Held:
    """A source that holds the thread of a listener in `/readyz` until it is released."""

    def __init__(self, text: str = "") -> None:
        self.held = threading.Event()
        self.released = threading.Event()
        self._text = text

    def unready(self) -> str | None:
        self.held.set()
        assert self.released.wait(120)
        return None

    def check(self, alive: Callable[[], None]) -> bool:
        return False

    def text(self, dialect: str) -> Iterator[str]:
        yield self._text


@contextmanager
def listening(source: _Held) -> Iterator[Callable[[bytes], socket.socket]]:
    """``connect(data)``: a connection to a listener that has sent this."""
    listener = MetricsListener("127.0.0.1", 0, source)
    listener.start()
    with ExitStack() as stack:
        stack.callback(listener.close)
        stack.callback(source.released.set)

        def connect(data: bytes) -> socket.socket:
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", listener.port), timeout=120))
            sock.sendall(data)
            return sock

        yield connect


def test_a_connection_that_is_displaced_while_its_request_arrives_does_not_end_the_listener() -> None:
    source = _Held()
    with listening(source) as connect:
        idle = [connect(b"GET") for _ in range(MAX_CONNECTIONS - 1)]
        connect(b"GET /readyz HTTP/1.1\r\n\r\n")
        assert source.held.wait(120)  # all are accepted, because this one was the last
        new = connect(b"")
        for sock in idle:
            sock.sendall(b" /healthz HTTP/1.1\r\n\r\n")
        source.released.set()
        with suppress(ConnectionResetError):  # what it sent was not read
            assert received(idle[0]) == b""
        assert received(idle[1]).startswith(b"HTTP/1.1 200 ")
        new.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert received(new).startswith(b"HTTP/1.1 200 ")


def test_clients_that_do_not_read_their_responses_do_not_exclude_others() -> None:
    with listening(_Held("x" * (32 << 20))) as connect:
        for _ in range(MAX_CONNECTIONS):
            connect(b"GET /metrics HTTP/1.1\r\n\r\n").recv(1)
        assert received(connect(b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


def test_a_request_may_arrive_in_pieces(used: RunningServer) -> None:
    with raw(used) as sock:
        for byte in b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n":
            sock.sendall(bytes([byte]))
        sock.shutdown(socket.SHUT_WR)
        assert received(sock).endswith(b"\r\n\r\nok\n")


@pytest.mark.parametrize("address", ["9404", "localhost:", "127.0.0.1:99999", ":9404", "127.0.0.1:x"])
def test_an_invalid_address_is_explained(address: str) -> None:
    with pytest.raises(MetricsError, match=r"is not HOST:PORT, such as 127\.0\.0\.1:9404"):
        parse_address(address)


def test_ipv6_addresses() -> None:
    assert parse_address("[::1]:9404") == ("::1", 9404)


def test_a_port_in_use_is_a_startup_error(used: RunningServer, make_server: MakeServer) -> None:
    address = used.server.metrics_address
    assert address is not None
    with pytest.raises(StartError, match=r"the address is in use\. Use another one with --metrics HOST:PORT"):
        make_server(config={"moldau.metrics.listener": address})


def test_metrics_end_with_the_server(make_server: MakeServer) -> None:
    server = make_server(config=METRICS)
    address = server.server.metrics_address
    assert address is not None
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(address, timeout=60).connect()


def test_without_the_setting_nothing_is_imported(server: RunningServer) -> None:
    assert server.server.metrics_address is None
    assert server.broker.produce_times is None


# -- parts -------------------------------------------------------------------------------------------------------------


class SlowPeer:
    """A connection whose peer reads when the test says so."""

    def __init__(self) -> None:
        self.on_sent: Callable[[], None] | None = None
        self.pending: list[object] = []

    def sends_next(self, waiting: object) -> bool:
        return self.pending[0] is waiting if self.pending else waiting is None

    def read(self) -> None:
        assert self.on_sent is not None
        on_sent, self.on_sent = self.on_sent, None
        on_sent()


def test_the_time_until_the_peer_has_read_a_response_is_measured_for_one_in_sixteen() -> None:
    now = 10.0
    times = RequestTimes()
    peer: Any = SlowPeer()
    times.observe_sending(peer, None, now, lambda: now)
    now = 12.0
    times.observe_sending(peer, None, now, lambda: now)  # the first one is not sent yet
    assert times.send.count == 0
    peer.read()
    assert 1000 <= dict(times.send.quantiles(now))["0.50"] <= 4000
    for _ in range(SENDS_SAMPLED):
        assert peer.on_sent is None
        times.observe_sending(peer, None, now, lambda: now)
        if peer.on_sent is not None:
            break
    peer.read()
    assert times.send.count == 2


def test_the_sending_of_a_response_behind_pending_requests_is_not_measured() -> None:
    times = RequestTimes()
    peer: Any = SlowPeer()
    first: Any = object()
    second: Any = object()
    peer.pending = [first, second]
    times.observe_sending(peer, None, 0.0, lambda: 0.0)
    times.observe_sending(peer, second, 0.0, lambda: 0.0)
    assert peer.on_sent is None
    times.observe_sending(peer, first, 0.0, lambda: 0.0)
    peer.read()
    assert times.send.count == 1


def test_durations_have_quantiles_of_the_last_minutes() -> None:
    durations = Durations()
    for _ in range(99):
        durations.observe(10.0, 0.001)
    durations.observe(10.0, 1.0)
    quantiles = dict(durations.quantiles(11.0))
    assert 0.5 <= quantiles["0.50"] <= 2.0
    assert 500 <= quantiles["0.999"] <= 2000
    assert dict(durations.quantiles(10.0 + WINDOW_S))["0.50"] == quantiles["0.50"]
    assert dict(durations.quantiles(10.0 + 2 * WINDOW_S))["0.50"] == 0.0
    assert durations.count == 100


def test_a_duration_of_zero_is_zero() -> None:
    durations = Durations()
    durations.observe(10.0, 0.0)
    assert dict(durations.quantiles(11.0))["0.999"] == 0.0


def test_rates_cover_half_a_minute_however_often_they_are_read() -> None:
    rates = Rates()
    assert rates.per_second("a", 100, 0.0) == 0.0
    assert rates.per_second("a", 150, 5.0) == 10.0
    for tick in range(100):
        rates.per_second("a", 150, 5.0 + tick / 100)
    assert rates.per_second("a", 150, 10.0) == 5.0
    assert rates.per_second("a", 150, 100.0) == 0.0


def test_each_error_of_a_response_counts() -> None:
    counted = CountedErrors(ApiKey.METADATA)
    unknown = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    known = MetadataResponseTopic(partitions=[MetadataResponsePartition(error_code=ErrorCode.LEADER_NOT_AVAILABLE)])
    counted.add(MetadataResponse(topics=[unknown, known]))
    assert dict(counted.by_name()) == {
        "NONE": 2,  # of the response and of a topic
        "UNKNOWN_TOPIC_OR_PARTITION": 1,
        "LEADER_NOT_AVAILABLE": 1,
    }


@pytest.mark.parametrize(
    ("isr", "adding", "expected"),
    [((1, 2), (), 1), ((1, 2), (3,), 0), ((1,), (3,), 1), ((1, 2, 3), (3,), 0)],
)
def test_replicas_that_a_reassignment_adds_do_not_make_a_partition_under_replicated(
    isr: tuple[int, ...], adding: tuple[int, ...], expected: int
) -> None:
    partition = new_partition()
    lead(partition, replicas=(1, 2, 3), isr=isr)
    replicas = Replicas(lambda _topic, _index: True)
    replicas.add(partition)
    registration = PartitionRegistration((1, 2, 3), isr, leader=1, adding_replicas=adding)
    topic = TopicImage(partition.topic, partition.topic_id, {partition.index: registration})
    image = MetadataImage(topics_by_name={partition.topic: topic}, topics_by_id={partition.topic_id: topic})
    scraped = parsed("".join(text_of(topic_families(replicas, lambda: image, 10), "strimzi")))
    assert scraped.value("kafka_server_replicamanager_underreplicatedpartitions") == expected
    where = {"topic": partition.topic, "partition": str(partition.index)}
    assert scraped.value("kafka_topic_partition_under_replicated_partition", **where) == expected

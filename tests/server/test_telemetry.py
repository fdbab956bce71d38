"""Client telemetry (KIP-714): instances, throttling, and the metrics that clients push."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.config.client_metrics import selectors
from moldau.config.definition import ConfigError
from moldau.metadata.image import CLIENT_METRICS_RESOURCE, ConfigResource, MetadataImage
from moldau.protocol.api import ApiKey
from moldau.protocol.compression import Codec, compress
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from moldau.protocol.messages.push_telemetry import PushTelemetryRequest
from moldau.protocol.uuid import ZERO_UUID
from moldau.server.metrics.clients import client_families, metric_name
from moldau.server.metrics.families import text_of
from moldau.server.telemetry import clients as module
from moldau.server.telemetry.clients import Client, ClientTelemetry, Instance, Series
from moldau.server.telemetry.otlp import MAX_ATTRIBUTES, OtlpError, Point, points
from moldau.testing.config_requests import CLIENT_METRICS, SET, alter
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .conftest import MakeServer
from .test_metrics import METRICS, scrape

CLIENT = Client("orders", "librdkafka", "2.16.1", "127.0.0.1", 4000)
INTERVAL_MS = 1000


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def part(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def number_point(value: float, attributes: Mapping[str, str] | None = None) -> bytes:
    if isinstance(value, int):
        body = varint(6 << 3 | 1) + struct.pack("<q", value)
    else:
        body = varint(4 << 3 | 1) + struct.pack("<d", value)
    for key, text in (attributes or {}).items():
        body += part(7, part(1, key.encode()) + part(2, part(1, text.encode())))
    return body


def gauge(name: str, *numbers: bytes) -> bytes:
    return part(1, name.encode()) + part(2, b"a description") + part(5, b"".join(part(1, each) for each in numbers))


def total(name: str, value: float, *, delta: bool, monotonic: bool = True) -> bytes:
    kind = varint(2 << 3) + varint(1 if delta else 2) + varint(3 << 3) + varint(monotonic)
    return part(1, name.encode()) + part(7, part(1, number_point(value)) + kind)


def metrics_data(*metrics: bytes) -> bytes:
    scope = part(1, b"") + b"".join(part(2, each) for each in metrics)
    return part(1, part(1, b"") + part(2, scope))


def read(data: bytes) -> list[Point]:
    return [point for point in points(data) if point is not None]


class Telemetry:
    """Client telemetry with a clock and a source of IDs of its own."""

    def __init__(self, **configs: Mapping[str, str]) -> None:
        self.now_ms = 10_000
        self.ids = 0
        self.configure(**configs)
        self.under_test = ClientTelemetry(lambda: self.image, lambda: self.now_ms, 100, new_id=self._new_id)

    def _new_id(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(16, "big")

    def configure(self, **configs: Mapping[str, str]) -> None:
        resources = {ConfigResource(CLIENT_METRICS_RESOURCE, name): each for name, each in configs.items()}
        self.image = MetadataImage(configs=resources)

    def get(self, instance_id: bytes = ZERO_UUID, client: Client = CLIENT) -> Instance:
        return self.under_test.subscription(instance_id, client)

    def push(
        self, instance: Instance, *, subscription_id: int | None = None, terminating: bool = False, codec: int = 0,
        size: int = 0,
    ) -> str:  # fmt: skip
        """The name of the error."""
        try:
            self.under_test.check_push(
                instance.instance_id,
                CLIENT,
                subscription_id=instance.subscription_id if subscription_id is None else subscription_id,
                terminating=terminating,
                compression_type=codec,
                size=size,
            )
        except KafkaError as error:
            return error.code.name
        return "NONE"

    def get_error(self, instance: Instance) -> str:
        try:
            self.get(instance.instance_id)
        except KafkaError as error:
            return error.code.name
        return "NONE"

    def text(self) -> str:
        return "".join(text_of(client_families(self.under_test), "strimzi"))


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(all={"metrics": "org.apache.kafka.", "interval.ms": str(INTERVAL_MS)})


def test_an_expression_that_cannot_be_parsed_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"Not a regular expression: missing \]: \[$"):
        selectors(("client_id=[",))


def test_a_client_gets_the_metrics_of_all_matching_subscriptions_and_the_shortest_interval() -> None:
    telemetry = Telemetry(
        a={"metrics": "p.,q.", "interval.ms": "5000", "match": "client_id=ord.*, client_source_port=4.*"},
        b={"metrics": "q.,r.", "interval.ms": "3000", "match": "client_software_name=librdkafka"},
        c={"metrics": "s.", "interval.ms": "100", "match": "client_id=order"},
    )
    found = telemetry.get()
    assert (found.metrics, found.interval_ms) == (("p.", "q.", "r."), 3000)
    other = telemetry.get(client=CLIENT._replace(client_id="x", software_name="java"))
    assert (other.metrics, other.interval_ms) == ((), 300_000)
    telemetry.configure(a={"metrics": "p.,*"}, b={"metrics": "q."})
    assert telemetry.get(found.instance_id).metrics == ("*",)


def test_the_id_of_a_subscription_is_the_same_on_each_broker_and_another_one_after_a_change() -> None:
    telemetry, other = Telemetry(a={"metrics": "p.,q."}), Telemetry(b={"metrics": "q.,p."})
    first = telemetry.get().subscription_id
    assert other.get().subscription_id == first
    telemetry.configure(a={"metrics": "p."})
    assert telemetry.get((1).to_bytes(16, "big")).subscription_id != first
    assert other.get().subscription_id != first, "of another instance"


def test_requests_that_are_too_early_are_throttled(telemetry: Telemetry) -> None:
    instance = telemetry.get()
    assert telemetry.get_error(instance) == "THROTTLING_QUOTA_EXCEEDED"
    assert telemetry.push(instance) == "NONE"
    telemetry.now_ms += INTERVAL_MS - 1
    assert telemetry.push(instance) == "THROTTLING_QUOTA_EXCEEDED"
    assert telemetry.get_error(instance) == "THROTTLING_QUOTA_EXCEEDED"
    telemetry.now_ms += 1
    assert telemetry.push(instance) == "NONE"
    telemetry.configure(all={"metrics": "p.", "interval.ms": "500"})
    assert telemetry.push(instance) == "UNKNOWN_SUBSCRIPTION_ID"
    assert telemetry.get_error(instance) == "NONE"


@pytest.mark.parametrize(
    ("change", "error", "then"),
    [
        ({"subscription_id": 5}, "UNKNOWN_SUBSCRIPTION_ID", "NONE"),
        ({"codec": 5}, "UNSUPPORTED_COMPRESSION_TYPE", "NONE"),
        ({"codec": -1}, "UNSUPPORTED_COMPRESSION_TYPE", "NONE"),
        ({"size": 101}, "TELEMETRY_TOO_LARGE", "THROTTLING_QUOTA_EXCEEDED"),
    ],
)
def test_a_rejected_client_may_get_its_subscription_immediately_if_that_helps(
    telemetry: Telemetry, change: dict[str, int], error: str, then: str
) -> None:
    instance = telemetry.get()
    assert telemetry.push(instance, **change) == error  # type: ignore[arg-type]
    assert telemetry.get_error(instance) == then
    assert telemetry.get_error(instance) == "THROTTLING_QUOTA_EXCEEDED"


def test_the_last_push_of_a_client_may_be_early_and_no_push_follows_it(telemetry: Telemetry) -> None:
    instance = telemetry.get()
    assert [telemetry.push(instance), telemetry.push(instance, terminating=True)] == ["NONE", "NONE"]
    telemetry.now_ms += INTERVAL_MS
    assert telemetry.push(instance, terminating=True) == "INVALID_REQUEST"
    assert telemetry.push(instance) == "INVALID_REQUEST"


def test_a_push_without_an_instance_is_invalid(telemetry: Telemetry) -> None:
    with pytest.raises(KafkaError) as caught:
        telemetry.under_test.check_push(
            ZERO_UUID, CLIENT, subscription_id=1, terminating=False, compression_type=0, size=0
        )
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_gauges_and_counters_become_series_of_the_client(telemetry: Telemetry) -> None:
    instance = telemetry.get()
    latency = gauge(
        "org.apache.kafka.producer.request.latency.avg", number_point(1.5), number_point(2, {"node id": "7"})
    )
    sent = total("org.apache.kafka.producer.record.send", 5, delta=True)
    total_time = total("org.apache.kafka.producer.time.total", 5.0, delta=False)
    for _ in range(2):
        for point in read(metrics_data(latency, sent, total_time)):
            telemetry.under_test.store(instance, point)
    client = 'client_id="orders",client_instance_id="AAAAAAAAAAAAAAAAAAAAAQ",client_software_name="librdkafka"'
    lines = [line for line in telemetry.text().splitlines() if line.startswith(("kafka_client", "# TYPE kafka_client"))]
    assert lines == [
        "# TYPE kafka_client_producer_record_send_total counter",
        f"kafka_client_producer_record_send_total{{{client}}} 10.0",
        "# TYPE kafka_client_producer_request_latency_avg gauge",
        f"kafka_client_producer_request_latency_avg{{{client}}} 1.5",
        f'kafka_client_producer_request_latency_avg{{{client},node_id="7"}} 2',
        "# TYPE kafka_client_producer_time_total counter",
        f"kafka_client_producer_time_total{{{client}}} 5.0",
    ]


def test_names_and_attributes_of_clients_cannot_break_the_format_or_take_other_labels(telemetry: Telemetry) -> None:
    instance = telemetry.get()
    hostile = {'a"b\n': 'c"d\n\\', "client_id": "root", "__name__": "x", "9": "y"}
    for point in read(metrics_data(gauge('x{y="z"} 1\nkafka', number_point(1.0, hostile)))):
        telemetry.under_test.store(instance, point)
    (line,) = [line for line in telemetry.text().splitlines() if line.startswith("kafka_client")]
    assert line.startswith('kafka_client_x_y__z___1_kafka{client_id="orders",')
    assert line.endswith(',a_b_="c\\"d\\n\\\\",name__="x"} 1.0')


def test_the_number_of_series_and_instances_is_limited(telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SERIES", 5)
    monkeypatch.setattr(module, "MAX_SERIES_OF_CLIENT", 3)
    monkeypatch.setattr(module, "MAX_INSTANCES", 2)
    first, second = telemetry.get(), telemetry.get()
    for instance in (first, second):
        for name in "abcd":
            telemetry.under_test.store(instance, Point(name, (), 1.0, is_counter=False, is_delta=False))
    assert (len(first.series), len(second.series), telemetry.under_test.omitted) == (3, 2, 3)
    third = telemetry.get()  # the first one is forgotten, with its series
    telemetry.under_test.store(first, Point("e", (), 1.0, is_counter=False, is_delta=False))
    telemetry.under_test.store(third, Point("a", (), 1.0, is_counter=False, is_delta=False))
    assert telemetry.text().count("\nkafka_client_a{") == 2
    assert "kafka_client_e" not in telemetry.text()


def test_the_series_of_a_client_that_makes_no_requests_end(telemetry: Telemetry) -> None:
    instance = telemetry.get()
    telemetry.under_test.store(instance, Point("a", (), 1.0, is_counter=False, is_delta=False))
    telemetry.now_ms += 60_000
    assert "kafka_client_a" in telemetry.text()
    telemetry.now_ms += 1
    assert "kafka_client_a" not in telemetry.text()
    assert telemetry.push(telemetry.get()) == "NONE"
    telemetry.get(instance.instance_id)
    assert "kafka_client_a" not in telemetry.text(), "it was forgotten"


def test_metric_names_are_those_of_the_client_without_the_package() -> None:
    names = [
        metric_name(Series(name, (), counts))
        for name, counts in (("org.apache.kafka.consumer.poll.idle.ratio.avg", False), ("a.b", True), ("a.total", True))
    ]
    assert names == ["kafka_client_consumer_poll_idle_ratio_avg", "kafka_client_a_b_total", "kafka_client_a_total"]


def test_long_texts_and_many_attributes_are_truncated() -> None:
    attributes = {f"key{index}": "v" * 1000 for index in range(20)}
    (point,) = read(metrics_data(gauge("n" * 1000, number_point(1.0, attributes))))
    assert len(point.name) == 256
    assert len(point.attributes) == MAX_ATTRIBUTES
    assert {len(value) for _, value in point.attributes} == {256}


@given(st.data())
def test_damaged_metrics_are_an_error_and_nothing_else(data: st.DataObject) -> None:
    valid = metrics_data(
        gauge("a", number_point(1.5, {"b": "c"}), number_point(-2)),
        total("d", 3, delta=True),
        total("e", 1.0, delta=False),
    )
    damaged = bytearray(valid)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(valid) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(OtlpError):
        read(bytes(damaged[: data.draw(st.integers(0, len(valid)))]))
    assert [point.value for point in read(valid)] == [1.5, -2, 3, 1.0]


def test_a_server_with_metrics_serves_what_clients_push(make_server: MakeServer) -> None:
    server = make_server(config=METRICS)
    with WireClient(server.bootstrap_servers, client_id="pusher") as wire:
        assert alter(wire, CLIENT_METRICS, "all", ("metrics", SET, "*"), ("interval.ms", SET, "100")) == "NONE"
        subscribed = wire.call(GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID), 0)
        assert (subscribed.requested_metrics, subscribed.push_interval_ms) == (["*"], 100)

        def push(metrics: bytes, codec: int, *, instance: bytes = subscribed.client_instance_id) -> int:
            request = PushTelemetryRequest(
                client_instance_id=instance,
                subscription_id=subscribed.subscription_id,
                terminating=True,
                compression_type=codec,
                metrics=metrics,
            )
            return int(wire.call(request, 0).error_code)

        data = metrics_data(gauge("org.apache.kafka.producer.request.latency.avg", number_point(1.25)))
        assert push(compress(Codec.ZSTD, data), Codec.ZSTD) == ErrorCode.NONE
        name = "kafka_client_producer_request_latency_avg"
        found = wait_until(lambda: scrape(server).samples.get(name), name)  # an early scrape gets the previous text
        assert [(dict(labels)["client_id"], value) for labels, value in found.items()] == [("pusher", 1.25)]

        for metrics, codec, error, unreadable in (
            (b"not gzip", Codec.GZIP, ErrorCode.INVALID_RECORD, 0),
            (compress(Codec.GZIP, bytes(1_048_577)), Codec.GZIP, ErrorCode.INVALID_RECORD, 0),
            (b"\xff\xff", Codec.NONE, ErrorCode.NONE, 1),
            (b"", Codec.GZIP, ErrorCode.NONE, 1),
        ):
            subscribed = wire.call(GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID), 0)
            assert push(metrics, codec, instance=subscribed.client_instance_id) == error
            broker = server.server.broker
            assert broker is not None
            telemetry = broker.telemetry
            assert telemetry is not None
            assert telemetry.unreadable == unreadable


@pytest.mark.parametrize("metrics", [True, False])
def test_the_apis_are_advertised_if_metrics_are_served(make_server: MakeServer, metrics: bool) -> None:
    server = make_server(config=METRICS if metrics else {})
    with WireClient(server.bootstrap_servers) as wire:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        keys = {each.api_key for each in wire.call(request, 4).api_keys}
        both = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
        assert keys & both == (both if metrics else set())
        answer = wire.call(GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID), 0)
        assert answer.error_code == (ErrorCode.NONE if metrics else ErrorCode.UNSUPPORTED_VERSION)

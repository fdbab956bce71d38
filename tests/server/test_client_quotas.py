"""Client quotas: requests that change and describe them, and producers and consumers that exceed them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.server.metrics.families import text_of
from moldau.server.metrics.quotas import quota_families
from moldau.server.network.connection import MUTED
from moldau.server.network.connection_limits import ConnectionLimits
from moldau.server.network.listeners import _as_peer
from moldau.server.requests.client_quotas import ClientQuotas, _fetched_bytes
from moldau.testing.builders import batch, fetch_request, produce_request, values
from moldau.testing.wire import WireClient

from .conftest import RunningServer

PRODUCED, CONSUMED = "producer_byte_rate", "consumer_byte_rate"
LARGE = batch(bytes(50_000))


def alter(server: RunningServer, entity: Mapping[str, str | None], **changes: float | None) -> None:
    parts = [EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()]
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()]
    with server.wire() as wire:
        (result,) = wire.call(AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=ops)]), 1).entries
    assert result.error_code == 0, result


def described(server: RunningServer) -> Any:
    with server.wire() as wire:
        response = wire.call(DescribeClientQuotasRequest(components=[]), 1)
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


def produce(wire: WireClient, records: bytes = LARGE, *, acks: int = 1) -> int:
    """The throttle time of the response."""
    response = wire.call(produce_request("t", records, acks=acks), 9)
    assert response.responses[0].partition_responses[0].error_code == 0
    return int(response.throttle_time_ms)


def fetch(wire: WireClient, offset: int, *, session: tuple[int, int] = (0, -1), **options: int) -> Any:
    """``session``: its id and its epoch."""
    request = fetch_request("t", offset, partition_max_bytes=60_000, **options)
    request.session_id, request.session_epoch = session
    return wire.call(request, 11)


def muted(server: RunningServer) -> int:
    """The number of muted connections."""
    return int(server.call(lambda: _muted(server)))


def _muted(server: RunningServer) -> int:
    return sum(bool(each._waits_for & MUTED) for each in server.network.connections)


def unmute(server: RunningServer) -> None:
    """As if the throttle times were over."""

    def end() -> None:
        for connection in server.network.connections:
            connection._muted_until = 0.0
            connection.unmute()

    server.call(end)


def with_stopped_clock(server: RunningServer) -> ClientQuotas:
    """The quotas of a server. What was used stays used, however slow the machine is."""
    assert server.server.broker is not None
    quotas = server.server.broker.mutation_quotas
    assert isinstance(quotas, ClientQuotas)
    quotas._clock = lambda: 1000.0
    return quotas


@pytest.fixture
def limited(server: RunningServer) -> RunningServer:
    """A server with a topic. Clients named ``limited`` may produce and consume 10 kB per second."""
    server.create_topic("t")
    alter(server, {"client_id": "limited"}, producer_byte_rate=10_000, consumer_byte_rate=10_000)
    return server


def limited_wire(server: RunningServer, client_id: str = "limited") -> WireClient:
    host, port = server.server.addresses[0]
    return WireClient(f"{host}:{port}", client_id=client_id, timeout_s=60)


def test_a_producer_is_muted_for_the_throttle_time(limited: RunningServer) -> None:
    with limited_wire(limited) as wire:
        assert produce(wire) == 0
        produce(wire)
        unmute(limited)  # a burst of ten seconds has passed
        assert 4000 < produce(wire) < 5100
        assert muted(limited) == 1
        wire.send(ApiVersionsRequest(), 0)
        assert muted(limited) == 1  # the request is not served
        unmute(limited)
        assert wire.receive().error_code == 0
        assert muted(limited) == 0


def test_the_metrics_tell_who_is_throttled(limited: RunningServer) -> None:
    def counted() -> dict[str, float]:
        text = "".join(text_of(quota_families(limited.broker.mutation_quotas), "strimzi"))
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, value in lines}

    assert limited.call(counted) == {}
    with limited_wire(limited) as wire:
        times: list[int] = []
        while len(times) < 2:
            times += [each for each in [produce(wire)] if each]
            unmute(limited)
    with limited.wire() as other:
        produce(other)
    which = f'{{quota="{PRODUCED}",user="",client_id="limited"}}'
    assert limited.call(counted) == {
        f"moldau_quota_throttled_requests_total{which}": 2,
        f"moldau_quota_throttled_seconds_total{which}": sum(times) / 1000,
    }


def test_another_client_is_not_limited(limited: RunningServer) -> None:
    with limited_wire(limited) as wire, limited_wire(limited, "other") as other:
        for _ in range(3):
            produce(wire)
            unmute(limited)
        assert [produce(other) for _ in range(5)] == [0] * 5


def test_without_acks_a_producer_is_muted_too(limited: RunningServer) -> None:
    with limited_wire(limited) as wire:
        for _ in range(4):
            wire.send(produce_request("t", LARGE, acks=0), 9, answered=False)
        limited.wait_until(lambda: _muted(limited) == 1)


def test_clients_of_a_quota_for_a_user_share_it(server: RunningServer) -> None:
    server.create_topic("t")
    alter(server, {"user": "ANONYMOUS"}, producer_byte_rate=10_000)
    with limited_wire(server, "one") as one, limited_wire(server, "two") as two:
        assert produce(one) == 0
        produce(two)
        assert produce(one) > 4000


def test_a_removed_quota_ends_and_a_new_one_ends_the_fast_path(limited: RunningServer) -> None:
    alter(limited, {"client_id": "limited"}, producer_byte_rate=None, consumer_byte_rate=None)
    assert described(limited) == {}
    with limited_wire(limited) as wire:
        assert [produce(wire) for _ in range(5)] == [0] * 5
        (connection,) = limited.network.connections
        assert connection.produce_fast_path is not None
        alter(limited, {"client_id": None}, producer_byte_rate=10_000)
        assert connection.produce_fast_path is None
        assert [produce(wire) for _ in range(3)][-1] > 4000
        assert connection.produce_fast_path is None


@pytest.mark.parametrize("session", [False, True])
def test_a_consumer_gets_an_empty_response_and_is_muted(limited: RunningServer, session: bool) -> None:
    alter(limited, {"client_id": "limited"}, consumer_byte_rate=6000)
    with limited_wire(limited, "other") as other:
        for _ in range(3):
            produce(other)
    with limited_wire(limited) as wire:

        def continued(response: Any, epoch: int) -> tuple[int, int]:
            return (response.session_id, epoch) if session else (0, -1)

        response = fetch(wire, 0, session=(0, 0) if session else (0, -1))
        assert (response.throttle_time_ms, values(response.responses[0].partitions[0])) == (0, [bytes(50_000)])
        response = fetch(wire, 1, session=continued(response, 1))
        assert (response.error_code, response.responses) == (0, [])
        assert response.throttle_time_ms > 0
        assert muted(limited) == 1
        unmute(limited)
        alter(limited, {"client_id": "limited"}, consumer_byte_rate=None)
        response = fetch(wire, 1, session=continued(response, 2))
        assert values(response.responses[0].partitions[0]) == [bytes(50_000)]


def test_the_whole_response_counts_for_the_quota_of_a_consumer(limited: RunningServer) -> None:
    quotas = with_stopped_clock(limited)

    def consumed() -> float:
        rates = [rate for key, rate in quotas._rates.items() if key[0] == CONSUMED]
        return sum(sample.total for rate in rates for sample in rate._samples)

    with limited_wire(limited, "other") as other:
        produce(other, batch(bytes(1000)))
    with limited_wire(limited) as wire:
        for offset in (0, 1):  # with records, and without
            before = limited.call(consumed)
            response = fetch(wire, offset)
            assert response.throttle_time_ms == 0
            # As Apache Kafka counts it: the body, and the four bytes of the length, without the header.
            assert limited.call(consumed) - before == 4 + len(encode(response, 11))


def test_the_bytes_of_very_many_partitions_are_estimated() -> None:
    data = [PartitionData(partition_index=index, records=bytes(100)) for index in range(1001)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=bytes(15) + b"1", partitions=data)])
    assert _fetched_bytes(response, 17) == pytest.approx(len(encode(response, 17)), rel=0.05)


def test_a_response_is_not_larger_than_the_burst(limited: RunningServer) -> None:
    alter(limited, {"client_id": "limited"}, consumer_byte_rate=1000)
    with limited_wire(limited, "other") as other:
        for _ in range(20):
            produce(other, batch(bytes(1000)))
    with limited_wire(limited) as wire:
        response = fetch(wire, 0)
        assert 5 <= len(values(response.responses[0].partitions[0])) < 10


def topics(*names: str, partitions: int = 1) -> list[CreatableTopic]:
    return [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]


def test_the_creation_of_topics_is_refused_while_the_quota_is_exceeded(server: RunningServer) -> None:
    """A burst of 11 partitions passes, and the topic that exceeds it."""
    alter(server, {"client_id": "limited"}, controller_mutation_rate=1)
    with_stopped_clock(server)
    with limited_wire(server) as wire:
        response = wire.call(CreateTopicsRequest(topics=topics("first", partitions=11), timeout_ms=60_000), 7)
        response = wire.call(CreateTopicsRequest(topics=topics("a", partitions=9), timeout_ms=60_000), 7)
        assert [topic.error_code for topic in response.topics] == [0]
        assert (response.throttle_time_ms, muted(server)) == (0, 0)  # only errors are throttled, as in Apache Kafka
        request = CreateTopicsRequest(topics=topics("b", "first", "bad name"), timeout_ms=60_000, validate_only=True)
        response = wire.call(request, 7)
        assert {topic.name: topic.error_code for topic in response.topics} == {
            "b": ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            "first": ErrorCode.TOPIC_ALREADY_EXISTS,
            "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert 8000 < response.throttle_time_ms <= 9000
        assert muted(server) == 1
        unmute(server)
        response = wire.call(CreateTopicsRequest(topics=topics("d"), timeout_ms=60_000), 5)  # an old client
        assert [topic.error_code for topic in response.topics] == [0]
        assert response.throttle_time_ms > 8000
        unmute(server)
        growth = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=10)], timeout_ms=60_000)
        assert [each.error_code for each in wire.call(growth, 3).results] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        unmute(server)
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=60_000)
        assert [each.error_code for each in wire.call(deletion, 6).responses] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        unmute(server)
        old_deletion = DeleteTopicsRequest(topic_names=["a"], timeout_ms=60_000)
        assert [each.error_code for each in wire.call(old_deletion, 4).responses] == [0]
    with limited_wire(server, "other") as other:
        request = CreateTopicsRequest(topics=topics("e"), timeout_ms=60_000)
        assert [topic.error_code for topic in other.call(request, 7).topics] == [0]


def test_automatic_creation_uses_the_quota(server: RunningServer) -> None:
    """Otherwise the quota would be no limit: every client can ask for the metadata of topics that do not exist."""
    alter(server, {"client_id": "limited"}, controller_mutation_rate=1)
    with_stopped_clock(server)

    def errors(wire: WireClient, *names: str) -> list[int]:
        wanted = [MetadataRequestTopic(name=name) for name in names]
        response = wire.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 9)
        return [topic.error_code for topic in response.topics]

    with limited_wire(server) as wire:
        assert wire.call(CreateTopicsRequest(topics=topics("a", partitions=11), timeout_ms=60_000), 7).topics
        found = errors(wire, "a", "b", "c", "bad name")
        assert found == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION]
    with limited_wire(server, "other") as other:
        assert errors(other, "c") == [0]


@pytest.mark.parametrize(
    ("kind", "values_of_keys"),
    [
        ("user", [(PRODUCED, 2.0**64)]),
        ("user", [(CONSUMED, 1e300)]),
        ("ip", [("connection_creation_rate", 2.0**31)]),
        ("user", [(PRODUCED, 5.0), (PRODUCED, 6.0)]),
    ],
)
def test_values_that_apache_kafka_refuses(
    server: RunningServer, kind: str, values_of_keys: list[tuple[str, float]]
) -> None:
    entity = [EntityData(entity_type=kind, entity_name=None)]
    ops = [OpData(key=key, value=value) for key, value in values_of_keys]
    with server.wire() as wire:
        (result,) = wire.call(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)]), 1).entries
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert described(server) == {}


def test_quotas_survive_a_restart(make_server: Any) -> None:
    server = make_server()
    alter(server, {"user": "alice", "client_id": None}, consumer_byte_rate=5)
    expected = {(("client-id", None), ("user", "alice")): {CONSUMED: 5.0}}
    assert described(server) == expected
    server.restart()
    assert described(server) == expected


def test_an_entity_is_accepted_once_and_errors_are_separate(server: RunningServer) -> None:
    def entry(kind: str, name: str | None, value: float) -> EntryData:
        return EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name)], ops=[OpData(key=PRODUCED, value=value)]
        )

    entries = [entry("user", "a", 1.5), entry("user", "b", 2.0), entry("user", "b", 3.0), entry("ip", "1.2.3.4", 1.0)]
    with server.wire() as wire:
        results = wire.call(AlterClientQuotasRequest(entries=entries), 1).entries
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 3
    with server.wire() as wire:
        results = wire.call(AlterClientQuotasRequest(entries=[entries[0], entries[1]]), 1).entries
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST, 0]
    assert described(server) == {(("user", "b"),): {PRODUCED: 2.0}}


# -- request_percentage ------------------------------------------------------------------------------------------------


class Timed:
    """A server whose requests take the time of a clock that the test sets."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.now_s = 0.0
        self.step_s = 0.0
        server.create_topic("t")

    def limit(self, entity: Mapping[str, str | None]) -> None:
        """At most ten percent."""
        alter(self.server, entity, request_percentage=10)
        self.server.call(self._set_clock)

    def _set_clock(self) -> None:
        quotas = self.server.broker.mutation_quotas
        assert isinstance(quotas, ClientQuotas)
        assert quotas.loop_time is not None
        quotas.loop_time.clock = self._clock

    def _clock(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@pytest.fixture
def timed(server: RunningServer) -> Timed:
    return Timed(server)


def test_a_client_that_uses_too_much_time_is_throttled_for_at_most_a_second(timed: Timed) -> None:
    timed.limit({"client_id": "limited"})
    with limited_wire(timed.server) as wire, limited_wire(timed.server, "other") as other:
        assert wire.call(MetadataRequest(topics=None), 9).throttle_time_ms == 0
        timed.step_s = 100.0
        assert wire.call(MetadataRequest(topics=None), 9).throttle_time_ms == 1000
        assert muted(timed.server) == 1
        assert other.call(MetadataRequest(topics=None), 9).throttle_time_ms == 0
        assert produce(other) == 0
        unmute(timed.server)
        assert produce(wire) == 1000
        unmute(timed.server)
        wire.call(DescribeGroupsRequest(groups=["g"]), 0)  # its response has no field for the time
        assert muted(timed.server) == 1


def test_a_throttled_fetch_is_empty_and_nothing_is_lost(timed: Timed) -> None:
    timed.limit({"user": None})
    with limited_wire(timed.server) as wire:
        produce(wire)
        response = fetch(wire, 0, session=(0, 0))
        session = response.session_id
        assert values(response.responses[0].partitions[0]) == [bytes(50_000)]
        produce(wire)
        timed.step_s = 100.0
        response = fetch(wire, 1, session=(session, 1))
        assert (response.error_code, response.throttle_time_ms, response.responses) == (0, 1000, [])
        alter(timed.server, {"user": None}, request_percentage=None)
        unmute(timed.server)
        response = fetch(wire, 1, session=(session, 2))
        assert values(response.responses[0].partitions[0]) == [bytes(50_000)]


def test_the_time_for_which_a_fetch_waits_does_not_count(timed: Timed) -> None:
    timed.limit({"client_id": "limited"})
    with limited_wire(timed.server) as wire, limited_wire(timed.server, "other") as other:
        request = fetch_request("t", 0, max_wait_ms=600_000, min_bytes=1)
        wire.send(request, 11)
        timed.server.wait_until(lambda: any(each._in_flight for each in timed.server.network.connections))
        timed.now_s += 10_000
        produce(other)
        response = wire.receive()
        assert (response.throttle_time_ms, len(response.responses)) == (0, 1)


def test_without_acks_the_time_counts_too(timed: Timed) -> None:
    timed.limit({"client_id": "limited"})
    timed.step_s = 100.0
    with limited_wire(timed.server) as wire:
        wire.send(produce_request("t", LARGE, acks=0), 9, answered=False)
        timed.server.wait_until(lambda: _muted(timed.server) == 1)


def test_a_request_in_slices_counts(timed: Timed) -> None:
    timed.limit({"client_id": "limited"})
    with limited_wire(timed.server) as wire:
        names = [f"n{number:05}" * 20 for number in range(500)]
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        assert wire.call(request, 9).throttle_time_ms == 0
        timed.step_s = 100.0
        assert wire.call(request, 9).throttle_time_ms == 1000


def test_clients_with_such_a_quota_have_no_fast_paths_and_others_have(timed: Timed) -> None:
    with limited_wire(timed.server) as wire, limited_wire(timed.server, "other") as other:

        def repeat() -> list[bool]:
            for _ in range(3):
                produce(wire)
                produce(other)
            found = {each.peer: each for each in timed.server.network.connections}
            sockets = ("{}:{}".format(*each._socket.getsockname()) for each in (wire, other))
            return [found[peer].produce_fast_path is not None for peer in sockets]

        assert repeat() == [True, True]
        timed.limit({"client_id": "limited"})
        assert repeat() == [False, True]
        assert timed.server.broker.slices.measured is not None
        alter(timed.server, {"client_id": "limited"}, request_percentage=None)
        assert repeat() == [True, True]
        assert timed.server.broker.slices.measured is None


# -- connection_creation_rate ------------------------------------------------------------------------------------------


def test_connections_above_the_rate_of_their_address_are_closed(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    alter(server, {"ip": "127.0.0.1"}, connection_creation_rate=1)
    assert server.broker.mutation_quotas is None  # requests are not slower

    def is_served() -> bool:
        with server.wire() as wire:
            wire.send(ApiVersionsRequest(), 0)
            try:
                return bool(wire.receive().error_code == 0)
            except ConnectionError:
                return False

    with server.wire() as admin:
        assert all(is_served() for _ in range(5))
        assert any(not is_served() for _ in range(500))
        assert "'connection_creation_rate'" in caplog.text
        request = AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type="ip", entity_name="127.0.0.1")],
                    ops=[OpData(key="connection_creation_rate", remove=True)],
                )
            ]
        )
        assert admin.call(request, 1).entries[0].error_code == 0
    assert all(is_served() for _ in range(20))


def test_rates_of_addresses() -> None:
    limits = ConnectionLimits()
    limits.limit_addresses({"10.0.0.1": 1.0, None: 2.0})
    for address, passing in (("10.0.0.1", 10), ("::ffff:10.0.0.2", 20), ("10.0.0.3", 20)):
        assert [limits.throttle_ms(address, 1000) for _ in range(passing)] == [0] * passing
        assert [limits.throttle_ms(address, 1000) for _ in range(3)] == [1000 // (passing // 10)] * 3
    assert limits.throttle_ms("10.0.0.1", 13_000) == 0
    limits.limit_addresses({"10.0.0.1": 1.0})
    assert [limits.throttle_ms("10.0.0.2", 1000) for _ in range(100)] == [0] * 100
    limits.limit_addresses({})
    assert [limits.throttle_ms("10.0.0.1", 13_000) for _ in range(100)] == [0] * 100


def test_addresses_are_compared_in_the_form_of_the_system() -> None:
    written = {"0:0:0:0:0:0:0:1": "::1", "::FFFF:1.2.3.4": "1.2.3.4", "1.2.3.4": "1.2.3.4", None: None}
    assert {each: _as_peer(each) for each in written} == written

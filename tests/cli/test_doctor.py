"""``moldau doctor``: findings from responses, and its output for real and broken servers."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from moldau.cli import diagnosis
from moldau.cli.cluster import Position
from moldau.cli.connection import PeerError
from moldau.cli.diagnosis import Finding, Level
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsResult
from moldau.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from .conftest import Run


def problems(findings: Iterator[Finding]) -> list[str]:
    found = [finding for finding in findings if finding.level is Level.PROBLEM]
    assert all(finding.advice for finding in found)
    return [finding.text for finding in found]


def offer(*api_keys: ApiKey, odd: tuple[int, int] = (0, 0)) -> ApiVersionsResponse:
    entries = [ApiVersion(api_key=api_key, min_version=0, max_version=1) for api_key in api_keys]
    return ApiVersionsResponse(api_keys=[*entries, ApiVersion(api_key=18, min_version=odd[0], max_version=odd[1])])


EVERYTHING = tuple(ApiKey)


def test_all_apis_are_no_problem() -> None:
    response = offer(*EVERYTHING)
    response.finalized_features = [FinalizedFeatureKey(name="metadata.version", max_version_level=30)]
    (finding,) = diagnosis.check_apis(response)
    assert finding.level is Level.OK
    assert "features: metadata.version 30" in finding.text


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (ApiKey.PRODUCE, "does not support Produce, required for producing"),
        (ApiKey.FETCH, "does not support Fetch, required for consuming"),
        (ApiKey.INIT_PRODUCER_ID, "does not support InitProducerId"),
        (ApiKey.CREATE_TOPICS, "does not support CreateTopics, required for creating topics"),
    ],
)
def test_missing_api_is_reported_with_its_purpose(missing: ApiKey, words: str) -> None:
    (problem,) = problems(diagnosis.check_apis(offer(*(key for key in EVERYTHING if key is not missing))))
    assert words in problem


def test_server_without_groups_is_a_note() -> None:
    response = offer(*(key for key in EVERYTHING if key not in (ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT)))
    note, _ = diagnosis.check_apis(response)
    assert (note.level, note.text) == (Level.NOTE, "the server does not support consumer groups")


def test_invalid_version_range_is_reported() -> None:
    assert problems(diagnosis.check_apis(offer(*EVERYTHING, odd=(3, 1)))) == [
        "the server reports versions 3 to 1 of ApiVersions"
    ]


def test_cluster_without_brokers_or_controller_is_reported() -> None:
    assert problems(diagnosis.check_cluster(MetadataResponse())) == ["the server reports no brokers, not even itself"]
    broker = MetadataResponseBroker(node_id=1, host="h", port=1)
    assert problems(diagnosis.check_cluster(MetadataResponse(brokers=[broker], controller_id=-1))) == [
        "the cluster has no controller"
    ]
    assert problems(diagnosis.check_cluster(MetadataResponse(brokers=[broker], controller_id=1))) == []


@pytest.mark.parametrize(
    ("advertised", "connected", "advice"),
    [
        (
            "localhost",
            "10.0.0.5",
            "Set advertised.listeners to an address that clients can reach, such as PLAINTEXT://10",
        ),
        ("127.0.0.1", "kafka.example", "such as PLAINTEXT://kafka.example:9092; 127.0.0.1 is this machine"),
        ("broker-0", "10.0.0.5", "an address that this machine can resolve and connect to"),
    ],
)
def test_unreachable_advertised_address_is_reported_with_the_setting(
    advertised: str, connected: str, advice: str
) -> None:
    broker = MetadataResponseBroker(node_id=1, host=advertised, port=9092)
    finding = diagnosis.check_advertised_address(broker, "connection refused", None, "c", connected)
    assert finding.level is Level.PROBLEM
    assert finding.text == f"broker 1 advertises {advertised}:9092, which is unreachable: connection refused"
    assert finding.advice is not None
    assert advice in finding.advice


def test_advertised_address_of_another_cluster_is_reported() -> None:
    broker = MetadataResponseBroker(node_id=1, host="h", port=9092)
    assert diagnosis.check_advertised_address(broker, None, "other", "mine", "h").level is Level.PROBLEM
    assert diagnosis.check_advertised_address(broker, None, "mine", "mine", "h").level is Level.OK


def topic(name: str, *partitions: MetadataResponsePartition, error: int = 0) -> MetadataResponseTopic:
    return MetadataResponseTopic(name=name, error_code=error, partitions=list(partitions))


def placed(index: int, leader: int, isr: list[int], offline: list[int]) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index, leader_id=leader, replica_nodes=[1, 2], isr_nodes=isr, offline_replicas=offline
    )


def test_partitions_without_leader_or_replicas_are_reported() -> None:
    topics = [
        topic("a", placed(0, 1, [1, 2], []), placed(1, -1, [], [1, 2])),
        topic("b", placed(0, 2, [2], [1])),
        topic("c", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert problems(diagnosis.check_topics(topics)) == [
        "topic c: TOPIC_AUTHORIZATION_FAILED",
        "1 partition without a leader: a-1",
        "2 partitions with offline replicas: a-1, b-0",
        "1 partition with out-of-sync replicas: b-0",
    ]


def test_long_lists_are_abbreviated() -> None:
    topics = [topic("a", *(placed(index, -1, [1, 2], []) for index in range(8)))]
    assert problems(diagnosis.check_topics(topics)) == [
        "8 partitions without a leader: a-0, a-1, a-2, a-3, a-4 and 3 more"
    ]


def test_healthy_topics_are_counted() -> None:
    (finding,) = diagnosis.check_topics([topic("a", placed(0, 1, [1, 2], []))])
    assert (finding.level, finding.text) == (Level.OK, "1 topic with 1 partition, all with a leader and in sync")


def test_failed_and_full_log_dirs_are_reported() -> None:
    gib = 2**30
    results = [
        DescribeLogDirsResult(log_dir="/ok", total_bytes=100 * gib, usable_bytes=50 * gib),
        DescribeLogDirsResult(log_dir="/old", total_bytes=-1, usable_bytes=-1),
        DescribeLogDirsResult(log_dir="/full", total_bytes=100 * gib, usable_bytes=gib),
        DescribeLogDirsResult(log_dir="/bad", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
    ]
    assert problems(diagnosis.check_log_dirs(1, results)) == [
        "broker 1: log directory /full is almost full, 1.0 GiB of 100.0 GiB free",
        "broker 1: log directory /bad is offline (KAFKA_STORAGE_ERROR)",
    ]


def test_future_timestamps_are_reported() -> None:
    hour = 3_600_000
    newest = {("a", 0): Position(5, 10 * hour), ("b", 1): Position(7, 12 * hour), ("c", 0): Position(-1, -1)}
    finding = diagnosis.check_clocks(newest, now_ms=9 * hour)
    assert finding.level is Level.PROBLEM
    assert finding.text == "1 partition with future timestamps: b-1, up to 3.0 hours ahead"
    assert diagnosis.check_clocks(newest, now_ms=11 * hour).level is Level.OK


def test_server_under_test_has_no_problem(ask: Run, new_topic: Callable[..., str], bootstrap_servers: str) -> None:
    new_topic(2)
    result = ask("doctor")
    assert result.code == 0, result.text
    assert result.lines[-1] == "No problems."
    assert f"ok       broker 1 advertises {bootstrap_servers}, which is reachable" in result.lines
    assert any("all with a leader and in sync" in line for line in result.lines)
    assert any(line.startswith("ok       broker 1: log directory ") for line in result.lines)
    findings = ask("doctor", "--json").json_lines()
    assert {finding["level"] for finding in findings} <= {"ok", "note"}


def test_doctor_creates_nothing(ask: Run) -> None:
    before = ask("topics", "list", "--internal", "--json").json()
    assert ask("doctor").code == 0
    assert ask("topics", "list", "--internal", "--json").json() == before


def test_refused_connection(run: Run, unused_port: int) -> None:
    result = run("doctor", "-b", f"127.0.0.1:{unused_port}")
    assert result.code == 1
    assert result.lines[0] == f"PROBLEM  cannot reach 127.0.0.1:{unused_port}: connection refused"
    assert "moldau serve" in result.lines[1]
    assert result.lines[-1] == "1 problem."


def test_one_of_several_addresses_is_unreachable(run: Run, bootstrap_servers: str, unused_port: int) -> None:
    result = run("doctor", "-b", f"{bootstrap_servers},127.0.0.1:{unused_port}")
    assert result.code == 1
    assert result.lines[-1] == "1 problem."
    assert any("which is reachable" in line for line in result.lines)


@contextmanager
def peer(answer: bytes) -> Iterator[int]:
    """The port of a server that sends ``answer`` to every connection and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the response to ApiVersions is not Kafka's protocol"),
        (b"\x00\x00\x00\x05abcde", "cannot decode the response to ApiVersions"),
        (b"\x00\x00\x00\x0a\x00\x00\x00\x63\x00\x00\x01\x00\x00\x00", ""),
        (b"", "the server closed the connection without a response"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "is not Kafka's protocol"),
    ],
    ids=["http", "short", "other", "closed", "tls alert"],
)
def test_listener_that_is_not_kafka(run: Run, answer: bytes, words: str) -> None:
    with peer(answer) as port:
        result = run("doctor", "-b", f"127.0.0.1:{port}")
    assert result.code == 1
    assert result.lines[0].startswith(f"PROBLEM  cannot reach 127.0.0.1:{port}: ")
    assert words in result.lines[0]
    assert result.lines[1].startswith("         -> ")


def test_unreachable_broker_address(bootstrap_servers: str) -> None:
    host, _, port = bootstrap_servers.rpartition(":")
    connections: list[Any] = []

    def connect(to_host: str, to_port: int) -> Any:
        if connections:
            raise PeerError("no answer within 5 seconds")
        connections.append(diagnosis.connect(to_host, to_port))
        return connections[0]

    findings = list(diagnosis.diagnose([(host, int(port))], now_ms=0, connect=connect))
    (problem,) = [finding for finding in findings if finding.level is Level.PROBLEM]
    assert problem.text == f"broker 1 advertises {bootstrap_servers}, which is unreachable: no answer within 5 seconds"

"""``moldau cluster``: the reported properties of a cluster, and missing ones."""

from collections.abc import Callable
from typing import Any

import pytest

from moldau.cli import describe_cluster
from moldau.cli.cluster import Cluster
from moldau.cli.connection import Connection
from moldau.cli.partition_states import (
    AT_MIN_ISR,
    BELOW_MIN_ISR,
    OFFLINE,
    UNDER_REPLICATED,
    PartitionState,
    as_json,
    most_urgent_first,
)
from moldau.protocol.api import ApiKey

from .conftest import Run


def connect(bootstrap_servers: str) -> Connection:
    host, _, port = bootstrap_servers.rpartition(":")
    return Connection(host, int(port), timeout_s=120)


def test_cluster_is_described(ask: Run, bootstrap_servers: str, request: pytest.FixtureRequest) -> None:
    described = ask("cluster", "--json").json()
    host, _, port = bootstrap_servers.rpartition(":")
    (broker,) = described["brokers"]
    assert (broker["host"], broker["port"], broker["fenced"]) in (
        (host, int(port), False),
        ("localhost", int(port), False),
    )
    assert described["controller"] == broker["id"]
    assert described["version"] == "4.3-IV0"
    assert described["software"] == (None if request.config.getoption("apache") else "Moldau")
    feature = described["features"]["metadata.version"]
    assert (feature["finalized"], feature["lowest_supported"]) == (30, 7)
    assert described["features"]["group.version"]["finalized"] == 1
    assert len(described["cluster_id"]) == 22


def test_led_partitions_are_counted(ask: Run, new_topic: Callable[..., str]) -> None:
    before = ask("cluster", "--json").json()
    new_topic(3)
    after = ask("cluster", "--json").json()
    assert after["partitions"] == before["partitions"] + 3
    assert after["brokers"][0]["leaders"] == before["brokers"][0]["leaders"] + 3
    assert after["partitions_without_leader"] == 0


def test_partitions_without_a_leader_are_reported(
    described_without: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    lost = [as_json(PartitionState("t", number, -1, (1,), (1,), None)) for number in range(21)]
    describe_cluster.show({**described_without(), "partitions": 30, "problems": lost})
    lines = capsys.readouterr().out.splitlines()
    assert "30 partitions: 21 offline" in lines
    assert ["t", "19", "none", "1", "1", "unknown", "offline"] in [line.split() for line in lines]
    assert lines[-1] == "1 more: --json has all of them"


@pytest.mark.parametrize(
    ("leader", "isr", "min_isr", "states"),
    [
        (1, (1, 2, 3), 2, []),
        (1, (1, 2, 3), 3, []),  # it cannot be better
        (1, (1, 2, 3), 5, []),  # as for brokers, three replicas suffice
        (1, (1, 2), 2, [AT_MIN_ISR, UNDER_REPLICATED]),
        (1, (1, 2), 1, [UNDER_REPLICATED]),
        (1, (1,), 2, [BELOW_MIN_ISR, UNDER_REPLICATED]),
        (1, (1,), None, [UNDER_REPLICATED]),
        (-1, (1,), 1, [OFFLINE, BELOW_MIN_ISR, UNDER_REPLICATED]),
        (-1, (), 1, [OFFLINE, BELOW_MIN_ISR, UNDER_REPLICATED]),
    ],
)
def test_states_of_a_partition(leader: int, isr: tuple[int, ...], min_isr: int | None, states: list[str]) -> None:
    assert PartitionState("t", 0, leader, (1, 2, 3), isr, min_isr).states == states


@pytest.mark.parametrize(
    ("isr", "states"),
    [
        ((1, 2), []),  # the new replica is not in sync yet
        ((1, 2, 3), []),
        ((1,), [BELOW_MIN_ISR, UNDER_REPLICATED]),
    ],
)
def test_replicas_that_a_reassignment_adds_need_not_be_in_sync(isr: tuple[int, ...], states: list[str]) -> None:
    assert PartitionState("t", 0, 1, (1, 2, 3), isr, 2, adding=(3,)).states == states


def test_the_most_urgent_partitions_are_first() -> None:
    at_minimum = PartitionState("a", 0, 1, (1, 2, 3), (1, 2), 2)
    below_minimum = PartitionState("b", 1, 1, (1, 2, 3), (1,), 2)
    offline = PartitionState("c", 0, -1, (1,), (1,), 1)
    under_replicated = PartitionState("a", 1, 1, (1, 2, 3), (1, 2), 1)
    healthy = PartitionState("a", 2, 1, (1, 2, 3), (1, 2, 3), 2)
    ordered = most_urgent_first([at_minimum, under_replicated, healthy, below_minimum, offline])
    assert ordered == [offline, below_minimum, at_minimum, under_replicated]


def test_cluster_is_shown_as_tables(ask: Run) -> None:
    described = ask("cluster", "--json").json()
    shown = ask("cluster")
    assert shown.code == 0
    lines = shown.lines
    assert lines[0] == f"cluster id  {described['cluster_id']}"
    assert lines[2].startswith("version     4.3-IV0 (metadata.version 30; ")
    assert lines[3] == f"controller  {described['controller']}"
    broker = described["brokers"][0]
    (row,) = [line.split() for line in lines if line.split()[:2] == [str(broker["id"]), broker["host"]]]
    assert row[2:6] == [str(broker["port"]), "broker,", "controller", "active"]
    assert row[6:] == [str(broker["leaders"]), str(broker["replicas"]), "0", "0"]
    (directory,) = broker["directories"]
    assert (directory["state"], directory["disk_bytes"] > directory["free_bytes"] > 0) == ("online", True)
    assert any(line.split()[1:3] == [directory["path"], "online"] for line in lines)
    assert lines[-1] == f"{described['partitions']} partitions, all with a leader and in sync"
    assert ["metadata.version", "30", f"7-{described['features']['metadata.version']['highest_supported']}"] in [
        line.split() for line in lines
    ]


@pytest.fixture
def described_without(bootstrap_servers: str) -> Callable[..., dict[str, Any]]:
    """The description by a server that does not offer some APIs and features: an older one, or not Apache Kafka."""

    def describe(*missing: ApiKey, features: bool = True) -> dict[str, Any]:
        servers = Cluster(connect(bootstrap_servers))
        try:
            for api_key in missing:
                del servers.bootstrap.api_versions[api_key]
            if not features:
                servers.bootstrap.greeting.supported_features = []
                servers.bootstrap.greeting.finalized_features = []
                servers.bootstrap.greeting.finalized_features_epoch = -1
            return describe_cluster.describe(servers)
        finally:
            servers.close()

    return describe


def test_server_without_the_newer_apis_is_described_by_its_metadata(
    described_without: Callable[..., dict[str, Any]],
) -> None:
    complete = described_without()
    described = described_without(ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_QUORUM, ApiKey.DESCRIBE_CONFIGS)
    assert described["cluster_id"] == complete["cluster_id"]
    assert described["controller"] == complete["controller"]
    assert described["software"] is None
    for broker in (*complete["brokers"], *described["brokers"]):
        del broker["directories"]  # the free space changes all the time
    unknown = {"fenced": None, "metadata_lag": None}
    assert [{**broker, **unknown} for broker in complete["brokers"]] == described["brokers"]
    assert described["controllers"] is None


def test_unreported_facts_are_shown_as_unknown(
    described_without: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    described = described_without(ApiKey.DESCRIBE_CONFIGS, features=False)
    assert (described["version"], described["features"], described["software"]) == (None, {}, None)
    describe_cluster.show({**described, "controller": None, "cluster_id": None})
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        "cluster id  unknown",
        "software    unknown: not Moldau, or its settings are not readable",
        "version     unknown (the server does not report a metadata.version)",
        "controller  unknown",
        "",
        "The server reports no features.",
    ]


@pytest.mark.parametrize(
    ("level", "release"),
    [(None, None), (0, None), (6, None), (7, "3.3-IV3"), (21, "3.9-IV0"), (25, "4.0-IV3"), (30, "4.3-IV0"), (99, None)],
)
def test_level_of_metadata_version_belongs_to_a_release(level: int | None, release: str | None) -> None:
    assert describe_cluster.release(level) == release

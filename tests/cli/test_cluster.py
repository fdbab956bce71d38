"""``moldau cluster``: the reported properties of a cluster, and missing ones."""

from collections.abc import Callable
from typing import Any

import pytest

from moldau.cli import describe_cluster
from moldau.cli.cluster import Cluster
from moldau.cli.connection import Connection
from moldau.protocol.api import ApiKey

from .conftest import Run


def connect(bootstrap_servers: str) -> Connection:
    host, _, port = bootstrap_servers.rpartition(":")
    return Connection(host, int(port), timeout_s=30)


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
    describe_cluster.show({**described_without(), "partitions": 7, "partitions_without_leader": 2})
    assert capsys.readouterr().out.splitlines()[-1] == "2 of 7 partitions have no leader."


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
    assert row[2:4] == [str(broker["port"]), "active"]
    assert row[4:] == [str(broker["leaders"]), "0"]
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
    unknown = {"fenced": None, "metadata_lag": None}
    assert [{**broker, **unknown} for broker in complete["brokers"]] == described["brokers"]


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

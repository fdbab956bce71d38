"""``moldau log dirs`` on running brokers."""

from pathlib import Path

from moldau.testing import Broker

from .conftest import Run


def test_each_directory_has_its_sizes(run: Run, bootstrap_servers: str) -> None:
    found = run("log", "dirs", "--json", "-b", bootstrap_servers).json()
    assert found
    for row in found:
        assert row["state"] == "online"
        assert row["disk_bytes"] >= row["free_bytes"] > 0
        assert row["moving_here"] == 0


def test_partitions_are_counted_where_they_are(run: Run, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b")]
    with Broker(config={"log.dirs": ",".join(paths)}) as broker:
        address = ("-b", broker.bootstrap_servers)
        assert run("topics", "create", "t", "-p", "4", *address).code == 0
        assert run("produce", "t", *address, input=b"hello\n").code == 0
        found = run("log", "dirs", "--json", *address).json()
        assert [(row["directory"], row["partitions"]) for row in found] == [(path, 2) for path in paths]
        assert sum(row["bytes"] for row in found) > 0
        header, *rows = run("log", "dirs", *address).lines
        assert header.split()[:3] == ["broker", "directory", "state"]
        assert [row.split()[1:4] for row in rows] == [[path, "online", "2"] for path in paths]

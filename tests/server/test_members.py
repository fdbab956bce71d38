"""The settings, addresses and directories of the brokers of `moldau serve --brokers N`."""

from __future__ import annotations

import socket
import sys

import pytest

from moldau.config.checks import check_broker_config
from moldau.config.definition import ConfigError
from moldau.config.sources import BrokerConfig, StaticValue, load
from moldau.log.checkpoints import decode_properties
from moldau.log.memory_files import MemoryFileSystem
from moldau.server.processes.free_ports import FreePorts
from moldau.server.processes.members import Member, format_members, plan
from moldau.server.processes.supervisor import MAX_PAUSE_S, MIN_PAUSE_S, next_pause
from moldau.server.storage.opening import StorageError

FREE = 40_000
LISTENERS = "listeners=PLAINTEXT://127.0.0.1:9092"
THREE_REPLICAS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class Ports:
    """Ports of one machine: these are in use, and the free ones begin at `FREE`."""

    def __init__(self, *used: int) -> None:
        self._used = set(used)
        self._next = FREE

    def __call__(self, host: str, port: int) -> int:
        if port and port not in self._used:
            return port
        self._next += 1
        return self._next - 1


@pytest.fixture
def files() -> MemoryFileSystem:
    return MemoryFileSystem()


def config_of(*settings: str) -> BrokerConfig:
    return load(overrides=[LISTENERS, *settings])


def members_of(
    files: MemoryFileSystem, *settings: str, count: int = 3, used: tuple[int, ...] = (), log_dirs: tuple[str, ...] = ()
) -> list[Member]:
    config = config_of(*settings)
    members = plan(config, log_dirs or ("/data",), count, files, Ports(*used))
    for member in members:
        check_broker_config(merged(config, member))
    return members


def merged(config: BrokerConfig, member: Member) -> BrokerConfig:
    return config.with_static({name: StaticValue(text, "--brokers") for name, text in member.settings.items()})


def listeners(members: list[Member]) -> list[str]:
    return [member.settings["listeners"] for member in members]


def test_the_first_broker_has_the_controller_and_the_others_join_it(files: MemoryFileSystem) -> None:
    first, second, third = members_of(files)
    assert first == Member(
        1,
        ("/data",),
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "log.dirs": "/data",
            "listeners": f"PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:{FREE}",
            **THREE_REPLICAS,
        },
    )
    assert second == Member(
        2,
        ("/data/brokers/2",),
        {
            "node.id": "2",
            "process.roles": "broker",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{FREE}",
            "log.dirs": "/data/brokers/2",
            "listeners": "PLAINTEXT://127.0.0.1:9093",
            **THREE_REPLICAS,
        },
    )
    assert third.settings["listeners"] == "PLAINTEXT://127.0.0.1:9094"


@pytest.mark.parametrize(("count", "expected"), [(1, (None, None)), (2, ("2", "1")), (3, ("3", "2")), (5, ("3", "2"))])
def test_the_replicas_of_coordinators_topics_depend_on_the_number_of_brokers(
    files: MemoryFileSystem, count: int, expected: tuple[str | None, str | None]
) -> None:
    for member in members_of(files, count=count):
        settings = member.settings
        assert settings.get("offsets.topic.replication.factor") == expected[0]
        assert settings.get("transaction.state.log.replication.factor") == expected[0]
        assert settings.get("transaction.state.log.min.isr") == expected[1]


def test_the_configuration_may_have_other_numbers_of_replicas(files: MemoryFileSystem) -> None:
    for member in members_of(files, "offsets.topic.replication.factor=1"):
        assert "offsets.topic.replication.factor" not in member.settings
        assert member.settings["transaction.state.log.replication.factor"] == "3"


def test_a_port_in_use_is_replaced_by_a_free_one(files: MemoryFileSystem) -> None:
    assert listeners(members_of(files, used=(9093,)))[1:] == [
        f"PLAINTEXT://127.0.0.1:{FREE}",
        "PLAINTEXT://127.0.0.1:9094",
    ]


def test_port_0_is_a_free_port_of_each_broker(files: MemoryFileSystem) -> None:
    found = listeners(members_of(files, "listeners=PLAINTEXT://127.0.0.1:0"))
    assert found[1:] == [f"PLAINTEXT://127.0.0.1:{FREE + 1}", f"PLAINTEXT://127.0.0.1:{FREE + 2}"]
    assert found[0].startswith(f"PLAINTEXT://127.0.0.1:{FREE},")


def test_two_listeners_with_neighboring_ports(files: MemoryFileSystem) -> None:
    settings = (
        "listeners=A://127.0.0.1:9092,B://127.0.0.1:9093",
        "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
        "inter.broker.listener.name=A",
    )
    members = members_of(files, *settings, count=2)
    assert members[1].settings["listeners"] == f"A://127.0.0.1:{FREE},B://127.0.0.1:9094"
    assert members[0].settings["listener.security.protocol.map"] == "A:PLAINTEXT,B:PLAINTEXT,CONTROLLER:PLAINTEXT"


def test_the_ports_of_advertised_listeners_follow(files: MemoryFileSystem) -> None:
    members = members_of(files, "advertised.listeners=PLAINTEXT://example.com:19092", count=2)
    advertised = [member.settings["advertised.listeners"] for member in members]
    assert advertised == ["PLAINTEXT://example.com:19092", "PLAINTEXT://example.com:19093"]


def test_each_broker_has_its_own_port_for_metrics(files: MemoryFileSystem) -> None:
    members = members_of(files, "moldau.metrics.listener=127.0.0.1:9404", used=(9405,))
    assert [member.settings["moldau.metrics.listener"] for member in members] == [
        "127.0.0.1:9404",
        f"127.0.0.1:{FREE + 1}",  # the controller has the first free one
        "127.0.0.1:9406",
    ]


def test_a_configured_listener_of_the_controller_is_used(files: MemoryFileSystem) -> None:
    """As in the configuration file of a combined node of Apache Kafka."""
    settings = (
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.quorum.bootstrap.servers=localhost:9093",
        "process.roles=broker,controller",
        "broker.id=7",
    )
    first, second = members_of(files, *settings, count=2)
    assert first.settings["listeners"] == "PLAINTEXT://:9092,CONTROLLER://:9093"
    assert second.settings["listeners"] == f"PLAINTEXT://:{FREE}"
    assert second.settings["controller.quorum.bootstrap.servers"] == "127.0.0.1:9093"
    assert second.settings["advertised.listeners"] == "PLAINTEXT://localhost:9093"
    assert (second.node_id, second.settings["broker.id"]) == (8, "8")


def test_each_log_directory_contains_one_of_each_broker(files: MemoryFileSystem) -> None:
    _, second = members_of(files, "metadata.log.dir=/m", count=2, log_dirs=("/a", "/b"))
    assert second.log_dirs == ("/a/brokers/2", "/b/brokers/2")
    assert second.settings["metadata.log.dir"] == "/m/brokers/2"


def test_cordoned_directories_are_those_of_each_broker(files: MemoryFileSystem) -> None:
    members = members_of(files, "log.dirs=/a,/b", "cordoned.log.dirs=/b", count=2, log_dirs=("/a", "/b"))
    assert [member.settings["cordoned.log.dirs"] for member in members] == ["/b", "/b/brokers/2"]
    members = members_of(files, "cordoned.log.dirs=*", count=2, log_dirs=("/a", "/b"))
    assert [member.settings["cordoned.log.dirs"] for member in members] == ["*", "*"]


def test_the_directories_of_a_cluster_are_formatted_once(files: MemoryFileSystem) -> None:
    members = members_of(files)
    format_members(config_of(), members, files)
    before = {path: files.read_file(f"{path}/meta.properties") for member in members for path in member.log_dirs}
    properties = [decode_properties(content) for content in before.values()]
    assert [each["node.id"] for each in properties] == ["1", "2", "3"]
    assert len({each["cluster.id"] for each in properties}) == 1
    assert len({each["directory.id"] for each in properties}) == 3
    more = members_of(files, count=4)
    format_members(config_of(), more, files)
    assert {path: files.read_file(f"{path}/meta.properties") for path in before} == before
    fourth = decode_properties(files.read_file("/data/brokers/4/meta.properties"))
    assert fourth["cluster.id"] == properties[0]["cluster.id"]


def test_the_first_broker_keeps_the_id_of_its_directory(files: MemoryFileSystem) -> None:
    format_members(config_of(), plan(config_of("node.id=5"), ["/data"], 1, files, Ports()), files)
    assert [member.node_id for member in members_of(files)] == [5, 6, 7]


def test_other_files_are_not_overwritten(files: MemoryFileSystem) -> None:
    files.make_directory("/data/photos")
    members = members_of(files)
    with pytest.raises(StorageError, match="not empty"):
        format_members(config_of(), members, files)
    format_members(config_of(), members, files, allow_non_empty=True)


@pytest.mark.parametrize(
    ("settings", "count", "words"),
    [
        ((), 0, "between 1 and 64"),
        ((), 65, "between 1 and 64"),
        (("process.roles=broker", "controller.quorum.bootstrap.servers=h:1"), 2, "process.roles is broker"),
        (("controller.quorum.bootstrap.servers=h:1",), 2, "names another one"),
        (("controller.quorum.voters=1@h:1",), 2, "names another one"),
    ],
)
def test_settings_of_another_kind_of_cluster_are_rejected(
    files: MemoryFileSystem, settings: tuple[str, ...], count: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        plan(config_of(*settings), ["/data"], count, files, Ports())


def test_pauses_grow_until_a_broker_runs_for_long() -> None:
    pauses = [0.0]
    for _ in range(9):
        pauses.append(next_pause(pauses[-1], ran_s=1))
    assert pauses[1:4] == [MIN_PAUSE_S, MIN_PAUSE_S * 2, MIN_PAUSE_S * 4]
    assert pauses[-1] == MAX_PAUSE_S
    assert next_pause(MAX_PAUSE_S, ran_s=10) == MIN_PAUSE_S


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not allow it")
def test_a_free_port_is_reserved_for_its_server() -> None:
    ports = FreePorts()
    port = ports("127.0.0.1", 0)
    assert ports("127.0.0.1", port) == port
    for _ in range(2):  # and for the server that is started again
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))
            server.listen()
            assert ports("127.0.0.1", port) != port
    with socket.socket() as other:
        with pytest.raises(OSError):
            other.bind(("127.0.0.1", port))
        ports.close()
        other.bind(("127.0.0.1", port))

"""Directories are formatted for the cluster of remote controllers, and never overwritten."""

from random import Random

import pytest

from moldau.config.sources import BrokerConfig, StaticValue
from moldau.log.checkpoints import decode_properties
from moldau.log.memory_files import MemoryFileSystem
from moldau.metadata.features import BOOTSTRAP_FEATURES
from moldau.metadata.image import BROKER_RESOURCE
from moldau.metadata.registrations import Endpoint
from moldau.security.scram import SHA_512
from moldau.security.scram_arguments import parse_scram_user
from moldau.server.storage.controller_storage import open_controller_storage
from moldau.server.storage.formatting import format_directories
from moldau.server.storage.opening import StorageError

CLUSTER, OTHER = "AA0Sd-u3S2aJ7jN2u5Mk0g", "AA0Sd-u3S2aJ7jN2u5Mk0w"


def config(node_id: int = 3) -> BrokerConfig:
    return BrokerConfig({"node.id": StaticValue(str(node_id), "test")})


def properties(files: MemoryFileSystem, directory: str) -> dict[str, str]:
    return decode_properties(files.read_file(f"{directory}/meta.properties"))


def test_each_directory_gets_an_owner_and_its_own_id() -> None:
    files = MemoryFileSystem()
    assert format_directories(config(), ["/a", "/b"], CLUSTER, files) == ["/a", "/b"]
    found = [properties(files, path) for path in ("/a", "/b")]
    assert [(each["cluster.id"], each["node.id"], each["version"]) for each in found] == [(CLUSTER, "3", "1")] * 2
    assert found[0]["directory.id"] != found[1]["directory.id"]


def test_formatted_directories_are_unchanged() -> None:
    files = MemoryFileSystem()
    format_directories(config(), ["/a"], CLUSTER, files)
    before = properties(files, "/a")
    assert format_directories(config(), ["/a", "/b"], CLUSTER, files) == ["/b"]
    assert properties(files, "/a") == before


@pytest.mark.parametrize(("node_id", "cluster_id"), [(3, OTHER), (4, CLUSTER), (3, "no id")])
def test_another_owner_is_refused_before_anything_is_written(node_id: int, cluster_id: str) -> None:
    files = MemoryFileSystem()
    format_directories(config(), ["/a"], CLUSTER, files)
    before = properties(files, "/a")
    with pytest.raises(StorageError):
        format_directories(config(node_id), ["/b", "/a"], cluster_id, files)
    assert properties(files, "/a") == before
    assert not files.exists("/b/meta.properties")


def test_data_without_an_owner_is_refused() -> None:
    files = MemoryFileSystem()
    files.make_directory("/a/t-0")
    files.replace_file("/a/t-0/00000000000000000000.log", b"x", sync=True)
    with pytest.raises(StorageError):
        format_directories(config(), ["/a"], CLUSTER, files)
    assert not files.exists("/a/meta.properties")


def test_a_controller_begins_the_cluster_of_its_formatted_directory() -> None:
    files = MemoryFileSystem()
    settings = BrokerConfig({"node.id": StaticValue("3", "test"), "process.roles": StaticValue("controller", "test")})
    format_directories(settings, ["/a"], CLUSTER, files)
    formatted = properties(files, "/a")
    endpoint = Endpoint("CONTROLLER", "localhost", 9093)
    for _ in range(2):  # at the first start and later
        storage = open_controller_storage(
            settings, ["/a"], endpoint, now_ms=1_700_000_000_000, file_system=files, rng=Random(1)
        )
        assert storage.metadata.image.cluster_id == CLUSTER
        storage.close(1_700_000_000_000)
    assert properties(files, "/a") == formatted
    assert format_directories(settings, ["/a"], CLUSTER, files) == []
    with pytest.raises(StorageError):
        format_directories(settings, ["/a"], OTHER, files)


def test_users_are_created_with_the_cluster() -> None:
    files = MemoryFileSystem()
    texts = {
        "node.id": "3",
        "process.roles": "controller",
        "listeners": "CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "min.insync.replicas": "2",
    }
    settings = BrokerConfig({name: StaticValue(text, "test") for name, text in texts.items()})
    user = parse_scram_user("SCRAM-SHA-512=[name=alice,password=secret]", lambda count: b"x" * count)
    format_directories(settings, ["/a"], CLUSTER, files, users=[user])
    endpoint = Endpoint("CONTROLLER", "localhost", 9093)
    for _ in range(2):  # at the first start and later
        storage = open_controller_storage(
            settings, ["/a"], endpoint, now_ms=1_700_000_000_000, file_system=files, rng=Random(1)
        )
        image = storage.metadata.image
        assert image.features.items() >= BOOTSTRAP_FEATURES.items()
        assert image.scram_credentials["alice", SHA_512.code].stored_key == user.credential.stored_key
        assert image.features["eligible.leader.replicas.version"] == 1
        assert image.config(BROKER_RESOURCE, "") == {"min.insync.replicas": "2"}
        storage.close(1_700_000_000_000)
    with pytest.raises(StorageError, match="is formatted already"):
        format_directories(settings, ["/a"], CLUSTER, files, users=[user])


def test_users_are_not_created_by_a_broker_that_joins() -> None:
    files = MemoryFileSystem()
    user = parse_scram_user("SCRAM-SHA-512=[name=alice,password=secret]", lambda count: b"x" * count)
    settings = BrokerConfig({"node.id": StaticValue("3", "test"), "process.roles": StaticValue("broker", "test")})
    with pytest.raises(StorageError, match="with the controller role"):
        format_directories(settings, ["/a"], CLUSTER, files, users=[user])
    assert not files.exists("/a/meta.properties")

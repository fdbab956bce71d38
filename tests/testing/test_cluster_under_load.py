"""`Cluster`: brokers are killed, stopped, paused and cut off while a producer writes to all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.testing import Cluster
from moldau.testing.producer_load import ProducerLoad, read_all

TOPIC = "load"
PARTITIONS = {0, 1, 2}


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=3, session_timeout=3.0) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """A whole cluster with a topic whose partition N - 1 is led by broker N."""
    running.reset()
    running.create_topic(TOPIC, [1, 2, 3])
    return running


@pytest.mark.parametrize(
    ("begin", "end", "brokers"),
    [
        ("kill", "start", (2,)),
        ("kill", "start", (1,)),  # the controller
        ("cut", "heal", (1, 3)),  # from the controller: it is fenced
        pytest.param("stop", "start", (3,), marks=pytest.mark.full),
        pytest.param("pause", "resume", (2,), marks=pytest.mark.full),
        pytest.param("cut", "heal", (2, 3), marks=pytest.mark.full),
    ],
)
def test_other_brokers_serve_and_no_record_is_lost(
    cluster: Cluster, begin: str, end: str, brokers: tuple[int, ...]
) -> None:
    load = ProducerLoad(cluster.bootstrap_servers.split(","), TOPIC, partitions=len(PARTITIONS))
    with load:
        load.wait_for_more(PARTITIONS)
        action: Any = getattr(cluster, begin)
        action(*brokers)
        affected = {brokers[-1] - 1} if begin != "cut" or 1 in brokers else set()
        load.wait_for_more(PARTITIONS - affected)
        undo: Any = getattr(cluster, end)
        undo(*([] if end == "heal" else brokers))
        load.wait_for_more(PARTITIONS)
    assert load.errors == []
    for partition, acknowledged in enumerate(load.acknowledged):
        assert read_all(cluster.bootstrap_servers, TOPIC, partition, len(acknowledged)) == acknowledged

"""``kill -9`` of brokers and of controllers while clients continue; the checks detect what they must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from moldau.compat_tests.cluster_kills import Outcome, fault_replicas, kill_brokers, kill_controllers, kill_replicas
from moldau.compat_tests.cluster_load import Group, TopicCreator, is_retriable
from moldau.compat_tests.kill_rounds import WrongError
from moldau.testing.requirements import require_kafka_jars

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def own_servers(request: pytest.FixtureRequest) -> None:
    if any(request.config.getoption(option) for option in ("apache", "bootstrap_server")):
        pytest.skip("starts and kills its own servers")


@pytest.mark.usefixtures("own_servers")
@pytest.mark.parametrize(
    ("kill", "seconds"),
    [
        pytest.param(kill_brokers, 0, marks=pytest.mark.full),
        pytest.param(kill_controllers, 0, marks=pytest.mark.full),
        pytest.param(kill_replicas, 0, marks=pytest.mark.full),
        pytest.param(fault_replicas, 0, marks=pytest.mark.extended),
        *(
            pytest.param(kill, 120, marks=pytest.mark.extended)
            for kill in (kill_brokers, kill_replicas, kill_controllers)
        ),
    ],
)
def test_clients_lose_nothing(kill: Callable[[float, float], Outcome], seconds: float) -> None:
    """With 0 seconds: each of three brokers once, or one controller."""
    if kill is kill_controllers:
        require_kafka_jars()
    assert kill(seconds, 0.0).problems == []


# Would it be seen?


def group() -> Group:
    found = Group("group", "classic", ["t"])
    for offset in range(4):
        found.deliver("t", offset, b"%d" % offset)
    found.commit("t", 3)
    return found


def test_a_group_may_read_again_what_it_has_not_committed() -> None:
    reading = group()
    reading.deliver("t", 3, b"3")
    reading.deliver("t", 4, b"4")
    assert (reading.read, reading.repeated) == (6, 1)


@pytest.mark.parametrize(
    ("offset", "value", "words"),
    [
        (5, b"5", "skips t 4 to 4"),
        (2, b"2", "has committed t 3, and reads 2"),
        (4, b"3", "has record b'3' at offset 4"),
    ],
)
def test_wrong_records_of_a_group_are_detected(offset: int, value: bytes, words: str) -> None:
    with pytest.raises(WrongError, match=words):
        group().deliver("t", offset, value)


def test_only_retriable_errors_are_accepted() -> None:
    assert is_retriable(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
    assert is_retriable(KafkaError(KafkaError._TRANSPORT))
    assert not is_retriable(KafkaError(KafkaError.OFFSET_OUT_OF_RANGE))
    reading = group()
    reading.reject(KafkaError(KafkaError.ILLEGAL_GENERATION))  # the group was rebalanced
    with pytest.raises(KafkaException):
        reading.reject(KafkaError(KafkaError.OFFSET_OUT_OF_RANGE))


class Topics:
    """An admin client that lists these topics, with their partitions."""

    def __init__(self, **topics: int) -> None:
        self.topics = {name: TopicMetadata(count) for name, count in topics.items()}

    def list_topics(self, timeout: float) -> Topics:
        return self


class TopicMetadata:
    def __init__(self, count: int) -> None:
        self.partitions = dict.fromkeys(range(count))


@pytest.mark.parametrize(
    ("topics", "producer_ids", "words"),
    [
        ({"a": 3}, [1, 2], r"\['b'\] do not exist"),
        ({"a": 3, "b": 2}, [1, 2], r"\['b'\] do not have 3 partitions"),
        ({"a": 3, "b": 3}, [1, 1], "assigned twice"),
    ],
)
def test_lost_topics_and_repeated_producer_ids_are_detected(
    topics: dict[str, int], producer_ids: list[int], words: str
) -> None:
    creator: Any = TopicCreator(NOWHERE)
    creator._admin = Topics(**topics)
    creator.created, creator.producer_ids = ["a", "b"], producer_ids
    with pytest.raises(WrongError, match=words):
        creator.check(None, 2)

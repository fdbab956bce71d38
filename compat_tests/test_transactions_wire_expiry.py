"""Expiration of unused transactional ids, and of the producers that partitions remember.

A dedicated server, where both expire after some seconds. An open transaction does not expire.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from moldau.compat_tests.transaction_server import CONFIG
from moldau.compat_tests.transaction_wire import Producer, consume, describe, producers, wait_for_coordinators
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
from moldau.testing import topic_requests as w
from moldau.testing.group_requests import code
from moldau.testing.servers import Server
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

EXPIRY_MS = 4_000

FORGETFUL = {
    **CONFIG,
    "transactional.id.expiration.ms": str(EXPIRY_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    "producer.id.expiration.ms": str(EXPIRY_MS),
    "producer.id.expiration.check.interval.ms": "100",
}


@pytest.fixture(scope="module")
def address(new_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[str]:
    with new_server(FORGETFUL) as started:
        wait_for_coordinators(started.bootstrap_servers)
        yield started.bootstrap_servers


@pytest.fixture
def wire(address: str) -> Iterator[WireClient]:
    with WireClient(address) as client:
        yield client


@pytest.fixture
def topic(address: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(address, topic_name())


def is_known(wire: WireClient, transactional_id: str) -> bool:
    error = code(describe(wire, transactional_id).error_code)
    assert error in ("NONE", "TRANSACTIONAL_ID_NOT_FOUND"), error
    return error == "NONE"


def test_unused_transactional_ids_expire(wire: WireClient, topic: Topic) -> None:
    """The coordinator and the partition expire them, except while a transaction is open."""
    name = topic.name
    done, empty, open_one = (Producer(wire, f"{name}-{kind}").begin() for kind in ("done", "empty", "open"))
    done.write(topic, b"a")
    done.commit()
    open_one.write(topic, b"b")
    ids = (done.transactional_id, empty.transactional_id)
    wait_until(lambda: not any(is_known(wire, each) for each in ids), f"the end of {ids}")
    wait_until(lambda: done.producer_id not in producers(wire, topic), "the end of the producer in the partition")
    assert producers(wire, topic)[open_one.producer_id].current_txn_start_offset == 2
    assert open_one.state == "Ongoing"

    # A producer that returns with its old id is unknown; it gets another producer id.
    assert done.add(topic) == {0: "INVALID_PRODUCER_ID_MAPPING"}
    assert done.produce(topic, b"-") == "INVALID_PRODUCER_ID_MAPPING"
    assert done.end() == "INVALID_PRODUCER_ID_MAPPING"
    assert done.add_offsets("group") == "INVALID_PRODUCER_ID_MAPPING"
    assert done.commit_offsets("group", topic, {0: 1}) == {0: "INVALID_PRODUCER_ID_MAPPING"}
    before = done.producer_id
    assert done.init(resume=True) == "NONE"
    assert (done.producer_id != before, done.epoch) == (True, 0)

    open_one.write(topic, b"c")
    open_one.commit()
    assert consume(wire, topic) == [b"a", b"b", b"c"]


def test_a_flood_of_transactional_ids_expires(wire: WireClient, topic_name: Callable[[], str]) -> None:
    name = topic_name()

    def ours() -> list[str]:
        answer = wire.call(ListTransactionsRequest(transactional_id_pattern=f"{name}.*"), 2)
        assert answer.error_code == 0
        return [each.transactional_id for each in answer.transaction_states]

    for number in range(500):
        assert Producer(wire, f"{name}-{number}").init() == "NONE"
    assert f"{name}-499" in ours()
    wait_until(lambda: not ours(), "the end of the flood")

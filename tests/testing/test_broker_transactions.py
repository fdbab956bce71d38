"""The methods of the broker for tests of applications with transactions, with a real producer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from moldau.testing import Broker, BrokerError


@pytest.fixture(scope="module", params=[False, True], ids=["process", "thread"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(thread=request.param) as broker:
        yield broker


def test_an_expired_transaction_is_aborted_and_its_producer_fenced(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "billing-1"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"one")
    producer.flush(120)
    broker.expire_transaction("billing-1")
    with pytest.raises(KafkaException, match=r"fenced|epoch"):
        producer.commit_transaction(30)
    with pytest.raises(BrokerError, match="billing-1 has no open transaction"):
        broker.expire_transaction("billing-1")


def test_expiring_a_missing_transaction_is_an_error(broker: Broker) -> None:
    with pytest.raises(BrokerError, match=r"TRANSACTIONAL_ID_NOT_FOUND|NOT_COORDINATOR"):
        broker.expire_transaction("nobody")

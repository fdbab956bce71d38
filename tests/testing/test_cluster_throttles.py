"""A leader sends a new replica no more than the rate permits, until the rate is removed (KIP-73)."""

from __future__ import annotations

from kafka import KafkaProducer

from moldau.protocol.api import ApiKey
from moldau.testing import Cluster
from moldau.testing.config_requests import BROKER, DELETE, SET, TOPIC, alter
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .test_cluster_reassignment import await_state, ongoing, reassign

LEADER, NEW = 1, 2
BATCHES = 20


def test_a_throttled_replica_is_not_sent_more_than_the_rate() -> None:
    # A response has about one batch, and followers repeat their requests quickly.
    config = {"replica.fetch.max.bytes": 1000, "replica.fetch.wait.max.ms": 10}
    with Cluster(brokers=2, config=config) as cluster:
        cluster.create_topic("orders", [LEADER])
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
        for _ in range(BATCHES):
            producer.send("orders", b"x" * 900, partition=0).get(timeout=60)
        producer.close()
        with WireClient(cluster.broker(LEADER).address) as wire:
            assert alter(wire, TOPIC, "orders", ("leader.replication.throttled.replicas", SET, f"0:{LEADER}")) == "NONE"
            assert alter(wire, BROKER, str(LEADER), ("leader.replication.throttled.rate", SET, "1")) == "NONE"
        requests = cluster.broker(LEADER).requests
        requests.clear()
        assert reassign(cluster, [NEW]) == 0
        # Without the throttle, this many fetches are more than enough.
        wait_until(lambda: sum(each.api_key == ApiKey.FETCH for each in requests) > 3 * BATCHES)
        assert ongoing(cluster) == [([NEW, LEADER], [NEW], [LEADER])]
        with WireClient(cluster.broker(LEADER).address) as wire:
            assert alter(wire, BROKER, str(LEADER), ("leader.replication.throttled.rate", DELETE, None)) == "NONE"
        await_state(cluster, NEW, [NEW])

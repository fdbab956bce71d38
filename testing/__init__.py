"""The public testing API: a real broker for a test, ready when its ``with`` block begins.

    from moldau.testing import Broker

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

A test waits for its consumers with :meth:`Broker.await_group_stable` and :meth:`Broker.await_lag_zero`, and expires a
member with :meth:`Broker.expire_member`: no sleeps.

``Cluster(brokers=3)`` is several brokers, which a test can kill, pause and cut off (see ``moldau.testing.cluster``).

pytest users request the fixtures ``kafka`` and ``kafka_cluster`` (see ``moldau.testing.pytest_plugin``).
``moldau.testing.wire`` sends single requests of the protocol that no client offers.
"""

from .broker import Broker
from .cluster import Cluster
from .server_run import BrokerError

__all__ = ["Broker", "BrokerError", "Cluster"]

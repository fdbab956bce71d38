"""The public testing API: a real broker for a test, ready when the constructor's ``with`` is entered.

    from moldau.testing import Broker

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

A test waits for its consumers with :meth:`Broker.await_group_stable` and :meth:`Broker.await_lag_zero`, and loses one
with :meth:`Broker.expire_member`: no sleeps.

pytest users ask for the fixture ``kafka`` (see ``moldau.testing.pytest_plugin``); ``moldau.testing.wire`` speaks single
requests of the protocol, for what no client offers.
"""

from .broker import Broker
from .server_run import BrokerError

__all__ = ["Broker", "BrokerError"]

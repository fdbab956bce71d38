"""The public testing API: a real broker for a test, ready when the constructor's ``with`` is entered.

    from moldau.testing import Broker

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

pytest users ask for the fixture ``kafka`` (see ``moldau.testing.pytest_plugin``); ``moldau.testing.wire`` speaks single
requests of the protocol, for what no client offers.
"""

from .broker import Broker
from .server_run import BrokerError

__all__ = ["Broker", "BrokerError"]

"""Which brokers are in responses to clients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from moldau.metadata.image import MetadataImage
from moldau.metadata.registrations import BrokerRegistration, Endpoint
from moldau.server.handlers.brokers import controller_id, node_endpoints


def broker_with(*fenced: int) -> Any:
    """Broker 1 of a cluster with the brokers 1 and 2, in whose metadata these are fenced."""
    brokers = {
        node_id: BrokerRegistration(
            id=node_id,
            epoch=node_id,
            incarnation_id=bytes(16),
            listeners={"PLAINTEXT": Endpoint("PLAINTEXT", f"host-{node_id}", 9092)},
            features={},
            rack=None,
            fenced=node_id in fenced,
        )
        for node_id in (1, 2)
    }
    return SimpleNamespace(
        node_id=1, advertised={}, rack=None, metadata=SimpleNamespace(image=MetadataImage(brokers=brokers))
    )


CONTEXT: Any = SimpleNamespace(listener_name="PLAINTEXT", local_address=("here", 9092))


def test_brokers_are_listed() -> None:
    assert node_endpoints(broker_with(), CONTEXT) == [(1, "here", 9092, None), (2, "host-2", 9092, None)]


def test_a_fenced_broker_lists_neither_itself_nor_other_fenced_brokers() -> None:
    assert node_endpoints(broker_with(1), CONTEXT) == [(2, "host-2", 9092, None)]
    assert node_endpoints(broker_with(2), CONTEXT) == [(1, "here", 9092, None)]
    assert node_endpoints(broker_with(1, 2), CONTEXT) == []


def test_a_fenced_broker_names_another_one_for_requests_to_the_controller() -> None:
    assert [controller_id(broker_with(*fenced)) for fenced in ((), (1,), (2,), (1, 2))] == [1, 2, 1, -1]

"""The brokers of the cluster as a client sees them: addresses of its listener, and the broker for the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..broker import Broker
    from ..context import RequestContext

NodeEndpoint = tuple[int, str, int, str | None]
"""Node id, host, port, rack."""


def node_endpoints(broker: Broker, context: RequestContext) -> list[NodeEndpoint]:
    """The unfenced brokers that have the client's listener, with the addresses that clients of the listener connect to.

    A broker that knows that it is fenced does not list itself, like Apache Kafka's: it may have been suspended.
    Without ``advertised.listeners``, the address of this broker is the address that the client connected to. This works
    for the client, whatever name it uses.
    """
    registered = broker.metadata.image.brokers
    endpoints: list[NodeEndpoint] = []
    own = registered.get(broker.node_id)
    if own is not None and not own.fenced:
        host, port = broker.advertised.get(context.listener_name) or context.local_address
        endpoints.append((broker.node_id, host, port, broker.rack))
    if len(registered) > 1 or not endpoints:
        for other in registered.values():
            listener = other.listeners.get(context.listener_name)
            if other.id != broker.node_id and not other.fenced and listener is not None:
                endpoints.append((other.id, listener.host, listener.port, other.rack))
        endpoints.sort()
    return endpoints


def fenced_endpoints(broker: Broker, context: RequestContext) -> list[NodeEndpoint]:
    """The fenced brokers that have the client's listener (KIP-1073)."""
    return sorted(
        (other.id, listener.host, listener.port, other.rack)
        for other in broker.metadata.image.brokers.values()
        if other.fenced and (listener := other.listeners.get(context.listener_name)) is not None
    )


def controller_id(broker: Broker) -> int:
    """The broker to which clients send requests for the controller, or -1 if there is none.

    As in Apache Kafka's KRaft mode, this is any active broker, which forwards them. This broker is preferred if it is
    active.
    """
    registered = broker.metadata.image.brokers
    own = registered.get(broker.node_id)
    if own is not None and own.is_active:
        return broker.node_id
    return min((each.id for each in registered.values() if each.is_active), default=-1)

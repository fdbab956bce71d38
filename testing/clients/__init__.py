"""One module per real client: the adapter that lets it play the scenarios.

``open_client(name, bootstrap_servers)`` creates one. If a program that the client needs is missing, the test ends as in
``moldau.testing.requirements``.
"""

from importlib import import_module

from moldau.testing.client import Client

_ADAPTERS = {
    "kafka-python": "moldau.testing.clients.kafka_python:KafkaPythonClient",
    "confluent-kafka": "moldau.testing.clients.confluent:ConfluentClient",
    "aiokafka": "moldau.testing.clients.aiokafka_client:AiokafkaClient",
    "kcat": "moldau.testing.clients.kcat:KcatClient",
    "java": "moldau.testing.clients.java:JavaClient",
    "franz-go": "moldau.testing.clients.franz_go:FranzGoClient",
}

CLIENT_NAMES = tuple(_ADAPTERS)


def client_class(name: str) -> type[Client]:
    """The adapter of a client; imported here, because its library may be missing."""
    module, _, attribute = _ADAPTERS[name].partition(":")
    adapter: type[Client] = getattr(import_module(module), attribute)
    return adapter


def open_client(name: str, bootstrap_servers: str) -> Client:
    """A client for this server; close it after use."""
    return client_class(name)(bootstrap_servers)

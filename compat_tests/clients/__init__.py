"""One module per real client: the adapter that lets it play the scenarios.

``open_client(name, bootstrap_servers)`` makes one; a program that the client needs and the machine lacks ends the test,
as ``moldau.compat_tests.requirements`` says.
"""

from importlib import import_module

from moldau.compat_tests.client import Client

_ADAPTERS = {
    "kafka-python": "moldau.compat_tests.clients.kafka_python:KafkaPythonClient",
    "confluent-kafka": "moldau.compat_tests.clients.confluent:ConfluentClient",
    "aiokafka": "moldau.compat_tests.clients.aiokafka_client:AiokafkaClient",
    "kcat": "moldau.compat_tests.clients.kcat:KcatClient",
    "java": "moldau.compat_tests.clients.java:JavaClient",
    "franz-go": "moldau.compat_tests.clients.franz_go:FranzGoClient",
}

CLIENT_NAMES = tuple(_ADAPTERS)


def client_class(name: str) -> type[Client]:
    """The adapter of a client; imported here, because each brings a library that not everybody has."""
    module, _, attribute = _ADAPTERS[name].partition(":")
    adapter: type[Client] = getattr(import_module(module), attribute)
    return adapter


def open_client(name: str, bootstrap_servers: str) -> Client:
    """A client for this server; close it after use."""
    return client_class(name)(bootstrap_servers)

"""confluent-kafka against the server under test: see ``scenarios``."""

from moldau.compat_tests.scenarios import ClientScenarios


class TestConfluentKafka(ClientScenarios):
    client_name = "confluent-kafka"

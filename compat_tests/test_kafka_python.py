"""kafka-python against the server under test: see ``scenarios``."""

from moldau.compat_tests.scenarios import ClientScenarios


class TestKafkaPython(ClientScenarios):
    client_name = "kafka-python"
    unknown_topic_codes = ("KafkaTimeoutError",)
    invalid_topic_codes = ("ValueError",)

"""aiokafka against the server under test: see ``scenarios``."""

from moldau.compat_tests.scenarios import ClientScenarios


class TestAiokafka(ClientScenarios):
    client_name = "aiokafka"
    # It knows that the name is invalid, logs that, and retries until it times out.
    invalid_topic_codes = ("UNKNOWN_TOPIC_OR_PARTITION",)

"""franz-go against the server under test: see ``scenarios``."""

from moldau.compat_tests.scenarios import ClientScenarios


class TestFranzGo(ClientScenarios):
    client_name = "franz-go"
    topic_error_give_up_ms = 30_000

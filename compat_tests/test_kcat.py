"""kcat against the server under test: see ``scenarios``."""

from moldau.compat_tests.scenarios import ClientScenarios


class TestKcat(ClientScenarios):
    client_name = "kcat"
    topic_error_give_up_ms = 30_000

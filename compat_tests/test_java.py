"""java against the server under test: see ``scenarios``."""

from moldau.compat_tests.scenarios import ClientScenarios


class TestJava(ClientScenarios):
    client_name = "java"
    unknown_topic_codes = ("REQUEST_TIMED_OUT",)

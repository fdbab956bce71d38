"""The fixture ``kafka``, as the tests of another project see it: each case is a separate pytest run."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

pytest_plugins = ["pytester"]

HEADER = """
import pytest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.testing.wire import WireClient

def topics(kafka):
    with WireClient(kafka.bootstrap_servers) as wire:
        return {topic.name: len(topic.partitions) for topic in wire.call(MetadataRequest(topics=None)).topics}

def make(kafka, name):
    # Asking for a topic makes it.
    from moldau.protocol.messages.metadata import MetadataRequestTopic
    with WireClient(kafka.bootstrap_servers) as wire:
        wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
"""


def run(pytester: pytest.Pytester, tests: str, conftest: str = "") -> pytest.RunResult:
    pytester.makepyfile(HEADER + dedent(tests))
    pytester.makeconftest(conftest)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=120)


def test_each_test_finds_an_empty_broker_of_one_process(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        pids = set()

        @pytest.mark.parametrize("name", ["a", "b", "c"])
        def test_it(kafka, name):
            assert topics(kafka) == {}
            make(kafka, name)
            assert topics(kafka) == {name: 1}
            pids.add(kafka.pid)

        def test_they_were_one():
            assert len(pids) == 1
        """,
    )

    result.assert_outcomes(passed=4)


def test_a_broker_that_a_test_stopped_or_killed_runs_again_for_the_next(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        @pytest.mark.parametrize("end", ["stop", "kill", "nothing"])
        def test_it(kafka, end):
            assert topics(kafka) == {}
            make(kafka, "t")
            getattr(kafka, end, lambda: None)()
        """,
    )

    result.assert_outcomes(passed=3)


def test_a_broker_that_crashes_restarts_with_its_data(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        def test_it(kafka):
            make(kafka, "t")
            pid, address = kafka.pid, kafka.bootstrap_servers
            kafka.crash()
            assert kafka.pid != pid
            assert kafka.bootstrap_servers == address
            assert topics(kafka) == {"t": 1}

        def test_another(kafka):
            assert topics(kafka) == {}
        """,
    )

    result.assert_outcomes(passed=2)


def test_settings_come_from_a_fixture(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        def test_it(kafka):
            make(kafka, "t")
            assert topics(kafka) == {"t": 4}
        """,
        conftest="""
            import pytest

            @pytest.fixture(scope="session")
            def kafka_config():
                return {"num.partitions": 4}
        """,
    )

    result.assert_outcomes(passed=1)


def test_the_log_is_shown_with_a_failed_test_and_only_there(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        def test_one(kafka):
            kafka.restart()

        def test_two(kafka):
            with WireClient(kafka.bootstrap_servers) as wire:
                wire.send_frame(b"not a request")
                assert wire.closed_by_server()
            assert False
        """,
    )

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*moldau broker log*", "*127.0.0.1:*"])
    result.stdout.no_fnmatch_line("*Stopping*")


def test_each_test_finds_a_whole_cluster_without_topics(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        @pytest.mark.parametrize("end", ["kill", "pause", "stop"])
        def test_it(kafka_cluster, end):
            for broker_id in kafka_cluster.broker_ids:
                broker = kafka_cluster.broker(broker_id)
                assert {topic for topic in topics(broker) if not topic.startswith("__")} == set()
            kafka_cluster.create_topic("orders", [1, 2, 3])
            getattr(kafka_cluster, end)(3)
            kafka_cluster.cut(1, 2)

        def test_that_fails(kafka_cluster):
            assert False
        """,
    )

    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines([f"*moldau log of broker {number}*" for number in (1, 2, 3)])


def test_the_plugin_imports_no_module_of_the_server() -> None:
    """It is loaded in every pytest run of every environment that has Moldau."""
    program = (
        "import sys, moldau.testing.pytest_plugin\n"
        "print(*sorted(name for name in sys.modules if name.startswith('moldau.')))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert {name.split(".")[1] for name in loaded} == {"testing"}


def test_a_schema_registry_runs_on_a_secured_broker(pytester: pytest.Pytester) -> None:
    for package in ("fastavro", "grpc_tools", "jsonschema", "starlette", "uvicorn"):
        pytest.importorskip(package, reason="needs pip install 'moldau[registry]'")
    result = run(
        pytester,
        """
        from urllib.request import urlopen

        def test_it(kafka, schema_registry):
            assert kafka.internal_address != kafka.bootstrap_servers
            assert urlopen(schema_registry + "/subjects").read() == b"[]"
        """,
        conftest="""
import pytest

@pytest.fixture(scope="session")
def kafka_security():
    return {"tls": True, "users": {"alice": "a secret"}, "acls": ["alice all topic orders"]}
""",
    )
    result.assert_outcomes(passed=1)


def test_a_secured_broker_keeps_its_users_and_acls_and_loses_its_topics(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        from confluent_kafka import Consumer, Producer

        @pytest.mark.parametrize("topic", ["orders-1", "orders-2"])
        def test_it(kafka, topic):
            errors = []
            for name in (topic, "payments"):
                producer = Producer(kafka.client_config("alice"))
                producer.produce(name, b"x", on_delivery=lambda error, _: errors.append(error and error.name()))
                assert producer.flush(60) == 0
            assert errors == [None, "TOPIC_AUTHORIZATION_FAILED"]
            consumer = Consumer({**kafka.client_config("alice"), "group.id": "g", "auto.offset.reset": "earliest"})
            assert list(consumer.list_topics(timeout=60).topics) == [topic]
            consumer.subscribe([topic])
            assert consumer.poll(60).value() == b"x"
            consumer.close()

        def test_a_connection_without_a_password_is_closed(kafka):
            with pytest.raises(ConnectionError):
                topics(kafka)
        """,
        conftest="""
import pytest

@pytest.fixture(scope="session")
def kafka_security():
    return {
        "tls": True,
        "users": {"alice": "a secret"},
        "acls": ["alice all topic orders- --prefix", "alice all group *"],
    }
""",
    )
    result.assert_outcomes(passed=3)

"""confluent-kafka against the server under test: see ``scenarios``, and a server that is killed repeatedly."""

from collections.abc import Callable

from moldau.compat_tests.scenarios import ClientScenarios
from moldau.testing.clients import open_client
from moldau.testing.servers import Server


class TestConfluentKafka(ClientScenarios):
    client_name = "confluent-kafka"
    topic_error_give_up_ms = 30_000


def test_killed_again_and_again(own_server: Server, topic_name: Callable[[], str]) -> None:
    """Each startup recovers the data of the killed server. No acknowledged record is lost or duplicated."""
    topic = topic_name()
    with open_client("confluent-kafka", own_server.bootstrap_servers) as client:
        client.create_topic(topic, 3)
        stream = client.open_stream(topic, 3)
        for _ in range(3):
            stream.wait_acknowledged(500)
            own_server.kill()
            own_server.start()
        stream.wait_acknowledged(500)
        for partition, values in stream.stop().items():
            assert [record.value for record in client.read(topic, partition)] == values

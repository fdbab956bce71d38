"""Topics that Metadata creates, on a server with settings for it.

The conformance cases `metadata.auto-creation` apply with any settings, and test less.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.testing import topic_requests as w
from moldau.testing.servers import Server
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[WireClient]:
    with WireClient(bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(bootstrap_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(bootstrap_servers, topic_name(), 3)


def by_name(*names: str) -> list[MetadataRequestTopic]:
    """Topics as a request names them."""
    return [MetadataRequestTopic(name=name) for name in names]


@pytest.mark.parametrize("create", [True, False])
def test_the_metadata_log_is_no_topic(new_server: Callable[..., AbstractContextManager[Server]], create: bool) -> None:
    name = "__cluster_metadata"
    with new_server({"auto.create.topics.enable": "true"}) as server, WireClient(server.bootstrap_servers) as wire:
        request = MetadataRequest(topics=by_name(name), allow_auto_topic_creation=create)
        for _ in range(2):
            (found,) = wire.call(request, 12).topics
            assert (ErrorCode(found.error_code).name, found.is_internal) == ("UNKNOWN_TOPIC_OR_PARTITION", False)


# Automatic creation


def test_automatic_creation(new_server: Callable[..., AbstractContextManager[Server]]) -> None:
    """On a server that creates requested topics; a client can opt out (since version 4)."""
    with (
        new_server({"auto.create.topics.enable": "true", "num.partitions": "2"}) as server,
        WireClient(server.bootstrap_servers) as wire,
    ):
        no = MetadataRequest(topics=by_name("wanted"), allow_auto_topic_creation=False)
        assert wire.call(no, 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        def ask(*names: str, version: int = 12) -> Any:
            return wire.call(MetadataRequest(topics=by_name(*names), allow_auto_topic_creation=True), version).topics

        for number, version in enumerate((0, 1, 3, 4, 9, 12, 13)):
            name = f"wanted-{number}"
            codes: set[int] = set()

            def created(name: str = name, version: int = version, codes: set[int] = codes) -> Any:
                (found,) = ask(name, version=version)
                codes.add(found.error_code)
                return found if found.error_code == 0 and found.partitions else None

            assert len(wait_until(created, name).partitions) == 2
            # Not an empty topic, not an internal error: clients retry after these.
            assert codes <= {0, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        (invalid,) = ask("not a name!")
        assert invalid.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        # Asking for all topics creates none.
        names = {each.name for each in wire.call(MetadataRequest(topics=None), 12).topics}
        assert names == {f"wanted-{number}" for number in range(7)}

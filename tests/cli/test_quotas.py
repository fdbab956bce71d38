"""``moldau quotas``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.testing import Broker

from .conftest import Run


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker(thread=True) as broker:
        yield broker.bootstrap_servers


def test_quotas_are_set_listed_and_removed(run: Run, address: str) -> None:
    def quotas(*arguments: str, code: int = 0) -> list[str]:
        result = run("quotas", *arguments, "-b", address)
        assert result.code == code, result
        return result.lines

    assert quotas("list") == []
    assert quotas("set", "producer_byte_rate", "1000000", "--user", "alice") == [
        "Set producer_byte_rate of user alice to 1000000."
    ]
    quotas("set", "consumer_byte_rate", "5", "--user", "*", "--client-id", "reports")
    assert [line.split() for line in quotas("list")[1:]] == [
        ["client-id=reports", "user=*", "consumer_byte_rate", "5"],
        ["user=alice", "producer_byte_rate", "1000000"],
    ]
    quotas("remove", "producer_byte_rate", "--user", "alice")
    assert run("quotas", "list", "--json", "-b", address).json() == [
        {"entity": "client-id=reports user=*", "key": "consumer_byte_rate", "value": 5.0}
    ]
    assert quotas("set", "request_percentage", "12.5", "--client-id", "*") == [
        "Set request_percentage of client-id * to 12.5."
    ]
    assert quotas("set", "connection_creation_rate", "10", "--ip", "10.1.2.3") == [
        "Set connection_creation_rate of ip 10.1.2.3 to 10."
    ]
    assert [line.split() for line in quotas("list")[1:]] == [
        ["client-id=*", "request_percentage", "12.5"],
        ["client-id=reports", "user=*", "consumer_byte_rate", "5"],
        ["ip=10.1.2.3", "connection_creation_rate", "10"],
    ]
    quotas("remove", "request_percentage", "--client-id", "*")
    quotas("remove", "connection_creation_rate", "--ip", "10.1.2.3")
    assert len(quotas("list")) == 2
    assert quotas("set", "producer_byte_rate", "5", code=2) == []
    assert quotas("set", "producer_byte_rate", "0", "--user", "alice", code=2) == []
    refused = run("quotas", "set", "producer_byte_rate", "5", "--user", "", "-b", address)
    assert (refused.code, "INVALID_REQUEST" in refused.err) == (1, True)

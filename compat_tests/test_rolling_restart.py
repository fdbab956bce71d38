"""All nodes of a cluster are restarted one after the other, and its features are raised, while clients continue."""

from __future__ import annotations

import pytest

from moldau.compat_tests.rolling_restart import roll
from moldau.testing.clients.java import JavaClient, ToolResult
from moldau.testing.requirements import require_kafka_jars


@pytest.mark.full
def test_clients_lose_nothing_in_a_rolling_upgrade(request: pytest.FixtureRequest) -> None:
    if any(request.config.getoption(option) for option in ("apache", "bootstrap_server")):
        pytest.skip("starts and stops its own servers")
    require_kafka_jars()
    with JavaClient("127.0.0.1:1") as java:

        def upgrade(address: str) -> None:
            arguments = ["--bootstrap-server", address, "upgrade", "--release-version", "4.3-IV0"]
            result: ToolResult = java.tool("org.apache.kafka.tools.FeatureCommand", arguments)
            assert result.exit_code == 0, result

        outcome = roll(2, upgrade)
    assert outcome.problems == []

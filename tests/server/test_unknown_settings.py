"""A setting that is unknown to Moldau, in a file or a variable, is described without its value, as in Apache Kafka.

compat_tests/test_wire_configs.py tests the same for Apache Kafka.
"""

from __future__ import annotations

from moldau.testing.config_requests import BROKER, described, node_id

from .conftest import MakeServer

STATIC_BROKER, UNKNOWN_TYPE = 4, 0


def test_an_unknown_static_setting_is_described_without_its_value(make_server: MakeServer) -> None:
    with make_server(config={"some.plugin.setting": "secret"}).wire() as wire:
        assert described(wire, BROKER, node_id(wire), "some.plugin.setting") == (
            (None, STATIC_BROKER, UNKNOWN_TYPE, True, True, [("some.plugin.setting", None, STATIC_BROKER)])
        )

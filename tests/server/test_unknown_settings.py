"""A setting that Moldau does not know, in a file or a variable, is described without its value, as Apache Kafka does.

compat_tests/test_wire_configs.py has the same for Apache Kafka.
"""

from moldau.compat_tests.config_wire import BROKER, described, node_id

STATIC_BROKER, UNKNOWN_TYPE = 4, 0


def test_an_unknown_static_setting_is_described_without_its_value(make_server):
    with make_server(config={"some.plugin.setting": "secret"}).wire() as wire:
        assert described(wire, BROKER, node_id(wire), "some.plugin.setting") == (
            (None, STATIC_BROKER, UNKNOWN_TYPE, True, True, [("some.plugin.setting", None, STATIC_BROKER)])
        )

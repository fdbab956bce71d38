"""The log of a server process, as text and as JSON, at the level of its settings."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from moldau.cli import serve
from moldau.config.checks import check_broker_config
from moldau.config.definition import ConfigError
from moldau.server.processes.logs import JsonFormatter
from moldau.testing import Broker


def log_of(broker: Broker) -> list[str]:
    """The log without the messages of the command line, which names the data directory."""
    return [line for line in broker.log().splitlines() if not line.startswith("moldau: ")]


def test_every_event_of_a_server_is_a_json_object() -> None:
    with Broker(config={"moldau.log.format": "json"}) as broker:
        broker.stop()
        events = [json.loads(line) for line in log_of(broker)]

    assert events
    assert all({"time", "level", "logger", "message"} == set(event) for event in events)
    assert {event["level"] for event in events} == {"INFO"}


def test_a_server_logs_nothing_below_its_level() -> None:
    with Broker(config={"moldau.log.level": "ERROR"}) as quiet, Broker() as usual:
        quiet.stop()
        usual.stop()
        assert log_of(quiet) == []
        assert any(" INFO " in line for line in log_of(usual))


def test_an_event_with_a_traceback_is_one_line() -> None:
    try:
        raise ValueError("broken\nin two lines")
    except ValueError:
        record = logging.LogRecord("moldau.x", logging.ERROR, "x.py", 1, "failed: %s", ("a\nb",), sys.exc_info())
    record.created = 1_769_860_800.0

    line = JsonFormatter(broker_id=3).format(record)

    assert "\n" not in line
    event = json.loads(line)
    assert event.pop("exception").endswith("ValueError: broken\nin two lines")
    assert event == {
        "time": "2026-01-31T12:00:00.000+00:00",
        "level": "ERROR",
        "logger": "moldau.x",
        "broker": 3,
        "message": "failed: a\nb",
    }


def test_an_unknown_level_is_refused_with_the_known_ones() -> None:
    config = serve.load_config({"--log-level": ["LOUD"]}, {})

    with pytest.raises(ConfigError, match=r"LOUD.*DEBUG"):
        check_broker_config(config)

"""The records per second of topics, from samples of their end offsets."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="needs pip install 'moldau[console]'")

from moldau.console.brokers import Brokers
from moldau.console.chart import Sample
from moldau.console.rendering import rate as written
from moldau.console.topic_rates import SPAN_MS, Rate, TopicRates
from moldau.testing.waiting import wait_until

from .conftest import Console
from .test_groups import offsets as cells
from .test_messages import NewTopic, Send, numbered

ID, OTHER = b"i" * 16, b"o" * 16


def test_a_rate_is_the_growth_of_the_last_minute() -> None:
    rates = TopicRates()
    rates.add("a", ID, {0: 100, 1: 50}, 0)
    assert rates.rate("a") is None
    rates.add("a", ID, {0: 100, 1: 90}, 30_000)
    rates.add("a", ID, {0: 200, 1: 90}, 60_000)
    rates.add("a", ID, {0: 220, 1: 90}, 90_000)
    assert rates.rate("a") == Rate(120 / 60, 60_000)
    assert rates.rate("b") is None


def test_a_rate_is_that_of_a_longer_time_without_samples_in_the_last_minute() -> None:
    rates = TopicRates()
    rates.add("a", ID, {0: 0}, 0)
    rates.add("a", ID, {0: 600}, 600_000)
    assert rates.rate("a") == Rate(1.0, 600_000)


def test_two_samples_at_almost_the_same_time_are_no_rate() -> None:
    rates = TopicRates()
    rates.add("a", ID, {0: 0}, 0)
    rates.add("a", ID, {0: 5}, 10)
    assert rates.rate("a") is None
    assert rates.history("a") == []
    rates.add("a", ID, {0: 10}, 1000)
    assert rates.rate("a") == Rate(10.0, 1000)
    assert rates.history("a") == [Sample(0, 10.0), Sample(1000, 10.0)]


def test_partitions_that_come_and_go_are_no_records() -> None:
    rates = TopicRates()
    rates.add("a", ID, {0: 1000}, 0)
    rates.add("a", ID, {0: 1000, 1: 5000}, 10_000)
    rates.add("a", ID, {1: 5000}, 20_000)
    rates.add("a", ID, {0: 1010, 1: 5000}, 30_000)
    assert rates.rate("a") == Rate(10 / 30, 30_000)


def test_a_topic_that_is_created_again_has_no_old_samples() -> None:
    rates = TopicRates()
    rates.add("a", ID, {0: 1000}, 0)
    rates.add("a", OTHER, {0: 3}, 10_000)
    assert rates.rate("a") is None
    rates.add("a", OTHER, {0: 13}, 20_000)
    assert rates.rate("a") == Rate(1.0, 10_000)
    rates.keep(set())
    assert rates.history("a") == []


def test_the_history_is_an_hour_and_idle_time_takes_no_memory() -> None:
    rates = TopicRates()
    for minute in range(200):
        rates.add("a", ID, {0: 60 * max(0, minute - 180)}, 60_000 * minute)
    history = rates.history("a")
    assert history[0] == Sample(0, 0.0)  # the beginning of the idle time
    assert [each.value for each in history[1:4]] == [0.0, 1.0, 1.0]
    assert len(history) == 2 + 2 * 19
    for minute in range(200, 300):
        rates.add("a", ID, {0: 60 * minute}, 60_000 * minute)
    history = rates.history("a")
    assert history[-1].time_ms - history[0].time_ms == SPAN_MS


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.0, "0"), (0.254, "0.25"), (12.4, "12"), (1234.5, "1\u202f234")]
)
def test_rates_are_written_with_two_digits_or_whole(value: float | None, text: str) -> None:
    assert written(value) == text


def test_the_screens_of_topics_show_the_rate(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic(2)

    def shown() -> str:
        return cells(console.get(f"/topics?q={topic}").text)[0][4]

    assert shown() == "–"
    send(topic, numbered(50))
    wait_until(lambda: shown() not in ("–", "0"))
    page = console.get(f"/topics/{topic}/partitions").text
    assert "records per second in the last" in page
    assert "<polyline" in page


def test_all_topics_are_sampled(bootstrap_servers: str, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic(2)
    rates = TopicRates()
    with Brokers(bootstrap_servers).cluster() as cluster:
        rates.sample(cluster, 0)
        send(topic, numbered(50))
        rates.sample(cluster, 10_000)
    assert rates.rate(topic) == Rate(5.0, 10_000)

"""Subscription by regular expression."""

from __future__ import annotations

import pytest

from moldau.coordinator.patterns import Pattern
from moldau.group_coordinator.records import ConsumerGroupMetadataKey, ConsumerGroupRegularExpressionKey
from moldau.protocol.errors import ErrorCode

from ...coordinator.harness import EPOCH_MS
from ..harness import Coordinator
from .consumer import GROUP, Consumer, settle

_REFRESH_INTERVAL_MS = 30_000


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator(consumer_regex_refresh_interval_ms=_REFRESH_INTERVAL_MS)
    for name in ("orders", "orders-2", "payments"):
        coordinator.topics.create(name, 2)
    return coordinator


def test_the_topics_that_match_are_assigned(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", subscribed_topic_regex="orders.*")
    assert a.join().response.member_epoch == 2
    assert a.assigned == {"orders": {0, 1}, "orders-2": {0, 1}}
    (record,) = (one for one in coordinator.written() if isinstance(one.key, ConsumerGroupRegularExpressionKey))
    assert record.key.regular_expression == "orders.*"
    assert record.value.topics == ["orders", "orders-2"]
    assert (record.value.version, record.value.timestamp) == (3, EPOCH_MS)
    assert coordinator.group(GROUP).is_subscribed_to("orders-2")
    assert not coordinator.group(GROUP).is_subscribed_to("payments")


def test_an_expression_matches_whole_names(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", subscribed_topic_regex="orders")
    a.join()
    assert a.assigned == {"orders": {0, 1}}


def test_names_and_an_expression_add_up(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["payments"], subscribed_topic_regex="orders-.")
    a.join()
    assert set(a.assigned) == {"payments", "orders-2"}


def test_the_empty_string_is_no_expression(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", ["payments"], subscribed_topic_regex="")
    assert a.join().response.member_epoch == 2
    assert set(a.assigned) == {"payments"}
    assert not any(isinstance(one.key, ConsumerGroupRegularExpressionKey) for one in coordinator.written())


@pytest.mark.parametrize("regex", ["a(", "*", "(?=a)", r"(a)\1", "a{2000}"])
def test_an_invalid_expression_is_rejected(coordinator: Coordinator, regex: str) -> None:
    a = Consumer(coordinator, "a", subscribed_topic_regex=regex)
    sent = a.join()
    assert sent.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not coordinator.has_group()
    assert coordinator.written() == []


@pytest.mark.parametrize("regex", ["(a+)+$", "(a|aa)+$", "(.*a){20}", "((a{0,30}){0,30})b"])
def test_expressions_that_backtracking_cannot_end_take_no_time(regex: str) -> None:
    # `re` would be at it for longer than the universe will be there.
    assert Pattern(regex, name="").matching(["a" * 240 + "!"]) == frozenset()


def test_a_new_topic_is_found(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", subscribed_topic_regex="orders.*")
    a.join()
    a.heartbeat()
    coordinator.written()
    coordinator.topics.create("orders-3", 1)
    # All expressions are looked at again after ten seconds at the earliest, as topics often come one by one.
    coordinator.advance(9_999)
    assert a.heartbeat().response.assignment is None
    coordinator.advance(1)
    a.heartbeat()
    assert set(a.assigned) == {"orders", "orders-2", "orders-3"}
    kinds = [type(one.key) for one in coordinator.written()]
    assert kinds[:2] == [ConsumerGroupRegularExpressionKey, ConsumerGroupMetadataKey]


def test_a_topic_that_does_not_match_writes_no_record(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", subscribed_topic_regex="orders.*")
    a.join()
    coordinator.written()
    coordinator.topics.create("refunds", 1)
    coordinator.advance(20_000)
    assert a.heartbeat().response.member_epoch == 2
    assert coordinator.written() == []


def test_a_deleted_topic_is_not_assigned(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", subscribed_topic_regex="orders.*")
    a.join()
    coordinator.topics.delete("orders-2")
    settle(a)
    assert a.owned == {"orders": {0, 1}}


def test_a_topic_that_the_member_may_not_describe_is_no_match(coordinator: Coordinator) -> None:
    hidden = {"orders-2", "orders-3"}
    coordinator.states.may_describe = lambda caller, name: name not in hidden
    a = Consumer(coordinator, "a", subscribed_topic_regex="orders.*")
    a.join()
    assert set(a.assigned) == {"orders"}
    coordinator.topics.create("orders-3", 1)
    coordinator.advance(10_000)
    a.heartbeat()
    assert set(a.assigned) == {"orders"}
    hidden.clear()
    coordinator.advance(_REFRESH_INTERVAL_MS - 1)
    a.heartbeat()
    assert set(a.assigned) == {"orders"}  # as in Apache Kafka, a new permission is noticed at the next lookup
    coordinator.advance(1)
    a.heartbeat()
    assert set(a.assigned) == {"orders", "orders-2", "orders-3"}


def test_the_member_whose_request_causes_a_lookup_decides_for_the_group(coordinator: Coordinator) -> None:
    coordinator.states.may_describe = lambda caller, name: caller.client_id == "client of a" or name == "orders"
    a = Consumer(coordinator, "a", subscribed_topic_regex="orders.*")
    b = Consumer(coordinator, "b", subscribed_topic_regex="orders.*")
    a.join()
    a.heartbeat()
    b.join()
    (resolved,) = coordinator.group(GROUP).subscriptions.resolved.values()
    assert resolved.topics == {"orders", "orders-2"}
    coordinator.advance(_REFRESH_INTERVAL_MS)
    b.heartbeat()
    (resolved,) = coordinator.group(GROUP).subscriptions.resolved.values()
    assert resolved.topics == {"orders"}


def test_members_share_an_expression_which_is_removed_with_the_last_one(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", subscribed_topic_regex="orders.*")
    b = Consumer(coordinator, "b", subscribed_topic_regex="orders.*")
    a.join()
    coordinator.advance(2000)
    b.join()
    settle(a, b)
    assert sum(len(partitions) for partitions in a.owned.values()) == 2
    coordinator.written()
    a.leave()
    assert not any(isinstance(one.key, ConsumerGroupRegularExpressionKey) for one in coordinator.written())
    b.leave()
    (gone,) = (one for one in coordinator.written() if isinstance(one.key, ConsumerGroupRegularExpressionKey))
    assert gone.value is None
    assert not coordinator.group(GROUP).subscriptions.resolved


def test_a_member_may_change_its_expression(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", subscribed_topic_regex="orders.*")
    a.join()
    coordinator.advance(2000)
    a.heartbeat(subscribed_topic_regex="pay.*")
    settle(a)
    assert a.owned == {"payments": {0, 1}}
    assert set(coordinator.group(GROUP).subscriptions.resolved) == {"pay.*"}
    coordinator.advance(2000)
    a.heartbeat(subscribed_topic_regex="", subscribed_topic_names=["orders"])
    settle(a)
    assert a.owned == {"orders": {0, 1}}
    assert not coordinator.group(GROUP).subscriptions.resolved


def test_a_rejected_expression_leaves_the_member_unchanged(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", subscribed_topic_regex="orders.*")
    a.join()
    coordinator.written()
    assert a.heartbeat(subscribed_topic_regex="(").error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert coordinator.written() == []
    assert a.heartbeat().response.member_epoch == 2


def test_matched_topics_are_restored_after_a_restart(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", subscribed_topic_regex="orders.*")
    a.join()
    coordinator.written()
    coordinator.restart()
    assert a.heartbeat().response.member_epoch == 2
    assert coordinator.written() == []
    assert coordinator.group(GROUP).is_subscribed_to("orders-2")

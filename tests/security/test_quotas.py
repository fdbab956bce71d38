"""Which quota applies to a client, and how rates are measured."""

from __future__ import annotations

import pytest

from moldau.security.quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    USER,
    Entity,
    QuotaIndex,
    Rate,
    TokenBucket,
    Window,
)

BOTH = (PRODUCER_BYTE_RATE, "alice", "app")
OF_USER = (PRODUCER_BYTE_RATE, "alice", "")
OF_CLIENT = (PRODUCER_BYTE_RATE, "", "app")
# The most specific entity first.
ENTITIES: list[tuple[Entity, tuple[str, str, str]]] = [
    (((CLIENT_ID, "app"), (USER, "alice")), BOTH),
    (((CLIENT_ID, None), (USER, "alice")), BOTH),
    (((USER, "alice"),), OF_USER),
    (((CLIENT_ID, "app"), (USER, None)), BOTH),
    (((CLIENT_ID, None), (USER, None)), BOTH),
    (((USER, None),), OF_USER),
    (((CLIENT_ID, "app"),), OF_CLIENT),
    (((CLIENT_ID, None),), OF_CLIENT),
]


@pytest.mark.parametrize("first", range(len(ENTITIES)))
def test_the_most_specific_quota_applies(first: int) -> None:
    quotas = {entity: {PRODUCER_BYTE_RATE: float(number + 1)} for number, (entity, _) in enumerate(ENTITIES)}
    for entity, _ in ENTITIES[:first]:
        quotas[entity] = {CONSUMER_BYTE_RATE: 1.0}  # another kind
    found = QuotaIndex(quotas).find(PRODUCER_BYTE_RATE, "alice", "app")
    assert found == (first + 1, ENTITIES[first][1])


def test_clients_without_a_quota() -> None:
    index = QuotaIndex({((USER, "bob"),): {PRODUCER_BYTE_RATE: 1.0}, ((CLIENT_ID, "b"),): {PRODUCER_BYTE_RATE: 1.0}})
    assert index.find(PRODUCER_BYTE_RATE, "alice", "app") is None
    assert index.find(CONSUMER_BYTE_RATE, "bob", "b") is None
    assert (index.has(PRODUCER_BYTE_RATE), index.has(CONSUMER_BYTE_RATE)) == (True, False)


def test_a_burst_after_idleness_passes() -> None:
    rate = Rate(Window(11, 1000))
    rate.record(100_000, 0)
    assert rate.throttle_ms(10_000, 0) == 0
    rate.record(1000, 0)
    assert rate.throttle_ms(10_000, 0) == 100


def test_the_throttle_time_is_what_the_amounts_would_have_taken_in_addition() -> None:
    """As in Apache Kafka, the time since the first sample counts only in full windows until there are ten of them."""
    rate = Rate(Window(11, 1000))
    for now_ms, amount, expected in (
        (0, 120_000, 2000),
        (1000, 0, 2000),
        (1400, 0, 1600),
        (2000, 30_000, 5000),
        (9000, 0, 5000),
        (12_500, 0, 0),
    ):
        rate.record(amount, now_ms)
        assert rate.throttle_ms(10_000, now_ms) == expected


def test_old_samples_are_forgotten() -> None:
    rate = Rate(Window(11, 1000))
    rate.record(1_000_000, 0)
    assert not rate.is_idle(10_999)
    assert rate.is_idle(11_000)
    assert rate.throttle_ms(10, 11_000) == 0


def test_a_revoked_amount_does_not_count() -> None:
    rate = Rate(Window(11, 1000))
    rate.record(200_000, 0)
    rate.record(-200_000, 0)
    assert rate.throttle_ms(10_000, 0) == 0


def test_the_number_of_samples_is_bounded() -> None:
    rate = Rate(Window(3, 1000))
    for number in range(100):
        rate.record(1, number * 1000)
    assert len(rate._samples) <= 3


def test_a_token_bucket_is_exceeded_by_one_request_at_most() -> None:
    bucket = TokenBucket(2, 10, 0)
    bucket.take(10, 0)
    assert (bucket.is_exceeded(0), bucket.throttle_ms(0)) == (False, 0)
    bucket.take(4, 0)
    assert (bucket.is_exceeded(0), bucket.throttle_ms(0)) == (True, 2000)
    assert (bucket.is_exceeded(1999), bucket.is_exceeded(2000)) == (True, False)
    assert (bucket.is_full(6999), bucket.is_full(7000)) == (False, True)


def test_a_token_bucket_with_another_rate() -> None:
    bucket = TokenBucket(2, 10, 0)
    bucket.change_rate(1, 5, 0)
    bucket.take(8, 0)
    assert bucket.throttle_ms(0) == 3000

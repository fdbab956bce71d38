from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from moldau.testing.waiting import wait_until, wait_until_async


def wait_async(condition: Callable[[], object], what: str = "", **options: Any) -> object:
    return asyncio.run(wait_until_async(condition, what, pause=0, **options))


@pytest.fixture(params=[wait_until, wait_async], ids=["thread", "event loop"])
def wait(request: pytest.FixtureRequest) -> Callable[..., object]:
    form: Callable[..., object] = request.param
    return form


def test_a_wait_returns_the_first_true_result(wait: Callable[..., object]) -> None:
    results: Iterator[object] = iter([None, 0, [], "found", "later"])
    assert wait(lambda: next(results), "the result") == "found"
    assert next(results) == "later"


def test_errors_of_the_given_types_are_retried(wait: Callable[..., object]) -> None:
    errors = iter([ConnectionRefusedError(), LookupError()])

    def connect() -> str:
        for error in errors:
            raise error
        return "connected"

    assert wait(connect, retry=(ConnectionError, LookupError)) == "connected"


def test_a_condition_is_checked_at_least_once(wait: Callable[..., object]) -> None:
    assert wait(lambda: "already", seconds=0) == "already"


def test_the_failure_has_the_description_and_the_last_result(wait: Callable[..., object]) -> None:
    with pytest.raises(TimeoutError, match=r"^not within 0\.01 s: three records; last result \[\]$"):
        wait(list, "three records", seconds=0.01)


def test_the_failure_has_the_last_error(wait: Callable[..., object]) -> None:
    def is_two() -> bool:
        raise AssertionError("1 is not 2")

    with pytest.raises(TimeoutError, match=r"a two; last error AssertionError\('1 is not 2'\)") as raised:
        wait(is_two, "a two", seconds=0.01, retry=AssertionError)
    assert isinstance(raised.value.__cause__, AssertionError)


def test_the_failure_has_the_source_of_a_condition_without_description(wait: Callable[..., object]) -> None:
    never_set = threading.Event()
    with pytest.raises(TimeoutError, match=r"lambda: never_set\.is_set\(\)"):
        wait(lambda: never_set.is_set(), seconds=0.01)
    with pytest.raises(TimeoutError, match=r"never_set|is_set"):
        wait(never_set.is_set, seconds=0.01)


def test_the_failure_has_the_state() -> None:
    with pytest.raises(TimeoutError, match=r"(?s)a line; last result False\nthe log of the server"):
        wait_until(lambda: False, "a line", seconds=0.01, state=lambda: "the log of the server")


def test_another_error_of_the_condition_ends_the_wait(wait: Callable[..., object]) -> None:
    def is_two() -> bool:
        raise AssertionError("1 is not 2")

    with pytest.raises(AssertionError, match="1 is not 2"):
        wait(is_two)


def test_the_event_loop_runs_during_a_wait() -> None:
    async def story() -> None:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(0.001, event.set)
        await wait_until_async(event.is_set, pause=0)

    asyncio.run(story())

"""Ctrl-C while a block defers it."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from moldau.cli.interrupts import deferred_interrupt


@pytest.fixture(autouse=True)
def _default_handler() -> Iterator[None]:
    """Background jobs of a shell ignore SIGINT, and so do tests in one."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def test_an_interrupt_is_raised_at_the_end_of_the_block() -> None:
    done = []

    def work() -> None:
        with deferred_interrupt():
            signal.raise_signal(signal.SIGINT)
            done.append("the rest of the block")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_is_raised_immediately() -> None:
    done = []

    def work() -> None:
        with deferred_interrupt():
            signal.raise_signal(signal.SIGINT)
            done.append("after the first")
            signal.raise_signal(signal.SIGINT)
            done.append("after the second")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["after the first"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_the_block_is_raised_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), deferred_interrupt():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_program_is_kept() -> None:
    received = []
    signal.signal(signal.SIGINT, lambda *_: received.append(os.getpid()))
    with deferred_interrupt():
        signal.raise_signal(signal.SIGINT)
    assert received


def test_other_threads_are_not_affected() -> None:
    done = []

    def work() -> None:
        with deferred_interrupt():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done

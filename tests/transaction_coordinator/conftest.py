"""Checks of every test of the transaction coordinator."""

import logging
from collections.abc import Iterator

import pytest

LOGGERS = {"moldau", "asyncio"}


@pytest.fixture(autouse=True)
def internal_errors_fail_the_test(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The runtime responds and continues after an internal error, and logs it.

    Client libraries log errors too, for example when a test stops the server that they are connected to.
    """
    yield
    records = [record for record in caplog.get_records("call") if record.name.partition(".")[0] in LOGGERS]
    errors = [record.getMessage() for record in records if record.levelno >= logging.ERROR]
    assert not errors

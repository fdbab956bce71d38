"""What every test of the group coordinator watches for."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def our_own_mistakes_fail_the_test(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The runtime answers and goes on after a mistake of ours; its log says so."""
    yield
    mistakes = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert not mistakes, mistakes[0].getMessage()

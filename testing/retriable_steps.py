"""Steps of a transactional producer of confluent-kafka that are repeated as its documentation says."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException

_TIMEOUT_S = 180.0


def retried(call: Callable[[], Any]) -> None:
    """Call a method of a transactional producer again for as long as it fails with a retriable error.

    Raises:
        KafkaException: the error is not retriable, or the calls have failed for a minute.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise

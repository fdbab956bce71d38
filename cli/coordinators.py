"""Requests to the coordinator of a group or transactional id.

Each call sends FindCoordinator to any broker, then the request to the coordinator. A request is retried for a while if
the coordinator is being created, is loading or has moved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ..protocol.errors import ErrorCode
from ..protocol.messages.find_coordinator import FindCoordinatorRequest
from ..protocol.schema import Request
from .cluster import Cluster, error_name, explain
from .connection import Connection
from .failure import Failure

GROUP: Final = 0
TRANSACTION: Final = 1
"""Key types of FindCoordinator."""

# How long a coordinator may take to become available, to load or to move.
_RETRY_TIMEOUT_S: Final = 15.0
_RETRY_BACKOFF_S: Final = 0.1
RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Error codes of a coordinator after which the request is retried."""

_BATCHED_KEYS_SINCE: Final = 4

T = TypeVar("T")


class Coordinators:
    """The coordinators of one key type."""

    def __init__(self, cluster: Cluster, key_type: int) -> None:
        self._cluster = cluster
        self._key_type = key_type
        self._node_ids: dict[str, int] = {}

    def ask(
        self,
        key: str,
        request: Callable[[Connection], Request],
        error_code: Callable[[Any], int],
        *,
        at_most: int | None = None,
    ) -> Any:
        """The coordinator's response to a request, which may depend on the versions that it supports."""

        def ask() -> Any:
            connection = self.connection(key)
            return connection.ask(request(connection), at_most=at_most)

        return with_retries(ask, error_code, before_retry=lambda: self._node_ids.pop(key, None))

    def connection(self, key: str) -> Connection:
        """The connection to the coordinator of this key. Raises Failure if there is none."""
        return self._cluster.broker(self.node_id(key))

    def node_id(self, key: str) -> int:
        """The node id of the coordinator of this key. Raises Failure if there is none."""
        if key not in self._node_ids:
            code, message, node_id = with_retries(lambda: self._find(key), lambda found: found[0])
            if code:
                raise Failure(f"no coordinator for {key!r}: {explain(code, message)}")
            self._node_ids[key] = node_id
        return self._node_ids[key]

    def _find(self, key: str) -> tuple[int, str | None, int]:
        if self._cluster.bootstrap.version_of(FindCoordinatorRequest) >= _BATCHED_KEYS_SINCE:
            answer = self._cluster.ask(FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[key]))
            found = answer.coordinators[0]
        else:
            found = self._cluster.ask(FindCoordinatorRequest(key_type=self._key_type, key=key))
        return found.error_code, found.error_message, found.node_id


def with_retries(
    ask: Callable[[], T],
    error_code: Callable[[T], int],
    before_retry: Callable[[], object] = lambda: None,
    *,
    retriable: frozenset[ErrorCode] = RETRIABLE,
) -> T:
    """The first response without a retriable error. Raises Failure after the retry timeout."""
    deadline = time.monotonic() + _RETRY_TIMEOUT_S
    while True:
        answer = ask()
        code = error_code(answer)
        if code not in retriable:
            return answer
        if time.monotonic() > deadline:
            raise Failure(
                f"the coordinator was not available within {_RETRY_TIMEOUT_S:g} seconds ({error_name(code)})\n"
                "Run `moldau doctor` to check the server."
            )
        time.sleep(_RETRY_BACKOFF_S)
        before_retry()

"""Who coordinates a group or a transactional id, and asking them.

Each question is two: FindCoordinator to anybody, and then the question. A coordinator that is being made, that loads or
that has moved says so, and is asked again for a while.
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
"""Kinds of keys, as FindCoordinator numbers them."""

# So long a coordinator may take to be made, to load or to move.
_PATIENCE_S: Final = 15.0
_AGAIN_S: Final = 0.1
COMES_LATER: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What a coordinator says that should be asked again."""

_SEVERAL_KEYS_SINCE: Final = 4

T = TypeVar("T")


class Coordinators:
    """The coordinators of one kind of keys."""

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
        """The coordinator's answer to the request, which may depend on the versions that it has."""

        def ask() -> Any:
            connection = self.connection(key)
            return connection.ask(request(connection), at_most=at_most)

        return patiently(ask, error_code, again=lambda: self._node_ids.pop(key, None))

    def connection(self, key: str) -> Connection:
        """The connection to the coordinator of this key; Failure when it has none."""
        return self._cluster.broker(self.node_id(key))

    def node_id(self, key: str) -> int:
        """The broker that coordinates this key; Failure when there is none."""
        if key not in self._node_ids:
            code, said, node_id = patiently(lambda: self._find(key), lambda found: found[0])
            if code:
                raise Failure(f"{key or 'the empty name'} has no coordinator: {explain(code, said)}")
            self._node_ids[key] = node_id
        return self._node_ids[key]

    def _find(self, key: str) -> tuple[int, str | None, int]:
        if self._cluster.bootstrap.version_of(FindCoordinatorRequest) >= _SEVERAL_KEYS_SINCE:
            answer = self._cluster.ask(FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[key]))
            found = answer.coordinators[0]
        else:
            found = self._cluster.ask(FindCoordinatorRequest(key_type=self._key_type, key=key))
        return found.error_code, found.error_message, found.node_id


def patiently(
    ask: Callable[[], T],
    error_code: Callable[[T], int],
    again: Callable[[], object] = lambda: None,
    *,
    comes_later: frozenset[ErrorCode] = COMES_LATER,
) -> T:
    """The first answer that does not ask to come later; Failure when it takes too long."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        answer = ask()
        code = error_code(answer)
        if code not in comes_later:
            return answer
        if time.monotonic() > deadline:
            raise Failure(
                f"the coordinator has not been ready for {_PATIENCE_S:g} seconds ({error_name(code)})\n"
                "`moldau doctor` looks into it."
            )
        time.sleep(_AGAIN_S)
        again()

"""Callers of coordinators that are parts of a request, not whole requests: see `coordinator.outcome.Caller`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...protocol.errors import KafkaError

if TYPE_CHECKING:
    from ...coordinator.outcome import Caller
    from ..concurrency.pending import Pending
    from ..concurrency.slices import SlicedFuture


class Rewritten:
    """Completes a request, or part of one, with a result that is derived from the coordinator's response."""

    __slots__ = ("_context", "_rewrite")

    def __init__(self, context: Caller, rewrite: Callable[[Any], Any]) -> None:
        self._context = context
        self._rewrite = rewrite

    @property
    def api_version(self) -> int:
        """The API version of the request."""
        return self._context.api_version

    @property
    def client_id(self) -> str:
        """The client id, as the client sent it."""
        return self._context.client_id

    @property
    def client_host(self) -> str:
        """The peer's address."""
        return self._context.client_host

    @property
    def principal(self) -> str:
        """The principal of the client."""
        return self._context.principal

    @property
    def listener_name(self) -> str:
        """The listener that received the request."""
        return self._context.listener_name

    def reply(self, response: Any) -> None:
        """Complete with this response, once."""
        self._context.reply(self._rewrite(response))

    def fail(self, error: KafkaError) -> None:
        """Complete with the API's response for this error, once."""
        self._context.fail(error)


class Part(Rewritten):
    """Waits for one part of a response whose parts a coordinator completes separately."""

    __slots__ = ("_failed", "_number", "_pending")

    def __init__(
        self, context: Caller, pending: Pending[Any, KafkaError], failed: Callable[[KafkaError], Any] | None = None
    ) -> None:
        """``failed`` turns an error into a result. Without it, an error of this part fails the whole response."""
        super().__init__(context, _unchanged)
        self._pending = pending
        self._number = pending.add()
        self._failed = failed

    def reply(self, response: Any) -> None:
        """The result of this part."""
        self._pending.complete(self._number, response)

    def fail(self, error: KafkaError) -> None:
        """This part failed."""
        if self._failed is None:
            self._pending.fail(self._number, error)
        else:
            self._pending.complete(self._number, self._failed(error))


class Awaiting(Rewritten):
    """Work in slices that waits for a coordinator's response: None, or the error."""

    __slots__ = ("_later",)

    def __init__(self, context: Caller, later: SlicedFuture[KafkaError | None]) -> None:
        super().__init__(context, _unchanged)
        self._later = later

    def reply(self, response: Any) -> None:
        """The coordinator has completed the request."""
        self._later.succeed(None)

    def fail(self, error: KafkaError) -> None:
        """The request has failed."""
        self._later.succeed(error)


def _unchanged(response: Any) -> Any:
    return response

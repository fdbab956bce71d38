"""Who waits for a coordinator's answer, where that is not the request itself: see `coordinator.outcome.Caller`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..protocol.errors import KafkaError

if TYPE_CHECKING:
    from ..coordinator.outcome import Caller
    from .request import RequestContext


class Rewritten:
    """Answers a request, or part of one, with what becomes of the coordinator's answer."""

    __slots__ = ("_context", "_rewrite")

    def __init__(self, context: Caller, rewrite: Callable[[Any], Any]) -> None:
        self._context = context
        self._rewrite = rewrite

    @property
    def api_version(self) -> int:
        """Of the request."""
        return self._context.api_version

    @property
    def client_id(self) -> str:
        """As the client calls itself."""
        return self._context.client_id

    @property
    def client_host(self) -> str:
        """The peer's address."""
        return self._context.client_host

    @property
    def listener_name(self) -> str:
        """The listener that the request came in by."""
        return self._context.listener_name

    def reply(self, response: Any) -> None:
        """Answer, once."""
        self._context.reply(self._rewrite(response))

    def fail(self, error: KafkaError) -> None:
        """Answer with what the API has for this error, once."""
        self._context.fail(error)


class Gathered(Rewritten):
    """One of several parts of a request, each of which the coordinator answers by itself."""

    __slots__ = ("_failed", "_part")

    def __init__(
        self, context: RequestContext, part: Callable[[Any], None], failed: Callable[[KafkaError], Any]
    ) -> None:
        """``part`` takes the answer of this part; ``failed`` makes one of an error."""
        super().__init__(context, lambda response: response)
        self._part = part
        self._failed = failed

    def reply(self, response: Any) -> None:
        """The answer of this part."""
        self._part(response)

    def fail(self, error: KafkaError) -> None:
        """This part failed, and no other."""
        self._part(self._failed(error))


class Gathering:
    """Collects the answers of the parts of a request in their order, and answers with all of them."""

    def __init__(self, context: RequestContext, count: int, answer: Callable[[list[Any]], Any]) -> None:
        """``answer`` makes the response of the parts; None: it sees to the answer by itself."""
        self._context = context
        self._answer = answer
        self._parts: list[Any] = [None] * count
        self._missing = count

    def caller(self, index: int, failed: Callable[[KafkaError], Any]) -> Gathered:
        """Who waits for the part of this number."""

        def part(response: Any) -> None:
            self._parts[index] = response
            self._missing -= 1
            if not self._missing:
                response = self._answer(self._parts)
                if response is not None:
                    self._context.reply(response)

        return Gathered(self._context, part, failed)


class Safe(Rewritten):
    """An answer that waits until several shards have said that what it tells of is safe."""

    __slots__ = ("_failed", "_missing")

    def __init__(self, context: RequestContext, shards: int) -> None:
        super().__init__(context, lambda response: response)
        self._missing = shards
        self._failed: KafkaError | None = None

    def reply(self, response: Any) -> None:
        """One of them says so."""
        self._missing -= 1
        if self._missing:
            return
        if self._failed is None:
            self._context.reply(response)
        else:
            self._context.fail(self._failed)

    def fail(self, error: KafkaError) -> None:
        """One of them was given up: nobody knows."""
        self._failed = error
        self.reply(None)

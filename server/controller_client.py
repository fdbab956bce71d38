"""The client of the active controller: each request returns its response later.

Handlers, and the parts of a broker that change the metadata, know only `ControllerClient`. They must not depend on
where the controller is. A response may arrive in the same step or seconds later. Meanwhile another broker may have
changed the metadata. A request may fail with a `KafkaError` of the controller or of the connection to it.

A request has an `Origin`: the client that sent it, whose principal the controller authorizes, and the deadline of its
`timeout_ms`. As with Apache Kafka's controller, a request whose deadline has passed before it is decided changes
nothing, so a timeout of 0 always expires. A request whose change becomes durable too late fails also, but the change
takes effect. The controller of this process detects a deadline while a change waits for its sync. While earlier
requests are decided, it detects it when their turn is over.

`LocalController` calls the controller of this process. Requests are decided one after the other, in slices if they
are large (`Slices.exclusively`). A thread syncs their records; concurrent changes share a sync
(`records.group_commit`). Then the broker applies the change, in slices that continue if the client disconnects. The
response comes last: the change that it reports has been applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.named_tuples import NamedTuple
from .concurrency.slices import SlicedFuture

if TYPE_CHECKING:
    from ..metadata.controller import Change, Decide
    from ..metadata.quorum import Metadata
    from ..protocol.schema import Request, Versions
    from .concurrency.clock import Clock
    from .concurrency.slices import Sliced, Slices
    from .concurrency.timers import TimerWheel
    from .records.group_commit import GroupCommit

T = TypeVar("T")

FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.DESCRIBE_QUORUM,
    }
)
"""The APIs whose requests of clients a broker passes on to the active controller."""


class Origin(NamedTuple):
    """The client on whose behalf a broker sends a request to the controller."""

    principal: str
    """As ``User:name``, for authorization by the controller and for audit logs."""
    client_host: str
    """The address of the client as Kafka writes it: ``/127.0.0.1``."""
    deadline_ms: int | None = None
    """When the request times out, on the clock of the broker's timers. None: the request has no timeout."""


class ControllerClient(Protocol):
    """The active controller."""

    def versions(self, api_key: int) -> Versions | None:
        """The versions of an API that clients may use, as far as the controller decides its requests.

        None: all versions that this broker has; an empty range: none.
        """

    def request(self, request: Request, version: int, origin: Origin | None) -> Sliced[Any]:
        """The response to a request of this version of its API, in steps that are suspended until the response arrives.

        ``origin``: the client that sent the request. None: the broker itself, which waits as long as necessary.

        Raises:
            KafkaError: the request failed as a whole. After KAFKA_STORAGE_ERROR and REQUEST_TIMED_OUT the outcome is
                unknown.
        """


class LocalController:
    """The controller of this process."""

    def __init__(
        self, metadata: Metadata, slices: Slices, group_commit: GroupCommit, now_ms: Clock, timers: TimerWheel
    ) -> None:
        self._controller = metadata.controller
        self._slices = slices
        self._now_ms = now_ms
        self._timers = timers
        group_commit.flush_without_threads(metadata.log)
        self._controller.serve(
            flush_soon=lambda: group_commit.flush_soon(metadata.log),
            follow=lambda steps: slices.begin_shielded(steps, immediately=True),
        )

    def versions(self, _api_key: int) -> Versions | None:
        """See `ControllerClient`."""
        return None

    def request(self, request: Request, version: int, origin: Origin | None) -> Sliced[Any]:
        """See `ControllerClient`."""
        controller, now_ms = self._controller, self._now_ms
        deadline_ms, principal = (None, None) if origin is None else (origin.deadline_ms, origin.principal)
        steps = controller.change(controller.deciding(request, version, now_ms, principal), now_ms)
        if deadline_ms is not None:
            steps = self._in_time(steps, deadline_ms)
        response, change = yield from self._slices.exclusively(steps)
        if change is not None:
            if deadline_ms is None or change.is_done:
                yield from until_done(change, self._slices)
            else:
                yield from self._until_done_in_time(change, deadline_ms)
            if change.error is not None:
                raise change.error
        return response

    def decide(self, decide: Decide[T]) -> Sliced[T]:
        """The response of a decision that no request has caused, when its change is done."""
        response, change = yield from self._slices.exclusively(self._controller.change(decide, self._now_ms))
        if change is not None:
            yield from until_done(change, self._slices)
            if change.error is not None:
                raise change.error
        return response

    def _in_time(self, steps: Sliced[T], deadline_ms: int) -> Sliced[T]:
        """The same steps, which fail before the first one if it is too late."""
        if self._timers.now_ms() >= deadline_ms:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The request timed out before the controller processed it.")
        return (yield from steps)

    def _until_done_in_time(self, change: Change, deadline_ms: int) -> Sliced[None]:
        later: SlicedFuture[None] = SlicedFuture(self._slices)
        change.when_done(lambda: later.succeed(None))
        timer = self._timers.call_at(deadline_ms, lambda: later.succeed(None))
        try:
            yield from later.result()
        finally:
            timer.cancel()
        if not change.is_done:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "The change is not durable yet. It takes effect later, unless the disk fails.",
            )


def until_done(change: Change, slices: Slices) -> Sliced[None]:
    """Wait until the broker has applied this change, or the change has failed."""
    later: SlicedFuture[None] = SlicedFuture(slices)
    change.when_done(lambda: later.succeed(None))
    yield from later.result()

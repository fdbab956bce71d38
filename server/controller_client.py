"""The client of the active controller: each request returns its response later.

Handlers, and the parts of a broker that change the metadata, know only `ControllerClient`. They must not depend on
where the controller is. A response may arrive in the same step or seconds later. Meanwhile another broker may have
changed the metadata. A request may fail with a `KafkaError` of the controller or of the connection to it.

`LocalController` calls the controller of this process. Requests are decided one after the other, in slices if they
are large (`Slices.exclusively`). A thread syncs their records; concurrent changes share a sync
(`records.group_commit`). Then the broker applies the change, in slices that continue if the client disconnects. The
response comes last: the change that it reports has been applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .concurrency.slices import SlicedFuture

if TYPE_CHECKING:
    from ..metadata.controller import Change
    from ..metadata.quorum import Metadata
    from ..protocol.schema import Request
    from .concurrency.clock import Clock
    from .concurrency.slices import Sliced, Slices
    from .records.group_commit import GroupCommit


class ControllerClient(Protocol):
    """The active controller."""

    def request(self, request: Request, version: int) -> Sliced[Any]:
        """The response to a request of this version of its API, in steps that are suspended until the response arrives.

        Raises:
            KafkaError: the request failed as a whole. After KAFKA_STORAGE_ERROR the outcome is unknown.
        """


class LocalController:
    """The controller of this process."""

    def __init__(self, metadata: Metadata, slices: Slices, group_commit: GroupCommit, now_ms: Clock) -> None:
        self._controller = metadata.controller
        self._slices = slices
        self._now_ms = now_ms
        group_commit.flush_without_threads(metadata.log)
        self._controller.serve(
            flush_soon=lambda: group_commit.flush_soon(metadata.log),
            follow=lambda steps: slices.begin_shielded(steps, immediately=True),
        )

    def request(self, request: Request, version: int) -> Sliced[Any]:
        """See `ControllerClient`."""
        controller, now_ms = self._controller, self._now_ms
        decide = controller.deciding(request, version, now_ms)
        response, change = yield from self._slices.exclusively(controller.change(decide, now_ms))
        if change is not None:
            yield from until_done(change, self._slices)
            if change.error is not None:
                raise change.error
        return response


def until_done(change: Change, slices: Slices) -> Sliced[None]:
    """Wait until the broker has applied this change, or the change has failed."""
    later: SlicedFuture[None] = SlicedFuture(slices)
    change.when_done(lambda: later.succeed(None))
    yield from later.result()

"""Producer ids of this broker: the controller allocates them in blocks, which are prefetched (KIP-730).

The next block is requested when 90 % of the current one are used, as in Apache Kafka. A request that finds no id is
suspended until a block has arrived (`take`, `ready`). A decision inside a coordinator cannot wait. It fails with
COORDINATOR_LOAD_IN_PROGRESS, which clients retry (`next`).

The first request for an id requests the first block: many servers never need one. If the controller returns an error,
all requests that wait for an id fail, and the next request for an id tries again. They fail with the controller's error
if clients retry after it, otherwise with COORDINATOR_LOAD_IN_PROGRESS, as in Apache Kafka: the epoch of a broker that
is registering again, for example, does not concern producers.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import ErrorCode, KafkaError, known_error
from ...protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ..concurrency.slices import SlicedFuture

if TYPE_CHECKING:
    from ..concurrency.slices import Sliced, Slices

logger = logging.getLogger(__name__)

_PREFETCH_PART: Final = 10
"""The next block is requested when at most this fraction of a block is left: a tenth."""


class ProducerIds:
    """See the module docstring."""

    def __init__(
        self,
        slices: Slices,
        request: Callable[[AllocateProducerIdsRequest], Sliced[Any]],
        node_id: int,
        broker_epoch: Callable[[], int],
    ) -> None:
        """``request`` sends a request to the controller; see `ControllerClient.request`."""
        self._slices = slices
        self._request = request
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._blocks: deque[range] = deque()  # the unused ids of each block
        self._prefetch_at = 0  # request the next block when no more ids than this are left
        self._waiting: deque[SlicedFuture[None]] = deque()
        self._asking = False
        self._error: KafkaError | None = None  # the error of the latest block request

    def next(self) -> int:
        """A producer id that was never used before.

        Raises:
            KafkaError: no id is available now, and a block has been requested. The code is
                COORDINATOR_LOAD_IN_PROGRESS, or a retriable error of the controller for the latest block.
        """
        blocks = self._blocks
        if not blocks:
            error = self._error
            self._ask()
            if error is not None and error.code.retriable:
                raise error
            # The error is between this broker and the controller. Producers must not fail because of it.
            reason = "" if error is None else f" ({error})"
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"There is no producer id yet{reason}.")
        producer_id = blocks[0][0]
        blocks[0] = blocks[0][1:]
        if not blocks[0]:
            blocks.popleft()
        if len(blocks) <= 1 and (not blocks or len(blocks[0]) <= self._prefetch_at):
            self._ask()
        return producer_id

    def ready(self) -> Sliced[None]:
        """Return when an id is available for `next`, which must be called in the same step, or when the controller has
        returned an error."""
        while not self._blocks:
            later: SlicedFuture[None] = SlicedFuture(self._slices)
            self._waiting.append(later)
            self._ask()
            yield from later.result()
            if self._error is not None:
                return

    def take(self) -> Sliced[int]:
        """A producer id that was never used before; waits until one is available.

        Raises:
            KafkaError: the controller's error.
        """
        yield from self.ready()
        return self.next()

    def _ask(self) -> None:
        if not self._asking:
            self._asking = True
            self._slices.begin_shielded(self._fetch_block(), immediately=True)

    def _fetch_block(self) -> Sliced[None]:
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        error: KafkaError | None = None
        try:
            response = yield from self._request(request)
            if response.error_code:
                raise KafkaError(known_error(response.error_code))
        except KafkaError as refused:
            error = refused
            if self._error is None:
                logger.warning("The controller returned no producer ids: %s", refused)
        except Exception:
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            logger.exception("Requesting a block of producer ids failed with an unexpected error")
        else:
            first, count = response.producer_id_start, response.producer_id_len
            self._blocks.append(range(first, first + count))
            self._prefetch_at = count // _PREFETCH_PART
        self._asking = False
        self._error = error
        waiting, self._waiting = self._waiting, deque()
        for later in waiting:
            later.succeed(None)

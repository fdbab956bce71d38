"""Sends the proposed in-sync sets of all partitions that this broker leads to the controller (AlterPartition).

One request is in flight; it has all proposals that were made meanwhile. A proposal without a known outcome is repeated
after a pause, as long as it is pending.

In-sync replicas that lag are looked for twice in `replica.lag.time.max.ms`, as in Apache Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ...protocol.errors import ErrorCode, KafkaError, error_name, known_error
from ...protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse, TopicData
from ...replication.proposals import Proposal, Settled, expansion, reduction
from ..concurrency.slices import pause

if TYPE_CHECKING:
    from ...replication.partition import Partition
    from ..concurrency.slices import Sliced, Slices
    from ..concurrency.timers import Timer, TimerWheel
    from ..controller_client import ControllerClient

logger = logging.getLogger(__name__)

_VERSION: Final = 3
_RETRY_MS: Final = 50
_MAX_RETRY_MS: Final = 1000

Key = tuple[bytes, int]


class InSyncChanges:
    """See the module docstring."""

    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        controller: ControllerClient,
        slices: Slices,
        timers: TimerWheel,
        led: Callable[[], Iterable[Partition]],
        *,
        max_lag_ms: int,
    ) -> None:
        """``led`` returns the partitions with followers that this broker leads."""
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._slices = slices
        self._timers = timers
        self._led = led
        self._max_lag_ms = max_lag_ms
        self._proposals: dict[Key, Proposal] = {}
        self._is_sending = False
        self._closed = False
        self._timer: Timer | None = None

    def start(self) -> None:
        """Look for lagging replicas from now on. Has no effect if that has begun."""
        if self._timer is None and not self._closed:
            self._timer = self._timers.call_after(self._max_lag_ms / 2, self._look)

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        self._proposals.clear()
        if self._timer is not None:
            self._timer.cancel()

    def expand(self, partition: Partition) -> None:
        """Replicas may be able to join the in-sync set of this partition: propose that."""
        self._submit(expansion(partition))

    def _look(self) -> None:
        self._timer = None
        self.start()
        self._slices.begin_shielded(self._review(), immediately=True)

    def _review(self) -> Sliced[None]:
        for partition in list(self._led()):
            self._submit(reduction(partition, self._timers.now_ms(), self._max_lag_ms))
            yield 0

    def _submit(self, proposal: Proposal | None) -> None:
        if proposal is None or self._closed:
            return
        partition = proposal.partition
        self._proposals[partition.topic_id, partition.index] = proposal
        if not self._is_sending:
            self._is_sending = True
            self._slices.begin_shielded(self._send_all())

    def _send_all(self) -> Sliced[None]:
        failures = 0
        try:
            while self._proposals:
                sent, self._proposals = self._proposals, {}
                sent = {key: proposal for key, proposal in sent.items() if proposal.is_pending}
                if not sent:
                    continue
                problem = yield from self._send(sent)
                if problem is None:
                    failures = 0
                    continue
                if not failures:
                    logger.warning("The controller has not changed in-sync sets, retrying: %s", problem)
                yield from pause(self._slices, self._timers, min(_RETRY_MS << min(failures, 10), _MAX_RETRY_MS))
                failures += 1
        finally:
            self._is_sending = False

    def _send(self, sent: dict[Key, Proposal]) -> Sliced[str | None]:
        """Send proposals. Those without an outcome are pending again; returns why there are such."""
        broker_epoch = self._broker_epoch()
        topics: dict[bytes, TopicData] = {}
        for proposal in sent.values():
            topic_id = proposal.partition.topic_id
            topics.setdefault(topic_id, TopicData(topic_id=topic_id)).partitions.append(
                proposal.to_request(broker_epoch)
            )
            yield 0
        request = AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=broker_epoch, topics=list(topics.values())
        )
        problem: str | None = None
        try:
            response: AlterPartitionResponse = yield from self._controller.request(request, _VERSION, None)
        except KafkaError as error:
            problem = error.message or error_name(error.code)
        else:
            if response.error_code:
                problem = error_name(response.error_code)
            else:
                problem = yield from self._settle(sent, response)
        # What is left has no outcome. A newer proposal for the same partition replaces it.
        if not self._closed:
            self._proposals = sent | self._proposals
        if problem is None and sent:
            problem = "the response omits partitions"
        return problem

    def _settle(self, sent: dict[Key, Proposal], response: AlterPartitionResponse) -> Sliced[str | None]:
        problem: str | None = None
        for topic in response.topics:
            for result in topic.partitions:
                key = (topic.topic_id, result.partition_index)
                proposal = sent.get(key)
                if proposal is None:
                    continue
                settled = proposal.settle(result, self._timers.now_ms())
                if settled is Settled.REPEAT:
                    problem = known_error(result.error_code).name
                    continue
                del sent[key]
                self._log(proposal, settled, result.error_code)
                if settled is Settled.COMMITTED:
                    self._submit(expansion(proposal.partition))
                yield 0
        return problem

    def _log(self, proposal: Proposal, settled: Settled, error_code: int) -> None:
        partition = proposal.partition
        name = f"{partition.topic}-{partition.index}"
        if settled is Settled.COMMITTED:
            logger.info("%s: the in-sync replicas are %s", name, list(partition.isr))
        elif error_code != ErrorCode.NONE:
            logger.info("%s: the in-sync set %s was rejected: %s", name, list(proposal.isr), error_name(error_code))

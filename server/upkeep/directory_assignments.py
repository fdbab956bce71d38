"""Reports the log directory of each replica to the controller (AssignReplicasToDirs, KIP-858).

If a metadata change places replicas in another directory than the controller expects, they are collected and reported
together, at most `MAX_PER_REQUEST` in one request and one request at a time. What the controller does not accept is
reported again after a pause, as long as it still applies. A move between log directories reports its replica
separately, because the directories may be renamed only after the controller has committed the report.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from ...protocol.errors import ErrorCode, KafkaError, error_name, known_error
from ...protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from ..concurrency.slices import pause

if TYPE_CHECKING:
    from ...log.directory import LogDirectory
    from ...log.manager import LogManager
    from ...metadata.broker_metadata import BrokerMetadata
    from ...replication.partition import Partition
    from ..concurrency.slices import Sliced, Slices
    from ..concurrency.timers import TimerWheel
    from ..controller_client import ControllerClient

logger = logging.getLogger(__name__)

_VERSION = 0
"""The version of AssignReplicasToDirs."""

MAX_PER_REQUEST: Final = 2250
"""The maximum number of partitions in one report, as in Apache Kafka's brokers: its controller writes the records of a
request as one batch."""

_RETRY_MS: Final = 100
_MAX_RETRY_MS: Final = 10_000

_Key = tuple[bytes, int]
"""A partition: the id of its topic, and its index."""


class DirectoryAssignments:
    """The replicas whose log directory the controller does not know yet."""

    def __init__(
        self,
        metadata: BrokerMetadata,
        controller: ControllerClient,
        log_manager: LogManager,
        slices: Slices,
        timers: TimerWheel,
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._log_manager = log_manager
        self._slices = slices
        self._timers = timers
        self._unreported: dict[_Key, Partition] = {}
        self._sent: dict[_Key, Partition] = {}  # in the request that has no response yet
        self._is_reporting = False
        self._holds = 0

    def hold(self) -> None:
        """Postpone reports until `release` has been called as many times: a metadata change is being applied."""
        self._holds += 1

    def release(self) -> None:
        """End a `hold`."""
        self._holds -= 1
        if self._unreported and not self._holds:
            self._slices.begin_shielded(self._report())

    def note(self, partition: Partition, registered: bytes) -> None:
        """Report this replica later if it is not in the ``registered`` directory."""
        directory = self._log_manager.directory_of(partition.topic, partition.index)
        if directory is None or directory.directory_id == registered:
            return
        if not self._unreported and not self._holds:
            self._slices.begin_shielded(self._report())
        self._unreported[partition.topic_id, partition.index] = partition

    def assign(self, partition: Partition, directory: LogDirectory) -> Sliced[None]:
        """Report that the replica is in this directory. Returns when the controller has committed it.

        The report is sent even if the committed image has this directory: a report of another one may be pending.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION if the topic was deleted, or another error of the controller.
        """
        key = (partition.topic_id, partition.index)
        self._unreported.pop(key, None)
        self._sent.pop(key, None)  # a repetition of that report would follow this one
        request = self._request([(directory.directory_id, key)])
        response: AssignReplicasToDirsResponse = yield from self._controller.request(request, _VERSION, None)
        code = response.error_code or response.directories[0].topics[0].partitions[0].error_code
        if code == ErrorCode.UNKNOWN_TOPIC_ID:  # clients named the topic
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code:
            raise KafkaError(known_error(code))

    async def assigned(self, partition: Partition, directory: LogDirectory) -> None:
        """The same as `assign`, for a task.

        Raises:
            KafkaError: as `assign`; BROKER_NOT_AVAILABLE if the server stops before the response arrives.
        """
        response: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def steps() -> Sliced[None]:
            try:
                yield from self.assign(partition, directory)
            except Exception as error:  # noqa: BLE001 - the task that waits raises it
                response.set_exception(error)
            else:
                response.set_result(None)
            finally:
                if not response.done():
                    response.set_exception(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "The server stops."))

        self._slices.begin_shielded(steps(), immediately=True)
        await response

    def _report(self) -> Sliced[None]:
        """Report all replicas, until the controller has accepted them. Without effect while another call does so."""
        if self._is_reporting:
            return
        self._is_reporting = True
        try:
            failures = 0
            while self._unreported:
                reported = self._take()
                if not reported:
                    continue
                problem = yield from self._send(reported)
                if problem is None:
                    failures = 0
                    continue
                if not failures:
                    logger.warning(
                        "The controller does not know yet where replicas are (%d of %d were not assigned to their log "
                        "directories): %s; retrying",
                        len(self._sent),
                        len(reported),
                        problem,
                    )
                self._unreported = self._sent | self._unreported
                yield from pause(self._slices, self._timers, min(_RETRY_MS << min(failures, 10), _MAX_RETRY_MS))
                failures += 1
        finally:
            self._is_reporting = False
            self._sent = {}

    def _take(self) -> list[tuple[bytes, _Key]]:
        """The directories of the replicas that are reported next. Reports that no longer apply are dropped."""
        reported: list[tuple[bytes, _Key]] = []
        self._sent = {}
        topics = self._metadata.image.topics_by_id
        for key in list(islice(self._unreported, MAX_PER_REQUEST)):
            partition = self._unreported.pop(key)
            topic = topics.get(partition.topic_id)
            registration = None if topic is None else topic.partitions.get(partition.index)
            directory = self._log_manager.directory_of(partition.topic, partition.index)
            if registration is None or directory is None or self._metadata.node_id not in registration.replicas:
                continue
            if registration.directory(self._metadata.node_id) != directory.directory_id:
                reported.append((directory.directory_id, key))
                self._sent[key] = partition
        return reported

    def _send(self, reported: Sequence[tuple[bytes, _Key]]) -> Sliced[str | None]:
        """Send a report, and remove what was accepted from `_sent`. Returns the problem of the rest."""
        try:
            response: AssignReplicasToDirsResponse = yield from self._controller.request(
                self._request(reported), _VERSION, None
            )
        except KafkaError as error:
            return error.message or error_name(error.code)
        if response.error_code:
            return error_name(response.error_code)
        problem: str | None = None
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    if partition.error_code:
                        problem = error_name(partition.error_code)
                    else:
                        self._sent.pop((topic.topic_id, partition.partition_index), None)
        if problem is None and self._sent:
            problem = "the response omits them"
        return problem

    def _request(self, assignments: Iterable[tuple[bytes, _Key]]) -> AssignReplicasToDirsRequest:
        """``assignments``: directory ids and their partitions."""
        grouped: dict[bytes, dict[bytes, list[int]]] = {}
        for directory_id, (topic_id, index) in assignments:
            grouped.setdefault(directory_id, {}).setdefault(topic_id, []).append(index)
        return AssignReplicasToDirsRequest(
            broker_id=self._metadata.node_id,
            broker_epoch=self._metadata.broker_epoch,
            directories=[
                DirectoryData(
                    id=directory_id,
                    topics=[
                        TopicData(topic_id=topic_id, partitions=[PartitionData(partition_index=i) for i in indexes])
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory_id, topics in grouped.items()
            ],
        )

"""Reports the log directory of each replica to the controller (AssignReplicasToDirs, KIP-858).

If a metadata change places replicas in another directory than the controller expects, they are collected and reported
together. A move between log directories reports its replica separately, because the directories may be renamed only
after the controller has committed the report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from ...log.directory import LogDirectory
    from ...log.manager import LogManager
    from ...metadata.broker_metadata import BrokerMetadata
    from ...replication.partition import Partition
    from ..concurrency.slices import Sliced, Slices
    from ..controller_client import ControllerClient

_VERSION = 0
"""The version of AssignReplicasToDirs."""


class DirectoryAssignments:
    """The replicas whose log directory the controller does not know yet."""

    def __init__(
        self,
        metadata: BrokerMetadata,
        controller: ControllerClient,
        log_manager: LogManager,
        slices: Slices,
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._log_manager = log_manager
        self._slices = slices
        self._unreported: list[tuple[bytes, Partition]] = []  # (id of the replica's directory, replica)
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
        self._unreported.append((directory.directory_id, partition))

    def assign(self, partition: Partition, directory: LogDirectory) -> Sliced[None]:
        """Report that the replica is in this directory. Returns when the controller has committed it.

        The report is sent even if the committed image has this directory: a report of another one may be pending.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION if the topic was deleted, or another error of the controller.
        """
        request = self._request({directory.directory_id: {partition.topic_id: [partition.index]}})
        response: AssignReplicasToDirsResponse = yield from self._controller.request(request, _VERSION, None)
        code = response.error_code or response.directories[0].topics[0].partitions[0].error_code
        if code == ErrorCode.UNKNOWN_TOPIC_ID:  # clients named the topic
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code:
            raise KafkaError(ErrorCode(code))

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
        if not self._unreported:
            return  # an earlier call has reported them
        by_directory: dict[bytes, dict[bytes, list[int]]] = {}
        for directory_id, partition in self._unreported:
            by_directory.setdefault(directory_id, {}).setdefault(partition.topic_id, []).append(partition.index)
        self._unreported.clear()
        yield from self._controller.request(self._request(by_directory), _VERSION, None)

    def _request(self, assignments: Mapping[bytes, Mapping[bytes, Sequence[int]]]) -> AssignReplicasToDirsRequest:
        """``assignments``: partitions by directory id and topic id."""
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
                for directory_id, topics in assignments.items()
            ],
        )

"""Reports the log directory of each replica to the controller (AssignReplicasToDirs, KIP-858).

If a metadata change places replicas in another directory than the controller expects, they are collected and reported
together. A move between log directories reports its replica separately, because the directories may be renamed only
after the controller has the report. The renaming requires a controller in this process: its commit comes between two
steps of the swap (`assign_now`).
"""

from __future__ import annotations

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
    from ...log.partition_log import Log
    from ...metadata.quorum import Metadata
    from ...replication.partition import Partition
    from ..concurrency.clock import Clock
    from ..concurrency.slices import Sliced, Slices
    from ..controller_client import ControllerClient

_VERSION = 0
"""The version of AssignReplicasToDirs."""


class DirectoryAssignments:
    """The replicas whose log directory the controller does not know yet."""

    def __init__(
        self,
        metadata: Metadata,
        controller: ControllerClient,
        log_manager: LogManager,
        now_ms: Clock,
        slices: Slices,
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._log_manager = log_manager
        self._now_ms = now_ms
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

    @property
    def log(self) -> Log:
        """The metadata log."""
        return self._metadata.log

    def assign(self, partition: Partition, directory: LogDirectory) -> Sliced[None]:
        """Report that the replica is in this directory. Returns when the controller has committed it.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or the controller's error.
        """
        request = self._assignment(partition, directory)
        if request is not None:
            _check((yield from self._controller.request(request, _VERSION, None)))

    def assign_now(self, partition: Partition, directory: LogDirectory) -> None:
        """The same as `assign`, immediately, with the controller of this process. No flush of `log` may be in progress.

        Raises the same errors as `assign`.
        """
        request = self._assignment(partition, directory)
        if request is not None:
            _check(self._metadata.request(request, version=_VERSION, now_ms=self._now_ms()))

    def _assignment(self, partition: Partition, directory: LogDirectory) -> AssignReplicasToDirsRequest | None:
        """The report of one replica; None if the controller already has this directory."""
        topic = self._metadata.image.topics_by_id.get(partition.topic_id)
        registration = None if topic is None else topic.partitions.get(partition.index)
        if registration is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if registration.directory(self._metadata.node_id) == directory.directory_id:
            return None
        return self._request({directory.directory_id: {partition.topic_id: [partition.index]}})

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


def _check(response: AssignReplicasToDirsResponse) -> None:
    """Raise the error for the only replica."""
    code = response.error_code or response.directories[0].topics[0].partitions[0].error_code
    if code:
        raise KafkaError(ErrorCode(code))

"""The states of the log directories of a broker whose controller is in the same process.

A broker of remote controllers reports failed and cordoned directories in its heartbeats. A broker with its own
controller sends none: `report` lets the controller elect other leaders for the partitions of a failed directory
(KIP-858), and record which directories get no new replicas (KIP-1066).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...metadata.brokers import change_directories
from ...protocol.errors import KafkaError

if TYPE_CHECKING:
    from ...log.manager import LogManager
    from ...metadata.image import MetadataImage
    from ...metadata.outcome import Outcome
    from ...metadata.quorum import Metadata
    from ...protocol.steps import Steps
    from ..concurrency.slices import Sliced, Slices
    from ..controller_client import LocalController

logger = logging.getLogger(__name__)


def report(metadata: Metadata, controller: LocalController, log_manager: LogManager, slices: Slices) -> None:
    """Let the controller know the present states."""
    context = metadata.controller.context

    def decide(image: MetadataImage) -> Steps[Outcome[None]]:
        online = [directory.directory_id for directory in log_manager.online_directories()]
        cordoned = log_manager.cordoned_directories()
        yield 0
        return change_directories(image, metadata.node_id, online, cordoned, context)

    def steps() -> Sliced[None]:
        try:
            yield from controller.decide(decide)
        except KafkaError as error:
            logger.error("Cannot record the states of the log directories: %s", error.message)

    slices.begin_shielded(steps())

"""The registration of this node, as a controller and as a broker.

Startup registers both. The broker is registered as fenced, and then unfenced. A clean shutdown resigns leaderships and
fences the broker. After a clean shutdown or a crash the broker leads the same partitions again, with a higher leader
epoch: clients can thus detect that a crash may have truncated a log (KIP-320).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .brokers import fence_broker, register_broker, register_controller, shut_down_broker, unfence_broker
from .features import CONTROLLER_REGISTRATION_SINCE

if TYPE_CHECKING:
    from .brokers import NodeDescription
    from .context import ControllerContext
    from .controller import Controller
    from .image import MetadataImage
    from .outcome import Versioned


class NodeRegistration:
    """Registers one node with the controller of the same process."""

    def __init__(self, node: NodeDescription, controller: Controller) -> None:
        self._node = node
        self._controller = controller
        self.is_broker = False

    def register(self, now_ms: int) -> None:
        """Append the registration as a controller. The record is not durable yet."""
        controller, node = self._controller, self._node
        if controller.image.metadata_version >= CONTROLLER_REGISTRATION_SINCE:
            controller.append(register_controller(node), now_ms)

    def register_broker(self, now_ms: int) -> None:
        """Append the registration as a broker and unfence it. The records are not durable yet."""
        controller, node = self._controller, self._node
        self.is_broker = True
        controller.register_again = self.records_after
        # The broker epoch is the offset of the first record of the registration: offsets are unique.
        records = register_broker(controller.image, node, controller.end_offset, controller.context)
        controller.append(records, now_ms)
        controller.append(unfence_broker(controller.image, node.node_id, controller.context), now_ms)

    def records_after(self, image: MetadataImage, broker_epoch: int, context: ControllerContext) -> list[Versioned]:
        """Records that register the broker again and unfence it, if this image no longer contains it."""
        records = register_broker(image, self._node, broker_epoch, context)
        registered = image.replayed(versioned.record for versioned in records)
        return [*records, *unfence_broker(registered, self._node.node_id, context)]

    def shut_down(self, now_ms: int) -> None:
        """Append that the broker resigns leaderships and is fenced. The records are not durable yet."""
        controller, node_id = self._controller, self._node.node_id
        if node_id in controller.image.brokers:
            controller.append(shut_down_broker(controller.image, node_id, controller.context), now_ms)
            controller.append(fence_broker(controller.image, node_id, controller.context), now_ms)

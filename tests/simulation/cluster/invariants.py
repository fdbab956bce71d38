"""What must hold in a cluster at any time, checked after each iteration of an event loop.

- The committed metadata of a broker is what the controller had committed at that offset. What is committed once is
  committed forever, whatever happens to the controller.
- The epoch of a broker grows with each registration.
- One broker leads a partition in one leader epoch: no other accepts records for it.
- A response to Metadata lists no broker that was fenced, in the image of the broker that responds, all the time from
  the request to the response.
- A leader looks at each partition of a follower's fetch session, or has nothing to tell about it.
- No server logs an error, and no callback fails.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from moldau.metadata.topic_names import TRANSACTION_STATE
from moldau.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moldau.metadata.image import MetadataImage
    from moldau.protocol.schema import Request

    from .nodes import ErrorLog, Node
    from .world import SimulatedLoop, World


STALE_RESPONSE_SECONDS = 1.0
"""A response may arrive so long after its broker has learned of another coordinator."""


def _check_settled(broker: Any) -> None:
    for session in list(broker.fetch_sessions._sessions.values()):
        changes = session.changes
        if changes is None:
            continue
        for (topic_id, index), wanted in session.partitions.items():
            if (topic_id, index) not in changes.unsettled:
                partition = changes._observed[topic_id, index].partition
                assert changes._is_settled(partition, wanted), f"{partition.topic}-{index} is not looked at"


def _coordinators(image: MetadataImage) -> tuple[int, ...]:
    """The leaders of the transaction coordinator's partitions."""
    topic = image.topics_by_name.get(TRANSACTION_STATE)
    return () if topic is None else tuple(topic.partitions[index].leader for index in sorted(topic.partitions))


class Invariants:
    """See the module docstring."""

    def __init__(self, world: World, nodes: Mapping[int, Node], errors: ErrorLog) -> None:
        self._world = world
        self._by_address = {node.address: node for node in nodes.values()}
        self._errors = errors
        self._latest: dict[int, MetadataImage | None] = {}
        self._committed: dict[int, MetadataImage] = {}
        """What the controller has published, by offset."""
        self._end = -1
        """The last committed offset."""
        self._epochs: dict[int, tuple[int, bytes]] = {}
        """Broker epoch and incarnation of each broker."""
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        """The broker that leads a partition in an epoch, by topic id, partition, and leader epoch."""
        self._active: dict[int, deque[tuple[float, frozenset[int]]]] = {}
        """The unfenced brokers in the images of each broker, and since when."""
        self.eligible_leaders: Counter[str] = Counter()
        """Partitions with eligible leader replicas in committed images, and elections of such a replica or of the last
        known leader."""
        self._coordinators_changed = 0.0
        """When a node has learned of other transaction coordinators."""
        self.images = 0
        self.compared = 0

    def knows_stale_coordinators(self) -> bool:
        """Whether a broker may believe, or did just now, that a replaced transaction coordinator is the present one.

        Like Apache Kafka's, such a coordinator fences producers whose epoch a later coordinator has issued.
        """
        if self._world.now - self._coordinators_changed < STALE_RESPONSE_SECONDS:
            return True
        current = _coordinators(self._committed[self._end])
        known = [node.metadata.image for node in self._by_address.values() if node.metadata is not None]
        return any(_coordinators(image) != current for image in known)

    def check(self, loop: SimulatedLoop) -> None:
        """Check the process that has just run."""
        assert not self._errors.lines, self._errors.lines[0]
        assert not loop.failures, f"{loop.name}: {loop.failures[0]}"
        node = self._by_address.get(loop.address)
        if node is None:
            return
        if node.server is not None and node.server.broker is not None:
            _check_settled(node.server.broker)
        metadata = node.metadata
        image = None if metadata is None else metadata.image
        before = self._latest.get(node.node_id)
        if image is before:
            return
        self._latest[node.node_id] = image
        if image is None:
            return
        self.images += 1
        if before is not None and _coordinators(before) != _coordinators(image):
            self._coordinators_changed = self._world.now
        if node.is_controller:
            self._controller_has(image)
        else:
            self._broker_has(node, image)

    def _controller_has(self, image: MetadataImage) -> None:
        assert image.offset >= self._end, f"the controller is at {image.offset}: {self._end} was committed"
        self._count_eligible_leaders(self._committed.get(self._end), image)
        self._end = image.offset
        self._committed[image.offset] = image
        for broker_id, broker in image.brokers.items():
            epoch, incarnation = self._epochs.get(broker_id, (-1, b""))
            if broker.incarnation_id != incarnation:
                assert broker.epoch > epoch, f"broker {broker_id} has epoch {broker.epoch} after {epoch}"
            else:
                assert broker.epoch == epoch, f"broker {broker_id} has epoch {broker.epoch}, not {epoch}"
            self._epochs[broker_id] = broker.epoch, broker.incarnation_id

    def _count_eligible_leaders(self, before: MetadataImage | None, image: MetadataImage) -> None:
        for topic_id, topic in image.topics_by_id.items():
            earlier = before.topics_by_id.get(topic_id) if before is not None else None
            if topic is earlier:
                continue
            for index, partition in topic.partitions.items():
                old = earlier.partitions.get(index) if earlier is not None else None
                if partition is old:
                    continue
                if partition.elr:
                    self.eligible_leaders["eligible leaders"] += 1
                if old is not None and not old.isr and partition.leader >= 0:
                    kind = "eligible leader" if partition.leader in old.elr else "last known leader"
                    self.eligible_leaders[f"{kind} elected"] += 1

    def _broker_has(self, node: Node, image: MetadataImage) -> None:
        expected = self._committed.get(image.offset)
        if expected is not None:
            self.compared += 1
            assert image == expected, f"broker {node.node_id} has another image at offset {image.offset}"
        else:
            assert image.offset <= self._end or image.offset < 0, (
                f"broker {node.node_id} is at {image.offset}, and {self._end} is committed"
            )
        active = frozenset(broker_id for broker_id, broker in image.brokers.items() if not broker.fenced)
        self._active.setdefault(node.node_id, deque(maxlen=1000)).append((self._world.now, active))
        self._check_leaders(node)

    def _check_leaders(self, node: Node) -> None:
        broker: Any = None if node.server is None else node.server.broker
        if broker is None:
            return
        for partition in broker.replicas:
            if partition.leader_id == node.node_id:
                key = partition.topic_id, partition.index, partition.leader_epoch
                leader = self._leaders.setdefault(key, node.node_id)
                assert leader == node.node_id, f"{partition.topic}-{partition.index}: two leaders in {key[2]}"

    def check_response(self, broker: int, request: Request, response: Any, began: float) -> None:
        """Check what a client gets."""
        if isinstance(request, MetadataRequest):
            listed = {each.node_id for each in response.brokers}
            possible: set[int] = set()
            for since, active in reversed(self._active.get(broker, ())):
                possible |= active
                if since <= began:
                    break
            assert listed <= possible, f"broker {broker} lists {listed}, of which only {possible} are unfenced"

    def differences(self, nodes: Mapping[int, Node]) -> str | None:
        """The first difference between the images of the nodes, if there is one."""
        images = {node.node_id: node.metadata.image for node in nodes.values() if node.metadata is not None}
        first = next(iter(images.values()))
        for node_id, image in images.items():
            if image != first:
                return f"node {node_id} is at offset {image.offset}, another one at {first.offset}"
        return None if len(images) == len(nodes) else "not all nodes have metadata"

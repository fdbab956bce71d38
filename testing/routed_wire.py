"""`RoutedWire`: requests of a test to the broker that serves them: the leader of the partition, or the coordinator.

A `WireClient` has a connection to one broker, as the other tests of the protocol need. This is for helpers that look
into a server with any number of brokers.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.describe_producers import DescribeProducersRequest
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.list_offsets import ListOffsetsRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.schema import Request
from moldau.testing.wire import WireClient

_GROUP, _TRANSACTION = 0, 1


def broker_addresses(wire: WireClient, bootstrap_server: str) -> dict[int, str]:
    """The addresses of the running brokers. That of a single broker is the given one, whatever it advertises."""
    found = {each.broker_id: f"{each.host}:{each.port}" for each in wire.call(DescribeClusterRequest(), 0).brokers}
    return dict.fromkeys(found, bootstrap_server) if len(found) == 1 else found


class RoutedWire(WireClient):
    """Like a `WireClient` for `call`; other methods use the connection to ``address``.

    A request must concern one partition, group or transactional id, because it is sent to one broker, which is looked
    up each time. ListGroups is sent to all brokers. Raises :class:`KafkaError` if there is none at the moment.
    """

    def __init__(self, address: str, *, client_id: str | None = "moldau-testing", timeout_s: float = 30.0) -> None:
        super().__init__(address, client_id=client_id, timeout_s=timeout_s)
        self._address = address
        self._timeout_s = timeout_s
        self._others: dict[str, WireClient] = {}
        self._connections = ExitStack()

    def call(self, request: Request, version: int | None = None) -> Any:
        if isinstance(request, ListGroupsRequest):
            return self._list_groups(request, version)
        node_id = self._node_of(request)
        if node_id is None:
            return super().call(request, version)
        return self._connection(broker_addresses(self, self._address)[node_id]).call(request, version)

    def _list_groups(self, request: ListGroupsRequest, version: int | None) -> Any:
        """The response of the first broker, with the groups of all of them."""
        first, *others = [
            self._connection(address).call(request, version)
            for address in set(broker_addresses(self, self._address).values())
        ]
        for other in others:
            first.groups += other.groups
            first.error_code = first.error_code or other.error_code
        return first

    def _connection(self, address: str) -> WireClient:
        if address not in self._others:
            wire = WireClient(address, client_id=self._client_id, timeout_s=self._timeout_s)
            self._others[address] = self._connections.enter_context(wire)
        return self._others[address]

    def _node_of(self, request: Request) -> int | None:
        """The broker that serves this request; None if any broker does."""
        match request:
            case ProduceRequest():
                (topic,) = request.topic_data
                (partition,) = topic.partition_data
                return self._leader(topic.name, partition.index)
            case FetchRequest():
                (fetched,) = request.topics
                return self._leader(fetched.topic, *[each.partition for each in fetched.partitions])
            case ListOffsetsRequest():
                (listed,) = request.topics
                return self._leader(listed.name, *[each.partition_index for each in listed.partitions])
            case DescribeProducersRequest():
                (described,) = request.topics
                return self._leader(described.name, *described.partition_indexes)
            case OffsetFetchRequest():
                (group,) = request.groups
                return self._coordinator(_GROUP, group.group_id)
            case DescribeGroupsRequest():
                (group_id,) = request.groups
                return self._coordinator(_GROUP, group_id)
            case DescribeTransactionsRequest():
                (transactional_id,) = request.transactional_ids
                return self._coordinator(_TRANSACTION, transactional_id)
            case InitProducerIdRequest() if request.transactional_id is not None:
                return self._coordinator(_TRANSACTION, request.transactional_id)
        return None

    def _leader(self, topic: str, *partitions: int) -> int:
        requested = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        (found,) = super().call(requested, 12).topics
        leaders = {each.leader_id for each in found.partitions if each.partition_index in partitions}
        if len(leaders) != 1 or -1 in leaders:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the leader of {topic} {partitions}: {leaders or 'none'}")
        return int(leaders.pop())

    def _coordinator(self, kind: int, key: str) -> int:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        (found,) = super().call(request, 4).coordinators
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code), f"the coordinator of {key}")
        return int(found.node_id)

    def close(self) -> None:
        self._connections.close()
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

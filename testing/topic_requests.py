"""Requests to a server without a client: single requests through ``moldau.testing.wire``.

Some changes take effect after the response: a created topic reaches the broker's metadata a moment later.
`moldau.testing.waiting` waits for these, with a deadline; everything else waits for a response.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import NamedTuple, cast

from moldau.protocol.api import request_header_version
from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from moldau.protocol.messages.headers import RequestHeader
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records import Record, RecordBatch, iter_batches
from moldau.protocol.schema import Request
from moldau.testing.routed_wire import RoutedWire, broker_addresses
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient


def payload(request: Request, version: int, correlation_id: int = 0, client_id: str | None = "wire") -> bytes:
    """A request without its length: header and body."""
    return header(request.API_KEY, version, correlation_id, client_id) + encode(request, version)


def header(api_key: int, version: int, correlation_id: int = 0, client_id: str | None = "wire") -> bytes:
    """The header of a request; the API or version may not exist."""
    fields = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    try:
        return encode(fields, request_header_version(api_key, version))
    except ValueError:  # no such API
        return encode(fields, 2)


def wait_for_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Return when the brokers report that they lead all partitions of a topic.

    A created topic reaches a broker's metadata a moment after the answer to CreateTopics, and is led there another
    moment later: a partition that answers ListOffsets has its leader. Clients request metadata from any broker.
    """
    with ExitStack() as connections, WireClient(bootstrap_servers) as first:
        addresses = broker_addresses(first, bootstrap_servers)
        opened = {address: connections.enter_context(WireClient(address)) for address in addresses.values()}
        leaders: dict[str, list[int]] = {}  # the partitions by the address of their leader

        def is_known_to(wire: WireClient) -> bool:
            requested = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            (found,) = wire.call(requested, 12).topics
            leaders.clear()
            for partition in found.partitions:
                if partition.leader_id in addresses:
                    leaders.setdefault(addresses[partition.leader_id], []).append(partition.partition_index)
            return bool(found.error_code == 0 and sum(map(len, leaders.values())) == partitions)

        def is_led(address: str, led: list[int]) -> bool:
            requested = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in led]
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=requested)])
            return all(each.error_code == 0 for each in opened[address].call(request, 7).topics[0].partitions)

        wait_until(
            lambda: all(map(is_known_to, opened.values())), f"{partitions} partitions of {topic} in the metadata"
        )
        wait_until(
            lambda: all(is_led(address, led) for address, led in leaders.items()),
            f"leaders of the {partitions} partitions of {topic}",
        )


def wait_for_no_topic(bootstrap_servers: str, topic: str) -> None:
    """Return when no broker reports the topic."""
    with ExitStack() as connections, WireClient(bootstrap_servers) as first:
        addresses = set(broker_addresses(first, bootstrap_servers).values())
        wires = [connections.enter_context(WireClient(address)) for address in addresses]

        def is_deleted_on(wire: WireClient) -> bool:
            requested = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            (found,) = wire.call(requested, 12).topics
            return bool(found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

        wait_until(lambda: all(map(is_deleted_on, wires)), f"the end of {topic}")


class Topic(NamedTuple):
    """A topic as requests name it: by name in older versions, by id in newer ones."""

    name: str
    topic_id: bytes


def create_topic(
    bootstrap_servers: str, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> Topic:
    """Create a topic, and return when the server leads its partitions."""
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    with WireClient(bootstrap_servers) as wire:
        (created,) = wire.call(CreateTopicsRequest(topics=[wanted]), 7).topics
    assert created.error_code == 0, created
    wait_for_topic(bootstrap_servers, name, partitions)
    return Topic(name, created.topic_id)


def records(*values: bytes, timestamp: int | None = None) -> list[Record]:
    """Records without keys, stamped with the present time or with ``timestamp``."""
    when = int(time.time() * 1000) if timestamp is None else timestamp
    return [Record(timestamp=when, value=value) for value in values]


def produce_request(topic: str, data: bytes | None, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """A produce request by name, for versions up to 12."""
    to = PartitionProduceData(index=partition, records=data)
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[to])])


def produce(
    wire: WireClient, topic: str, data: bytes | None, *, partition: int = 0, acks: int = -1, version: int = 12
) -> PartitionProduceResponse:
    """Produce to one partition, and return its part of the response."""
    response = wire.call(produce_request(topic, data, partition=partition, acks=acks), version)
    ((answer,),) = [each.partition_responses for each in response.responses]
    assert isinstance(answer, PartitionProduceResponse)
    return answer


def fetch_request(
    topic: str,
    offsets: Mapping[int, int],
    *,
    max_wait_ms: int = 100,
    min_bytes: int = 0,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 50_000_000,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    """A fetch by name, for versions up to 12, of the partitions of ``offsets``, each from its offset."""
    requested = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for partition, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, partitions=requested)] if requested else [],
    )


def fetch(
    wire: WireClient, topic: str, offset: int, *, partition: int = 0, max_bytes: int = 50_000_000
) -> PartitionData:
    """One fetch of one partition, without waiting for records."""
    request = fetch_request(
        topic, {partition: offset}, max_wait_ms=0, max_bytes=max_bytes, partition_max_bytes=max_bytes
    )
    response = wire.call(request, 12)
    assert response.error_code == 0, ErrorCode(response.error_code).name
    ((data,),) = [each.partitions for each in response.responses]
    assert isinstance(data, PartitionData)
    return data


def batches_of(data: PartitionData) -> list[RecordBatch]:
    """The whole batches of a partition in a fetch response."""
    return list(iter_batches(bytes(cast(memoryview, data.records or b""))))


def stored_batches(bootstrap_servers: str, topic: str, partition: int = 0) -> list[RecordBatch]:
    """All batches of a partition, as stored."""
    with RoutedWire(bootstrap_servers) as wire:
        stored: list[RecordBatch] = []
        data = fetch(wire, topic, 0, partition=partition)
        assert data.error_code == 0, ErrorCode(data.error_code).name
        while found := batches_of(data):
            stored += found
            data = fetch(wire, topic, found[-1].next_offset, partition=partition)
        return stored

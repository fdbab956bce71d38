"""Headers of requests and responses: client IDs, correlation IDs, tagged fields, and versions that do not exist."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.describe_cluster import DescribeClusterRequest
from ...protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ...protocol.schema import Request
from .. import frames, harmless_requests
from .. import partitions as p
from ..case import Layer, Level, Release, case, needs
from ..check import Check, Topic
from ..record_batches import batch

MISSING_TOPIC_ID = bytes(range(100, 116))


@case(
    "protocol.header.client-id",
    "a client ID may be null, empty, long, or not ASCII",
    source="Protocol: Request header",
    layer=Layer.WIRE,
    needs=needs(ApiKey.METADATA, 9),
    variants={
        "null": (None,),
        "empty": ("",),
        "long": ("x" * 5_000,),
        "longest": ("x" * 32_767,),
        "utf-8": ("řeka-川",),
        "spaces": (" my client\n",),
    },
)
def client_id(c: Check, name: str | None) -> None:
    """Sends: ApiVersions version 0, Metadata version 8 and Metadata version 9 with such a client ID.

    Expects: responses with the correlation IDs of the requests and without errors.

    Why: users choose client IDs; version 9 has a flexible header in which the client ID keeps its old format.
    """
    wire = c.connect(client_id=name)
    c.error(c.call(ApiVersionsRequest(), 0, to=wire).error_code, ErrorCode.NONE, "ApiVersions error_code")
    for version in (8, 9):
        found = c.call(MetadataRequest(topics=[]), version, to=wire)
        c.true(found.brokers, f"brokers of Metadata v{version}", expected="at least one", actual=found.brokers)


@case(
    "protocol.header.correlation-id",
    "the response has the correlation ID of its request",
    source="Protocol: Response header",
    layer=Layer.WIRE,
    needs=needs(ApiKey.METADATA, 9),
    variants={"0": (0,), "minus-1": (-1,), "largest": (2**31 - 1,), "smallest": (-(2**31),), "any": (0x01020304,)},
)
def correlation_id(c: Check, number: int) -> None:
    """Sends: ApiVersions versions 0 and 3, Metadata versions 1 and 9, each with this correlation ID.

    Expects: responses with the same correlation ID, in the response header of each version; that of ApiVersions has
    no tagged fields in any version.

    Why: clients count correlation IDs up, beyond the largest int32, and close the connection if one does not match.
    """
    software = ApiVersionsRequest(client_software_name="name", client_software_version="1")
    requests: list[tuple[Request, int]] = [
        (ApiVersionsRequest(), 0),
        (software, 3),
        (MetadataRequest(topics=[]), 1),
        (MetadataRequest(topics=[]), 9),
    ]
    for request, version in requests:
        c.wire.send_frame(frames.frame(request, version, correlation_id=number))
        response = frames.receive(c.wire, request.API_KEY, version, correlation_id=number)
        if isinstance(request, MetadataRequest):
            c.true(
                response.brokers, f"brokers of Metadata v{version}", expected="at least one", actual=response.brokers
            )
        else:
            c.error(response.error_code, ErrorCode.NONE, f"error_code of ApiVersions v{version}")


@case(
    "protocol.header.correlation-id-repeated",
    "correlation IDs may repeat and need not ascend",
    source="Protocol: Response header",
    layer=Layer.WIRE,
    needs=needs(ApiKey.METADATA, 9),
)
def correlation_id_repeated(c: Check) -> None:
    """Sends: six requests on one connection without waiting, with the correlation IDs 7, 7, 3, 2147483647,
    -2147483648 and 7.

    Expects: six responses with these correlation IDs in this order.

    Why: the server returns correlation IDs without interpreting them; matching them is the client's task.
    """
    numbers = (7, 7, 3, 2**31 - 1, -(2**31), 7)
    for at, number in enumerate(numbers):
        request = MetadataRequest(topics=[]) if at % 2 else ApiVersionsRequest()
        c.wire.send_frame(frames.frame(request, 9 if at % 2 else 0, correlation_id=number))
    for at, number in enumerate(numbers):
        api, version = (ApiKey.METADATA, 9) if at % 2 else (ApiKey.API_VERSIONS, 0)
        frames.receive(c.wire, api, version, correlation_id=number)


@case(
    "protocol.header.client-id-changes",
    "each request of a connection may have another client ID",
    source="Protocol: Request header",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    needs=needs(ApiKey.METADATA, 9),
)
def client_id_changes(c: Check) -> None:
    """Sends: four Metadata requests on one connection, with the client IDs "a", null, "b" and "".

    Expects: four responses.

    Why: the client ID belongs to the request; proxies send requests of several clients on one connection.
    """
    for number, name in enumerate(("a", None, "b", "")):
        payload = frames.frame(MetadataRequest(topics=[]), 9, correlation_id=number, client_id=name)
        c.wire.send_frame(payload)
    for number in range(4):
        found = frames.receive(c.wire, ApiKey.METADATA, 9, correlation_id=number)
        c.equal(found.topics, [], f"topics of response {number}")


# Tagged fields


@case(
    "protocol.tagged-fields",
    "unknown tagged fields are ignored, in the header and in all parts of the body",
    source="KIP-482",
    layer=Layer.WIRE,
    variants={api.name.lower().replace("_", "-"): (api,) for api in harmless_requests.REQUESTS},
)
def tagged_fields(c: Check, api: ApiKey) -> None:
    """Sends: a request in the highest version, and the same request with the tagged fields 10000 and 10001 in its
    header, in its body, and in each structure inside the body.

    Expects: the same response to both.

    Why: newer clients send tagged fields that older servers do not know; the format exists for this purpose.
    """
    harmless = harmless_requests.REQUESTS[api]
    version = c.version(api)
    if version < harmless.lowest:
        c.not_applicable(f"{api.message_name} is not flexible in version {version}")
    topic = c.topic()
    p.append(c, topic, batch(b"value"))
    scene = harmless_requests.Scene(topic, Topic(c.name("missing"), MISSING_TOPIC_ID), c.group())
    if harmless.coordinator is None:
        connection = c.wire
    else:
        connection = c.coordinator(scene.group, harmless.coordinator)
        if harmless.coordinator == 1:
            # The transactional requests need the coordinator of the group, too.
            c.coordinator(scene.group)
    request = harmless.request(scene, version)
    plain = c.call(request, version, to=connection)
    frames.add_unknown_tags(request)
    connection.send_frame(frames.frame(request, version, correlation_id=5, tags=frames.UNKNOWN_TAGS))
    tagged = frames.receive(connection, api, version, correlation_id=5)
    for response in (plain, tagged):
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = 0
        if hasattr(response, "controller_id"):
            response.controller_id = -1  # Apache Kafka's brokers name a random broker, which forwards to the controller
        if api is ApiKey.API_VERSIONS:
            response.finalized_features_epoch = 0  # it counts all changes of metadata
        if api is ApiKey.FETCH:
            for each in response.responses:
                for partition in each.partitions:
                    partition.records = bytes(partition.records or b"")
    c.equal(tagged, plain, "the response to the request with unknown tagged fields")


@case(
    "protocol.tagged-fields.header-large",
    "a large unknown tagged field in the header is ignored",
    source="KIP-482",
    layer=Layer.WIRE,
    needs=needs(ApiKey.METADATA, 9),
)
def large_tagged_field(c: Check) -> None:
    """Sends: Metadata version 9 with a tagged field of 20,000 bytes in the header, whose length needs three bytes.

    Expects: the response to the request.

    Why: sizes of tagged fields are varints; a server that reads one byte loses its place in the frame.
    """
    tags = {1_000_000: b"x" * 20_000, 2_000_000: b""}
    c.wire.send_frame(frames.frame(MetadataRequest(topics=[]), 9, correlation_id=9, tags=tags))
    found = frames.receive(c.wire, ApiKey.METADATA, 9, correlation_id=9)
    c.equal(found.topics, [], "topics")
    c.equal({each.node_id for each in found.brokers}, set(c.target.brokers), "the brokers")


# Order


@case(
    "protocol.order.pipelined-apis",
    "pipelined requests of different APIs get responses in order",
    source="Protocol: Network",
    needs=needs(ApiKey.PRODUCE, 9, ApiKey.FETCH, 12, ApiKey.METADATA, 9, ApiKey.LIST_OFFSETS, 7),
)
def pipelined_apis(c: Check) -> None:
    """Sends: on one connection, ten times without waiting: Produce, ApiVersions, Fetch, Metadata and ListOffsets.

    Expects: fifty responses in the order of the requests; each ListOffsets and Fetch sees the records of the Produce
    requests before it.

    Why: the protocol promises the order of responses for each connection, and clients decode them by it.
    """
    topic = c.topic()
    versions = {api: c.version(api) for api in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.LIST_OFFSETS)}
    latest = ListOffsetsTopic(name=topic.name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    for number in range(10):
        data = {0: batch(b"%d" % number)}
        version = versions[ApiKey.PRODUCE]
        c.wire.send(p.produce_request(topic, data, version=version), version)
        c.wire.send(ApiVersionsRequest(), 0)
        version = versions[ApiKey.FETCH]
        c.wire.send(p.fetch_request(topic, {0: number}, version=version, min_bytes=1, max_wait_ms=20_000), version)
        c.wire.send(MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)]), versions[ApiKey.METADATA])
        c.wire.send(ListOffsetsRequest(replica_id=-1, topics=[latest]), versions[ApiKey.LIST_OFFSETS])
    for number in range(10):
        produced = c.wire.receive().responses[0].partition_responses[0]
        c.error(produced.error_code, ErrorCode.NONE, f"error_code of Produce {number}")
        c.equal(produced.base_offset, number, f"base_offset of Produce {number}")
        c.error(c.wire.receive().error_code, ErrorCode.NONE, f"error_code of ApiVersions {number}")
        fetched = p.batches_of(c.wire.receive().responses[0].partitions[0])
        first = [each.base_offset for each in fetched][:1]
        c.equal(first, [number], f"base_offset of the first batch of Fetch {number}")
        (described,) = c.wire.receive().topics
        c.equal(described.name, topic.name, f"the topic of Metadata {number}")
        end = c.wire.receive().topics[0].partitions[0]
        c.true(
            end.offset > number, f"offset of ListOffsets {number}", expected=f"more than {number}", actual=end.offset
        )


@case(
    "protocol.order.behind-waiting-fetch",
    "requests behind a waiting fetch get responses after it",
    source="Protocol: Network",
    needs=needs(ApiKey.FETCH, 12, ApiKey.DESCRIBE_CLUSTER, 0),
)
def behind_waiting_fetch(c: Check) -> None:
    """Sends: Fetch of an empty partition with a maximum wait of 300 ms, then ApiVersions, Metadata and DescribeCluster
    on the same connection.

    Expects: the empty response of Fetch first, then the others in order.

    Why: responses must keep their order even if an earlier request waits.
    """
    topic = c.topic()
    version = c.version(ApiKey.FETCH)
    c.wire.send(p.fetch_request(topic, {0: 0}, version=version, max_wait_ms=300, min_bytes=1), version)
    c.wire.send(ApiVersionsRequest(), 0)
    c.wire.send(MetadataRequest(topics=[]), c.version(ApiKey.METADATA))
    c.wire.send(DescribeClusterRequest(), c.version(ApiKey.DESCRIBE_CLUSTER))
    fetched = c.wire.receive().responses[0].partitions[0]
    c.error(fetched.error_code, ErrorCode.NONE, "error_code of Fetch")
    c.equal(p.batches_of(fetched), [], "the batches of Fetch")
    c.error(c.wire.receive().error_code, ErrorCode.NONE, "error_code of ApiVersions")
    metadata = c.wire.receive()
    c.true(metadata.brokers, "brokers of Metadata", expected="at least one", actual=metadata.brokers)
    c.error(c.wire.receive().error_code, ErrorCode.NONE, "error_code of DescribeCluster")


@case(
    "protocol.throttle.unlimited",
    "a client without quotas is not throttled",
    source="KIP-13 and KIP-124",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    needs=needs(ApiKey.PRODUCE, 9, ApiKey.FETCH, 12, ApiKey.METADATA, 9, ApiKey.LIST_OFFSETS, 7),
)
def not_throttled(c: Check) -> None:
    """Sends: ApiVersions, Metadata, Produce, Fetch, ListOffsets and DescribeCluster with a client ID that has no
    quota.

    Expects: throttle_time_ms 0 in each response.

    Why: clients send nothing for this time.
    """
    topic = c.topic()
    wire = c.connect(client_id=c.name("unlimited"))
    latest = ListOffsetsTopic(name=topic.name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    requests: list[Request] = [
        ApiVersionsRequest(client_software_name="name", client_software_version="1"),
        MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)]),
        p.produce_request(topic, {0: batch(b"-")}, version=c.version(ApiKey.PRODUCE)),
        p.fetch_request(topic, {0: 0}, version=c.version(ApiKey.FETCH)),
        ListOffsetsRequest(replica_id=-1, topics=[latest]),
        DescribeClusterRequest(),
    ]
    for request in requests:
        api = ApiKey(request.API_KEY)
        if c.target.highest_version(api) is not None:
            response = c.call(request, to=wire)
            c.equal(response.throttle_time_ms, 0, f"throttle_time_ms of {api.message_name}")


# Versions that do not exist


@case(
    "protocol.unknown-api",
    "a request of an unknown API closes its connection",
    source="Protocol: Network",
    layer=Layer.WIRE,
    variants={
        "9999": (9_999, 0),
        "minus-1": (-1, 0),
        "largest": (32_767, 0),
        "leader-and-isr": (4, 7),
        "update-metadata": (6, 8),
        "vote": (52, 0),
        "broker-heartbeat": (63, 0),
    },
)
def unknown_api(c: Check, api_key: int, version: int) -> None:
    """Sends: a request whose API key does not exist, or belongs to the controllers only.

    Expects: the connection is closed without a response; other connections are served.

    Why: there is no format for an error response; the client learns that it must not send such requests.
    """
    if api_key in c.target.apis:
        c.not_applicable(f"the server advertises API {api_key}")
    with frames.others_served(c) as wire:
        wire.send_frame(frames.header(api_key, version) + bytes(20))
        c.closed(wire)


_COMMON = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.CREATE_TOPICS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.DESCRIBE_CONFIGS,
)


@case(
    "protocol.unknown-version",
    "a request in a version that the server does not advertise closes its connection",
    source="Protocol: API versions",
    layer=Layer.WIRE,
    variants={
        f"{api.name.lower().replace('_', '-')}-{which}": (api, which)
        for api in _COMMON
        for which in ("above", "negative", "largest")
    },
)
def unknown_version(c: Check, api: ApiKey, which: str) -> None:
    """Sends: a request in the version after the highest that the server advertises, in version -1 or in 32767.

    Expects: the connection is closed without a response; other connections are served.

    Why: a server that responds in a format that it assumes makes the client read garbage.
    """
    if api not in c.target.apis:
        c.not_applicable(f"the server does not have {api.message_name}")
    version = {"above": c.target.apis[api][1] + 1, "negative": -1, "largest": 32_767}[which]
    with frames.others_served(c) as wire:
        wire.send_frame(frames.header(api, version) + bytes(40))
        c.closed(wire)


@case(
    "protocol.unknown-version.below-lowest",
    "a request in a version below the lowest closes its connection",
    source="KIP-896",
    layer=Layer.WIRE,
    variants={
        api.name.lower().replace("_", "-"): (api,)
        for api in (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_COMMIT, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS)
    },
)
def below_lowest(c: Check, api: ApiKey) -> None:
    """Sends: a request in the version before the lowest that the server advertises.

    Expects: the connection is closed without a response; other connections are served.

    Why: the version was removed, and its format may be read wrongly.
    """
    lowest = c.target.apis.get(api, (0, 0))[0]
    if lowest == 0:
        c.not_applicable(f"the server has all versions of {api.message_name}, or none")
    with frames.others_served(c) as wire:
        wire.send_frame(frames.header(api, lowest - 1) + bytes(40))
        c.closed(wire)


@case(
    "protocol.unknown-version.produce-removed",
    "versions 0 to 2 of Produce are advertised, and close the connection",
    source="KIP-896 and KAFKA-18659",
    layer=Layer.WIRE,
    level=Level.APACHE,
    since=Release(4, 0),
    variants={str(version): (version,) for version in (0, 1, 2)},
)
def produce_removed(c: Check, version: int) -> None:
    """Sends: Produce without topics, in version 0, 1 or 2, which Apache Kafka 4.0 removed.

    Expects: the connection is closed without a response; other connections are served.

    Why: these versions are advertised only so that librdkafka before 2.11 compresses; their formats were removed.
    """
    if not c.target.supports(ApiKey.PRODUCE, version):
        c.not_applicable(f"the server does not advertise version {version} of Produce")
    with frames.others_served(c) as wire:
        wire.send_frame(frames.header(ApiKey.PRODUCE, version) + b"\x00\x01" + b"\x00\x00\x03\xe8" + bytes(4))
        c.closed(wire)

"""`group_load.c` from Python: many small requests, each with its expected response.

Versions are the latest ones that both servers support and that identify topics by name: Heartbeat 4,
ConsumerGroupHeartbeat 1, OffsetCommit 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..protocol.api import response_header_version
from ..protocol.codec import encode
from ..protocol.messages.headers import ResponseHeader
from ..protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ..protocol.schema import Request, Response
from . import load
from .load import Load
from .programs import run_for_json
from .row import Bench, Server

HEARTBEAT_VERSION = 4
CONSUMER_GROUP_HEARTBEAT_VERSION = 1
OFFSET_COMMIT_VERSION = 9

ANY_ANSWER = bytes(4)
"""For responses that are not checked."""


@dataclass(frozen=True)
class Pair:
    """An encoded request and its response."""

    request: bytes
    answer: bytes = ANY_ANSWER


def pair(request: Request, answer: Response, version: int) -> Pair:
    """``answer`` is the exact expected response, except for its correlation id."""
    header = encode(ResponseHeader(), response_header_version(request.API_KEY, version))
    body = header + encode(answer, version)
    return Pair(load.frame(request, version), len(body).to_bytes(4, "big") + body)


def commit(
    group_id: str,
    topic: str,
    partitions: Sequence[OffsetCommitRequestPartition],
    *,
    member_id: str = "",
    generation: int = -1,
) -> Pair:
    """A commit without errors; from outside of the group's membership unless a member is given."""
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=list(partitions))],
    )
    taken = [OffsetCommitResponsePartition(partition_index=each.partition_index) for each in partitions]
    answer = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name=topic, partitions=taken)])
    return pair(request, answer, OFFSET_COMMIT_VERSION)


def run(
    bench: Bench,
    server: Server,
    pairs: Iterable[Pair],
    *,
    connections: int,
    requests: int | None = None,
    seconds: float | None = None,
) -> Load:
    """Run the generator to its end. group_load.c explains its options."""
    how_much = ["--requests", str(requests)] if requests is not None else ["--seconds", str(seconds)]
    command = [
        *bench.program("group_load"),
        *("--connections", str(connections)),
        *how_much,
        *server.bootstrap_servers.rsplit(":", 1),
    ]
    given = b"".join(each.request + each.answer for each in pairs)
    return Load(**run_for_json("the load generator", command, timeout_s=load.TIMEOUT_SECONDS, given=given))

"""ACLs: the cost of a produce request on a server with 10,000 of them, beside the same server without an authorizer.

Both servers of a measurement run, and receive the same requests in turn, in short intervals; the growth is the median
of the ratios of two successive intervals. So the rest of the machine affects both alike. Of the ACLs, one allows the
client to write to the topic, a tenth is for the topic and for other users, and four tenths have prefixes, some of which
match the topic.
"""

from __future__ import annotations

import operator
import statistics

from ...protocol.messages.create_acls import CreateAclsRequest
from ...security.acl_arguments import creation_of, parse_acl
from ...testing.wire import WireClient
from .. import load
from ..measurement import create_topic
from ..row import Bench, Numbers, Row, Server, Subject, Target

GROUP = "Access control"

_ACLS = 10_000
_ACLS_PER_REQUEST = 1_000
_TOPIC = "orders-of-2026"
_INTERVALS = 40
_INTERVAL_MS = 400
_WARM_UPS = 5
_CREATION_SECONDS = 120

# Without an ACL for the cluster, its users may create ACLs; the topic has some.
_CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def produce_with_acls(bench: Bench) -> Numbers:
    """The CPU time of a request with one record of 100 B, with and without ACLs."""
    without, secured = bench.start_server(), bench.start_server(config=_CONFIG)
    for server in (without, secured):
        create_topic(server, _TOPIC, partitions=1, config={})
    _create_acls(secured, bench.count(_ACLS))
    request = load.produce_frame(_TOPIC, load.batch_of(1, 100))
    sent = {without: 0, secured: 0}
    costs: dict[Server, list[float]] = {without: [], secured: []}
    for interval in range(-_WARM_UPS, bench.count(_INTERVALS)):
        for server in (without, secured) if interval % 2 else (secured, without):
            before = server.cpu_seconds()
            result = load.run(bench, server, request, connections=8, in_flight=4, seconds=_INTERVAL_MS / 1000)
            sent[server] += result.requests
            if interval >= 0:
                costs[server].append((server.cpu_seconds() - before) / result.requests * 1e6)
    for server, requests in sent.items():
        load.check_end_offset(server, _TOPIC, requests)  # all of them were accepted
    return {
        "cpu_us_per_request": statistics.median(costs[secured]),
        "cpu_us_per_request_without": statistics.median(costs[without]),
        "cpu_growth": statistics.median(map(operator.truediv, costs[secured], costs[without])),
    }


def _create_acls(server: Server, count: int) -> None:
    texts = [f"ANONYMOUS all topic {_TOPIC}"]
    for number in range(1, count):
        user = f"user-{number % 1_000}"
        match number % 10:
            case 0:
                texts.append(f"{user} write topic {_TOPIC}")
            case 1 | 2 | 3 | 4:
                prefix = (_TOPIC if number % 50 < 10 else f"team-{number}-")[: 2 + number % 12]
                texts.append(f"{user} read topic {prefix} --prefix")
            case _:
                texts.append(f"{user} all topic topic-{number}")
    creations = [creation_of(parse_acl(text)) for text in texts]
    with WireClient(server.bootstrap_servers, timeout_s=_CREATION_SECONDS) as wire:
        for start in range(0, len(creations), _ACLS_PER_REQUEST):
            piece = creations[start : start + _ACLS_PER_REQUEST]
            for result in wire.call(CreateAclsRequest(creations=piece)).results:
                if result.error_code:
                    raise RuntimeError(f"no ACL: {result.error_code} {result.error_message}")


ROWS = (
    Row(
        name="acls-10000",
        title="produce one record of 100 B with 10,000 ACLs, 8 connections x 4 in flight; and without an authorizer",
        group=GROUP,
        measure=produce_with_acls,
        subjects=(Subject.APACHE, Subject.MOLDAU),
        needs=("cc",),
        own_server=True,
        targets=(Target("cpu_growth", at_most=1.03, against=None),),
    ),
)

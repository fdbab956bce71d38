"""Cases for tests of the runner and of the reports: one for each way to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moldau.conformance import partitions as p
from moldau.conformance.case import Case, Layer, Level, Need
from moldau.conformance.check import Check
from moldau.conformance.outcome import InconclusiveError
from moldau.conformance.record_batches import batch
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode

HOSTILE = "</script><script>document.title='taken'</script><img src=http://127.0.0.1:9/x onerror=alert(1)>\"'&"
"""What a hostile server may send as an error message."""


def sample(identifier: str, body: Callable[..., None], **fields: Any) -> Case:
    """A case that is not in the catalog."""
    values: dict[str, Any] = {
        "id": identifier,
        "title": f"the title of {identifier}",
        "area": identifier.partition(".")[0],
        "layer": Layer.CONTRACT,
        "level": Level.MUST,
        "source": "KIP-98 and Protocol: Produce",
        "sends": "Produce.",
        "expects": "no error.",
        "why": "it is a sample.",
        "needs": (),
        "features": (),
        "since": None,
        "until": None,
        "alters_configs": False,
        "exclusive": False,
        "seconds": 30.0,
        "body": body,
        "arguments": (),
    }
    return Case(**{**values, **fields})


def passes(c: Check, *_: object) -> None:
    c.version(ApiKey.PRODUCE)


def wrong_offset(c: Check, version: int = 9) -> None:
    """Fails on every server that is right."""
    topic = c.topic()
    request = p.produce_request(topic, {0: batch(b"value")}, version=version)
    answer = c.call(request, version).responses[0].partition_responses[0]
    c.error(answer.error_code, ErrorCode.NONE, "partition_responses[0].error_code")
    c.equal(answer.base_offset, 7, "partition_responses[0].base_offset")


def hostile(c: Check) -> None:
    c.topic(name=None)
    c.equal(HOSTILE, "harmless", f"error_message {HOSTILE}")


def cannot_be_set_up(c: Check) -> None:
    raise InconclusiveError(f"the topic was not created: {HOSTILE}")


def crashes(c: Check) -> None:
    c.equal([][0], 1, "the first")  # as a case does whose response lacks an element


SAMPLES = [
    sample("produce.exchange.v8", passes, tested=Need(ApiKey.PRODUCE, 8), layer=Layer.WIRE),
    sample("produce.exchange.v9", wrong_offset, tested=Need(ApiKey.PRODUCE, 9), layer=Layer.WIRE, arguments=(9,)),
    sample("produce.exchange.v99", passes, tested=Need(ApiKey.PRODUCE, 99), needs=(Need(ApiKey.PRODUCE, 99),)),
    sample("groups.hostile", hostile, level=Level.SHOULD, title=f"a title with {HOSTILE}", source=f"KIP-1 {HOSTILE}"),
    sample("groups.setup", cannot_be_set_up, level=Level.APACHE),
    sample("groups.crash", crashes),
    sample("groups.passes", passes),
]

"""What a scenario works with: a broker with faults, the client, and what the broker has stored.

The broker is `moldau.testing.Broker`. Its faults affect all requests, so the scene itself sends requests only before
the first fault and after the last one: `stored` removes the faults.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ...protocol.api import ApiKey
from ...protocol.records import iter_records
from ...testing import Broker
from ...testing.faults import Fault
from ...testing.request_log import Recorded
from ...testing.topic_requests import batches_of, create_topic, fetch
from ...testing.wire import WireClient
from ..outcome import MismatchError
from .adapter import Adapter, JobError

JOB_SECONDS: Final = 60.0

_OWN_CLIENT_IDS: Final = ("scene", "moldau-testing")


class Stored(NamedTuple):
    """A record of the client under test: in the log, acknowledged, or consumed."""

    offset: int
    value: str


class Scene:
    """The environment of one scenario."""

    def __init__(self, broker: Broker, adapter: Adapter, patience: float) -> None:
        self.broker = broker
        self._adapter = adapter
        self._patience = patience
        self._topics = 0

    @property
    def faults(self) -> Any:
        """`Broker.faults`. Topics are created before the first fault."""
        return self.broker.faults

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """A new topic."""
        self._topics += 1
        name = f"topic-{self._topics}"
        create_topic(
            self.broker.bootstrap_servers,
            name,
            partitions,
            {key.replace("_", "."): value for key, value in configs.items()},
        )
        return name

    # Jobs

    def produce(self, topic: str, values: Sequence[str], *, partition: int = 0, **options: Any) -> list[Stored]:
        """Let the client produce, and return what it reports as acknowledged. Raises `JobError`."""
        answer = self._do("produce", topic=topic, partition=partition, values=list(values), options=options)
        return [Stored(each["offset"], each["value"]) for each in answer["acknowledged"]]

    def consume(self, topic: str, *, partition: int = 0, start: int = 0) -> list[Stored]:
        """Let the client read from `start` to the end. Raises `JobError`."""
        answer = self._do("consume", topic=topic, partition=partition, start=start)
        return [Stored(each["offset"], each["value"]) for each in answer["records"]]

    def offset_for_time(self, topic: str, timestamp: int) -> int | None:
        """Let the client look up an offset. Raises `JobError`."""
        answer = self._do("offset_for_time", topic=topic, partition=0, timestamp=timestamp)
        found: int | None = answer["offset"]
        return found

    def error_of(self, what: str, expected: Sequence[str], run: Any) -> None:
        """A job that must fail with one of these codes."""
        try:
            run()
        except JobError as error:
            if error.code not in expected:
                raise MismatchError(what, " or ".join(expected), str(error)) from error
        else:
            raise MismatchError(what, " or ".join(expected), "no error")

    def _do(self, job: str, **arguments: Any) -> dict[str, Any]:
        return self._adapter.do(job, JOB_SECONDS * self._patience, bootstrap=self.broker.bootstrap_servers, **arguments)

    # The broker

    def fill(self, topic: str, values: Sequence[str], *, partition: int = 0) -> None:
        """Append records without the client, one batch each."""
        from ...testing.builders import batch, produce

        with WireClient(self.broker.bootstrap_servers, client_id="scene") as wire:
            for value in values:
                produce(wire, topic, batch(value.encode()), partition=partition)

    def stored(self, topic: str, partition: int = 0) -> list[Stored]:
        """What the broker has stored, control records excepted. Removes the faults."""
        self.broker.faults.clear()
        found: list[Stored] = []
        with WireClient(self.broker.bootstrap_servers, client_id="scene") as wire:
            offset = 0
            while batches := batches_of(fetch(wire, topic, offset, partition=partition)):
                for batch in batches:
                    if not batch.is_control:
                        found += [
                            Stored(record.offset, (record.value or b"").decode(errors="replace"))
                            for record in iter_records(batch)
                        ]
                offset = batches[-1].next_offset
        return found

    def requests(self, api: ApiKey) -> list[Recorded]:
        """The requests of the client under test."""
        return [each for each in self.broker.requests.of(api) if each.client_id not in _OWN_CLIENT_IDS]

    def gap(self, topic: str, offsets: int) -> None:
        """Skip this many offsets at the end of partition 0, as compaction and transactions do."""
        self.broker.insert_offset_gap(topic, 0, offsets)

    # Comparisons

    def equal(self, actual: object, expected: object, what: str) -> None:
        """The two must be equal."""
        if actual != expected:
            raise MismatchError(what, str(expected)[:500], str(actual)[:500])

    def true(self, condition: object, what: str, expected: str, actual: object) -> None:
        """For what is not a comparison with one value."""
        if not condition:
            raise MismatchError(what, expected, str(actual)[:500])

    def once_in_order(self, topic: str, sent: Sequence[str], acknowledged: Sequence[Stored]) -> None:
        """Everything that was sent is acknowledged and stored, once and in order, with the offsets that the client
        reports."""
        stored = self.stored(topic)
        _compare_values(sent, [each.value for each in stored])
        if list(acknowledged) != stored:
            raise MismatchError("the acknowledged records and their offsets", _short(stored), _short(acknowledged))

    def not_lost(self, topic: str, sent: Sequence[str]) -> None:
        """Everything that was sent is stored, perhaps several times."""
        stored = {each.value for each in self.stored(topic)}
        lost = [value for value in sent if value not in stored]
        if lost:
            raise MismatchError("the stored records", "all that were acknowledged", f"{len(lost)} lost: {_short(lost)}")

    def all_consumed(self, topic: str, consumed: Sequence[Stored], *, start: int = 0) -> None:
        """The client has reported each stored record once, in order, with its offset."""
        stored = [each for each in self.stored(topic) if each.offset >= start]
        if list(consumed) != stored:
            _compare_values([each.value for each in stored], [each.value for each in consumed], "the consumed records")
            raise MismatchError("the offsets of the consumed records", _short(stored), _short(consumed))

    def happened(self, fault: Fault, at_least: int = 1) -> None:
        """The client has sent the requests that the fault was for; otherwise the scenario has tested nothing."""
        count = fault.triggered
        if count < at_least:
            raise MismatchError(
                "the requests that the broker disturbed",
                f"at least {at_least}",
                f"{count}: the client did not try again",
            )

    def is_recent(self, seconds: float, began: float, what: str) -> None:
        """A generous bound for what must not hang."""
        took = time.monotonic() - began
        if took > seconds * self._patience:
            raise MismatchError(what, f"within {seconds:g} s", f"{took:.1f} s")


def _compare_values(expected: Sequence[str], actual: Sequence[str], what: str = "the stored records") -> None:
    if list(expected) == list(actual):
        return
    lost = [value for value in expected if value not in set(actual)]
    duplicated = sorted({value for value in actual if list(actual).count(value) > list(expected).count(value)})
    found = []
    if lost:
        found.append(f"{len(lost)} lost: {_short(lost)}")
    if duplicated:
        found.append(f"{len(duplicated)} duplicated or unexpected: {_short(duplicated)}")
    if not found:
        found.append(f"reordered: {_short(actual)}")
    raise MismatchError(what, f"{len(expected)} records, each once and in order", "; ".join(found))


def _short(values: Sequence[object]) -> str:
    shown = ", ".join(str(tuple(value)) if isinstance(value, tuple) else str(value) for value in values[:5])
    return shown + (f" and {len(values) - 5} more" if len(values) > 5 else "")

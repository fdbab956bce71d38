"""What a scenario works with: a broker with faults, the client, and what the broker has stored.

The broker is `moldau.testing.Broker`. Its faults affect all requests, so the scene itself sends requests only before
the first fault and after the last one: `stored` removes the faults.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ...protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ...protocol.messages.find_coordinator import FindCoordinatorRequest
from ...protocol.messages.init_producer_id import InitProducerIdRequest
from ...protocol.messages.metadata import MetadataRequest
from ...protocol.records import iter_records
from ...protocol.release_versions import HIGHEST_VERSIONS
from ...testing import Broker
from ...testing.faults import Fault
from ...testing.group_requests import committed
from ...testing.request_log import Recorded
from ...testing.topic_requests import batches_of, create_topic, fetch, fetch_request
from ...testing.wire import WireClient
from ..outcome import InconclusiveError, MismatchError
from .adapter import Adapter, JobError

JOB_SECONDS: Final = 60.0

T = TypeVar("T")

_OWN_CLIENT_IDS: Final = ("scene", "moldau-testing")


class Stored(NamedTuple):
    """A record of the client under test: in the log, acknowledged, or consumed."""

    offset: int | None
    """None if the client does not report the offsets of what was acknowledged."""
    value: str


class Scene:
    """The environment of one scenario."""

    _numbers = count()

    def __init__(self, broker: Broker, adapter: Adapter, patience: float) -> None:
        self.broker = broker
        self._adapter = adapter
        self._patience = patience
        self._topics = 0
        self.number = next(self._numbers)
        """For names that no other scenario of this run has used: groups and transactional IDs outlive a reset."""

    @property
    def faults(self) -> Any:
        """`Broker.faults`. Topics are created before the first fault."""
        return self.broker.faults

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """A new topic."""
        self._topics += 1
        name = f"topic-{self.number}-{self._topics}"
        create_topic(
            self.broker.bootstrap_servers,
            name,
            partitions,
            {key.replace("_", "."): value for key, value in configs.items()},
        )
        return name

    def recreate(self, topic: str) -> None:
        """Delete a topic, and create it again."""
        with WireClient(self.broker.bootstrap_servers, client_id="scene") as wire:
            delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
            create = CreateTopicsRequest(
                topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)], timeout_ms=10_000
            )
            errors = [wire.call(delete, 6).responses[0].error_code, wire.call(create, 7).topics[0].error_code]
        if errors != [0, 0]:
            raise InconclusiveError(f"the topic {topic} cannot be created again: {errors}")

    # Jobs

    def produce(self, topic: str, values: Sequence[str], *, partition: int = 0, **options: Any) -> list[Stored]:
        """Let the client produce, and return what it reports as acknowledged. Raises `JobError`."""
        answer = self._do("produce", topic=topic, partition=partition, values=list(values), options=options)
        return [Stored(each.get("offset"), each["value"]) for each in _objects(answer, "acknowledged", "value")]

    def consume(self, topic: str, *, partition: int = 0, start: int = 0, bootstrap: str | None = None) -> list[Stored]:
        """Let the client read from `start` to the end. Raises `JobError`."""
        more = {} if bootstrap is None else {"bootstrap": bootstrap}
        answer = self._do("consume", topic=topic, partition=partition, start=start, options={}, **more)
        return [Stored(each["offset"], each["value"]) for each in _objects(answer, "records", "value", "offset")]

    def read_committed(self, topic: str) -> list[str]:
        """Let the client read the committed values of partition 0. Raises `JobError`."""
        options = {"isolation": "read_committed"}
        answer = self._do("consume", topic=topic, partition=0, start=0, options=options)
        return [each["value"] for each in _objects(answer, "records", "value")]

    def consume_group(self, group: str, topic: str, count: int, **options: Any) -> list[tuple[int, int]]:
        """Let the client join a group, read this many records, commit and leave; the partitions and offsets. Raises
        `JobError`."""
        answer = self._do("consume_group", group=group, topic=topic, count=count, options=options)
        return [(each["partition"], each["offset"]) for each in _objects(answer, "records", "partition", "offset")]

    def commit(self, group: str, topic: str, offset: int) -> None:
        """Let the client commit an offset of partition 0 without joining the group. Raises `JobError`."""
        self._do("commit", group=group, topic=topic, partition=0, offset=offset)

    def committed(self, group: str, topic: str) -> int | None:
        """Let the client look up the committed offset of partition 0. Raises `JobError`."""
        answer = self._do("committed", group=group, topic=topic, partition=0)
        found: int | None = _field(answer, "offset")
        return found

    def transact(self, transactional_id: str, *transactions: dict[str, Any]) -> list[str]:
        """Let the client run transactions; the outcome of each. Raises `JobError`."""
        answer = self._do("transact", transactional_id=transactional_id, transactions=list(transactions))
        return [str(each["outcome"]) for each in _objects(answer, "outcomes", "outcome")]

    def admin(self, job: str, **arguments: Any) -> dict[str, Any]:
        """One of the jobs `create_topic`, `delete_topic`, `create_partitions`, `list_topics` and `delete_records`."""
        return self._do(job, **arguments)

    @contextmanager
    def during(self, job: Callable[[], T]) -> Iterator[Callable[[], T]]:
        """Run a job in the background. The result of the block's variable waits for it, and raises its error."""
        with ThreadPoolExecutor(1, thread_name_prefix="job") as pool:
            running = pool.submit(job)
            try:
                yield running.result
            except BaseException:
                self._adapter.kill()  # ends the job
                raise

    def offset_for_time(self, topic: str, timestamp: int) -> int | None:
        """Let the client look up an offset. Raises `JobError`."""
        answer = self._do("offset_for_time", topic=topic, partition=0, timestamp=timestamp)
        found: int | None = _field(answer, "offset")
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
        where = {"bootstrap": self.broker.bootstrap_servers, **arguments}
        return self._adapter.do(job, JOB_SECONDS * self._patience, **where)

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

    def topics(self) -> list[str]:
        """The topics that the broker has, internal ones excepted. Removes the faults."""
        self.broker.faults.clear()
        with WireClient(self.broker.bootstrap_servers, client_id="scene") as wire:
            return sorted(
                each.name for each in wire.call(MetadataRequest(topics=None), 9).topics if not each.is_internal
            )

    def wait_for(self, api: ApiKey) -> Recorded:
        """The first request of an API, when the client has sent it."""
        return self.broker.requests.wait_for(api, timeout=JOB_SECONDS * self._patience)

    def wait_until_committed(self, group: str, topic: str) -> None:
        """Return when the group has committed the offsets of all records of the topic."""
        self.broker.await_lag_zero(group, topic, timeout=JOB_SECONDS * self._patience)

    def only_versions_of(self, release: str) -> None:
        """The client has used no API or version that a release of Apache Kafka does not have."""
        known = HIGHEST_VERSIONS[release]
        for each in self.broker.requests.all():
            # The first ApiVersions may have any version: its response says which the broker has (KIP-511).
            if each.client_id in _OWN_CLIENT_IDS or each.api is ApiKey.API_VERSIONS:
                continue
            highest = known.get(each.api, -1)
            self.true(
                each.version <= highest, f"the version of {each.api.message_name}", f"at most {highest}", each.version
            )

    def stored_offset(self, group: str, topic: str, partition: int = 0) -> int | None:
        """The committed offset that the broker has. Removes the faults."""
        self.broker.faults.clear()
        with WireClient(self.broker.bootstrap_servers, client_id="scene") as wire:
            found = committed(wire, group, topic, [partition])[partition]
        return found if found >= 0 else None

    def committed_values(self, topic: str) -> list[str]:
        """The values of partition 0 that a reader of committed records gets from the broker. Removes the faults."""
        self.broker.faults.clear()
        with WireClient(self.broker.bootstrap_servers, client_id="scene") as wire:
            request = fetch_request(topic, {0: 0}, max_wait_ms=0)
            request.isolation_level = 1
            data = wire.call(request, 12).responses[0].partitions[0]
        open_aborted = sorted(data.aborted_transactions or (), key=lambda each: each.first_offset, reverse=True)
        aborted: set[int] = set()
        values: list[str] = []
        for batch in batches_of(data):
            while open_aborted and open_aborted[-1].first_offset <= batch.base_offset:
                aborted.add(open_aborted.pop().producer_id)
            if batch.is_control:
                aborted.discard(batch.producer_id)
            elif batch.producer_id not in aborted:
                values += [(record.value or b"").decode(errors="replace") for record in iter_records(batch)]
        return values

    def fence(self, transactional_id: str) -> None:
        """Take a transactional ID over, as another producer with this ID does when it starts."""
        with WireClient(self.broker.bootstrap_servers, client_id="scene") as wire:
            (coordinator,) = wire.call(
                FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 4
            ).coordinators
            if coordinator.error_code:
                raise InconclusiveError(f"no coordinator of {transactional_id}: {coordinator.error_code}")
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
            deadline = time.monotonic() + JOB_SECONDS
            while time.monotonic() < deadline:
                # The first request ends the open transaction, and is to be repeated until it is complete.
                error = wire.call(request, 4).error_code
                if error == 0:
                    return
                if error not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                    break
        raise InconclusiveError(f"InitProducerId for {transactional_id}: {ErrorCode(error).name}")

    def requests(self, api: ApiKey) -> list[Recorded]:
        """The requests of the client under test."""
        return [each for each in self.broker.requests.of(api) if each.client_id not in _OWN_CLIENT_IDS]

    def gap(self, topic: str, offsets: int) -> None:
        """Skip this many offsets at the end of partition 0, as compaction and transactions do."""
        self.broker.insert_offset_gap(topic, 0, offsets)

    def replace_from(self, topic: str, offset: int, others: int) -> None:
        """Lose the records of partition 0 from this offset on, and store this many others of a new leader epoch."""
        self.broker.truncate(topic, 0, offset, [f"other-{number}".encode() for number in range(others)])
        self.broker.requests.clear()  # of the restarted broker

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
        reported = [
            here if here.offset is not None else here._replace(offset=there.offset)
            for here, there in zip(acknowledged, stored, strict=False)
        ]
        if reported != stored or len(acknowledged) != len(stored):
            raise MismatchError("the acknowledged records and their offsets", _short(stored), _short(acknowledged))

    def not_lost(self, topic: str, sent: Sequence[str]) -> None:
        """Everything that was sent is stored, perhaps several times."""
        stored = {each.value for each in self.stored(topic)}
        lost = [value for value in sent if value not in stored]
        if lost:
            raise MismatchError("the stored records", "all that were acknowledged", f"{len(lost)} lost: {_short(lost)}")

    def all_consumed(self, topic: str, consumed: Sequence[Stored], *, start: int = 0) -> None:
        """The client has reported each stored record once, in order, with its offset."""
        stored = [each for each in self.stored(topic) if each.offset is not None and each.offset >= start]
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

    def after(self, began: float, seconds: float) -> None:
        """Return when a request that was delayed since `began` has been processed, so that its effect is compared, too.
        If the broker takes longer, a duplicate may be missed; nothing fails that is right."""
        time.sleep(max(0.0, began + seconds + 0.5 - time.monotonic()))

    def is_recent(self, seconds: float, began: float, what: str) -> None:
        """A generous bound for what must not hang."""
        took = time.monotonic() - began
        if took > seconds * self._patience:
            raise MismatchError(what, f"within {seconds:g} s", f"{took:.1f} s")


def _field(answer: Mapping[str, Any], name: str) -> Any:
    """What the adapter has to answer."""
    if name not in answer:
        raise InconclusiveError(f"the adapter's answer has no {name!r}: {str(answer)[:200]}")
    return answer[name]


def _objects(answer: Mapping[str, Any], name: str, *fields: str) -> list[dict[str, Any]]:
    """A list of objects with these fields, which the adapter has to answer."""
    found = _field(answer, name)
    if not isinstance(found, list):
        raise InconclusiveError(f"{name!r} of the adapter's answer is not a list: {str(found)[:200]}")
    for each in found:
        if not isinstance(each, dict) or any(field not in each for field in fields):
            wanted = " and ".join(repr(field) for field in fields)
            raise InconclusiveError(f"an element of {name!r} of the adapter's answer needs {wanted}: {str(each)[:200]}")
    return found


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

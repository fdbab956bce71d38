"""A server under attack, and the limits that it must keep during and after each attack.

A test attacks within ``with target.attack("what it does")``. While the block runs, a client process produces and
fetches one record at a time (`bystander`) and the server's memory is watched (`watch`). At the end of the block:

- every round of that client has succeeded, its p99 is below `P99_MS` and no round took `WORST_MS`. Both are without
  the time that server and client waited for a CPU, so a busy machine changes nothing;
- the server and its child processes never had `MEMORY_BYTES` more than before, and gave back all but `KEPT_BYTES`;
- no socket and no descriptor of a deleted file is left, and no thread or child process beyond what the server may keep.

After the last attack the server serves a client of a library, stops cleanly, and has no traceback in its log.

Each test has a short form, which runs with the other slow tests, and a long one, as large as the protocol allows, which
runs with MOLDAU_ABUSE_LONG=1 alone (``make test-abuse``): some of these take many minutes. Seeds come from the
environment variable MOLDAU_ABUSE_SEEDS (``1`` by default; ``MOLDAU_ABUSE_SEEDS=1,2,3``). The numbers of each attack are
printed (``pytest -s``), and added to the file that MOLDAU_ABUSE_NUMBERS names.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.testing import Broker
from moldau.testing.wire import WireClient

from .bystander import Bystander, Numbers
from .watch import MEGABYTE, MemoryWatch, descendants, descriptors, memory_bytes, status_kb

P99_MS = 50.0
WORST_MS = 250.0
# A p99 of few rounds is their maximum, which has its own limit, WORST_MS.
ROUNDS_FOR_P99 = 500
MEMORY_BYTES = 200 * MEGABYTE
# The allocator keeps pages that are partly used.
KEPT_BYTES = 64 * MEGABYTE
# Threads and child processes of pools may remain.
KEPT_THREADS = 40
KEPT_CHILDREN = 4
# Key types of FindCoordinator, and the error codes of coordinators that are not available yet.
GROUP, TRANSACTION = 0, 1
NOT_YET = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
# Only a server that hangs uses all of it: to start, to stop, or for what a test requests from it.
GUARD_S = 300.0
# The time for cleanup in the background. Only a leak uses all of it.
SETTLE_S = 120.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        seeds = [int(text) for text in os.environ.get("MOLDAU_ABUSE_SEEDS", "1").split(",")]
        metafunc.parametrize("seed", seeds, ids=[f"seed{seed}" for seed in seeds])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.slow)
        if not sys.platform.startswith("linux"):
            item.add_marker(pytest.mark.skip(reason="needs Linux: /proc shows what a process holds"))
    if not os.environ.get("MOLDAU_ABUSE_LONG"):
        left_out = [item for item in ours if item.get_closest_marker("long")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in left_out]


@pytest.fixture(params=[pytest.param(False, id="short"), pytest.param(True, id="long", marks=pytest.mark.long)])
def long(request: pytest.FixtureRequest) -> bool:
    """Whether this is the long form."""
    return bool(request.param)


@pytest.fixture
def dice(seed: int) -> random.Random:
    return random.Random(seed)


class Target:
    """A server process under attack."""

    def __init__(self, broker: Broker, bystander: Bystander) -> None:
        self.broker = broker
        self.address = broker.bootstrap_servers
        self.pid = broker.pid
        self.children_seen: set[int] = set()
        self.faults: list[str] = []
        self._bystander = bystander

    def wire(self, timeout_s: float = 600.0) -> WireClient:
        """The timeout is for a server that hangs: the long forms recompress millions of records, for minutes if the
        machine is busy."""
        return WireClient(self.address, timeout_s=timeout_s)

    def start_coordinators(self) -> None:
        """Return when groups and transactions are served: their topics are created when they are first needed."""
        calls: list[tuple[int, Callable[[WireClient], int]]] = [
            (GROUP, lambda wire: wire.call(HeartbeatRequest(group_id="first", member_id="x"), 3).error_code),
            (
                TRANSACTION,
                lambda wire: (
                    wire.call(
                        InitProducerIdRequest(transactional_id="first", transaction_timeout_ms=1000), 3
                    ).error_code
                ),
            ),
        ]
        deadline = time.monotonic() + SETTLE_S
        with self.wire() as wire:
            for key_type, call in calls:
                code = ErrorCode.NOT_COORDINATOR
                while code in NOT_YET:
                    assert time.monotonic() < deadline, f"the coordinator is still {code.name}"
                    wire.call(FindCoordinatorRequest(key="first", key_type=key_type), 3)
                    code = ErrorCode(call(wire))

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        with self.wire() as wire:
            (result,) = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7).topics
        assert result.error_code == 0, result

    @contextlib.contextmanager
    def attack(
        self,
        what: str,
        *,
        memory_bytes_allowed: int = MEMORY_BYTES,
        kept_bytes: int = KEPT_BYTES,
        worst_ms: float = WORST_MS,
        accepts_failure: Callable[[str], bool] = lambda failure: False,
    ) -> Iterator[None]:
        """The block is an attack. Violated limits are collected, and fail the test at its end (`judge`)."""
        before = memory_bytes(self.pid)
        held = descriptors(self.pid)
        threads = status_kb(self.pid, "Threads")
        self._bystander.ask()
        watch = MemoryWatch(self.pid)
        with watch:
            yield
            seen = self._bystander.ask()
        self.children_seen |= watch.children
        grown = watch.peak_bytes - before
        problems = [
            *self._of_client(seen, accepts_failure, worst_ms),
            *([f"memory grew by {grown / MEGABYTE:.0f} MB"] if grown > memory_bytes_allowed else []),
        ]
        left = ["?"]
        deadline = time.monotonic() + SETTLE_S
        while left and time.monotonic() < deadline:
            now = descriptors(self.pid)
            kept = memory_bytes(self.pid) - before
            children = len(descendants(self.pid))
            left = [
                *([f"{now.sockets} sockets instead of {held.sockets}"] if now.sockets > held.sockets else []),
                *([f"{now.deleted_files} deleted files are open"] if now.deleted_files > held.deleted_files else []),
                *([f"{kept / MEGABYTE:.0f} MB were kept"] if kept > kept_bytes else []),
                *([f"{children} child processes are left"] if children > KEPT_CHILDREN else []),
                *(
                    [f"{status_kb(self.pid, 'Threads')} threads are left"]
                    if status_kb(self.pid, "Threads") > threads + KEPT_THREADS
                    else []
                ),
            ]
            if left:
                time.sleep(0.1)  # these values of /proc have no notification
        problems += left
        line = f"{what}: {seen}, memory {grown / MEGABYTE:+.0f} MB, {kept / MEGABYTE:+.0f} MB kept"
        self._record(line + (f" -- FAULT: {'; '.join(problems)}" if problems else ""))
        self.faults += [f"{what}: {problem}" for problem in problems]

    @staticmethod
    def _of_client(seen: Numbers, accepts_failure: Callable[[str], bool], worst_ms: float) -> list[str]:
        problems = [f"the other client: {failure}" for failure in seen.failures if not accepts_failure(failure)][:3]
        if seen.worst_ms > worst_ms:
            problems.append(f"the other client waited {seen.worst_ms:.0f} ms")
        if seen.rounds >= ROUNDS_FOR_P99 and seen.p99_ms > P99_MS:
            problems.append(f"the other client's p99 is {seen.p99_ms:.0f} ms")
        return problems

    @staticmethod
    def _record(line: str) -> None:
        print(line)
        if path := os.environ.get("MOLDAU_ABUSE_NUMBERS"):
            with Path(path).open("a") as numbers:
                numbers.write(line + "\n")

    def judge(self) -> None:
        """Fail for the collected faults, and for faults of the server after the attacks."""
        if not self.broker.running:
            self.faults.append("the server has ended")
        else:
            try:
                serves_a_client(self.address)
            except Exception as failure:  # noqa: BLE001 - one fault in addition to others
                self.faults.append(f"a client is not served afterwards: {failure!r}")
            self.children_seen |= set(descendants(self.pid))
            try:
                self.broker.stop()
            except Exception as failure:  # noqa: BLE001 - one fault in addition to others
                self.faults.append(f"the server does not stop cleanly: {failure}")
        left = [child for child in self.children_seen if Path(f"/proc/{child}").exists()]
        if left:
            self.faults.append(f"child processes outlive the server: {left}")
        if "Traceback" in (log := self.broker.log()):
            self.faults.append("a traceback in the log: " + log[log.index("Traceback") :][:1500])
        assert not self.faults, "\n".join(self.faults)


MakeTarget = Callable[..., contextlib.AbstractContextManager[Target]]


def serves_a_client(address: str) -> None:
    """A client library creates a topic, produces to it and consumes from it."""
    from kafka import KafkaConsumer, KafkaProducer

    topic = "afterwards"
    with WireClient(address) as wire:
        wire.call(CreateTopicsRequest(topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)]), 7)
    producer = KafkaProducer(bootstrap_servers=address)
    try:
        producer.send(topic, b"still here").get(120)
    finally:
        producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=address,
        auto_offset_reset="earliest",
        consumer_timeout_ms=120_000,
        group_id="afterwards",
    )
    try:
        assert next(consumer).value == b"still here"
    finally:
        consumer.close()


@pytest.fixture
def make_target() -> MakeTarget:
    """``with make_target(config={...}) as target``; judged at the end of the block."""

    @contextlib.contextmanager
    def make(**options: Any) -> Iterator[Target]:
        with Broker(**{"timeout_s": GUARD_S, **options}) as broker:
            with Bystander(broker.bootstrap_servers, broker.pid) as bystander:
                target = Target(broker, bystander)
                target.start_coordinators()
                yield target
            target.judge()

    return make


@pytest.fixture
def target(make_target: MakeTarget) -> Iterator[Target]:
    """A server with the default configuration of tests."""
    with make_target() as made:
        yield made

"""Random operations of several producers, rejected markers, and restarts: read_committed consumers get each committed
record once, in order, and no other records."""

from __future__ import annotations

import random
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.server.coordination import transactions as hosting
from moldau.server.coordination.markers import MarkerWriter
from moldau.testing.wire import WireClient

from .conftest import MakeServer
from .transactional import Transactional, fetch, values

PARTITIONS = [(topic, partition) for topic in ("a", "b") for partition in range(2)]
STEPS = 150

# Errors while the previous transaction ends or the coordinator loads: the producer retries.
RETRIED_ERRORS = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


class Application:
    """One producer and its records, committed and not."""

    def __init__(self, wire: WireClient, number: int) -> None:
        self.producer = Transactional(wire, f"app-{number}", v2=bool(number % 2))
        self.number = number
        self.written = 0
        self.open: list[tuple[str, int, str]] = []
        self.added: set[tuple[str, int]] = set()
        self.retry(self.producer.init)

    @staticmethod
    def retry(call: Any, *arguments: Any) -> None:
        for _ in range(1000):
            error = call(*arguments)
            if error not in RETRIED_ERRORS:
                assert error == 0
                return
        raise AssertionError("the coordinator is not available again")

    def produce(self, topic: str, partition: Any) -> None:
        if not self.producer.v2 and (topic, partition) not in self.added:
            self.retry(lambda: next(iter(self.producer.add(topic, partitions=[partition]).values())))
            self.added.add((topic, partition))
        value = f"{self.number}:{self.written}"
        self.written += 1
        batch = self.producer.batch(topic, value, partition=partition)
        request = self.producer.request(topic, batch, partition=partition)
        version = 12 if self.producer.v2 else 11
        self.retry(lambda: _error(self.producer.wire.call(request, version)))
        self.open.append((topic, partition, value))

    def end(self, committed: Any) -> Any:
        ended, self.open = self.open, []
        self.added.clear()
        if ended:
            self.retry(lambda: self.producer.end(committed=committed))
        return ended if committed else []

    def crash(self) -> None:
        """Initialize again, which aborts the open transaction."""
        self.open.clear()
        self.added.clear()
        self.retry(self.producer.init)


def _error(answer: Any) -> Any:
    return answer.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("seed", range(4))
def test_only_committed_records_are_read_and_each_once(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    pick = random.Random(seed)
    write = MarkerWriter.write
    reliable = False

    def write_marker(*arguments: Any, **marker: Any) -> None:
        if not reliable and pick.random() < 0.2:
            marker["written"](KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        write(*arguments, **marker)

    monkeypatch.setattr(MarkerWriter, "write", write_marker)
    monkeypatch.setattr(hosting, "_FIRST_RETRY_MS", 1)
    server = make_server(config={"transaction.state.log.num.partitions": "3"})
    server.create_topic("a", partitions=2)
    server.create_topic("b", partitions=2)
    expected: dict[tuple[str, int], list[str]] = {at: [] for at in PARTITIONS}
    wire = server.wire()
    applications = [Application(wire, number) for number in range(4)]
    for _ in range(STEPS):
        application = pick.choice(applications)
        happens = pick.random()
        if happens < 0.7:
            application.produce(*pick.choice(PARTITIONS))
        elif happens < 0.95:
            for topic, partition, value in application.end(pick.random() < 0.7):
                expected[topic, partition].append(value)
        elif happens < 0.98:
            application.crash()
        else:
            wire.close()
            server.restart()
            wire = server.wire()
            for each in applications:
                each.producer.wire = wire
    for application in applications:
        application.end(committed=False)
    reliable = True
    for topic, partition in PARTITIONS:
        log = server.partition(topic, partition)
        server.wait_until(lambda log=log: log.last_stable_offset == log.high_watermark)  # type: ignore[misc]
        found = values(wire, topic, partition=partition)
        assert sorted(found) == sorted(expected[topic, partition])
        for application in applications:
            own = [value for value in found if value.startswith(f"{application.number}:")]
            assert own == sorted(own, key=lambda value: int(value.split(":")[1]))
        answer = fetch(wire, topic, partition=partition)
        assert answer.last_stable_offset == answer.high_watermark
    wire.close()

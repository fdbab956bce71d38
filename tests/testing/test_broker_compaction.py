"""Compaction in a real server, as real clients see it, and when the server or its worker is killed in the middle."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.testing import Broker, BrokerError
from moldau.testing.full_run import first_of, in_full_run
from moldau.testing.waiting import wait_until

TOPIC = "prices"
Found = list[tuple[int, bytes | None, bytes | None]]

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


@pytest.fixture
def broker() -> Iterator[Broker]:
    """It compacts only on request."""
    with Broker(config={"log.cleaner.backoff.ms": 3_600_000}) as running:
        yield running


def create_topic(broker: Broker, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wanted = {"cleanup.policy": "compact", **{name.replace("_", "."): value for name, value in configs.items()}}
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=wanted)])[TOPIC].result(120)


def write(broker: Broker, *pairs: tuple[bytes, bytes | None], **config: str | int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **config})
    for key, value in pairs:
        producer.produce(TOPIC, value, key)
        producer.poll(0)
    assert producer.flush(120) == 0


def read(broker: Broker) -> Found:
    """The committed records of the partition, as a consumer reads them."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    )
    found: Found = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append((message.offset(), message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise AssertionError(error)
        raise AssertionError("the end of the partition was not reached")
    finally:
        consumer.close()


def latest(found: Found) -> dict[bytes | None, bytes | None]:
    return {key: value for _offset, key, value in found if value is not None}


def wait_for(condition: Callable[[], bool], broker: Broker) -> None:
    wait_until(condition, seconds=120, pause=0.005, state=broker.log)


def workers(broker: Broker) -> list[int]:
    """The processes that the server has started."""
    return [int(pid) for pid in Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()]


def runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def size_of(path: Path) -> int | float:
    """Of a file that may be replaced just now."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return float("inf")


def files(broker: Broker, suffix: str, topic: str = f"{TOPIC}-0") -> list[Path]:
    return sorted((broker.data_dir / topic).glob(f"*{suffix}"))


def test_a_consumer_finds_the_last_value_of_every_key(broker: Broker) -> None:
    create_topic(broker)
    pairs = [(b"k%d" % (number % 10), b"v%d" % number) for number in range(1000)]
    write(broker, *pairs)
    broker.compact(TOPIC)
    assert read(broker) == [(990 + number, b"k%d" % number, b"v%d" % (990 + number)) for number in range(10)]
    broker.restart()
    assert len(read(broker)) == 10
    write(broker, (b"k0", b"new"))
    assert read(broker)[-1] == (1000, b"k0", b"new")
    assert (broker.data_dir / "cleaner-offset-checkpoint").read_text() == f"0\n1\n{TOPIC} 0 1000\n"


@pytest.mark.parametrize("codec", ["none", "zstd", *in_full_run("gzip", "snappy", "lz4")])
def test_batches_stay_compressed_as_they_were(broker: Broker, codec: str) -> None:
    create_topic(broker)
    write(broker, *((b"k%d" % (number % 7), b"v%d" % number) for number in range(300)), **{"compression.type": codec})
    broker.compact(TOPIC)
    assert read(broker) == [(number, b"k%d" % (number % 7), b"v%d" % number) for number in range(293, 300)]


def test_tombstones_are_removed_after_delete_retention_ms(broker: Broker) -> None:
    create_topic(broker, delete_retention_ms="0")
    write(broker, (b"apple", b"1"), (b"pear", b"1"), (b"apple", None))
    broker.compact(TOPIC)
    assert [(key, value) for _offset, key, value in read(broker)] == [(b"pear", b"1"), (b"apple", None)]
    broker.compact(TOPIC)
    assert [(key, value) for _offset, key, value in read(broker)] == [(b"pear", b"1")]
    broker.restart()
    write(broker, (b"plum", b"1"))
    assert read(broker)[-1] == (3, b"plum", b"1"), "the offsets continue"


def test_transactions_are_kept_or_dropped_as_they_ended(broker: Broker) -> None:
    create_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(30)
    for number in range(40):
        producer.begin_transaction()
        for key in (b"a", b"b"):
            producer.produce(TOPIC, b"%d" % number, key)
        if number % 4 == 3:
            producer.flush(120)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(TOPIC, b"open", b"a")
    producer.flush(120)
    broker.compact(TOPIC)
    assert [(key, value) for _offset, key, value in read(broker)][-2:] == [(b"a", b"38"), (b"b", b"38")]
    producer.commit_transaction(30)
    for _ in range(2):
        broker.compact(TOPIC)
        assert [(key, value) for _offset, key, value in read(broker)] == [(b"b", b"38"), (b"a", b"open")]
    broker.restart()
    assert [(key, value) for _offset, key, value in read(broker)] == [(b"b", b"38"), (b"a", b"open")]
    producer.begin_transaction()
    producer.produce(TOPIC, b"after", b"a")
    producer.commit_transaction(30)
    assert latest(read(broker)) == {b"a": b"after", b"b": b"38"}


def test_a_dirty_topic_is_compacted_by_itself() -> None:
    with Broker(config={"log.cleaner.backoff.ms": 20}) as broker:
        create_topic(broker)
        write(broker, *[(b"k", b"%d" % number) for number in range(100)])
        broker.roll(TOPIC, 0)  # only sealed segments are compacted
        wait_for(lambda: "Compacted prices-0" in broker.log(), broker)
        assert latest(read(broker)) == {b"k": b"99"}


def test_topics_that_cannot_be_compacted_are_an_error(broker: Broker) -> None:
    with pytest.raises(BrokerError, match="Topic prices does not exist"):
        broker.compact(TOPIC)
    create_topic(broker, cleanup_policy="delete")
    with pytest.raises(BrokerError, match=r"prices is not compacted: its cleanup\.policy does not include compact"):
        broker.compact(TOPIC)


def test_a_flipped_bit_stops_the_compaction_of_its_partition(broker: Broker) -> None:
    create_topic(broker)
    write(broker, *((b"k%d" % (number % 5), b"v%d" % number) for number in range(500)))
    write(broker, (b"k9", b"v9"))
    segment = files(broker, ".log")[0]
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)
    with pytest.raises(BrokerError, match=re.escape(str(segment))):
        broker.compact(TOPIC)
    assert segment.read_bytes() == data
    assert not files(broker, ".cleaned")


def test_offsets_that_were_committed_again_and_again_are_one_record_at_the_next_start(broker: Broker) -> None:
    create_topic(broker)
    write(broker, (b"k", b"v"))
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing"})
    for number in range(3000):
        offsets = [TopicPartition(TOPIC, 0, number)]
        consumer.commit(offsets=offsets, asynchronous=number % 100 != 99)
    consumer.close()
    broker.compact("__consumer_offsets")
    broker.restart()
    again = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing"})
    assert again.committed([TopicPartition(TOPIC, 0)], 30)[0].offset == 2999
    again.close()
    (loaded,) = re.findall(r"__consumer_offsets-0.*: loaded (\d+) records", broker.log())
    assert int(loaded) < 10


# Killed in the middle: of passes that are throttled, so that there is time for it

MANY: Mapping[bytes, bytes] = {b"k%d" % key: b"%d" % (key + 5900) * 250 for key in range(100)}


def fill(broker: Broker) -> None:
    """About six segments of 1 MB, of which compaction leaves 100 kB."""
    create_topic(broker, segment_bytes=str(1 << 20))
    write(broker, *((b"k%d" % (number % 100), b"%d" % number * 250) for number in range(6000)), **{"linger.ms": 5})
    assert latest(read(broker)) == MANY
    assert len(files(broker, ".log")) > 3


@on_linux
@pytest.mark.slow
@pytest.mark.parametrize(
    "moment", ["first segment replaced", *in_full_run("worker started", "first file", "last segments")]
)
def test_no_record_is_lost_when_the_server_is_killed_while_compacting(moment: str) -> None:
    config = {"log.cleaner.backoff.ms": 3_600_000, "log.cleaner.threads": 1}
    with Broker(config=config) as broker:
        fill(broker)
        first = files(broker, ".log")[0]
        size = first.stat().st_size
        # Slow enough for each moment to be met; the segments are rewritten one by one.
        broker.config |= {"log.cleaner.backoff.ms": 1, "log.cleaner.io.max.bytes.per.second": 2_000_000}
        broker.restart()
        moments: dict[str, Callable[[], bool]] = {
            "worker started": lambda: bool(workers(broker)),
            "first file": lambda: bool(files(broker, ".cleaned")),
            # Between two renames there is no file of that name.
            "first segment replaced": lambda: size_of(first) < size,
            "last segments": lambda: "Compacted prices-0" in broker.log(),
        }
        wait_for(moments[moment], broker)
        pids = workers(broker)
        broker.kill()
        broker.config |= {"log.cleaner.backoff.ms": 3_600_000, "log.cleaner.io.max.bytes.per.second": 1e9}
        broker.start()
        assert latest(read(broker)) == MANY
        assert not files(broker, ".cleaned")
        assert not files(broker, ".swap")
        wait_until(lambda: not any(map(runs, pids)), "the end of the workers of the killed server")
        broker.compact(TOPIC)
        assert [(key, value) for _offset, key, value in read(broker)] == list(MANY.items())


@on_linux
@pytest.mark.slow
def test_a_worker_that_dies_is_replaced() -> None:
    with Broker(config={"log.cleaner.backoff.ms": 3_600_000}) as broker:
        fill(broker)
        broker.config |= {"log.cleaner.backoff.ms": 1, "log.cleaner.io.max.bytes.per.second": 2_000_000}
        broker.restart()
        wait_for(lambda: bool(workers(broker)), broker)
        (pid,) = workers(broker)
        wait_for(lambda: bool(files(broker, ".cleaned")), broker)
        assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, broker.pid)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: "the process ended with -9" in broker.log(), broker)
        wait_for(lambda: "Compacted prices-0" in broker.log(), broker)
        assert latest(read(broker)) == MANY
        wait_for(lambda: not workers(broker), broker)


@on_linux
@pytest.mark.slow
@pytest.mark.parametrize("way", first_of(["stop", "delete"]))
def test_a_pass_that_is_under_way_ends_with_the_server_and_with_the_topic(way: str) -> None:
    with Broker(config={"log.cleaner.backoff.ms": 3_600_000}) as broker:
        fill(broker)
        broker.config |= {"log.cleaner.backoff.ms": 1, "log.cleaner.io.max.bytes.per.second": 2_000_000}
        broker.restart()
        wait_for(lambda: bool(workers(broker)), broker)
        (pid,) = workers(broker)
        wait_for(lambda: bool(files(broker, ".cleaned")), broker)
        if way == "delete":
            broker.reset()
            wait_for(lambda: not runs(pid), broker)
            assert "ERROR" not in broker.log()
        else:
            broker.stop()
            assert not runs(pid)
            assert not files(broker, ".cleaned")
            broker.start()
            assert latest(read(broker)) == MANY


@on_linux
@pytest.mark.slow
def test_a_worker_that_is_stopped_does_not_outlive_its_server() -> None:
    """It does not notice the end of its input, and could continue later, next to another server."""
    with Broker(config={"log.cleaner.backoff.ms": 3_600_000}) as broker:
        fill(broker)
        broker.config |= {"log.cleaner.backoff.ms": 1, "log.cleaner.io.max.bytes.per.second": 2_000_000}
        broker.restart()
        wait_for(lambda: bool(files(broker, ".cleaned")), broker)
        (pid,) = workers(broker)
        os.kill(pid, signal.SIGSTOP)
        try:
            broker.kill()
            wait_for(lambda: not runs(pid), broker)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

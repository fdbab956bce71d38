"""The coordinator of transactions, request by request: every version that Apache Kafka 4.3 advertises, the answers in
every state of a transaction, and which producers are fenced (KIP-98, KIP-360, KIP-664, KIP-890)."""

from collections.abc import Callable, Iterator

import pytest

from moldau.compat_tests.transaction_server import MAX_TIMEOUT_MS
from moldau.compat_tests.transaction_wire import (
    Producer,
    consume,
    describe,
    marker,
    partitions_of,
    producers,
    read,
    results,
    write_markers,
)
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
from moldau.testing import topic_requests as w
from moldau.testing.group_requests import code
from moldau.testing.topic_requests import Topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient


@pytest.fixture
def wire(transaction_servers: str) -> Iterator[WireClient]:
    with WireClient(transaction_servers) as client:
        yield client


@pytest.fixture
def topic(transaction_servers: str, topic_name: Callable[[], str]) -> Topic:
    return w.create_topic(transaction_servers, topic_name(), 3)


def fenced(version: int, since: int) -> str:
    """PRODUCER_FENCED, which older clients know by another name (KIP-588)."""
    return "PRODUCER_FENCED" if version >= since else "INVALID_PRODUCER_EPOCH"


def stick(producer: Producer, topic: Topic, *, committed: bool = True) -> None:
    """Leave the producer's transaction in PrepareCommit or PrepareAbort: its marker cannot be written.

    The partition has seen a marker of a later coordinator of the same producer, and refuses those of the one that there
    is (TRANSACTION_COORDINATOR_FENCED).
    """
    later = marker(producer.producer_id, producer.epoch, {topic.name: [0]}, coordinator_epoch=1_000)
    assert write_markers(producer.wire, later) == {producer.producer_id: {(topic.name, 0): "NONE"}}
    producer.write(topic, b"stuck")
    duplicate = producer.duplicate()
    assert duplicate.end(committed=committed) == "NONE"
    assert producer.state == ("PrepareCommit" if committed else "PrepareAbort")


# -- FindCoordinator --


@pytest.mark.parametrize("version", range(1, 7))
def test_find_coordinator(wire: WireClient, transaction_servers: str, name: str, version: int) -> None:
    if version < 4:
        found = wire.call(FindCoordinatorRequest(key=name, key_type=1), version)
    else:
        (found,) = wire.call(FindCoordinatorRequest(coordinator_keys=[name], key_type=1), version).coordinators
        assert found.key == name
    assert (found.error_code, f"{found.host}:{found.port}") == (0, transaction_servers)


# -- InitProducerId --


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_bumps_the_epoch(wire: WireClient, name: str, version: int) -> None:
    first, second, other = Producer(wire, name), Producer(wire, name), Producer(wire, f"{name}-other")
    assert first.init(version) == "NONE"
    assert first.epoch == 0
    assert second.init(version) == "NONE"
    assert (second.producer_id, second.epoch) == (first.producer_id, 1)
    assert other.init(version) == "NONE"
    assert other.producer_id != first.producer_id
    found = describe(wire, name)
    assert (code(found.error_code), found.transaction_state, found.transaction_timeout_ms) == ("NONE", "Empty", 60_000)
    assert (found.producer_id, found.producer_epoch) == (first.producer_id, 1)
    assert (found.transaction_start_time_ms, found.topics) == (-1, [])


@pytest.mark.parametrize(
    ("timeout_ms", "expected"),
    [
        (1, "NONE"),
        (MAX_TIMEOUT_MS, "NONE"),
        (MAX_TIMEOUT_MS + 1, "INVALID_TRANSACTION_TIMEOUT"),
        (0, "INVALID_TRANSACTION_TIMEOUT"),
        (-1, "INVALID_TRANSACTION_TIMEOUT"),
    ],
)
def test_timeouts_of_transactions(wire: WireClient, name: str, timeout_ms: int, expected: str) -> None:
    assert Producer(wire, name, timeout_ms=timeout_ms).init() == expected
    known = "NONE" if expected == "NONE" else "TRANSACTIONAL_ID_NOT_FOUND"
    assert code(describe(wire, name).error_code) == known


def test_the_last_timeout_counts(wire: WireClient, name: str) -> None:
    Producer(wire, name, timeout_ms=5_000).begin()
    Producer(wire, name, timeout_ms=7_000).begin()
    assert describe(wire, name).transaction_timeout_ms == 7_000


@pytest.mark.parametrize("version", range(6))
def test_an_empty_transactional_id_is_invalid(wire: WireClient, version: int) -> None:
    assert Producer(wire, "").init(version) == "INVALID_REQUEST"


@pytest.mark.parametrize("version", range(3, 6))
def test_a_producer_id_and_an_epoch_come_together(wire: WireClient, name: str, version: int) -> None:
    for producer_id, epoch in ((5, -1), (-1, 0)):
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=1_000, producer_id=producer_id, producer_epoch=epoch
        )
        assert code(wire.call(request, version).error_code) == "INVALID_REQUEST"


@pytest.mark.parametrize("version", range(3, 6))
def test_a_producer_goes_on_after_an_error(producer: Producer, version: int) -> None:
    """With its current id and epoch; a retry after a lost response gets the same response (KIP-360)."""
    before, producer_id = producer.duplicate(), producer.producer_id
    assert producer.init(version, resume=True) == "NONE"
    assert (producer.producer_id, producer.epoch) == (producer_id, 1)
    again = before.duplicate()
    assert again.init(version, resume=True) == "NONE"
    assert (again.producer_id, again.epoch) == (producer_id, 1)
    assert producer.init(version, resume=True) == "NONE"
    assert producer.epoch == 2
    assert before.init(version, resume=True) == fenced(version, 4)
    # A new producer has no earlier epoch to continue from.
    assert Producer(producer.wire, producer.transactional_id).init() == "NONE"
    assert producer.init(version, resume=True) == fenced(version, 4)
    assert producer.epoch == 2


@pytest.mark.parametrize("version", range(3, 6))
def test_a_producer_cannot_continue_with_another_producers_id(producer: Producer, version: int) -> None:
    producer.producer_id += 100_000
    assert producer.init(version, resume=True) == fenced(version, 4)
    producer.producer_id -= 100_000
    producer.epoch += 7
    assert producer.init(version, resume=True) == fenced(version, 4)


def test_an_id_that_is_not_known_may_be_gone_on_with(wire: WireClient, name: str) -> None:
    """It has expired here; the producer is given a new one."""
    producer = Producer(wire, name)
    producer.producer_id, producer.epoch = 2**40, 12
    assert producer.init(resume=True) == "NONE"
    assert (producer.producer_id != 2**40, producer.epoch) == (True, 0)


@pytest.mark.parametrize("version", range(6))
def test_a_new_producer_has_the_open_transaction_aborted(producer: Producer, topic: Topic, version: int) -> None:
    producer.write(topic, b"lost")
    successor = Producer(producer.wire, producer.transactional_id)
    assert successor.init(version) == "CONCURRENT_TRANSACTIONS"
    assert successor.wait_for_state("CompleteAbort").producer_epoch == 1
    assert successor.init(version) == "NONE"
    assert (successor.producer_id, successor.epoch) == (producer.producer_id, 2)
    assert consume(producer.wire, topic) == []
    assert read(producer.wire, topic).aborted == [(producer.producer_id, 0)]
    assert producer.produce(topic, b"zombie") == "INVALID_PRODUCER_EPOCH"


def test_errors_of_a_fenced_producer(producer: Producer, topic: Topic, name: str) -> None:
    producer.write(topic, b"lost")
    Producer(producer.wire, name).begin().write(topic, b"of another epoch")
    for version in range(4):
        assert producer.add(topic, version=version) == {0: fenced(version, 2)}
    for version in range(5):
        assert producer.add_offsets("group", version) == fenced(version, 2)
    for version in range(6):
        for committed in (True, False):
            assert producer.end(version, committed=committed) == fenced(version, 2)
    # The partition itself rejects the epoch; for a partition without records, the coordinator does.
    for version in range(3, 14):
        assert producer.send(topic, producer.batch(b"zombie", sequence=1), version=version) == "INVALID_PRODUCER_EPOCH"
    assert producer.send(topic, producer.batch(b"zombie"), partition=1) == "INVALID_PRODUCER_EPOCH"
    for version in range(6):
        assert producer.commit_offsets("group", topic, {0: 1}, version) == {0: "INVALID_PRODUCER_EPOCH"}
    assert describe(producer.wire, name).transaction_state == "Ongoing"


@pytest.mark.parametrize("version", range(3, 6))
def test_a_zombie_that_goes_on_ends_the_transaction_first(
    producer: Producer, topic: Topic, name: str, version: int
) -> None:
    """It is rejected only when no transaction is open."""
    successor = Producer(producer.wire, name).begin()
    successor.write(topic, b"lost")
    assert producer.init(version, resume=True) == "CONCURRENT_TRANSACTIONS"
    successor.wait_for_state("CompleteAbort")
    assert producer.init(version, resume=True) == fenced(version, 4)


# -- AddPartitionsToTxn --


@pytest.mark.parametrize("version", range(4))
def test_add_partitions(producer: Producer, topic: Topic, version: int) -> None:
    assert producer.add(topic, 0, 2, version=version) == {0: "NONE", 2: "NONE"}
    found = describe(producer.wire, producer.transactional_id)
    assert (found.transaction_state, partitions_of(found)) == ("Ongoing", {topic.name: [0, 2]})
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    started = found.transaction_start_time_ms
    assert started > 0
    assert producer.add(topic, 2, 1, version=version) == {2: "NONE", 1: "NONE"}
    assert producer.add(topic, 1, version=version) == {1: "NONE"}
    found = describe(producer.wire, producer.transactional_id)
    assert (partitions_of(found), found.transaction_start_time_ms) == ({topic.name: [0, 1, 2]}, started)


@pytest.mark.parametrize("version", range(4))
def test_partitions_of_a_stranger(producer: Producer, topic: Topic, version: int) -> None:
    unknown = Producer(producer.wire, f"{producer.transactional_id}-unknown")
    unknown.producer_id, unknown.epoch = producer.producer_id, producer.epoch
    assert unknown.add(topic, 0, 1, version=version) == dict.fromkeys((0, 1), "INVALID_PRODUCER_ID_MAPPING")
    other = producer.duplicate()
    other.producer_id += 100_000
    assert other.add(topic, version=version) == {0: "INVALID_PRODUCER_ID_MAPPING"}
    newer = producer.duplicate()
    newer.epoch += 1
    assert newer.add(topic, version=version) == {0: fenced(version, 2)}
    assert Producer(producer.wire, "").add(topic, version=version) == {0: "INVALID_REQUEST"}
    assert producer.state == "Empty"


@pytest.mark.parametrize("version", range(4))
def test_one_unknown_partition_spoils_them_all(producer: Producer, topic: Topic, version: int) -> None:
    assert producer.add(topic, 0, 77, version=version) == {
        0: "OPERATION_NOT_ATTEMPTED",
        77: "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert producer.add("no-such-topic", version=version) == {0: "UNKNOWN_TOPIC_OR_PARTITION"}
    assert producer.state == "Empty"


@pytest.mark.parametrize("version", range(4))
def test_coordinators_topics_are_not_for_clients_to_add(producer: Producer, topic: Topic, version: int) -> None:
    """The offsets' partition comes with AddOffsetsToTxn."""
    for name in ("__consumer_offsets", "__transaction_state"):
        assert producer.add(name, version=version) == {0: "TOPIC_AUTHORIZATION_FAILED"}
    assert producer.state == "Empty"


def test_partitions_of_several_topics(
    producer: Producer, topic: Topic, transaction_servers: str, topic_name: Callable[[], str]
) -> None:
    other = w.create_topic(transaction_servers, topic_name(), 2)
    asked = {topic.name: [1, 0], other.name: [1]}
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in asked.items()],
    )
    found = results(producer.wire.call(request, 3).results_by_topic_v3_and_below)
    assert found == {name: dict.fromkeys(each, "NONE") for name, each in asked.items()}
    described = partitions_of(describe(producer.wire, producer.transactional_id))
    assert described == {name: sorted(each) for name, each in asked.items()}


def batched(
    wire: WireClient, version: int, *transactions: AddPartitionsToTxnTransaction
) -> dict[str, dict[str, dict[int, str]]]:
    """AddPartitionsToTxn as brokers send it: the results by transactional id."""
    answer = wire.call(AddPartitionsToTxnRequest(transactions=list(transactions)), version)
    assert answer.error_code == 0, code(answer.error_code)
    return {each.transactional_id: results(each.topic_results) for each in answer.results_by_transaction}


@pytest.mark.parametrize("version", [4, 5])
def test_transactions_are_added_together(wire: WireClient, topic: Topic, name: str, version: int) -> None:
    good, old, spoiled = (Producer(wire, f"{name}-{number}").begin() for number in range(3))
    old.epoch -= 1
    stranger = Producer(wire, f"{name}-stranger")
    both = {topic.name: [0, 1]}
    assert batched(
        wire,
        version,
        good.as_transaction(both),
        old.as_transaction(both),
        spoiled.as_transaction({topic.name: [0, 77]}),
        stranger.as_transaction(both),
    ) == {
        good.transactional_id: {topic.name: {0: "NONE", 1: "NONE"}},
        old.transactional_id: {topic.name: {0: "PRODUCER_FENCED", 1: "PRODUCER_FENCED"}},
        spoiled.transactional_id: {topic.name: {0: "OPERATION_NOT_ATTEMPTED", 77: "UNKNOWN_TOPIC_OR_PARTITION"}},
        stranger.transactional_id: {topic.name: dict.fromkeys((0, 1), "INVALID_PRODUCER_ID_MAPPING")},
    }
    assert [each.state for each in (good, old, spoiled)] == ["Ongoing", "Empty", "Empty"]


@pytest.mark.parametrize("version", [4, 5])
def test_partitions_are_verified(wire: WireClient, topic: Topic, name: str, version: int) -> None:
    good, old, idle = (Producer(wire, f"{name}-{number}").begin() for number in range(3))
    for each in (good, old):
        assert each.add(topic, 0) == {0: "NONE"}
    old.epoch -= 1
    stranger = Producer(wire, f"{name}-stranger")
    both = {topic.name: [0, 1]}
    assert batched(
        wire, version, *(each.as_transaction(both, verify_only=True) for each in (good, old, idle, stranger))
    ) == {
        good.transactional_id: {topic.name: {0: "NONE", 1: "TRANSACTION_ABORTABLE"}},
        old.transactional_id: {topic.name: dict.fromkeys((0, 1), "PRODUCER_FENCED")},
        idle.transactional_id: {topic.name: dict.fromkeys((0, 1), "TRANSACTION_ABORTABLE")},
        stranger.transactional_id: {topic.name: dict.fromkeys((0, 1), "INVALID_PRODUCER_ID_MAPPING")},
    }
    # To look changes nothing.
    assert partitions_of(describe(wire, good.transactional_id)) == {topic.name: [0]}
    assert idle.state == "Empty"


# -- EndTxn --


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", range(6))
def test_end_of_a_transaction(producer: Producer, topic: Topic, version: int, committed: bool) -> None:
    """From version 5 on it brings the epoch of the next one (KIP-890)."""
    producer_id = producer.producer_id
    producer.write(topic, b"a", b"b")
    assert producer.end(version, committed=committed) == "NONE"
    assert (producer.producer_id, producer.epoch) == (producer_id, 1 if version >= 5 else 0)
    found = producer.wait_for_state("CompleteCommit" if committed else "CompleteAbort")
    assert (found.producer_id, found.producer_epoch) == (producer_id, producer.epoch)
    assert (found.topics, found.transaction_timeout_ms) == ([], 60_000)
    assert consume(producer.wire, topic) == ([b"a", b"b"] if committed else [])
    assert producers(producer.wire, topic)[producer_id].producer_epoch == producer.epoch


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "aborted"])
@pytest.mark.parametrize("version", range(5))
def test_an_end_is_asked_for_again(producer: Producer, topic: Topic, version: int, committed: bool) -> None:
    """Without an epoch for each transaction, the last one is meant."""
    for _ in range(2):
        producer.add(topic)
        assert producer.end(version, committed=committed) == "NONE"
        producer.wait_for_state("CompleteCommit" if committed else "CompleteAbort")
        assert producer.end(version, committed=committed) == "NONE"
        assert producer.end(version, committed=not committed) == "INVALID_TXN_STATE"
    assert producer.epoch == 0


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "aborted"])
def test_an_end_is_asked_for_again_with_epochs(producer: Producer, topic: Topic, committed: bool) -> None:
    producer.write(topic, b"-")
    before = producer.duplicate()
    producer.commit() if committed else producer.abort()
    retried = before.duplicate()
    assert retried.end(committed=committed) == "NONE"
    assert (retried.producer_id, retried.epoch) == (producer.producer_id, producer.epoch) == (before.producer_id, 1)
    assert before.end(committed=not committed) == "INVALID_TXN_STATE"
    # The next transaction has nothing to commit yet. It may be aborted: a producer whose write failed does not know its
    # state.
    assert producer.end() == "INVALID_TXN_STATE"
    producer.abort()
    assert producer.epoch == 2
    assert before.end(committed=committed) == "PRODUCER_FENCED"


@pytest.mark.parametrize("version", range(6))
def test_nothing_ends_where_nothing_was(producer: Producer, version: int) -> None:
    assert producer.end(version) == "INVALID_TXN_STATE"
    if version < 5:
        assert producer.end(version, committed=False) == "INVALID_TXN_STATE"
        assert (producer.state, producer.epoch) == ("Empty", 0)
    else:
        producer.abort()
        assert producer.epoch == 1


@pytest.mark.parametrize("version", range(6))
def test_the_end_for_a_stranger(producer: Producer, topic: Topic, version: int) -> None:
    producer.write(topic, b"-")
    unknown = Producer(producer.wire, f"{producer.transactional_id}-unknown")
    assert unknown.end(version) == "INVALID_PRODUCER_ID_MAPPING"
    other = producer.duplicate()
    other.producer_id += 100_000
    assert other.end(version) == "INVALID_PRODUCER_ID_MAPPING"
    for difference in (-1, 1):
        other = producer.duplicate()
        other.epoch += difference
        assert other.end(version) == fenced(version, 2)
    assert Producer(producer.wire, "").end(version) == "INVALID_REQUEST"
    assert producer.state == "Ongoing"


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_until_the_markers_are_written(producer: Producer, topic: Topic, committed: bool) -> None:
    """What was decided stays, and whatever else is asked for has to wait."""
    wire = producer.wire
    stick(producer, topic, committed=committed)
    after = producer.duplicate()
    after.epoch += 1
    # The coordinator has the epoch of the next transaction already.
    for version in range(4):
        assert after.add(topic, 1, version=version) == {1: "CONCURRENT_TRANSACTIONS"}
    for version in range(5):
        assert after.add_offsets("group", version) == "CONCURRENT_TRANSACTIONS"
    for version in range(6):
        assert after.init(version, resume=version >= 3) == "CONCURRENT_TRANSACTIONS"
    for end in (committed, not committed):
        assert producer.end(committed=end) == "CONCURRENT_TRANSACTIONS"
    for version in (3, 10, 11):
        assert after.send(topic, after.batch(b"-"), partition=1, version=version) == "NOT_ENOUGH_REPLICAS"
    assert after.send(topic, after.batch(b"-"), partition=1, version=12) == "CONCURRENT_TRANSACTIONS"
    asked = after.as_transaction({topic.name: [0, 1]}, verify_only=True)
    assert batched(wire, 5, asked) == {
        after.transactional_id: {topic.name: dict.fromkeys((0, 1), "CONCURRENT_TRANSACTIONS")}
    }
    # Readers of committed records wait too.
    assert read(wire, topic) == (2, 1, [], [])
    assert read(wire, topic, 1, committed=False)[:2] == (2, 1)


# -- timeouts --


def test_a_transaction_that_takes_too_long_is_aborted(wire: WireClient, topic: Topic, name: str) -> None:
    producer = Producer(wire, name, timeout_ms=1_000).begin()
    producer.write(topic, b"lost")
    found = producer.wait_for_state("CompleteAbort")
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, 1)
    assert read(wire, topic) == (2, 2, [(producer.producer_id, 0)], [b"lost"])
    assert producer.produce(topic, b"late") == "INVALID_PRODUCER_EPOCH"
    for version in range(4):
        assert producer.add(topic, version=version) == {0: fenced(version, 2)}
    for version in (0, 1, 2, 3, 4):
        assert producer.end(version, committed=False) == fenced(version, 2)
    assert Producer(wire, name).init() == "NONE"


def test_the_end_for_one_that_took_too_long(wire: WireClient, topic: Topic, name: str) -> None:
    """The epoch before is what a client asks with whose answer was lost, and an abort is what has happened."""
    producer = Producer(wire, name, timeout_ms=1_000).begin()
    producer.write(topic, b"lost")
    producer.wait_for_state("CompleteAbort")
    assert producer.duplicate().end(committed=True) == "INVALID_TXN_STATE"
    assert producer.end(committed=False) == "NONE"
    assert producer.epoch == 1


def test_a_producer_goes_on_after_its_timeout(wire: WireClient, topic: Topic, name: str) -> None:
    """As after an end whose response was lost: no other producer has taken over since."""
    producer = Producer(wire, name, timeout_ms=1_000).begin()
    producer.write(topic, b"lost")
    producer.wait_for_state("CompleteAbort")
    zombie = producer.duplicate()
    assert producer.init(resume=True) == "NONE"
    assert producer.epoch == 1
    Producer(wire, name).begin()
    assert zombie.init(resume=True) == "PRODUCER_FENCED"


# -- DescribeTransactions --


def test_describe_transactions(wire: WireClient, topic: Topic, name: str) -> None:
    producer = Producer(wire, name, timeout_ms=54_321).begin()
    producer.write(topic, b"-", partition=2)
    producer.write(topic, b"-", partition=0)
    request = DescribeTransactionsRequest(transactional_ids=[name, f"{name}-unknown", ""])
    known, unknown, empty = wire.call(request, 0).transaction_states
    assert (code(known.error_code), known.transactional_id) == ("NONE", name)
    assert (known.transaction_state, known.transaction_timeout_ms) == ("Ongoing", 54_321)
    assert (known.producer_id, known.producer_epoch) == (producer.producer_id, producer.epoch)
    assert partitions_of(known) == {topic.name: [0, 2]}
    assert (code(unknown.error_code), unknown.transactional_id) == ("TRANSACTIONAL_ID_NOT_FOUND", f"{name}-unknown")
    assert (code(empty.error_code), empty.transactional_id) == ("INVALID_REQUEST", "")
    for each in (unknown, empty):
        assert (each.transaction_state, each.transaction_timeout_ms, each.transaction_start_time_ms) == ("", 0, 0)
        assert (each.producer_id, each.producer_epoch, each.topics) == (0, 0, [])


def test_describe_producers_in_a_transaction(producer: Producer, topic: Topic) -> None:
    wire = producer.wire
    assert w.produce(wire, topic.name, producer.batch(b"before", transactional=False)).error_code == 0
    assert producer.send(topic, producer.batch(b"a", b"b", sequence=1)) == "NONE"
    found = producers(wire, topic)[producer.producer_id]
    assert (found.producer_epoch, found.last_sequence, found.current_txn_start_offset) == (0, 2, 1)
    assert found.coordinator_epoch == -1
    producer.commit()
    found = producers(wire, topic)[producer.producer_id]
    assert (found.producer_epoch, found.last_sequence, found.current_txn_start_offset) == (1, -1, -1)
    assert found.coordinator_epoch >= 0


# -- ListTransactions --


def listed(
    wire: WireClient,
    version: int = 2,
    *,
    states: tuple[str, ...] = (),
    producer_ids: tuple[int, ...] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
) -> dict[str, tuple[int, str]]:
    """Producer id and state, by transactional id."""
    request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
    if version >= 1:
        request.duration_filter = longer_than_ms
    if version >= 2:
        request.transactional_id_pattern = pattern
    answer = wire.call(request, version)
    assert (code(answer.error_code), answer.unknown_state_filters) == ("NONE", [])
    return {each.transactional_id: (each.producer_id, each.transaction_state) for each in answer.transaction_states}


@pytest.mark.parametrize("version", range(3))
def test_list_transactions(wire: WireClient, topic: Topic, name: str, version: int) -> None:
    empty, ongoing, done = (Producer(wire, f"{name}-{kind}").begin() for kind in ("empty", "ongoing", "done"))
    ongoing.write(topic, b"-")
    done.write(topic, b"-")
    done.abort()
    ours = {
        empty.transactional_id: (empty.producer_id, "Empty"),
        ongoing.transactional_id: (ongoing.producer_id, "Ongoing"),
        done.transactional_id: (done.producer_id, "CompleteAbort"),
    }

    def asked(states: tuple[str, ...] = (), producer_ids: tuple[int, ...] = ()) -> set[str]:
        found = listed(wire, version, states=states, producer_ids=producer_ids)
        assert all(found[each] == ours[each] for each in found if each in ours)
        return {each.removeprefix(f"{name}-") for each in found if each in ours}

    assert asked() == {"empty", "ongoing", "done"}
    assert asked(("Ongoing",)) == {"ongoing"}
    assert asked(("CompleteAbort", "Empty")) == {"empty", "done"}
    assert asked(("PrepareEpochFence", "Dead")) == set()
    assert asked((), (done.producer_id, 2**50)) == {"done"}
    assert asked(("Ongoing",), (done.producer_id,)) == set()


@pytest.mark.parametrize("version", range(3))
def test_states_that_nobody_knows(wire: WireClient, producer: Producer, version: int) -> None:
    """They are named; those that there are count."""
    request = ListTransactionsRequest(
        state_filters=["Empty", "empty", "Gone"], producer_id_filters=[producer.producer_id]
    )
    answer = wire.call(request, version)
    assert sorted(answer.unknown_state_filters) == ["Gone", "empty"]
    assert [each.transactional_id for each in answer.transaction_states] == [producer.transactional_id]
    request.state_filters = ["Gone"]
    answer = wire.call(request, version)
    assert (answer.unknown_state_filters, answer.transaction_states) == (["Gone"], [])


@pytest.mark.parametrize("version", [1, 2])
def test_transactions_that_last_long(wire: WireClient, topic: Topic, name: str, version: int) -> None:
    producer = Producer(wire, name).begin()
    producer.write(topic, b"-")

    def is_older_than(age_ms: int) -> bool:
        return name in listed(wire, version, states=("Ongoing",), longer_than_ms=age_ms)

    assert not is_older_than(60_000)
    wait_until(lambda: is_older_than(50), "the age of the transaction")


def test_transactions_by_expression(wire: WireClient, name: str) -> None:
    for kind in ("one", "two", "three"):
        Producer(wire, f"{name}.{kind}").begin()

    def asked(pattern: str) -> set[str]:
        return {each.removeprefix(f"{name}.") for each in listed(wire, pattern=pattern) if each.startswith(name)}

    assert asked(f"{name}[.]t.*") == {"two", "three"}
    assert asked(f"{name}[.](one|two)") == {"one", "two"}
    assert asked(name) == set()  # the whole id has to match
    assert asked("") == {"one", "two", "three"}
    answer = wire.call(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert (code(answer.error_code), answer.transaction_states) == ("INVALID_REGULAR_EXPRESSION", [])

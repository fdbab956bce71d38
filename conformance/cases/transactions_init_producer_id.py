"""InitProducerId: producer IDs and epochs, and producers that resume or replace another one."""

from __future__ import annotations

from typing import Final

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_transactions import DescribeTransactionsRequest
from ...protocol.messages.find_coordinator import FindCoordinatorRequest
from ...protocol.messages.init_producer_id import InitProducerIdRequest
from .. import committed_reads as r
from ..case import Layer, Level, case, needs, versions_of
from ..check import TRANSACTION, Check
from ..transactional_producer import Producer, fenced

DESCRIBED: Final = needs(ApiKey.INIT_PRODUCER_ID, 0, ApiKey.DESCRIBE_TRANSACTIONS, 0)
RESUMABLE: Final = versions_of(ApiKey.INIT_PRODUCER_ID, 3)


@case(
    "transactions.find-coordinator.exchange",
    "the coordinator of a transactional ID is found",
    source="KIP-98 and KIP-699",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.FIND_COORDINATOR, 1),
)
def find_coordinator(c: Check, version: int) -> None:
    """Sends: FindCoordinator with key type 1 (transaction) and a new transactional ID, until it has no retriable error.

    Expects: no error, the node ID, host and port of a broker in Metadata; from version 4 on the key itself.

    Why: a transactional producer sends all its coordinator requests to this address.
    """
    key = c.name("transaction")
    c.coordinator(key, TRANSACTION)
    if version >= 4:
        response = c.call(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[key]), version)
        c.equal([each.key for each in response.coordinators], [key], "coordinators (keys)")
        found = response.coordinators[0]
    else:
        found = c.call(FindCoordinatorRequest(key_type=TRANSACTION, key=key), version)
    c.error(found.error_code, ErrorCode.NONE)
    c.equal(f"{found.host}:{found.port}", c.target.brokers.get(found.node_id), f"the address of node {found.node_id}")
    c.true(not found.error_message or found.error_message == "NONE", "error_message", expected="none", actual=found)


@case(
    "transactions.init-producer-id.exchange",
    "a transactional ID gets a producer ID, and each further producer the next epoch",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.INIT_PRODUCER_ID),
)
def exchange(c: Check, version: int) -> None:
    """Sends: InitProducerId for a new transactional ID, twice; then for another transactional ID.

    Expects: a producer ID with epoch 0; the same producer ID with epoch 1; a different producer ID with epoch 0.

    Why: the epoch fences the producer before; two transactional IDs with one producer ID would fence each other.
    """
    first, second = Producer(c), Producer(c)
    response = first.init(version)
    c.error(response.error_code, ErrorCode.NONE)
    c.true(response.producer_id >= 0, "producer_id", expected="at least 0", actual=response.producer_id)
    c.equal(response.producer_epoch, 0, "producer_epoch of the first response")
    again = first.duplicate().init(version)
    c.error(again.error_code, ErrorCode.NONE)
    c.equal(again.producer_id, response.producer_id, "producer_id of the second response")
    c.equal(again.producer_epoch, 1, "producer_epoch of the second response")
    other = second.init(version)
    c.error(other.error_code, ErrorCode.NONE)
    c.true(
        other.producer_id >= 0 and other.producer_id != response.producer_id,
        "producer_id of the other transactional ID",
        expected=f"not {response.producer_id}",
        actual=other.producer_id,
    )
    c.equal(other.producer_epoch, 0, "producer_epoch of the other transactional ID")


@case(
    "transactions.init-producer-id.without-id",
    "an idempotent producer gets a unique producer ID",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.INIT_PRODUCER_ID),
)
def without_id(c: Check, version: int) -> None:
    """Sends: InitProducerId without a transactional ID, twice.

    Expects: two different producer IDs, both with epoch 0.

    Why: two producers with one producer ID would lose records as duplicates.
    """
    found = []
    for _ in range(2):
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        response = c.call(request, version)
        c.error(response.error_code, ErrorCode.NONE)
        c.equal(response.producer_epoch, 0, "producer_epoch")
        found.append(response.producer_id)
    c.true(min(found) >= 0 and len(set(found)) == 2, "producer_id", expected="two different IDs", actual=found)


def _rejected(c: Check, producer: Producer, version: int | None, expected: ErrorCode, *, resume: bool = False) -> None:
    response = producer.init(version, resume=resume)
    c.error(response.error_code, expected)
    c.equal((response.producer_id, response.producer_epoch), (-1, -1), "producer_id and producer_epoch of an error")


@case(
    "transactions.init-producer-id.empty-id",
    "an empty transactional ID is rejected",
    source="Protocol: InitProducerId",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.INIT_PRODUCER_ID),
)
def empty_id(c: Check, version: int) -> None:
    """Sends: InitProducerId with the transactional ID "".

    Expects: INVALID_REQUEST, producer ID -1, and epoch -1.

    Why: all producers with a configuration that is empty by mistake would share one identity and fence each other.
    """
    _rejected(c, Producer(c, ""), version, ErrorCode.INVALID_REQUEST)


@case(
    "transactions.init-producer-id.timeout-too-long",
    "a transaction timeout above the server's maximum is rejected",
    source="KIP-98",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.INIT_PRODUCER_ID),
)
def timeout_too_long(c: Check, version: int) -> None:
    """Sends: InitProducerId with a transaction timeout of 2,147,483,647 ms.

    Expects: INVALID_TRANSACTION_TIMEOUT, producer ID -1, epoch -1.

    Why: an open transaction blocks the consumers of its partitions; the server limits for how long.
    """
    _rejected(c, Producer(c, timeout_ms=2**31 - 1), version, ErrorCode.INVALID_TRANSACTION_TIMEOUT)


@case(
    "transactions.init-producer-id.timeout-invalid",
    "a transaction timeout that is not positive is rejected, and creates nothing",
    source="KIP-98",
    needs=DESCRIBED,
    variants={"zero": (0,), "negative": (-1,)},
)
def timeout_invalid(c: Check, timeout_ms: int) -> None:
    """Sends: InitProducerId with a transaction timeout of 0 or -1 ms; then DescribeTransactions.

    Expects: INVALID_TRANSACTION_TIMEOUT; the transactional ID does not exist.

    Why: such a transaction would be aborted before its first record.
    """
    producer = Producer(c, timeout_ms=timeout_ms)
    _rejected(c, producer, None, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    request = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
    (found,) = c.call(request, 0, to=producer.wire).transaction_states
    c.error(found.error_code, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "DescribeTransactions error_code")


@case(
    "transactions.init-producer-id.timeout-latest",
    "the transaction timeout is that of the latest producer",
    source="KIP-98",
    needs=DESCRIBED,
)
def timeout_latest(c: Check) -> None:
    """Sends: InitProducerId with a timeout of 1 ms, then with 7,000 ms; DescribeTransactions after each.

    Expects: these timeouts, the state Empty, no start time, no partitions, and the epochs 0 and 1.

    Why: a new configuration of a producer takes effect when it starts again.
    """
    name = c.name("transaction")
    for epoch, timeout_ms in enumerate((1, 7_000)):
        producer = Producer(c, name, timeout_ms=timeout_ms).begin()
        found = producer.has_state("Empty", {})
        c.equal(found.transaction_timeout_ms, timeout_ms, "transaction_timeout_ms")
        c.equal(found.transaction_start_time_ms, -1, "transaction_start_time_ms")
        c.equal((found.producer_id, found.producer_epoch), (producer.producer_id, epoch), "producer_id and epoch")


@case(
    "transactions.init-producer-id.resume",
    "a producer that resumes after an error gets the next epoch, also if it repeats its request",
    source="KIP-360",
    layer=Layer.WIRE,
    versions=RESUMABLE,
)
def resume(c: Check, version: int) -> None:
    """Sends: InitProducerId with the current producer ID and epoch 0; the same again; then with epoch 1.

    Expects: the same producer ID with epoch 1; epoch 1 again; epoch 2. After that epoch 0 is fenced, with producer ID
    and epoch -1.

    Why: a producer recovers from a lost sequence by a new epoch. The response may be lost, so a repeated request must
    not be fenced by its own first attempt.
    """
    producer = Producer(c).begin()
    before, producer_id = producer.duplicate(), producer.producer_id
    for who, epoch, what in ((producer, 1, "first"), (before.duplicate(), 1, "repeated"), (producer, 2, "third")):
        response = who.init(version, resume=True)
        c.error(response.error_code, ErrorCode.NONE, f"error_code of the {what} request")
        c.equal(response.producer_id, producer_id, f"producer_id of the {what} request")
        c.equal(response.producer_epoch, epoch, f"producer_epoch of the {what} request")
    _rejected(c, before, version, fenced(version, 4), resume=True)


@case(
    "transactions.init-producer-id.resume-fenced",
    "a producer that was replaced cannot resume",
    source="KIP-360 and KIP-588",
    layer=Layer.WIRE,
    versions=RESUMABLE,
)
def resume_fenced(c: Check, version: int) -> None:
    """Sends: InitProducerId of a second producer with the transactional ID; then of the first, with its ID and epoch.

    Expects: PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH before version 4, and no new epoch for either.

    Why: the first producer is a zombie. If it got a new epoch, the two would fence each other in turn.
    """
    zombie = Producer(c).begin()
    successor = Producer(c, zombie.transactional_id).begin()
    c.equal(successor.epoch, 1, "the epoch of the second producer")
    _rejected(c, zombie, version, fenced(version, 4), resume=True)
    response = successor.init(version, resume=True)
    c.error(response.error_code, ErrorCode.NONE, "error_code of the second producer")
    c.equal(response.producer_epoch, 2, "producer_epoch of the second producer")


@case(
    "transactions.init-producer-id.resume-wrong-identity",
    "a producer cannot resume with another producer ID, or an epoch that does not exist yet",
    source="KIP-360",
    layer=Layer.WIRE,
    versions=RESUMABLE,
    variants={"producer-id": (100_000, 0), "epoch": (0, 7)},
)
def resume_wrong_identity(c: Check, version: int, id_difference: int, epoch_difference: int) -> None:
    """Sends: InitProducerId with a producer ID that is not that of the transactional ID, or with its epoch plus 7.

    Expects: PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH before version 4.

    Why: such a producer's state is of another life of the transactional ID, so its sequence numbers are wrong.
    """
    producer = Producer(c).begin()
    producer.producer_id += id_difference
    producer.epoch += epoch_difference
    _rejected(c, producer, version, fenced(version, 4), resume=True)


@case(
    "transactions.init-producer-id.half-identity",
    "a producer ID without an epoch, and an epoch without a producer ID, are rejected",
    source="KIP-360",
    layer=Layer.WIRE,
    versions=RESUMABLE,
    variants={"no-epoch": (5, -1), "no-producer-id": (-1, 0)},
)
def half_identity(c: Check, version: int, producer_id: int, epoch: int) -> None:
    """Sends: InitProducerId for a new transactional ID with only one of producer ID and epoch.

    Expects: INVALID_REQUEST, producer ID -1, and epoch -1.

    Why: the request is of a client with a bug, and must not be taken for that of a new producer.
    """
    producer = Producer(c)
    producer.producer_id, producer.epoch = producer_id, epoch
    _rejected(c, producer, version, ErrorCode.INVALID_REQUEST, resume=True)


@case(
    "transactions.init-producer-id.resume-expired",
    "a producer whose transactional ID the server does not have gets a new producer ID",
    source="KIP-360",
    layer=Layer.WIRE,
    versions=RESUMABLE,
)
def resume_expired(c: Check, version: int) -> None:
    """Sends: InitProducerId for a new transactional ID, with a producer ID and an epoch.

    Expects: another producer ID, with epoch 0.

    Why: unused transactional IDs expire; their producers continue instead of failing.
    """
    producer = Producer(c)
    producer.producer_id, producer.epoch = 2**40, 12
    response = producer.init(version, resume=True)
    c.error(response.error_code, ErrorCode.NONE)
    c.true(response.producer_id not in (-1, 2**40), "producer_id", expected="a new ID", actual=response.producer_id)
    c.equal(response.producer_epoch, 0, "producer_epoch")


@case(
    "transactions.init-producer-id.aborts",
    "a new producer has the open transaction of the one before aborted",
    source="KIP-98",
    versions=versions_of(ApiKey.INIT_PRODUCER_ID),
)
def aborts(c: Check, version: int) -> None:
    """Sends: records in a transaction, and InitProducerId of a second producer with the same transactional ID, until it
    has a producer ID.

    Expects: CONCURRENT_TRANSACTIONS first; then the same producer ID with epoch 2. The records are aborted, and the
    first producer is fenced by the partition and by the coordinator.

    Why: after a crash a producer starts again. What its earlier life left open must neither become visible nor block
    consumers.
    """
    topic = c.topic()
    zombie = Producer(c).begin()
    zombie.write(topic, b"lost", b"also lost")
    successor = Producer(c, zombie.transactional_id)
    _rejected(c, successor, version, ErrorCode.CONCURRENT_TRANSACTIONS)
    successor.begin(version)
    c.equal(successor.producer_id, zombie.producer_id, "producer_id")
    c.equal(successor.epoch, 2, "producer_epoch: one for the fencing, one for the new producer")
    found = r.stored(c, topic)
    r.shows(
        c,
        found,
        high_watermark=3,
        last_stable_offset=3,
        aborted=[(zombie.producer_id, 0)],
        values=[b"lost", b"also lost"],
    )
    c.equal(r.consumed(c, topic), [], "what a consumer with read_committed returns")
    answer = zombie.produce(topic, b"zombie")
    c.error(answer.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, "Produce error_code of the first producer")
    c.error(zombie.end().error_code, fenced(c.version(ApiKey.END_TXN), 2), "EndTxn error_code of the first producer")
    c.equal(r.end(c, topic), 3, "the log end offset")


@case(
    "transactions.init-producer-id.zombie-aborts",
    "a zombie that resumes while its successor has a transaction open is fenced after that is aborted",
    source="KIP-360",
    level=Level.APACHE,
    needs=needs(ApiKey.DESCRIBE_TRANSACTIONS, 0),
    versions=RESUMABLE,
)
def zombie_aborts(c: Check, version: int) -> None:
    """Sends: InitProducerId with an old epoch, while a transaction of a later epoch is open; again when it has ended.

    Expects: CONCURRENT_TRANSACTIONS, and the transaction is aborted; then PRODUCER_FENCED (INVALID_PRODUCER_EPOCH
    before version 4).

    Why: Apache Kafka ends an open transaction before it compares epochs.
    """
    topic = c.topic()
    zombie = Producer(c).begin()
    successor = Producer(c, zombie.transactional_id).begin()
    successor.write(topic, b"lost")
    _rejected(c, zombie, version, ErrorCode.CONCURRENT_TRANSACTIONS, resume=True)
    successor.wait_for_state("CompleteAbort")
    _rejected(c, zombie, version, fenced(version, 4), resume=True)
    c.equal(r.consumed(c, topic), [], "what a consumer with read_committed returns")

"""Every request in every state, by every kind of sender: the responses and the records.

The columns say which epoch the request comes with: the current one, another one of the same producer id, or the current
one of another producer id. A cell is the state that the transaction goes to, ``done`` if nothing is written, or the
error; FENCED stands for PRODUCER_FENCED.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.transaction_coordinator.transaction import TransactionStatus

from ..coordinator.harness import FakeCaller
from .harness import Coordinator, Producer

COLUMNS = {"older": -2, "before": -1, "current": 0, "newer": 1, "other": 0}
STATES = ["UNKNOWN", *(status.name for status in TransactionStatus)]
PARTITION, ANOTHER = ("t", 0), ("u", 3)
SHORT = {
    "FENCED": "PRODUCER_FENCED",
    "MAPPING": "INVALID_PRODUCER_ID_MAPPING",
    "CONCURRENT": "CONCURRENT_TRANSACTIONS",
    "INVALID": "INVALID_TXN_STATE",
}

COMMIT_BEFORE_BUMPS = """
                   older     before    current         newer     other
UNKNOWN            MAPPING   MAPPING   MAPPING         MAPPING   MAPPING
EMPTY              FENCED    FENCED    INVALID         FENCED    MAPPING
ONGOING            FENCED    FENCED    PREPARE_COMMIT  FENCED    MAPPING
PREPARE_COMMIT     FENCED    FENCED    CONCURRENT      FENCED    MAPPING
PREPARE_ABORT      FENCED    FENCED    CONCURRENT      FENCED    MAPPING
COMPLETE_COMMIT    FENCED    FENCED    done            FENCED    MAPPING
COMPLETE_ABORT     FENCED    FENCED    INVALID         FENCED    MAPPING
"""

ABORT_BEFORE_BUMPS = """
                   older     before    current         newer     other
UNKNOWN            MAPPING   MAPPING   MAPPING         MAPPING   MAPPING
EMPTY              FENCED    FENCED    INVALID         FENCED    MAPPING
ONGOING            FENCED    FENCED    PREPARE_ABORT   FENCED    MAPPING
PREPARE_COMMIT     FENCED    FENCED    CONCURRENT      FENCED    MAPPING
PREPARE_ABORT      FENCED    FENCED    CONCURRENT      FENCED    MAPPING
COMPLETE_COMMIT    FENCED    FENCED    INVALID         FENCED    MAPPING
COMPLETE_ABORT     FENCED    FENCED    done            FENCED    MAPPING
"""

COMMIT_WITH_BUMP = """
                   older       before      current         newer       other
UNKNOWN            MAPPING     MAPPING     MAPPING         MAPPING     MAPPING
EMPTY              FENCED      FENCED      INVALID         FENCED      MAPPING
ONGOING            FENCED      FENCED      PREPARE_COMMIT  FENCED      MAPPING
PREPARE_COMMIT     CONCURRENT  CONCURRENT  CONCURRENT      CONCURRENT  CONCURRENT
PREPARE_ABORT      CONCURRENT  CONCURRENT  CONCURRENT      CONCURRENT  CONCURRENT
COMPLETE_COMMIT    FENCED      done        INVALID         FENCED      MAPPING
COMPLETE_ABORT     FENCED      INVALID     INVALID         FENCED      MAPPING
"""

ABORT_WITH_BUMP = """
                   older       before      current         newer       other
UNKNOWN            MAPPING     MAPPING     MAPPING         MAPPING     MAPPING
EMPTY              FENCED      FENCED      PREPARE_ABORT   FENCED      MAPPING
ONGOING            FENCED      FENCED      PREPARE_ABORT   FENCED      MAPPING
PREPARE_COMMIT     CONCURRENT  CONCURRENT  CONCURRENT      CONCURRENT  CONCURRENT
PREPARE_ABORT      CONCURRENT  CONCURRENT  CONCURRENT      CONCURRENT  CONCURRENT
COMPLETE_COMMIT    FENCED      INVALID     PREPARE_ABORT   FENCED      MAPPING
COMPLETE_ABORT     FENCED      done        PREPARE_ABORT   FENCED      MAPPING
"""

ADD_ANOTHER_PARTITION = """
                   older       before      current         newer       other
UNKNOWN            MAPPING     MAPPING     MAPPING         MAPPING     MAPPING
EMPTY              FENCED      FENCED      ONGOING         FENCED      MAPPING
ONGOING            FENCED      FENCED      ONGOING         FENCED      MAPPING
PREPARE_COMMIT     CONCURRENT  CONCURRENT  CONCURRENT      CONCURRENT  CONCURRENT
PREPARE_ABORT      CONCURRENT  CONCURRENT  CONCURRENT      CONCURRENT  CONCURRENT
COMPLETE_COMMIT    FENCED      FENCED      ONGOING         FENCED      MAPPING
COMPLETE_ABORT     FENCED      FENCED      ONGOING         FENCED      MAPPING
"""

ADD_THE_SAME_PARTITION = """
                   older       before      current         newer       other
UNKNOWN            MAPPING     MAPPING     MAPPING         MAPPING     MAPPING
EMPTY              FENCED      FENCED      ONGOING         FENCED      MAPPING
ONGOING            FENCED      FENCED      done            FENCED      MAPPING
PREPARE_COMMIT     CONCURRENT  CONCURRENT  CONCURRENT      CONCURRENT  CONCURRENT
PREPARE_ABORT      CONCURRENT  CONCURRENT  CONCURRENT      CONCURRENT  CONCURRENT
COMPLETE_COMMIT    FENCED      FENCED      ONGOING         FENCED      MAPPING
COMPLETE_ABORT     FENCED      FENCED      ONGOING         FENCED      MAPPING
"""

# CONCURRENT in the state ONGOING comes with an abort of the transaction; a separate test covers it.
GO_ON = """
                   older       before      current         newer       other
UNKNOWN            EMPTY       EMPTY       EMPTY           EMPTY       EMPTY
EMPTY              FENCED      FENCED      EMPTY           FENCED      FENCED
ONGOING            CONCURRENT  CONCURRENT  CONCURRENT      CONCURRENT  FENCED
PREPARE_COMMIT     CONCURRENT  CONCURRENT  CONCURRENT      CONCURRENT  CONCURRENT
PREPARE_ABORT      CONCURRENT  CONCURRENT  CONCURRENT      CONCURRENT  CONCURRENT
COMPLETE_COMMIT    FENCED      {before}    EMPTY           FENCED      FENCED
COMPLETE_ABORT     FENCED      {before}    EMPTY           FENCED      FENCED
"""

GO_ON_BEFORE_BUMPS = GO_ON.format(before="FENCED")
GO_ON_AFTER_BUMPS = GO_ON.format(before="EMPTY ")


def cells(table: str) -> Iterator[tuple[str, str, str]]:
    head, *rows = table.strip().splitlines()
    assert head.split() == list(COLUMNS)
    assert [row.split()[0] for row in rows] == STATES
    for row in rows:
        state, *expected = row.split()
        for column, cell in zip(COLUMNS, expected, strict=True):
            yield state, column, SHORT.get(cell, cell)


def coordinator_in(state: str, *, bumps: bool) -> tuple[Coordinator, Producer]:
    """A transaction in this state, brought there by a client that has its epochs bumped, or by one that has not."""
    coordinator = Coordinator()
    producer = Producer(1, 5)
    if state == "UNKNOWN":
        return coordinator, producer
    for _ in range(4):
        producer = coordinator.begin()
    version = 5 if bumps else 4
    if state != "EMPTY":
        assert not coordinator.add(producer, PARTITION, client_version=2 if bumps else 1).waits
    kind, _, result = state.partition("_")
    if kind in ("PREPARE", "COMPLETE"):
        assert not coordinator.end(producer, committed=result == "COMMIT", api_version=version).response.error_code
    if kind == "COMPLETE":
        coordinator.write_markers()
    transaction = coordinator.transaction()
    assert transaction.status.name == state
    assert transaction.producer_epoch == (4 if bumps and kind in ("PREPARE", "COMPLETE") else 3)
    coordinator.written()
    coordinator.markers = []
    return coordinator, Producer(transaction.producer_id, transaction.producer_epoch)


Send = Callable[[Coordinator, Producer], FakeCaller]

ROWS: dict[str, tuple[str, tuple[bool, ...], Send]] = {
    "commit, version 4": (
        COMMIT_BEFORE_BUMPS,
        (False, True),
        lambda c, who: c.end(who, committed=True, api_version=4),
    ),
    "abort, version 4": (
        ABORT_BEFORE_BUMPS,
        (False, True),
        lambda c, who: c.end(who, committed=False, api_version=4),
    ),
    "commit, version 5": (COMMIT_WITH_BUMP, (False, True), lambda c, who: c.end(who, committed=True)),
    "abort, version 5": (ABORT_WITH_BUMP, (False, True), lambda c, who: c.end(who, committed=False)),
    "add another partition": (ADD_ANOTHER_PARTITION, (False, True), lambda c, who: c.add(who, ANOTHER)),
    "add another partition by its leader": (
        ADD_ANOTHER_PARTITION,
        (False, True),
        lambda c, who: c.add(who, ANOTHER, api_version=12, client_version=2),
    ),
    "add the same partition": (ADD_THE_SAME_PARTITION, (False, True), lambda c, who: c.add(who, PARTITION)),
    "go on, version 5, before bumps": (GO_ON_BEFORE_BUMPS, (False,), lambda c, who: c.init(expected=who)),
    "go on, version 5, after bumps": (GO_ON_AFTER_BUMPS, (True,), lambda c, who: c.init(expected=who)),
}

CASES = [
    pytest.param(send, state, column, expected, bumps, id=f"{name}-{state}-{column}-{'bumped' if bumps else 'plain'}")
    for name, (table, ways, send) in ROWS.items()
    for state, column, expected in cells(table)
    for bumps in ways
]


def asking(producer: Producer, column: str) -> Producer:
    return Producer(producer.id + (column == "other"), producer.epoch + COLUMNS[column])


def error_of(sent: FakeCaller) -> ErrorCode:
    return ErrorCode.NONE if not sent.failed and sent.response is None else sent.error


@pytest.mark.parametrize(("send", "state", "column", "expected", "bumps"), CASES)
def test_every_request_in_every_state(send: Send, state: str, column: str, expected: str, bumps: bool) -> None:
    coordinator, producer = coordinator_in(state, bumps=bumps)
    before = coordinator.transactions()

    sent = send(coordinator, asking(producer, column))

    if expected in STATES or expected == "done":
        assert error_of(sent) is ErrorCode.NONE
    else:
        assert error_of(sent).name == expected
    written = [TransactionStatus(record.value.transaction_status).name for record in coordinator.written()]
    if expected in STATES:
        assert written == [expected]
        assert coordinator.transaction().status.name == expected
    elif state == "ONGOING" and expected == "CONCURRENT_TRANSACTIONS":
        assert written == ["PREPARE_ABORT"]
    else:
        assert written == []
        assert coordinator.transactions() == before
    after = coordinator.transactions()
    coordinator.restart()
    assert coordinator.transactions() == after


@pytest.mark.parametrize(("send", "state", "column", "expected", "bumps"), CASES)
def test_a_rejected_append_changes_no_state(send: Send, state: str, column: str, expected: str, bumps: bool) -> None:
    coordinator, producer = coordinator_in(state, bumps=bumps)
    before = coordinator.transactions()

    with coordinator.log_refuses(ErrorCode.NOT_ENOUGH_REPLICAS):
        refused = send(coordinator, asking(producer, column))

    would_write = expected in STATES or (state == "ONGOING" and expected == "CONCURRENT_TRANSACTIONS")
    if would_write:
        assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.transactions() == before
    assert coordinator.markers == []
    again = send(coordinator, asking(producer, column))
    assert error_of(again).name == ("NONE" if expected in STATES or expected == "done" else expected)


@pytest.mark.parametrize("bumps", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_a_producer_that_starts_again_fences_the_previous_one(state: str, bumps: bool) -> None:
    coordinator, before = coordinator_in(state, bumps=bumps)

    sent = coordinator.init()
    if state == "ONGOING":
        assert sent.error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert (sent.response.producer_id, sent.response.producer_epoch) == (-1, -1)
    elif state.startswith("PREPARE"):
        assert sent.error is ErrorCode.CONCURRENT_TRANSACTIONS
        coordinator.restart()  # which returns the markers again
    if sent.error is ErrorCode.CONCURRENT_TRANSACTIONS:
        assert len(coordinator.write_markers()) == 1
        sent = coordinator.init()

    assert sent.error is ErrorCode.NONE
    now = Producer(sent.response.producer_id, sent.response.producer_epoch)
    if state != "UNKNOWN":
        assert now.id == before.id
        assert now.epoch == before.epoch + (2 if state == "ONGOING" else 1)
    for committed in (False, True):
        assert coordinator.end(before, committed=committed).failed
    assert coordinator.add(before, PARTITION).failed
    assert coordinator.init(expected=before).failed
    assert coordinator.add(now, PARTITION).response is None


VERIFY = """
                   older       before      current         newer       other
UNKNOWN            MAPPING     MAPPING     MAPPING         MAPPING     MAPPING
EMPTY              FENCED      FENCED      abortable       FENCED      MAPPING
ONGOING            FENCED      FENCED      added           FENCED      MAPPING
PREPARE_COMMIT     FENCED      FENCED      CONCURRENT      FENCED      MAPPING
PREPARE_ABORT      FENCED      FENCED      CONCURRENT      FENCED      MAPPING
COMPLETE_COMMIT    FENCED      FENCED      abortable       FENCED      MAPPING
COMPLETE_ABORT     FENCED      FENCED      abortable       FENCED      MAPPING
"""


@pytest.mark.parametrize("bumps", [False, True])
@pytest.mark.parametrize(("state", "column", "expected"), list(cells(VERIFY)))
def test_verification_returns_which_partitions_were_added(state: str, column: str, expected: str, bumps: bool) -> None:
    coordinator, producer = coordinator_in(state, bumps=bumps)

    verified = coordinator.verify(asking(producer, column), PARTITION, ANOTHER)

    if expected in ("added", "abortable"):
        first = ErrorCode.NONE if expected == "added" else ErrorCode.TRANSACTION_ABORTABLE
        assert verified == {PARTITION: first, ANOTHER: ErrorCode.TRANSACTION_ABORTABLE}
    else:
        assert verified == dict.fromkeys([PARTITION, ANOTHER], ErrorCode[expected])
    assert coordinator.written() == []


@pytest.mark.parametrize(
    ("send", "since"),
    [
        pytest.param(lambda c, who, version: c.init(expected=who, api_version=version), 4, id="InitProducerId"),
        pytest.param(lambda c, who, version: c.end(who, committed=True, api_version=version), 2, id="EndTxn"),
        pytest.param(lambda c, who, version: c.add(who, PARTITION, api_version=version), 2, id="AddPartitionsToTxn"),
    ],
)
def test_old_clients_do_not_know_that_they_are_fenced(
    send: Callable[[Coordinator, Producer, int], FakeCaller], since: int
) -> None:
    coordinator, producer = coordinator_in("EMPTY", bumps=False)
    fenced = Producer(producer.id, producer.epoch - 1)

    assert send(coordinator, fenced, since).error is ErrorCode.PRODUCER_FENCED
    assert send(coordinator, fenced, since - 1).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_empty_transactional_id_is_rejected() -> None:
    coordinator = Coordinator()
    producer = Producer(1, 0)

    assert coordinator.init("").error is ErrorCode.INVALID_REQUEST
    assert coordinator.end(producer, committed=True, transactional_id="").error is ErrorCode.INVALID_REQUEST
    assert coordinator.add(producer, PARTITION, transactional_id="").error is ErrorCode.INVALID_REQUEST
    assert coordinator.verify(producer, PARTITION, transactional_id="") == {PARTITION: ErrorCode.INVALID_REQUEST}
    assert coordinator.written() == []

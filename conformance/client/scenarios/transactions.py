"""Scenarios of transactions: what the client reports as committed is visible, and nothing else."""

from __future__ import annotations

from typing import Any

from ....protocol.api import ApiKey
from ....protocol.errors import ErrorCode
from ..adapter import JobError
from ..scenario import scenario
from ..scene import Scene

COMMITTED = [f"committed-{number}" for number in range(5)]
ABORTED = [f"aborted-{number}" for number in range(5)]
LAST = ["last"]


def _names(*codes: ErrorCode) -> dict[str, tuple[ErrorCode]]:
    return {code.name.lower().replace("_", "-"): (code,) for code in codes}


def _transaction(topic: str, values: list[str], *, commit: bool = True) -> dict[str, Any]:
    return {"topic": topic, "partition": 0, "values": values, "commit": commit}


def _id(s: Scene) -> str:
    return f"transactional-{s.number}"


def _visible(s: Scene, topic: str, outcomes: list[str], *values: list[str]) -> None:
    """The committed transactions are visible, and the aborted ones are not. The unknown ones may be."""
    visible = s.committed_values(topic)
    expected = [
        value
        for outcome, each in zip(outcomes, values, strict=True)
        for value in each
        if outcome == "committed" or (outcome == "unknown" and each[0] in visible)
    ]
    s.equal(visible, expected, f"the committed records, with the outcomes {', '.join(outcomes)}")


@scenario("transactions.normal", "a broker without faults", source="KIP-98")
def normal(s: Scene) -> None:
    """Broker: has no faults.

    Job: commit a transaction, abort the next one, and commit the third one.

    Expects: the records of the first and the third one are visible to readers of committed records.
    """
    topic = s.topic()
    outcomes = s.transact(
        _id(s), _transaction(topic, COMMITTED), _transaction(topic, ABORTED, commit=False), _transaction(topic, LAST)
    )
    s.equal(outcomes, ["committed", "aborted", "committed"], "the outcomes")
    _visible(s, topic, outcomes, COMMITTED, ABORTED, LAST)


@scenario("transactions.read-committed", "a reader skips aborted records and control batches", source="KIP-98")
def read_committed(s: Scene) -> None:
    """Broker: a partition has committed and aborted records, and control batches at its end.

    Job: produce them, and read the committed records.

    Expects: the committed records are reported once, in order, and the aborted ones are not.
    """
    topic = s.topic()
    s.transact(
        _id(s), _transaction(topic, COMMITTED), _transaction(topic, LAST), _transaction(topic, ABORTED, commit=False)
    )
    s.equal(s.read_committed(topic), COMMITTED + LAST, "the records")


@scenario(
    "transactions.coordinator",
    "a transactional request fails at first",
    source="KIP-98",
    variants={
        f"{name}.{error.name.lower().replace('_', '-')}": (api, error)
        for name, api in (("init", ApiKey.INIT_PRODUCER_ID), ("end", ApiKey.END_TXN))
        for error in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        )
    },
)
def coordinator(s: Scene, api: ApiKey, error: ErrorCode) -> None:
    """Broker: responds to the first InitProducerId or EndTxn with a retriable error.

    Job: commit two transactions.

    Expects: the client retries; what it reports as committed is visible.
    """
    topic = s.topic()
    fault = s.faults.error(api, error, group=_id(s), times=1)
    outcomes = s.transact(_id(s), _transaction(topic, COMMITTED), _transaction(topic, LAST))
    s.happened(fault)
    s.equal(outcomes, ["committed", "committed"], "the outcomes")
    _visible(s, topic, outcomes, COMMITTED, LAST)


@scenario("transactions.coordinator-moves", "the coordinator moves to another broker", source="KIP-98")
def coordinator_moves(s: Scene) -> None:
    """Broker: after the first EndTxn, it responds with NOT_COORDINATOR to requests for the transactional ID, until the
    client looks up the coordinator again.

    Job: commit two transactions.

    Expects: the client finds the coordinator; both transactions are committed and visible.
    """
    topic = s.topic()
    s.faults.delay(ApiKey.END_TXN, seconds=1.0, group=_id(s), times=1)
    first, second = _transaction(topic, COMMITTED), _transaction(topic, LAST)
    with s.during(lambda: s.transact(_id(s), first, second)) as result:
        s.wait_for(ApiKey.END_TXN)
        fault = s.faults.move_coordinator(_id(s))
        outcomes = result()
    s.happened(fault)
    s.equal(outcomes, ["committed", "committed"], "the outcomes")
    _visible(s, topic, outcomes, COMMITTED, LAST)


@scenario(
    "transactions.lost-commit",
    "the response to EndTxn is lost",
    source="KIP-98",
    variants={"before": ("before",), "after": ("after",), "half": ("middle",)},
)
def lost_commit(s: Scene, when: str) -> None:
    """Broker: closes the connection before the first EndTxn is processed, after it, or in the middle of its response.

    Job: commit two transactions.

    Expects: the client retries; what it reports as committed is visible, and what it reports as aborted is not.
    """
    topic = s.topic()
    fault = s.faults.disconnect(ApiKey.END_TXN, when=when, group=_id(s), times=1)
    outcomes = s.transact(_id(s), _transaction(topic, COMMITTED), _transaction(topic, LAST))
    s.happened(fault)
    _visible(s, topic, outcomes, COMMITTED, LAST)


@scenario("transactions.fenced", "another producer takes the transactional ID over", source="KIP-98, KIP-360")
def fenced(s: Scene) -> None:
    """Broker: another producer starts with the same transactional ID while the first EndTxn is on its way, so that the
    transaction is aborted.

    Job: commit a transaction.

    Expects: the client reports that its producer is fenced; the records are not visible.
    """
    topic = s.topic()
    s.faults.delay(ApiKey.END_TXN, seconds=3.0, group=_id(s), times=1)
    with s.during(lambda: s.transact(_id(s), _transaction(topic, COMMITTED))) as result:
        s.wait_for(ApiKey.END_TXN)
        s.fence(_id(s))
        s.error_of("the job's error", ["PRODUCER_FENCED"], result)
    s.equal(s.committed_values(topic), [], "the committed records")


@scenario(
    "transactions.fenced-append",
    "a Produce request of a fenced producer",
    source="KIP-360",
    variants=_names(ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED),
)
def fenced_append(s: Scene, error: ErrorCode) -> None:
    """Broker: responds to all Produce requests with an error that says that another producer has the ID.

    Job: commit a transaction.

    Expects: the client reports an error, or that the transaction is aborted; it does not report a commit.
    """
    topic = s.topic()
    fault = s.faults.error(ApiKey.PRODUCE, error, topic=topic)
    try:
        outcomes = s.transact(_id(s), _transaction(topic, COMMITTED))
    except JobError:
        outcomes = ["aborted"]
    s.happened(fault)
    s.equal(outcomes, ["aborted"], "the outcome")
    s.equal(s.committed_values(topic), [], "the committed records")


@scenario("transactions.lost-append", "the response to Produce is lost in a transaction", source="KIP-98")
def lost_append(s: Scene) -> None:
    """Broker: appends the first Produce request of a transaction, and closes the connection without a response.

    Job: commit two transactions.

    Expects: the records that are reported as committed are visible once, in order.
    """
    topic = s.topic()
    fault = s.faults.disconnect(ApiKey.PRODUCE, when="after", topic=topic, times=1)
    outcomes = s.transact(_id(s), _transaction(topic, COMMITTED), _transaction(topic, LAST))
    s.happened(fault)
    _visible(s, topic, outcomes, COMMITTED, LAST)


@scenario(
    "transactions.old-broker",
    "a broker that advertises old versions",
    source="KIP-35",
    variants={
        "as-kafka-2.8": ("2.8",),
        "as-kafka-3.9": ("3.9",),
    },
)
def old_broker(s: Scene, release: str) -> None:
    """Broker: advertises the versions and features of an older release.

    Job: commit a transaction, abort the next one, and commit the third one.

    Expects: the client uses no newer version; the committed records are visible, and the aborted ones are not.
    """
    topic = s.topic()
    s.faults.cap_versions(release)
    outcomes = s.transact(
        _id(s), _transaction(topic, COMMITTED), _transaction(topic, ABORTED, commit=False), _transaction(topic, LAST)
    )
    s.only_versions_of(release)
    s.equal(outcomes, ["committed", "aborted", "committed"], "the outcomes")
    _visible(s, topic, outcomes, COMMITTED, ABORTED, LAST)

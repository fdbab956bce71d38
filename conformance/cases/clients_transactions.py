"""Transactions of real clients, and what consumers with `isolation.level=read_committed` see of them."""

from __future__ import annotations

from ...protocol.api import ApiKey
from .. import committed_reads
from ..case import Layer, case, needs
from ..check import Check
from ..client_jobs import ClientJobs
from .clients_records import RECORDS, SECONDS, without

TRANSACTIONS = needs(
    ApiKey.FIND_COORDINATOR, 1, ApiKey.INIT_PRODUCER_ID, 0, ApiKey.ADD_PARTITIONS_TO_TXN, 0, ApiKey.END_TXN, 0
)  # fmt: skip


@case(
    "clients.transaction",
    "a reader of committed records sees the committed transactions of a client only",
    source="KIP-98",
    layer=Layer.CLIENTS,
    needs=(*RECORDS, *TRANSACTIONS),
    clients=without("kcat"),
    seconds=SECONDS,
)
def transaction(c: Check, client: str) -> None:
    """Sends: the client runs four transactions with one producer: it commits the first, third and fourth one, and
    aborts the second one; the third one is on the other partition. Then it consumes with
    `isolation.level=read_committed`.

    Expects: the outcomes that the client requested, the records of committed transactions in order, also in the suite's
    own Fetch, and a marker at the end of each transaction.

    Why: exactly-once processing builds on it.
    """
    topic, jobs = c.topic(2), ClientJobs(c, client)
    sent = [
        {"topic": topic.name, "partition": partition, "values": [f"{word}-{n}" for n in range(5)], "commit": commit}
        for word, partition, commit in (("a", 0, True), ("b", 0, False), ("c", 1, True), ("d", 0, True))
    ]
    outcomes = jobs.do("transact", transactional_id=c.name("id"), transactions=sent)["outcomes"]
    found = [" ".join(str(each[key]) for key in ("outcome", "error") if key in each) for each in outcomes]
    c.equal(found, ["committed", "aborted", "committed", "committed"], f"{jobs.call_of('transact')}: outcomes")
    for partition, words in ((0, "ad"), (1, "c")):
        expected = [f"{word}-{number}" for word in words for number in range(5)]
        where = f"of partition {partition}"
        with c.setup("Fetch without the client"):
            stored = committed_reads.consumed(c, topic, partition=partition)
        c.equal([(each or b"").decode() for each in stored], expected, f"committed values {where}, from Fetch")
        options = {"isolation": "read_committed"}
        answer = jobs.do("consume", topic=topic.name, partition=partition, start=0, options=options)
        consumed = [each["value"] for each in answer["records"]]
        c.equal(consumed, expected, f"{jobs.call_of('consume')} with read_committed: values {where}")
    with c.setup("Fetch without the client"):
        markers = [committed_reads.markers(c, topic, partition=partition) for partition in (0, 1)]
    c.equal(markers, [[True, False, True], [True]], "markers of both partitions: true for commit")

"""The screen of transactions: those that are open, what they block, and their end.

A consumer of committed records reads a partition up to the first open transaction. The leaders of partitions know which
transactions are open in them, the coordinators know the transactional ids. A transaction that no coordinator knows
never ends by itself (it hangs); it is aborted in each partition.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ..cli.cluster import Cluster
from ..cli.failure import Failure
from ..cli.transaction_client import ListedTransaction, OpenTransaction, TransactionClient
from ..protocol.api import ApiKey
from .failures import NotFound
from .fetching import bounds
from .messages import natural
from .rendering import brokers_of, form_of, now_ms, render

_MAX_LISTED: Final = 200
_ONGOING: Final = "Ongoing"


def _transactions(request: Request) -> Response:
    chosen = request.query_params.get("topic", "")
    with brokers_of(request).cluster() as cluster:
        if not cluster.bootstrap.offers(ApiKey.DESCRIBE_PRODUCERS):
            raise Failure("the server is too old to describe transactions")
        client = TransactionClient(cluster)
        found = open_transactions(cluster, client, [chosen] if chosen else None)
        listed = client.transactions()
        ids = {each.producer_id: each for each in listed}
        started = _started(client, {ids[each.producer_id] for each in found if each.producer_id in ids})
        known = bounds(cluster, cluster.topics(sorted({each.topic for each in found}))) if found else {}
    now = now_ms()
    rows: list[dict[str, Any]] = []
    for each in found:
        listing = ids.get(each.producer_id)
        since = started.get(each.producer_id) or each.last_timestamp_ms
        end = known.get(each.topic, {}).get(each.partition)
        rows.append(
            {
                "topic": each.topic,
                "partition": each.partition,
                "start_offset": each.start_offset,
                "producer": f"{each.producer_id}, epoch {each.producer_epoch}",
                "id": None if listing is None else listing.transactional_id,
                "state": "hanging" if listing is None else listing.state,
                "since": since,
                "open_ms": now - since,
                "blocked": None if end is None else end.end - each.start_offset,
            }
        )
    return render(
        request,
        "transactions.html",
        title="Transactions",
        topic=chosen,
        rows=rows,
        listed=listed[:_MAX_LISTED],
        total=len(listed),
        done=request.query_params.get("done"),
    )


def open_transactions(cluster: Cluster, client: TransactionClient, names: list[str] | None) -> list[OpenTransaction]:
    """The open transactions in these topics (None: all), the earliest one of a partition first. Raises Failure."""
    topics = cluster.topics(names)
    if names and topics[0].error_code:
        raise NotFound(f"the topic {names[0]!r} does not exist")
    found = client.open_in(each for each in topics if each.error_code == 0)
    return sorted(found, key=lambda each: (each.topic, each.partition, each.start_offset))


def _started(client: TransactionClient, listed: set[ListedTransaction]) -> dict[int, int]:
    """When the transactions of these transactional ids began, by producer id."""
    found = {}
    for each in sorted(listed)[:_MAX_LISTED]:
        described = client.describe(each.transactional_id)
        if described is not None and described.transaction_start_time_ms >= 0:
            found[each.producer_id] = described.transaction_start_time_ms
    return found


async def _abort(request: Request) -> Response:
    fields = await form_of(request)
    return await run_in_threadpool(_abort_transaction, request, fields)


def _abort_transaction(request: Request, fields: dict[str, str]) -> Response:
    with brokers_of(request).cluster() as cluster:
        client = TransactionClient(cluster)
        if "id" in fields:
            _abort_by_id(client, fields["id"])
        else:
            partition = natural(fields.get("partition", ""), "partition")
            offset = natural(fields.get("offset", ""), "offset")
            _abort_in(cluster, client, fields.get("topic", ""), partition, offset)
    return RedirectResponse("/transactions?done=aborted", status_code=303)


def _abort_by_id(client: TransactionClient, transactional_id: str) -> None:
    described = client.describe(transactional_id)
    if described is None:
        raise NotFound(f"the transactional id {transactional_id!r} does not exist any more")
    if described.transaction_state != _ONGOING:
        state = described.transaction_state
        raise NotFound(f"{transactional_id!r} has no open transaction any more: its state is {state}")
    client.terminate(described)


def _abort_in(cluster: Cluster, client: TransactionClient, topic: str, partition: int, offset: int) -> None:
    (metadata,) = cluster.topics([topic])
    leader = next((each.leader_id for each in metadata.partitions if each.partition_index == partition), -1)
    for each in open_transactions(cluster, client, [topic]):
        if (each.partition, each.start_offset) == (partition, offset) and leader >= 0:
            client.abort_in(leader, each)
            return
    raise NotFound(f"no open transaction starts at offset {offset} of {topic}-{partition} any more")


ROUTES: Final = [
    Route("/transactions", _transactions, methods=["GET"]),
    Route("/transactions/abort", _abort, methods=["POST"]),
]

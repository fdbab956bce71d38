"""The screens of groups: all groups, one group with members and lag, and the reset of its offsets with a preview.

The preview computes offsets, and its form contains them; so what is committed is what was shown.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ..cli.cluster import Cluster, explain
from ..cli.failure import Failure
from ..cli.group_client import HINTS, Committed, Group, GroupClient, TopicPartition
from ..cli.group_offsets import LogOffsets, Offsets, Row, read_rows, written_rows
from ..cli.group_report import offset_rows
from ..cli.group_reset import new_offsets
from ..cli.transaction_client import OpenTransaction, TransactionClient
from ..protocol.api import ApiKey
from .chart import chart
from .failures import BadRequest, NotFound
from .lag_history import LagHistory, total_lags
from .messages import natural, parse_time
from .paging import page_of
from .rendering import brokers_of, form_of, now_ms, render

# Lags are shown for the groups of a page.
_PER_PAGE: Final = 100
WAYS: Final = {
    "earliest": "the first offset",
    "latest": "the end",
    "time": "a time",
    "offset": "an offset",
    "shift": "the committed offset, plus or minus",
}


def _groups(request: Request) -> Response:
    query = request.query_params.get("q", "").strip()
    with brokers_of(request).cluster() as cluster:
        client = GroupClient(cluster)
        matching = [each for each in client.list() if query.lower() in each.group_id.lower()]
        page = page_of(request, matching, _PER_PAGE)
        lags = total_lags(cluster, client, [each.group_id for each in page.shown])
    return render(
        request,
        "groups.html",
        title="Groups",
        groups=[
            {
                "id": each.group_id,
                "state": each.group_state or "–",
                "type": each.group_type or "classic",
                "protocol": each.protocol_type or "–",
                "lag": lags[each.group_id],
            }
            for each in page.shown
        ],
        query=query,
        total=len(matching),
        page=page.number,
        pages=page.pages,
    )


def _group(request: Request) -> Response:
    group_id = request.query_params.get("id", "")
    with brokers_of(request).cluster() as cluster:
        client = GroupClient(cluster)
        group = _described(client, group_id)
        rows = offset_rows(client, LogOffsets(cluster, lambda _: None), group)
        blocking = _blocking(cluster, rows)
    lags = [max(0, row["lag"]) for row in rows if row["lag"] is not None]
    history = history_of(request)
    if lags:
        history.add(group_id, sum(lags), now_ms())
    return render(
        request,
        "group.html",
        title=group_id or "Group without a name",
        group=group,
        rows=[{**row, "blocked_by": blocking.get((row["topic"], row["partition"]))} for row in rows],
        lag=sum(lags) if lags else None,
        chart=chart(history.of(group_id)),
        topics=sorted({row["topic"] for row in rows}),
        ways=WAYS,
        done=request.query_params.get("done"),
    )


def history_of(request: Request) -> LagHistory:
    found = request.app.state.lag_history
    assert isinstance(found, LagHistory)
    return found


def _described(client: GroupClient, group_id: str) -> Group:
    group = client.describe(group_id)
    if group is None:
        raise HTTPException(404, f"The group {group_id!r} does not exist. It may have been deleted or expired.")
    return group


def _blocking(cluster: Cluster, rows: list[dict[str, Any]]) -> dict[tuple[str, int], OpenTransaction]:
    """The first open transaction of each partition in which the group has a lag."""
    behind = {row["topic"] for row in rows if row["lag"]}
    if not behind or not cluster.bootstrap.offers(ApiKey.DESCRIBE_PRODUCERS):
        return {}
    topics = [each for each in cluster.topics(sorted(behind)) if each.error_code == 0]
    found: dict[tuple[str, int], OpenTransaction] = {}
    for each in TransactionClient(cluster).open_in(topics):
        place = (each.topic, each.partition)
        if place not in found or each.start_offset < found[place].start_offset:
            found[place] = each
    return found


def _preview(request: Request) -> Response:
    given = request.query_params
    group_id, topic, way, value = (given.get(name, "").strip() for name in ("id", "topic", "way", "value"))
    warnings: list[str] = []
    with brokers_of(request).cluster() as cluster:
        client = GroupClient(cluster)
        group = _described(client, group_id)
        committed = client.committed(group_id)
        partitions = sorted(each for each in committed if topic in ("", each.topic))
        if not partitions:
            raise NotFound(f"the group {group_id!r} has no committed offsets{f' in {topic}' if topic else ''} to reset")
        new = _new_offsets(way, value, partitions, committed, LogOffsets(cluster, warnings.append))
    return render(
        request,
        "group_reset.html",
        title=f"Reset {group_id}",
        group=group,
        way=WAYS.get(way, way),
        value=value,
        plan=[
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": committed[each].offset,
                "new": new[each],
                "change": new[each] - committed[each].offset,
            }
            for each in partitions
        ],
        offsets=written_rows(Row(None, each, new[each]) for each in partitions),
        warnings=warnings,
    )


def _new_offsets(
    way: str, value: str, partitions: list[TopicPartition], committed: dict[TopicPartition, Committed], log: LogOffsets
) -> Offsets:
    match way:
        case "earliest" | "latest":
            return new_offsets(f"--to-{way}", None, partitions, committed, log)
        case "offset":
            return new_offsets("--to-offset", natural(value, "offset"), partitions, committed, log)
        case "time":
            return new_offsets("--to-datetime", parse_time(value), partitions, committed, log)
        case "shift":
            amount = natural(value.removeprefix("-").removeprefix("+"), "number of offsets")
            return new_offsets("--shift-by", -amount if value.startswith("-") else amount, partitions, committed, log)
    raise BadRequest(f"{way!r} is no way to reset offsets; choose one of {', '.join(WAYS)}")


async def _reset(request: Request) -> Response:
    fields = await form_of(request)
    return await run_in_threadpool(_commit, request, fields.get("id", ""), fields.get("offsets", ""))


def _commit(request: Request, group_id: str, text: str) -> Response:
    try:
        new = {row.partition: row.offset for row in read_rows(text.replace("\r\n", "\n"))}
    except ValueError as error:
        raise BadRequest(f"the offsets of the form cannot be read: {error}") from None
    with brokers_of(request).cluster() as cluster:
        errors = GroupClient(cluster).commit(group_id, new)
    if errors:
        raise Failure(
            "\n".join(f"{partition} was not reset: {explain(code, None, HINTS)}" for partition, code in errors.items())
        )
    return _to_group(group_id, "reset")


async def _delete(request: Request) -> Response:
    fields = await form_of(request)
    return await run_in_threadpool(_delete_group, request, fields.get("id", ""))


def _delete_group(request: Request, group_id: str) -> Response:
    with brokers_of(request).cluster() as cluster:
        code = GroupClient(cluster).delete(group_id)
    if code:
        raise Failure(f"cannot delete {group_id}: {explain(code, None, HINTS)}")
    return RedirectResponse("/groups", status_code=303)


def _to_group(group_id: str, done: str) -> Response:
    return RedirectResponse(f"/group?{urlencode({'id': group_id, 'done': done})}", status_code=303)


ROUTES: Final = [
    Route("/groups", _groups),
    Route("/group", _group),
    Route("/group/reset", _preview, methods=["GET"]),
    Route("/group/reset", _reset, methods=["POST"]),
    Route("/group/delete", _delete, methods=["POST"]),
]

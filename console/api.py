"""The HTTP API for programs: records as JSON lines, CSV or server-sent events, and the produce route of REST v3.

A record has the form of `moldau consume --json`, so its lines can be sent again with `moldau produce --json`.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from itertools import chain
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ..cli.cluster import Cluster
from ..cli.connection import PeerError
from ..cli.failure import Failure
from ..cli.output import binary_as_json
from ..protocol.messages.metadata import MetadataRequest
from ..protocol.records import LOG_APPEND_TIME
from ..protocol.schema import Buffer
from .decoders import FormatError
from .failures import BadRequest, NotFound
from .fetching import Row, Topic, load_topic
from .filters import Filter, filter_of
from .messages import View, natural, partitions_of, start_offsets
from .producing import Outgoing, send
from .record_pages import newest, parse_offsets, scan, written_offsets
from .rendering import MAX_FORM_BYTES, brokers_of, iso, now_ms, registry_of
from .schema_registry import SchemaRegistry
from .streams import live_updates, stream_with_problems

_FORMS: Final = ("json", "csv")
_MODES: Final = ("text", "where")
_PAGE: Final = 1000
_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")


def _topics(request: Request) -> Response:
    with brokers_of(request).cluster() as cluster:
        found = cluster.topics(None)
    return JSONResponse(
        [
            {"name": each.name, "partitions": len(each.partitions), "internal": each.is_internal}
            for each in sorted(found, key=lambda each: each.name or "")
        ]
    )


async def _records(request: Request) -> Response:
    view = View.of(request)
    mode, form = _one_of(request, "mode", _MODES), _one_of(request, "as", _FORMS)
    wanted = filter_of(mode, request.query_params.get("text", ""), view.form, registry_of(request))
    if "text/event-stream" in request.headers.get("accept", ""):
        start = await run_in_threadpool(_live_start_if_possible, request, view)
        return stream_with_problems(_live(request, view, wanted, start))
    given = request.query_params.get("limit")
    limit = natural(given, "limit") if given else None
    is_csv = form == "csv"
    cluster = await run_in_threadpool(brokers_of(request).open)
    try:
        topic, rows = await run_in_threadpool(_start, cluster, request.path_params["name"], view, limit)
    except BaseException:
        cluster.close()
        raise
    chosen = _chosen(rows, wanted, limit)
    write = _csv_lines if is_csv else _json_lines
    name = f"{topic.name}.{'csv' if is_csv else 'jsonl'}"
    return StreamingResponse(
        _written(cluster, topic.name, chosen, write, registry_of(request), header=_csv_header() if is_csv else b""),
        media_type="text/csv; charset=utf-8" if is_csv else "application/x-ndjson",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _one_of(request: Request, name: str, values: Sequence[str]) -> str:
    """A parameter that has one of these values; the first one is the default. Raises BadRequest."""
    given = request.query_params.get(name) or values[0]
    if given not in values:
        raise BadRequest(f"{name}={given} is unknown; use one of {', '.join(values)}")
    return given


def _start(cluster: Cluster, name: str, view: View, limit: int | None) -> tuple[Topic, Iterator[list[Row]]]:
    """The topic, and its records in parts: the newest ones, or each partition from its start to its present end.

    The first part is read at once, so that what prevents reading becomes an error and not a response that breaks off.
    """
    topic = load_topic(cluster, name)
    partitions = partitions_of(topic, view.partition)
    if view.is_backwards and (limit is not None or view.cursor):
        parts = _newest_first(cluster, topic, partitions, view, view.limit if limit is None else limit)
    else:
        start = {} if view.is_backwards else start_offsets(cluster, topic, partitions, view)
        parts = _forward(cluster, topic, partitions, start, view)
    return topic, chain([next(parts, [])], parts)


def _newest_first(
    cluster: Cluster, topic: Topic, partitions: Sequence[int], view: View, limit: int
) -> Iterator[list[Row]]:
    """Pages of records, the newest one first, to the first one. The reader stops when it has enough."""
    before: Mapping[int, int] | None = parse_offsets(view.cursor)
    while before is not None:
        size = min(max(1, limit), _PAGE)
        page = newest(cluster, topic, partitions, before, size, committed=view.committed)
        yield page.rows
        before = page.next


def _forward(
    cluster: Cluster, topic: Topic, partitions: Sequence[int], start: Mapping[int, int], view: View
) -> Iterator[list[Row]]:
    for each in partitions:
        if each in topic.bounds:
            known = topic.bounds[each]
            low = max(known.first, start.get(each, known.first))
            yield from scan(cluster, topic, each, low, known.end, committed=view.committed)


def _chosen(parts: Iterator[list[Row]], wanted: Filter | None, limit: int | None) -> Iterator[list[Row]]:
    remaining = limit
    for part in parts:
        readable = [row for row in part if row.problem is None]
        rows = [row for row in readable if wanted is None or wanted.matches(row.partition, row.record)]
        if remaining is not None:
            rows = rows[:remaining]
            remaining -= len(rows)
        yield rows
        if remaining == 0:
            return


async def _written(
    cluster: Cluster,
    topic: str,
    parts: Iterator[list[Row]],
    write: Callable[[str, Sequence[Row], SchemaRegistry | None], bytes],
    registry: SchemaRegistry | None,
    *,
    header: bytes,
) -> AsyncGenerator[bytes, None]:
    """The records as text. A failure breaks the response off, so that a program does not mistake it for the end."""

    def part() -> bytes | None:
        rows = next(parts, None)
        return None if rows is None else write(topic, rows, registry)

    try:
        if header:
            yield header
        while (text := await run_in_threadpool(part)) is not None:
            yield text
    finally:
        cluster.close()


def record_as_json(topic: str, row: Row, registry: SchemaRegistry | None = None) -> dict[str, Any]:
    """A record in the form of `moldau consume --json`; with what a registry's schemas say about its bytes."""
    record = row.record
    kind = "LogAppendTime" if row.batch.timestamp_type == LOG_APPEND_TIME else "CreateTime"
    return {
        "topic": topic,
        "partition": row.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "time": iso(record.timestamp) if record.timestamp >= 0 else None,
        "timestamp_type": kind if record.timestamp >= 0 else None,
        **binary_as_json("key", record.key),
        **binary_as_json("value", record.value),
        "headers": [{"name": name, **binary_as_json("value", value)} for name, value in record.headers],
        **_decoded("key", record.key, registry),
        **_decoded("value", record.value, registry),
    }


def _decoded(part: str, data: Buffer | None, registry: SchemaRegistry | None) -> dict[str, Any]:
    """``value_decoded`` and ``value_schema`` of bytes that have the id of a schema, or ``value_problem``."""
    if registry is None or data is None:
        return {}
    try:
        decoded = registry.decode(bytes(data))
    except FormatError as problem:
        return {f"{part}_problem": str(problem)}
    if decoded is None:
        return {}
    versions = [{"subject": subject, "version": version} for subject, version in decoded.versions]
    schema = {"id": decoded.schema_id, "type": decoded.kind, "versions": versions}
    return {f"{part}_decoded": decoded.value, f"{part}_schema": schema}


def _json_lines(topic: str, rows: Iterable[Row], registry: SchemaRegistry | None) -> bytes:
    return b"".join(json.dumps(record_as_json(topic, row, registry)).encode() + b"\n" for row in rows)


def _csv_header() -> bytes:
    return ",".join(_COLUMNS).encode() + b"\r\n"


def _csv_lines(topic: str, rows: Iterable[Row], registry: SchemaRegistry | None) -> bytes:
    """Bytes that are not UTF-8 are in base64 after ``base64:``; a null is an empty field. What a registry's schemas
    decode is JSON."""
    text = io.StringIO()
    lines = csv.writer(text)
    for row in rows:
        fields = record_as_json(topic, row, registry)
        for part in ("key", "value"):
            if f"{part}_decoded" in fields:
                fields[part] = json.dumps(fields[f"{part}_decoded"], ensure_ascii=False)
            elif f"{part}_base64" in fields:
                fields[part] = f"base64:{fields[f'{part}_base64']}"
        fields["headers"] = json.dumps(fields["headers"]) if fields["headers"] else ""
        lines.writerow([fields[column] for column in _COLUMNS])
    return text.getvalue().encode("utf-8", "replace")


def _live_start(request: Request, view: View) -> dict[int, int]:
    """The offsets at which events begin; those of other partitions begin at their ends. Raises Failure."""
    position = request.headers.get("last-event-id") or request.query_params.get("from", "")
    with brokers_of(request).cluster() as cluster:
        topic = load_topic(cluster, request.path_params["name"])
        partitions = partitions_of(topic, view.partition)
        if position or view.is_backwards:
            return parse_offsets(position)
        start = start_offsets(cluster, topic, partitions, view)
        return {each: start.get(each, topic.bounds[each].first) for each in partitions if each in topic.bounds}


def _live_start_if_possible(request: Request, view: View) -> dict[int, int] | None:
    """`_live_start`; None if the cluster fails, because a browser connects again only after a response with 200.

    Raises BadRequest.
    """
    try:
        return _live_start(request, view)
    except BadRequest:
        raise
    except Failure:
        return None


async def _live(
    request: Request, view: View, wanted: Filter | None, start: Mapping[int, int] | None
) -> AsyncGenerator[bytes, None]:
    """One event per record, with the position after it in the last one of an update; and the number of omitted ones."""
    name = request.path_params["name"]
    if start is None:
        start = await run_in_threadpool(_live_start, request, view)
    async with aclosing(live_updates(request, view, wanted, start)) as updates:
        async for update in updates:
            lines = []
            if update.omitted:
                lines.append(f'event: omitted\ndata: {{"records": {update.omitted}}}\n\n')
            text = await run_in_threadpool(_json_lines, name, update.rows, registry_of(request))
            lines += [f"data: {line}\n\n" for line in text.decode().splitlines()]
            lines.append(f"id: {written_offsets(update.positions)}\n\n")
            yield "".join(lines).encode()


# -- REST v3 --


def _clusters(request: Request) -> Response:
    cluster_id = _cluster_id(request)
    return JSONResponse({"kind": "KafkaClusterList", "data": [{"kind": "KafkaCluster", "cluster_id": cluster_id}]})


def _cluster_id(request: Request) -> str:
    with brokers_of(request).cluster() as cluster:
        return str(cluster.ask(MetadataRequest(topics=[])).cluster_id or "")


async def _produce(request: Request) -> Response:
    """Each JSON object of the body is a record; each has a report, in one response."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(413, f"the body has more than {MAX_FORM_BYTES} bytes")
    return await run_in_threadpool(_produce_all, request, bytes(body))


def _produce_all(request: Request, body: bytes) -> Response:
    name, cluster_id = request.path_params["name"], request.path_params["cluster"]
    actual = _cluster_id(request)
    if cluster_id != actual:
        return _error(404, 404, f"the cluster {cluster_id!r} does not exist; the id of the cluster is {actual!r}")
    try:
        objects = _objects(body.decode("utf-8"))
    except ValueError as error:
        return _error(400, 400, f"the body is not a sequence of JSON objects: {error}")
    if not objects:
        return _error(400, 400, "the body is empty")
    reports: list[dict[str, Any]] = []
    with brokers_of(request).cluster() as cluster:
        try:
            topic = load_topic(cluster, name)
        except NotFound as failure:
            return _error(404, 40403, failure.message)
        reports += [_produce_one(cluster, cluster_id, topic, each) for each in objects]
    if len(reports) == 1:
        code = reports[0]["error_code"]
        return JSONResponse(reports[0], status_code=code if code < 1000 else 500)
    return Response("".join(json.dumps(each) + "\n" for each in reports), media_type="application/json")


def rest_error(status: int, message: str) -> Response:
    """An error in the form of REST v3."""
    return _error(status, status, message)


def _error(status: int, code: int, message: str) -> Response:
    return JSONResponse({"error_code": code, "message": message}, status_code=status)


def _objects(text: str) -> list[Any]:
    """JSON values one after the other, with or without line breaks."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    found, position = [], 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        try:
            value, position = decoder.raw_decode(text, position)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        found.append(value)
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _produce_one(cluster: Cluster, cluster_id: str, topic: Topic, fields: Any) -> dict[str, Any]:
    now = now_ms()
    try:
        record, kinds = _record(fields)
        ((partition, offset),) = send(cluster, topic, [record], now_ms=now)
    except (BadRequest, ValueError) as problem:
        return {"error_code": 422, "message": problem.message if isinstance(problem, Failure) else str(problem)}
    except (Failure, PeerError) as problem:
        return {"error_code": 50002, "message": problem.message if isinstance(problem, Failure) else str(problem)}
    return {
        "error_code": 200,
        "cluster_id": cluster_id,
        "topic_name": topic.name,
        "partition_id": partition,
        "offset": offset,
        "timestamp": iso(now if record.timestamp_ms is None else record.timestamp_ms),
        **{part: {"type": kind, "size": size} for part, (kind, size) in kinds.items()},
    }


def _record(fields: Any) -> tuple[Outgoing, dict[str, tuple[str, int]]]:
    """A record of the body, and the types and sizes of its parts. Raises ValueError."""
    if not isinstance(fields, dict):
        raise ValueError("the record is not a JSON object")
    _check_members("record", fields, ("partition_id", "headers", "key", "value", "timestamp"))
    kinds: dict[str, tuple[str, int]] = {}
    key = _part("key", fields.get("key"), kinds)
    value = _part("value", fields.get("value"), kinds)
    partition = fields.get("partition_id")
    if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool)):
        raise ValueError("partition_id is not a number")
    return Outgoing(key, value, _headers(fields.get("headers")), partition, _timestamp(fields.get("timestamp"))), kinds


def _part(part: str, given: Any, kinds: dict[str, tuple[str, int]]) -> bytes | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError(f'the {part} is not {{"type": ..., "data": ...}}')
    _check_members(part, given, ("type", "data"))
    kind, data = given.get("type", "BINARY"), given.get("data")
    if kind == "BINARY":
        encoded = None if data is None else _from_base64(part, data)
    elif kind == "STRING":
        if data is not None and not isinstance(data, str):
            raise ValueError(f"the data of the {part} is not a string")
        encoded = None if data is None else _as_utf8(f"data of the {part}", data)
    elif kind == "JSON":
        try:
            text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise ValueError(f"the data of the {part} has a number that is too large for JSON") from None
        encoded = _as_utf8(f"data of the {part}", text)
    else:
        raise ValueError(f"the type {kind!r} of the {part} is not one of BINARY, STRING, JSON")
    kinds[part] = (kind, 0 if encoded is None else len(encoded))
    return encoded


def _check_members(what: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises ValueError: a record whose misspelled part is left out would be stored without it."""
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"the {what} has unknown members: {', '.join(unknown)}; it can have {', '.join(known)}")


def _as_utf8(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the {what} has half of a surrogate pair, which is not a character") from None


def _from_base64(what: str, data: Any) -> bytes:
    try:
        if not isinstance(data, str):
            raise ValueError
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise ValueError(f"the {what} is not base64") from None


def _headers(given: Any) -> list[tuple[str, bytes | None]]:
    if given is None:
        return []
    is_list = isinstance(given, list)
    if not is_list or not all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in given):
        raise ValueError('the headers are not a list of {"name": ..., "value": ...}')
    for each in given:
        _as_utf8("name of a header", each["name"])
    return [
        (each["name"], None if each.get("value") is None else _from_base64(f"header {each['name']}", each["value"]))
        for each in given
    ]


def _timestamp(given: Any) -> int | None:
    if given is None:
        return None
    try:
        return int(datetime.fromisoformat(given).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"the timestamp {given!r} is not a time in ISO 8601") from None


ROUTES: Final = [
    Route("/api/topics", _topics),
    Route("/api/topics/{name}/records", _records),
    Route("/v3/clusters", _clusters),
    Route("/v3/clusters/{cluster}/topics/{name}/records", _produce, methods=["POST"]),
]

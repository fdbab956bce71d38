"""The screens of the records of a topic: pages of them, and one record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..cli.cluster import Cluster
from ..protocol.compression import Codec
from ..protocol.records import LOG_APPEND_TIME
from .failures import BadRequest, NotFound
from .fetching import Row, Topic, load_topic
from .record_pages import forward, newest, parse_offsets, single, written_offsets
from .rendering import brokers_of, registry_of, render
from .schema_registry import SchemaRegistry
from .values import FORMATS, show, visible

_DEFAULT_LIMIT: Final = 50
_MAX_LIMIT: Final = 500
_MAX_REMEMBERED: Final = 10_000
_PLACES: Final = ("newest", "beginning", "offset", "time")


@dataclass(frozen=True)
class View:
    """What the address of a page of records says."""

    place: str
    offset: str
    time: str
    partition: int | None
    limit: int
    committed: bool
    form: str
    cursor: str

    @classmethod
    def of(cls, request: Request) -> View:
        """Raises BadRequest. A format that the address names becomes that of the topic."""
        given = request.query_params
        place, form = given.get("at", "newest"), format_of(request)
        if place not in _PLACES:
            raise BadRequest(f"at={place} is unknown; use one of {', '.join(_PLACES)}")
        if form not in FORMATS:
            raise BadRequest(f"format={form} is unknown; use one of {', '.join(FORMATS)}")
        partition = given.get("partition", "")
        return cls(
            place,
            given.get("offset", "").strip(),
            given.get("time", "").strip(),
            natural(partition, "partition") if partition else None,
            min(_MAX_LIMIT, max(1, natural(given.get("limit") or str(_DEFAULT_LIMIT), "limit"))),
            given.get("committed") == "1",
            form,
            given.get("cursor", ""),
        )

    def query(self, **changed: str) -> str:
        """The query of an address like this one."""
        values = {
            "at": self.place if self.place != "newest" else "",
            "offset": self.offset if self.place == "offset" else "",
            "time": self.time if self.place == "time" else "",
            "partition": "" if self.partition is None else str(self.partition),
            "limit": str(self.limit) if self.limit != _DEFAULT_LIMIT else "",
            "committed": "1" if self.committed else "",
            "format": self.form,
            **changed,
        }
        return urlencode({name: value for name, value in values.items() if value})

    @property
    def is_backwards(self) -> bool:
        return self.place == "newest"


def format_of(request: Request) -> str:
    """The format of the address, or else the last one that was chosen for the topic."""
    remembered: dict[str, str] = request.app.state.formats
    topic = request.path_params["name"]
    form = request.query_params.get("format")
    if form is None:
        return remembered.get(topic, "auto")
    if form in FORMATS and len(remembered) < _MAX_REMEMBERED:
        remembered[topic] = form
    return form


def natural(text: str, what: str) -> int:
    """A number that is not negative. Raises BadRequest."""
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise BadRequest(f"the {what} {text!r} is not a number of at least 0")
    return int(text)


def parse_time(text: str) -> int:
    """Milliseconds since 1970, of a number or of ISO 8601 (in the zone of the console). Raises BadRequest."""
    if text.isascii() and text.isdecimal() and len(text) < 17:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise BadRequest(f"the time {text!r} is neither milliseconds since 1970 nor like 2026-01-31T12:00:00") from None


def partitions_of(topic: Topic, partition: int | None) -> list[int]:
    """The partitions of a page. Raises NotFound for one that does not exist."""
    if partition is None:
        return topic.partitions
    if partition not in topic.leaders:
        raise NotFound(f"{topic.name} has no partition {partition}; its partitions are 0 to {len(topic.leaders) - 1}")
    return [partition]


def start_offsets(cluster: Cluster, topic: Topic, partitions: list[int], view: View) -> dict[int, int]:
    """The first offsets of a page that reads forwards."""
    if view.cursor:
        return parse_offsets(view.cursor)
    if view.place == "offset":
        return dict.fromkeys(partitions, natural(view.offset or "0", "offset"))
    if view.place == "time":
        if not view.time:
            raise BadRequest("give the time at which to start")
        found = cluster.positions([topic.metadata], max(0, parse_time(view.time)))
        return {
            each: topic.bounds[each].end if found[topic.name, each].offset < 0 else found[topic.name, each].offset
            for each in partitions
            if each in topic.bounds and (topic.name, each) in found
        }
    return {}


def _messages(request: Request) -> Response:
    view = View.of(request)
    with brokers_of(request).cluster() as cluster:
        topic = load_topic(cluster, request.path_params["name"])
        partitions = partitions_of(topic, view.partition)
        if view.is_backwards:
            before = parse_offsets(view.cursor)
            page = newest(cluster, topic, partitions, before, view.limit, committed=view.committed)
        else:
            start = start_offsets(cluster, topic, partitions, view)
            page = forward(cluster, topic, partitions, start, view.limit, committed=view.committed)
    return render(
        request,
        "messages.html",
        title=topic.name,
        topic=topic,
        view=view,
        rows=[as_row(topic.name, row, view.form, registry_of(request)) for row in page.rows],
        formats=FORMATS,
        total=sum(each.end - each.first for each in topic.bounds.values()),
        next=None if page.next is None else view.query(cursor=written_offsets(page.next)),
        first=view.query() if view.cursor else None,
        export=view.query(cursor=view.cursor, **({"limit": str(view.limit)} if view.is_backwards else {"limit": ""})),
    )


def as_row(topic: str, row: Row, form: str, registry: SchemaRegistry | None) -> dict[str, Any]:
    """A record as a template shows it in a table."""
    record = row.record
    return {
        "topic": topic,
        "partition": row.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": show(record.key, registry=registry),
        "value": show(record.value, form, registry),
        "headers": len(record.headers),
        "transactional": row.batch.is_transactional,
        "problem": row.problem,
        "format": form,
    }


def _record(request: Request) -> Response:
    """One record: a page, with ``fragment=1`` only its details, with ``raw`` its bytes."""
    name = request.path_params["name"]
    partition, offset = request.path_params["partition"], request.path_params["offset"]
    form = format_of(request)
    with brokers_of(request).cluster() as cluster:
        topic = load_topic(cluster, name)
        partitions_of(topic, partition)
        row = single(cluster, topic, partition, offset)
    if row is None:
        known = topic.bounds.get(partition)
        where = "its leader does not respond" if known is None else f"offsets {known.first} to {known.end - 1} exist"
        text = (
            f"{name}-{partition} has no record at offset {offset}: {where}. Compaction and transaction markers leave "
            "gaps between offsets."
        )
        raise HTTPException(404, text)
    raw = request.query_params.get("raw")
    if raw in ("key", "value"):
        return _download(row, raw, f"{name}-{partition}-{offset}-{raw}")
    template = "record_details.html" if request.query_params.get("fragment") == "1" else "record.html"
    record = row.record
    return render(
        request,
        template,
        title=f"{name}-{partition} offset {offset}",
        topic=topic,
        row=as_row(name, row, form if form in FORMATS else "auto", registry_of(request)),
        headers=[(visible(header), show(value)) for header, value in record.headers],
        batch=row.batch,
        codec=Codec(row.batch.codec).name.lower() if row.batch.codec in list(Codec) else str(row.batch.codec),
        timestamp_type="LogAppendTime" if row.batch.timestamp_type == LOG_APPEND_TIME else "CreateTime",
        formats=FORMATS,
        bounds=topic.bounds.get(partition),
    )


def _download(row: Row, part: str, file_name: str) -> Response:
    """Bytes as an attachment, which no browser interprets."""
    data = row.record.key if part == "key" else row.record.value
    headers = {"Content-Disposition": f'attachment; filename="{file_name}.bin"'}
    return Response(bytes(data or b""), media_type="application/octet-stream", headers=headers)


ROUTES: Final = [
    Route("/topics/{name}", _messages),
    Route("/topics/{name}/{partition:int}/{offset:int}", _record),
]

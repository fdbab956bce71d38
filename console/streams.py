"""Server-sent events: the results of a search, and the live end of a topic.

The browser's EventSource connects again by itself, with the identifier of the last event, which is the position. Steps
run in threads; when the page is closed, no further step begins.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ..cli.connection import PeerError
from ..cli.failure import Failure
from .failures import BadRequest
from .fetching import Row, Topic, load_topic
from .filters import Filter, filter_of
from .messages import View, as_row, partitions_of, start_offsets
from .record_pages import parse_offsets, written_offsets
from .rendering import brokers_of, html, registry_of, render
from .search import Search
from .tail import Tail, Update
from .values import FORMATS

# At most ten updates per second, or three when records arrive too fast to read: each costs the browser a layout.
_UPDATE_INTERVAL_S: Final = 0.1
_FAST_UPDATE_INTERVAL_S: Final = 0.33
_KEEP_ALIVE: Final = b": no news\n\n"
_RETRY_MS: Final = 2000


def _search(request: Request) -> Response:
    """The page of a search; its results are `_search_events`."""
    view = View.of(request)
    text, mode = request.query_params.get("text", ""), _mode(request)
    problem = None
    try:
        filter_of(mode, text)
    except Failure as failure:
        problem = failure.message
    with brokers_of(request).cluster() as cluster:
        topic = load_topic(cluster, request.path_params["name"])
    return render(
        request,
        "search.html",
        title=f"Search in {topic.name}",
        topic=topic,
        view=view,
        mode=mode,
        text=text,
        problem=problem,
        formats=FORMATS,
        events=view.query(text=text, mode=mode) if text.strip() and problem is None else None,
    )


def _mode(request: Request) -> str:
    return "where" if request.query_params.get("mode") == "where" else "text"


async def _search_events(request: Request) -> Response:
    view = View.of(request)
    wanted = filter_of(_mode(request), request.query_params.get("text", ""), view.form, registry_of(request))
    if wanted is None:
        raise BadRequest("give the text to search for")
    return stream_with_problems(_search_steps(request, view, wanted))


async def _shown(request: Request, topic: str, rows: Sequence[Row], view: View) -> list[dict[str, Any]]:
    """The records for a template; in a thread, because a registry may be asked for schemas."""
    registry = registry_of(request)
    if registry is None:
        return [as_row(topic, row, view.form, None) for row in rows]
    return await run_in_threadpool(lambda: [as_row(topic, row, view.form, registry) for row in rows])


async def _search_steps(request: Request, view: View, wanted: Filter) -> AsyncGenerator[bytes, None]:
    cluster = await run_in_threadpool(brokers_of(request).open)
    try:

        def begin() -> tuple[Topic, Search]:
            topic = load_topic(cluster, request.path_params["name"])
            partitions = partitions_of(topic, view.partition)
            start = {} if view.is_backwards else start_offsets(cluster, topic, partitions, view)
            search = Search(
                cluster,
                topic,
                wanted,
                partitions,
                start,
                backwards=view.is_backwards,
                committed=view.committed,
                limit=view.limit,
            )
            return topic, search

        topic, search = await run_in_threadpool(begin)
        is_done = False
        while not is_done:
            progress = await run_in_threadpool(search.step)
            is_done = progress.is_done
            shown = await _shown(request, topic.name, progress.rows, view)
            markup = html(request, "record_bodies.html", rows=shown) if shown else ""
            yield _event(
                "step",
                {
                    "html": markup,
                    "scanned": progress.scanned,
                    "total": progress.total,
                    "found": progress.found,
                    "done": is_done,
                },
            )
    finally:
        cluster.close()


def _live(request: Request) -> Response:
    """The page of the live end; its records are `_live_events`."""
    view = View.of(request)
    text, mode = request.query_params.get("text", ""), _mode(request)
    problem = None
    try:
        filter_of(mode, text)
    except Failure as failure:
        problem = failure.message
    with brokers_of(request).cluster() as cluster:
        topic = load_topic(cluster, request.path_params["name"])
    return render(
        request,
        "live.html",
        title=f"Live: {topic.name}",
        topic=topic,
        view=view,
        mode=mode,
        text=text,
        problem=problem,
        formats=FORMATS,
        events=None if problem else view.query(text=text, mode=mode),
    )


async def _live_events(request: Request) -> Response:
    view = View.of(request)
    wanted = filter_of(_mode(request), request.query_params.get("text", ""), view.form, registry_of(request))
    position = request.headers.get("last-event-id") or request.query_params.get("from", "")
    return stream_with_problems(_live_rows(request, view, wanted, parse_offsets(position)))


async def _live_rows(
    request: Request, view: View, wanted: Filter | None, start: Mapping[int, int]
) -> AsyncGenerator[bytes, None]:
    """The events of a page."""
    name = request.path_params["name"]
    is_first = True
    async with aclosing(live_updates(request, view, wanted, start)) as updates:
        async for update in updates:
            if is_first:
                is_first = False
                yield _event("open", {}, written_offsets(update.positions))
            elif not update.rows and not update.omitted:
                yield _KEEP_ALIVE
            else:
                shown = await _shown(request, name, list(reversed(update.rows)), view)
                markup = html(request, "record_bodies.html", rows=shown)
                data = {"html": markup, "shown": len(shown), "omitted": update.omitted}
                yield _event("records", data, written_offsets(update.positions))


async def live_updates(
    request: Request, view: View, wanted: Filter | None, start: Mapping[int, int]
) -> AsyncGenerator[Update, None]:
    """What arrives, ordered by time; the first update only has the positions. Updates may be empty.

    Raises Failure and PeerError.
    """
    tails = await run_in_threadpool(_open_tails, request, view, wanted, start)
    # The queue has one update. So a slow reader slows the tails, which then omit records.
    updates: asyncio.Queue[Update | Failure | PeerError] = asyncio.Queue(maxsize=1)
    tasks = [asyncio.create_task(_follow(tail, updates)) for tail in tails]
    try:
        positions = {partition: offset for tail in tails for partition, offset in tail.positions.items()}
        yield Update([], 0, positions)
        while True:
            found = [await updates.get()]
            while not updates.empty():
                found.append(updates.get_nowait())
            rows: list[Row] = []
            omitted = 0
            for update in found:
                if not isinstance(update, Update):
                    raise update
                rows += update.rows
                omitted += update.omitted
                positions = positions | update.positions
            rows = _by_time(rows)
            yield Update(rows, omitted, positions)
            if rows or omitted:
                await asyncio.sleep(_FAST_UPDATE_INTERVAL_S if omitted else _UPDATE_INTERVAL_S)
    finally:
        for task in tasks:
            task.cancel()


def _by_time(rows: Sequence[Row]) -> list[Row]:
    """Rows ordered by timestamp, but those of a partition stay in their order, whatever their timestamps are."""
    latest: dict[int, int] = {}
    times: list[int] = []
    for row in rows:
        time_ms = max(row.record.timestamp, latest.get(row.partition, row.record.timestamp))
        latest[row.partition] = time_ms
        times.append(time_ms)
    return [rows[index] for index in sorted(range(len(rows)), key=times.__getitem__)]


def _open_tails(request: Request, view: View, wanted: Filter | None, start: Mapping[int, int]) -> list[Tail]:
    """One tail per leader, from these offsets or from the end on. Raises Failure."""
    first = brokers_of(request).open()
    try:
        topic = load_topic(first, request.path_params["name"])
        partitions = [each for each in partitions_of(topic, view.partition) if each in topic.bounds]
        if not partitions:
            raise Failure(f"no partition of {topic.name} has a leader that responds")
        by_leader: dict[int, dict[int, int]] = {}
        for each in partitions:
            known = topic.bounds[each]
            position = start.get(each, known.end)
            inside = position if known.first <= position <= known.end else known.end
            by_leader.setdefault(topic.leaders[each], {})[each] = inside
        tails: list[Tail] = []
        try:
            for offsets in by_leader.values():
                cluster = brokers_of(request).open()
                tails.append(Tail(cluster, topic, offsets, wanted, committed=view.committed))
        except Failure:
            for tail in tails:
                tail.close()
            raise
        return tails
    finally:
        first.close()


async def _follow(tail: Tail, updates: asyncio.Queue[Update | Failure | PeerError]) -> None:
    """Put the updates of a tail into the queue, and the problem that ends them. Closes the tail."""
    step: asyncio.Task[Update] | None = None
    try:
        while True:
            step = asyncio.create_task(run_in_threadpool(tail.next))
            try:
                update: Update | Failure | PeerError = await asyncio.shield(step)
            except (Failure, PeerError) as problem:
                update = problem
            await updates.put(update)
            if not isinstance(update, Update):
                return
    finally:
        # A thread that still waits for the broker has the connection until it returns.
        if step is None or step.done():
            tail.close()
        else:
            step.add_done_callback(lambda ended: _close(tail, ended))


def _close(tail: Tail, ended: asyncio.Task[Update]) -> None:
    tail.close()
    if not ended.cancelled():
        ended.exception()  # has been retrieved; the page is closed, so no reader is left


def stream_with_problems(events: AsyncGenerator[bytes, None]) -> Response:
    """A response with these events; a failure is the last one."""
    return StreamingResponse(
        _with_problems(events), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


async def _with_problems(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The events; a failure becomes the last one. The page connects again after a while, if it should."""
    yield b"retry: %d\n\n" % _RETRY_MS
    async with aclosing(events):
        try:
            async for event in events:
                yield event
        except (Failure, PeerError) as problem:
            yield _event("problem", {"text": problem.message if isinstance(problem, Failure) else str(problem)})


def _event(name: str, data: Mapping[str, Any], identifier: str | None = None) -> bytes:
    """One event. JSON has no line breaks, which would end it."""
    lines = [f"event: {name}"] + ([f"id: {identifier}"] if identifier else []) + [f"data: {json.dumps(data)}"]
    return ("\n".join(lines) + "\n\n").encode()


ROUTES: Final = [
    Route("/topics/{name}/search", _search),
    Route("/topics/{name}/search/events", _search_events),
    Route("/topics/{name}/live", _live),
    Route("/topics/{name}/live/events", _live_events),
]

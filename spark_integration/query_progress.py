"""Waiting for a streaming query without polling: a listener that stores the reports of each query.

Spark reports each committed batch, and the end of a query, from a separate thread. ``recentProgress`` of a query keeps
only the last hundred batches. This listener keeps every report of a run, and each report wakes the waiting threads.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

Condition = Callable[["Progress"], bool]

# The offsets up to which a query has read, by topic and partition; exclusive, as Spark reports them.
EndOffsets = Mapping[str, Mapping[int, int]]


class Progress(list["StreamingQueryProgress"]):
    """The reports of one run of a query, oldest first."""

    @property
    def rows(self) -> int:
        """The number of rows that the query has read since its start."""
        return sum(report.numInputRows for report in self)

    @property
    def end_offsets(self) -> dict[str, dict[int, int]]:
        """The offsets up to which all Kafka sources of the query have read: the next offset of each partition."""
        ends: dict[str, dict[int, int]] = {}
        for source in self[-1].sources if self else ():
            if "Kafka" in source.description and source.endOffset is not None:
                for topic, partitions in json.loads(source.endOffset).items():
                    ends.setdefault(topic, {}).update({int(number): offset for number, offset in partitions.items()})
        return ends

    def has_read_to(self, offsets: EndOffsets) -> bool:
        ends = self.end_offsets
        return all(
            ends.get(topic, {}).get(partition, -1) >= offset
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        )


class QueryProgress(StreamingQueryListener):  # type: ignore[misc]
    """The reports of all queries that were started since the listener was added to the session."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._runs: dict[str, Progress] = {}
        self._ended: set[str] = set()

    # -- called by Spark --

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        with self._changed:
            self._runs.setdefault(str(event.progress.runId), Progress()).append(event.progress)
            self._changed.notify_all()

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()

    # -- called by tests --

    def wait(self, query: StreamingQuery, conditions: Sequence[Condition], timeout_s: float) -> Progress:
        """The reports of this run of ``query`` as soon as they meet all conditions.

        Raises the query's own exception if it failed, and AssertionError if it ended or timed out before that.
        """
        run = str(query.runId)
        with self._changed:

            def reached() -> bool:
                progress = self._runs.setdefault(run, Progress())
                return all(condition(progress) for condition in conditions)

            self._changed.wait_for(lambda: reached() or run in self._ended, timeout_s)
            if reached():
                return Progress(self._runs[run])
            ended = run in self._ended
        failure = query.exception()
        if failure is not None:
            raise failure
        raise AssertionError(f"{self._describe(query)} {'when it ended' if ended else f'after {timeout_s:g} s'}")

    def wait_all_available(self, query: StreamingQuery, timeout_s: float) -> Progress:
        """The same, when all existing records have been read or the query has ended."""
        failures: list[BaseException] = []

        def process() -> None:
            try:
                query.processAllAvailable()
            except BaseException as error:  # noqa: BLE001 - an exception of this thread is raised below
                failures.append(error)

        thread = threading.Thread(target=process, name="process-all-available", daemon=True)
        thread.start()
        thread.join(timeout_s)
        if thread.is_alive():
            raise AssertionError(f"{self._describe(query)} after {timeout_s:g} s, but records remain")
        if failures:
            raise query.exception() or failures[0]
        # The report of the last committed batch may not have arrived yet.
        last = query.lastProgress
        return self.wait(
            query, [lambda progress: last is None or any(x.batchId >= last["batchId"] for x in progress)], timeout_s
        )

    def _describe(self, query: StreamingQuery) -> str:
        with self._changed:
            progress = Progress(self._runs.get(str(query.runId), ()))
        name = f"the query {query.name}" if query.name else "the query"
        if not progress:
            return f"{name} had not finished a batch"
        batches = "1 batch" if len(progress) == 1 else f"{len(progress)} batches"
        return f"{name} had read {progress.rows} rows in {batches}, up to {progress.end_offsets},"

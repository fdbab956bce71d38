"""A fetch session (KIP-227) of one topic, as a client keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..protocol.errors import ErrorCode
from ..protocol.messages.fetch import ForgottenTopic, PartitionData
from ..protocol.records import iter_records
from .check import Check, Topic
from .exchange import Connection
from .partitions import batches_of, fetch_request

TOPIC_IDS_SINCE: Final = 13
NEW: Final = 0
"""The epoch that begins a session."""
FINAL: Final = -1
"""The epoch that ends a session."""


class FetchSession:
    """A session, from its first fetch on. `next` is the epoch of its next request."""

    def __init__(
        self,
        c: Check,
        topic: Topic,
        from_offsets: Mapping[int, int],
        version: int,
        connection: Connection | None = None,
    ) -> None:
        self._c = c
        self._topic = topic
        self._version = version
        self.connection = connection or c.wire
        self.session_id = 0
        self.next = NEW
        response = self.ask(from_offsets)
        c.error(response.error_code, ErrorCode.NONE, "error_code of the first fetch")
        c.true(response.session_id > 0, "session_id", expected="a positive number", actual=response.session_id)
        self.first = offsets_of(response)
        self.first_response = response
        self.session_id = response.session_id
        self.next = 1
        # A server has room for a limited number of sessions.
        c.at_end(self.request(epoch=FINAL), version)

    def request(
        self,
        changed: Mapping[int, int] | None = None,
        forget: Sequence[int] = (),
        *,
        epoch: int | None = None,
        session_id: int | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
    ) -> Any:
        """A fetch in this session or another; `changed` are new partitions and new offsets."""
        request = fetch_request(
            self._topic,
            changed or {},
            version=self._version,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            session_id=self.session_id if session_id is None else session_id,
            session_epoch=self.next if epoch is None else epoch,
        )
        if forget:
            forgotten = ForgottenTopic(partitions=list(forget))
            if self._version >= TOPIC_IDS_SINCE:
                forgotten.topic_id = self._topic.topic_id
            else:
                forgotten.topic = self._topic.name
            request.forgotten_topics_data = [forgotten]
        return request

    def ask(self, changed: Mapping[int, int] | None = None, forget: Sequence[int] = (), **options: Any) -> Any:
        """The response to `request`; the session continues with the same epoch."""
        return self._c.call(self.request(changed, forget, **options), self._version, to=self.connection)

    def fetch(self, changed: Mapping[int, int] | None = None, forget: Sequence[int] = ()) -> dict[int, list[int]]:
        """An incremental fetch: the offsets of the partitions in its response."""
        return offsets_of(self.fetch_response(changed, forget))

    def fetch_response(self, changed: Mapping[int, int] | None = None, forget: Sequence[int] = ()) -> Any:
        """An incremental fetch, which must succeed."""
        response = self.ask(changed, forget)
        self._c.error(response.error_code, ErrorCode.NONE, f"error_code of the fetch with epoch {self.next}")
        self._c.equal(response.session_id, self.session_id, f"session_id of the fetch with epoch {self.next}")
        self.next += 1
        return response


def partitions_of(response: Any) -> dict[int, PartitionData]:
    """The partitions of a response about one topic."""
    return {data.partition_index: data for each in response.responses for data in each.partitions}


def offsets_of(response: Any) -> dict[int, list[int]]:
    """The offsets of the records of each partition."""
    return {
        index: [record.offset for found in batches_of(data) for record in iter_records(found)]
        for index, data in partitions_of(response).items()
    }

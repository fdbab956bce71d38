"""The requests that a server has received: what a client really sent.

    broker.requests.clear()
    consumer.poll(1)
    fetch = broker.requests.wait_for(ApiKey.FETCH, client_id="billing")
    assert fetch.request.max_wait_ms == 500

The server keeps the last 10,000 requests, and the first 16 kB of each. They are decoded when ``request`` is read.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from ..protocol.api import ApiKey, request_class, request_header_version
from ..protocol.codec import decode_at
from ..protocol.errors import MalformedMessage
from ..protocol.messages.headers import RequestHeader
from .server_run import BrokerError


class Recorded:
    """One request."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.number: int = data["number"]
        """Requests are numbered in the order of their arrival."""
        self.seconds: float = data["milliseconds"] / 1000
        """When it arrived, by a clock that begins at an arbitrary time."""
        self.peer: str = data["peer"]
        """The address of the client."""
        self.data = base64.b64decode(data["data"])
        """The frame: header and request, at most 16 kB."""
        self.size: int = data["size"]
        """The number of bytes that were received."""
        self.fault: str | None = data["fault"]
        """The kind of the fault that affected it."""

    @property
    def api_key(self) -> int:
        return int.from_bytes(self.data[:2], "big", signed=True)

    @property
    def version(self) -> int:
        return int.from_bytes(self.data[2:4], "big", signed=True)

    @property
    def api(self) -> ApiKey:
        """Raises ValueError for a number that no API has."""
        return ApiKey(self.api_key)

    @cached_property
    def header(self) -> RequestHeader:
        return decode_at(RequestHeader, self.data, request_header_version(self.api_key, self.version), 0)[0]

    @property
    def client_id(self) -> str | None:
        return self.header.client_id

    @cached_property
    def request(self) -> Any:
        """The decoded request. Raises :class:`~moldau.protocol.errors.MalformedMessage` if the bytes are not valid, and
        if the request was longer than what is kept."""
        _, offset = decode_at(RequestHeader, self.data, request_header_version(self.api_key, self.version), 0)
        return decode_at(request_class(self.api_key), self.data, self.version, offset)[0]

    def __repr__(self) -> str:
        try:
            return f"<{self.number}: {self.api.name} v{self.version} of {self.client_id!r}>"
        except (ValueError, MalformedMessage):
            return f"<{self.number}: {self.data[:20].hex(' ')}>"


class Requests:
    """The requests since the first use of ``broker.requests``, or since :meth:`clear`."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask
        self._since: int = ask(30.0, do="requests", since=None, wait=False)["next"]

    def clear(self) -> None:
        """Forget all requests so far."""
        self._since = self._ask(30.0, do="requests", since=None, wait=False)["next"]

    def all(self) -> list[Recorded]:
        """All requests, oldest first."""
        return self._from(self._since, 30.0, wait=False)[0]

    def of(self, api: ApiKey, *, client_id: str | None = None) -> list[Recorded]:
        """Those of one API, and of one client."""
        return [each for each in self.all() if _is(each, api, client_id)]

    def wait_for(self, api: ApiKey, *, client_id: str | None = None, count: int = 1, timeout: float = 30.0) -> Recorded:
        """Return the ``count``-th request of an API, when it has arrived; the server notifies, there is no polling.

        Raises :class:`BrokerError` after ``timeout`` seconds, with the requests that have arrived.
        """
        deadline = time.monotonic() + timeout
        since, seen, matching = self._since, list[Recorded](), 0
        while True:
            found, since = self._from(since, max(deadline - time.monotonic(), 0.001), wait=True)
            for each in found:
                matching += _is(each, api, client_id)
                if matching == count:
                    return each
            seen += found
            if time.monotonic() >= deadline:
                raise BrokerError(f"{matching} of {count} requests of {api.name} within {timeout:g} s; all: {seen}")

    def _from(self, since: int, timeout_s: float, *, wait: bool) -> tuple[list[Recorded], int]:
        answer = self._ask(timeout_s, do="requests", since=since, wait=wait)
        return [Recorded(each) for each in answer["requests"]], answer["next"]

    def __iter__(self) -> Iterator[Recorded]:
        return iter(self.all())

    def __len__(self) -> int:
        return len(self.all())


def _is(recorded: Recorded, api: ApiKey, client_id: str | None) -> bool:
    return recorded.api_key == api and (client_id is None or recorded.client_id == client_id)

"""Faults: what a server does to the requests that a test chooses, instead of serving them as usual.

    from moldau.protocol.api import ApiKey
    from moldau.protocol.errors import ErrorCode

    broker.faults.error(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="orders", times=2)
    with broker.faults.delay(ApiKey.FETCH, seconds=2, client_id="billing"):
        ...

Filters choose the requests: ``api`` (None: all), ``versions`` (a pair, lowest and highest), ``client_id``, ``topic``,
``partition`` (with ``topic``), ``group`` (a group or a transactional ID). All that are given must match.

Triggers choose among the matching requests: ``times=2`` affects the first two, ``on_call=3`` the third only, ``skip=2``
all but the first two, ``probability=0.1`` one of ten, always the same ones for the same ``seed``. Without a trigger all
are affected, until the fault is removed.

A fault exists until :meth:`Fault.remove`, the end of its ``with`` block, :meth:`Faults.clear`, or the end of the
server.
A request is affected by the oldest fault that chooses it.

The brokers of a `Cluster` have faults, too. `Cluster.move_leader` really moves the leader of a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal, Self

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode

Ask = Callable[..., Any]


class Fault:
    """One fault, also a context manager that removes it."""

    def __init__(self, ask: Ask, number: int) -> None:
        self._ask = ask
        self._number = number

    @property
    def triggered(self) -> int:
        """How many requests it has affected; 0 after it was removed."""
        return int(self._ask(do="count_fault", fault=self._number))

    def remove(self) -> None:
        """End it. Requests that it already holds, as a blackhole does, are not released."""
        self._ask(do="remove_faults", fault=self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class Faults:
    """The faults of a broker. Filters and triggers are those of the module docstring."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def error(self, api: ApiKey, error: ErrorCode, *, after: bool = False, **choice: Any) -> Fault:
        """Respond with an error in all parts of the response. With ``after`` the request is processed nevertheless,
        as when a response is lost."""
        return self._add("error after" if after else "error", api, choice, error=int(error))

    def delay(self, api: ApiKey | None = None, *, seconds: float, **choice: Any) -> Fault:
        """Process the request, and all later ones of its connection, after a pause."""
        return self._add("delay", api, choice, milliseconds=round(seconds * 1000))

    def disconnect(
        self, api: ApiKey | None = None, *, when: Literal["before", "after", "middle"] = "before", **choice: Any
    ) -> Fault:
        """Close the connection: before the request is processed, after it, or after half of the response."""
        kinds = {"before": "disconnect", "after": "disconnect after", "middle": "disconnect middle"}
        return self._add(kinds[when], api, choice)

    def blackhole(self, api: ApiKey | None = None, **choice: Any) -> Fault:
        """Never respond. Later requests of the connection are processed and wait for their responses, too."""
        return self._add("blackhole", api, choice)

    def throttle(self, api: ApiKey | None = None, *, seconds: float, **choice: Any) -> Fault:
        """Set ``throttle_time_ms`` in the response. The server does not wait."""
        return self._add("throttle", api, choice, milliseconds=round(seconds * 1000))

    def corrupt_batch(self, **choice: Any) -> Fault:
        """Change one byte of the last record in responses to Fetch, so that the CRC is wrong."""
        return self._add("corrupt batch", ApiKey.FETCH, choice)

    def cap_versions(self, highest: Mapping[ApiKey, int] | str, **choice: Any) -> Fault:
        """Advertise lower versions in ApiVersions: those of a release of Apache Kafka, ``"2.8"``, ``"3.3"`` or
        ``"3.9"``, or the given ones; -1 removes an API. Requests of higher versions are still served."""
        wanted = highest if isinstance(highest, str) else {str(int(api)): each for api, each in highest.items()}
        return self._add("cap versions", ApiKey.API_VERSIONS, choice, highest=wanted)

    def stale_metadata(self, **choice: Any) -> Fault:
        """Describe the topics, or one ``topic``, in responses to Metadata as they are now, whatever changes later: a
        topic that is created afterwards does not exist, a topic that is re-created has its old ID, and new partitions
        are missing."""
        return self._add("stale metadata", ApiKey.METADATA, choice)

    def move_coordinator(self, group: str, **choice: Any) -> Fault:
        """Respond with NOT_COORDINATOR to the requests for a group or transactional ID, at least to the next one of
        each client (by its client ID), until this client sends FindCoordinator for it. The state of the group is kept,
        as when another broker loads it."""
        return self._add("move coordinator", None, choice, group=group)

    def advertise(self, host: str, port: int, **choice: Any) -> Fault:
        """Name another address for each broker in responses to Metadata, FindCoordinator and DescribeCluster: one that
        does not resolve, or where no broker listens, or a proxy."""
        return self._add("advertise", None, choice, host=host, port=port)

    def tagged_fields(self, api: ApiKey | None = None, **choice: Any) -> Fault:
        """Add a tagged field that no client knows to each struct of the response, as a later version may (KIP-482).
        Responses in versions without tagged fields remain unchanged."""
        return self._add("tagged fields", api, choice)

    def clear(self) -> None:
        """Remove all faults."""
        self._ask(do="remove_faults", fault=None)

    def _add(self, kind: str, api: ApiKey | None, choice: dict[str, Any], **details: Any) -> Fault:
        fault = {"kind": kind, "api": None if api is None else int(api), **details, **choice}
        on_call = fault.pop("on_call", None)
        if on_call is not None:
            if on_call < 1 or "skip" in fault or "times" in fault:
                raise ValueError("on_call counts from 1, and cannot be combined with skip or times")
            fault |= {"skip": on_call - 1, "times": 1}
        return Fault(self._ask, self._ask(do="add_fault", fault=fault))

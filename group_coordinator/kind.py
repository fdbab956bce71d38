"""What the shard has to know about a kind of group: `GroupKind`, one value for each kind.

`GroupKinds` indexes the registered kinds (`registered_kinds.KINDS`). The shard, ListGroups, DeleteGroups, offsets and
expiration work with these two and with the `Group` protocol. They name no kind, so a new kind needs no change in them.

A request that names one group is served by the kind of that group if the kind serves such requests. All other cases
(no such group, a group of a kind that does not serve the request) are decided by the kind whose protocol the request
belongs to: it creates the group, converts it or returns the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Never, Protocol, TypeVar, cast

from ..protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ..coordinator.outcome import Caller, Now, Outcome, Record, Reply
    from ..protocol.schema import Message
    from .group import Group
    from .records import Key
    from .states import GroupStates


class GroupRequest(Protocol):
    """A request that names one group."""

    group_id: str


R = TypeVar("R", bound=GroupRequest)
G = TypeVar("G", bound="Group")
H = TypeVar("H", bound="Group")
G_co = TypeVar("G_co", bound="Group", covariant=True)
D_co = TypeVar("D_co", covariant=True)

Handler = Callable[["GroupStates", "Caller", R, "Now"], "Outcome"]
"""Decides one request. Raises `KafkaError`."""


class Served(NamedTuple):
    """A type of request with its handler; see `serves`."""

    request_type: type[GroupRequest]
    handler: Handler[Never]


def serves(request_type: type[R], handler: Handler[R]) -> Served:
    """Requests of this type go to this handler."""
    return Served(request_type, handler)


class Converted(NamedTuple, Generic[G_co]):
    """A group in place of one of another kind."""

    group: G_co
    """As replay will create it from the records. It is not part of the shard before."""
    records: Sequence[Record] = ()
    """Delete the old group, and create the new one unless that is left to the caller."""
    release: Callable[[], Sequence[Reply]] = lambda: ()
    """Call once the request is accepted: the replies to callers that wait in the old group."""


Convert = Callable[["GroupStates", G, "Now"], Converted["Group"]]


class Conversion(NamedTuple):
    """How groups of one kind become groups of another kind; see `converts`."""

    source: type[Group]
    target: type[Group]
    convert: Convert[Never]


def converts(source: type[G], target: type[H], convert: Callable[[GroupStates, G, Now], Converted[H]]) -> Conversion:
    """When a member of the target's protocol joins a group of the source kind, the group is converted like this.

    ``convert`` raises a `KafkaError` for a group that cannot be converted.
    """
    return Conversion(source, target, convert)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKind(Generic[D_co]):
    """The registration of one kind of group. `D_co` is the type of its description."""

    group_class: type[Group]
    """Its `type` is the name of the kind."""
    keys: Sequence[type[Key]]
    """The keys of its records."""
    replay: Callable[[GroupStates, Record], None]
    """Replays a record with one of the keys."""
    loaded: Callable[[GroupStates, Now], None]
    """Called when the log was replayed to its end: sets the deadlines of all groups of the kind."""
    waiting_callers: Callable[[GroupStates], Sequence[Caller]] = lambda states: ()
    """Called when the shard resigns: removes and returns the callers that wait in groups of the kind."""
    requests: Sequence[Served]
    """The requests of its own protocol."""
    also_serves: Sequence[Served] = ()
    """Requests of other kinds' protocols, for groups of this kind."""
    conversions: Sequence[Conversion] = ()
    """From other kinds to this kind."""
    describe: Callable[[GroupStates, str, int], D_co]
    """Describes the group with this id for a version of the API. An error is part of the description."""


class GroupKinds:
    """The registered kinds, indexed."""

    def __init__(self, *kinds: GroupKind[object]) -> None:
        """Raises ValueError if two kinds claim the same name, record or request."""
        self._kinds = kinds
        self._replay: dict[type[Message], Callable[[GroupStates, Record], None]] = {}
        self.handlers: dict[type[GroupRequest], dict[type[Group | None], Handler[Any]]] = {}
        """By the type of a request and the class of its group; `NoneType` stands for a missing group. Each handler
        takes the type of its request, which `serves` checks."""
        self._conversions: dict[tuple[type[Group], type[Group]], Convert[Never]] = {}
        _check_unique("name", [kind.group_class.type for kind in kinds])
        _check_unique("record", [key for kind in kinds for key in kind.keys])
        _check_unique("request", [request_type for kind in kinds for request_type, _ in kind.requests])
        classes: list[type[Group | None]] = [type(None), *(kind.group_class for kind in kinds)]
        for kind in kinds:
            self._replay.update(dict.fromkeys(kind.keys, kind.replay))
            self._conversions.update({(source, target): convert for source, target, convert in kind.conversions})
            self.handlers.update({served: dict.fromkeys(classes, handler) for served, handler in kind.requests})
        for kind in kinds:
            for served, handler in kind.also_serves:
                self.handlers[served][kind.group_class] = handler

    def __iter__(self) -> Iterator[GroupKind[object]]:
        return iter(self._kinds)

    def replay(self, states: GroupStates, record: Record) -> None:
        """Replay a record of any kind."""
        self._replay[type(record.key)](states, record)

    def convert(self, states: GroupStates, group: Group, target: type[G], now: Now) -> Converted[G]:
        """The group that a member of the target's protocol joins in place of a group of another kind.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, or an error of the conversion.
        """
        found = self._conversions.get((type(group), target))
        if found is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, states.not_found_message(group.group_id, target))
        convert = cast("Callable[[GroupStates, Group, Now], Converted[G]]", found)
        return convert(states, group, now)


def _check_unique(what: str, claimed: Sequence[object]) -> None:
    seen: set[object] = set()
    for one in claimed:
        if one in seen:
            raise ValueError(f"Two kinds of groups have the same {what}: {one!r}.")
        seen.add(one)

"""The declaration of a case.

    @case(
        "produce.acks.invalid",
        "acks other than -1, 0 and 1 are rejected",
        source="Protocol: Produce",
        needs=needs(ApiKey.PRODUCE, 9),
        variants={"2": (2,), "minus-2": (-2,)},
    )
    def invalid_acks(c: Check, acks: int) -> None:
        \"""Sends: Produce with an `acks` that does not exist.

        Expects: INVALID_REQUIRED_ACKS, and base offset -1.

        Why: a producer with a wrong configuration learns it with its first request.
        \"""

One declaration creates a case for each version in `versions`, each entry of `variants` and each name in `clients`;
their names are appended to the ID. The three paragraphs of the docstring are shown by `moldau conformance explain`.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from ..protocol.api import ApiKey, request_class

CLEANED_UP_AFTER_SECONDS: Final = 30.0


class Level(StrEnum):
    """How serious a failure is."""

    MUST = "must"
    """Otherwise a client breaks, or data is wrong."""
    SHOULD = "should"
    """Otherwise a client works, and its user is misled or waits longer."""
    APACHE = "apache"
    """What Apache Kafka does without promising it."""


class Layer(StrEnum):
    """What kind of test a case is."""

    WIRE = "wire"
    """One exchange: formats, versions, rejections."""
    CONTRACT = "contract"
    """Several exchanges: what a client relies on, usually described by a KIP."""
    CRASH = "crash"
    """The server is killed and restarted by the commands of the user."""
    CLUSTER = "cluster"
    """Several brokers: leaders, coordinators, replicas."""
    CLIENTS = "clients"
    """A real client that is installed on this machine uses the server."""


class Need(NamedTuple):
    """A version of an API that the server must advertise."""

    api: ApiKey
    version: int


class Release(NamedTuple):
    """A release of Apache Kafka, such as (3, 9)."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Case(NamedTuple):
    """One case. The fields are the arguments of `case`."""

    id: str
    title: str
    area: str
    layer: Layer
    level: Level
    source: str
    sends: str
    expects: str
    why: str
    needs: tuple[Need, ...]
    features: tuple[tuple[str, int], ...]
    since: Release | None
    until: Release | None
    alters_configs: bool
    exclusive: bool
    seconds: float
    body: Callable[..., None]
    arguments: tuple[Any, ...]
    tested: Need | None = None
    """The entry of `versions` that the case is for."""
    brokers: int = 1
    """How many brokers the cluster must have."""
    client: str | None = None
    """For the layer `clients`: the client that uses the server."""

    def run(self, check: object) -> None:
        self.body(check, *self.arguments)


_ID: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)+")
_PARAGRAPHS: Final = re.compile(r"Sends: (.+)\n\nExpects: (.+)\n\nWhy: (.+)", re.DOTALL)

declared: Final[list[Case]] = []
"""All cases of the modules that have been imported; `catalog` imports all modules and reads it."""


def needs(*pairs: ApiKey | int) -> tuple[Need, ...]:
    """`needs(ApiKey.PRODUCE, 9, ApiKey.FETCH, 12)`: an API and its version, in turn."""
    if len(pairs) % 2:
        raise ValueError("each API needs a version")
    return tuple(Need(ApiKey(pairs[at]), int(pairs[at + 1])) for at in range(0, len(pairs), 2))


def versions_of(api: ApiKey, lowest: int = 0, highest: int | None = None) -> tuple[Need, ...]:
    """The stable versions of an API in Apache Kafka 4.3, from `lowest` to `highest`, both included."""
    stable = request_class(api).STABLE_VERSIONS
    return tuple(Need(api, version) for version in stable if lowest <= version <= (highest or version))


def case(
    identifier: str,
    title: str,
    *,
    source: str,
    layer: Layer = Layer.CONTRACT,
    level: Level = Level.MUST,
    needs: Iterable[Need] = (),
    features: Mapping[str, int] | None = None,
    versions: Iterable[Need] | None = None,
    variants: Mapping[str, tuple[Any, ...]] | None = None,
    clients: Sequence[str] | None = None,
    since: Release | None = None,
    until: Release | None = None,
    alters_configs: bool = False,
    exclusive: bool = False,
    brokers: int | None = None,
    seconds: float = CLEANED_UP_AFTER_SECONDS,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a case; see the module docstring.

    Args:
        identifier: dotted; the first part is the area. Never renamed, because reports are compared by it.
        source: the KIP, or the section of the protocol.
        needs: the versions of APIs without which the case does not apply. `Check.call` uses the highest version by
            default; a case that passes a version names it here.
        features: finalized features and their lowest level.
        versions: one case for each of these, whose version is the body's first argument after the check.
        variants: one case for each of these, with these arguments for the body.
        clients: one case for each of these, whose name is the body's first argument after the check; with `variants`,
            one for each pair. For the layer `clients`, which has no `versions`.
        since: the first release of Apache Kafka that behaves like this; None for all.
        until: the first release that no longer does; None if all later ones do.
        alters_configs: the case changes settings of brokers or groups.
        exclusive: no other case runs at the same time.
        brokers: how many the cluster must have; by default two for the layer `cluster`, otherwise one.
        seconds: its deadline, before it is multiplied by `--patience`.
    """

    def declare(body: Callable[..., None]) -> Callable[..., None]:
        text = _PARAGRAPHS.fullmatch(inspect.cleandoc(body.__doc__ or ""))
        if text is None:
            raise ValueError(f"{identifier}: the docstring must have the paragraphs Sends, Expects and Why")
        sends, expects, why = (" ".join(paragraph.split()) for paragraph in text.groups())
        if (clients is not None) != (layer is Layer.CLIENTS) or (clients is not None and versions is not None):
            raise ValueError(f"{identifier}: clients belong to the layer clients, which has no versions")
        every_version: Iterable[Need | None] = [None] if versions is None else versions
        every_client: Iterable[str | None] = [None] if clients is None else clients
        every_variant = (variants or {"": ()}).items()
        for version, (suffix, arguments), client in itertools.product(every_version, every_variant, every_client):
            name = identifier
            if version is not None:
                name += f".v{version.version}"
            for part in (suffix, client):
                name += f".{part}" if part else ""
            if not _ID.fullmatch(name):
                raise ValueError(f"{name} is not a case ID: lower-case words with hyphens, separated by dots")
            declared.append(
                Case(
                    id=name,
                    title=_title(title, version, client),
                    area=name.partition(".")[0],
                    layer=layer,
                    level=level,
                    source=source,
                    sends=sends,
                    expects=expects,
                    why=why,
                    needs=(*needs, *(() if version is None else (version,))),
                    features=tuple((features or {}).items()),
                    since=since,
                    until=until,
                    alters_configs=alters_configs,
                    exclusive=exclusive,
                    seconds=seconds,
                    body=body,
                    arguments=(
                        *(() if version is None else (version.version,)),
                        *(() if client is None else (client,)),
                        *arguments,
                    ),
                    tested=version,
                    client=client,
                    brokers=brokers or (2 if layer is Layer.CLUSTER else 1),
                )
            )
        return body

    return declare


def _title(title: str, version: Need | None, client: str | None) -> str:
    if client is not None:
        return f"{title} ({client})"
    return title if version is None else f"{title} (version {version.version})"

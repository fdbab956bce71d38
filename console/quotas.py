"""The screen of client quotas: list, set and remove them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..cli.cluster import Cluster
from ..cli.failure import Failure
from ..cli.quotas import all_quotas, alter_quota
from ..security.quotas import CLIENT_ID, IP, KEYS_OF_ADDRESSES, KEYS_OF_CLIENTS, USER, Entity
from .access import Needed, changed, chosen, shown
from .rendering import brokers_of

_ENTITIES: Final = {USER: "user", CLIENT_ID: "client_id", IP: "ip"}
"""The field of the form for each type of an entity."""
_KEYS: Final = (*KEYS_OF_CLIENTS, *KEYS_OF_ADDRESSES)
_UNITS: Final = {
    "producer_byte_rate": "bytes/s",
    "consumer_byte_rate": "bytes/s",
    "request_percentage": "%",
    "controller_mutation_rate": "partitions/s",
    "connection_creation_rate": "connections/s",
}
_DEFAULT: Final = "*"
_NEEDED: Final = Needed("describe-configs", "alter-configs")
_FIELDS: Final = {"key": _KEYS[0], "value": "", "user": "", "client_id": "", "ip": ""}


def _get(request: Request) -> Response:
    return _page(request, {}, None)


def _page(request: Request, fields: Mapping[str, str], problem: str | None) -> Response:
    quotas: list[tuple[Entity, str, float]] = []
    unavailable: str | None = None
    try:
        with brokers_of(request).cluster() as cluster:
            quotas = all_quotas(cluster)
    except Failure as failure:
        unavailable = failure.message
    return shown(
        request,
        "quotas.html",
        problem,
        needed=_NEEDED,
        title="Quotas",
        rows=sorted((_row(*each) for each in quotas), key=lambda row: (row["entity"], row["key"])),
        unavailable=unavailable,
        fields={**_FIELDS, **fields} if problem else _FIELDS,
        keys=_KEYS,
        units=_UNITS,
    )


def _row(entity: Entity, key: str, value: float) -> dict[str, Any]:
    parts = dict(entity)
    return {
        "entity": ", ".join(f"{kind} {_DEFAULT if name is None else name}" for kind, name in sorted(entity)),
        "key": key,
        "value": f"{value:.15g}",
        "unit": _UNITS.get(key, ""),
        "fields": {field: (parts[kind] or _DEFAULT) for kind, field in _ENTITIES.items() if kind in parts},
    }


async def _post(request: Request) -> Response:
    return await changed(request, _change, _page)


def _change(cluster: Cluster, fields: Mapping[str, str]) -> str:
    action = chosen(fields, "action", ("set", "remove"))
    key = chosen(fields, "key", _KEYS)
    entity = _entity(fields)
    if action == "remove":
        alter_quota(cluster, entity, key, None)
        return "removed"
    try:
        value = float(fields.get("value", ""))
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise Failure(f"the value {fields.get('value', '')!r} is not a number above 0")
    alter_quota(cluster, entity, key, value)
    return "set"


def _entity(fields: Mapping[str, str]) -> Entity:
    """Whose quota it is. Raises Failure."""
    named = {kind: fields.get(field, "").strip() for kind, field in _ENTITIES.items()}
    found = tuple(sorted((kind, None if name == _DEFAULT else name) for kind, name in named.items() if name))
    if not found:
        raise Failure("name a user, a client id, or both; or an address for connection_creation_rate")
    return found


ROUTES: Final = [
    Route("/quotas", _get, methods=["GET"]),
    Route("/quotas", _post, methods=["POST"]),
]

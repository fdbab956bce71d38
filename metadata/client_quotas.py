"""AlterClientQuotas and DescribeClientQuotas (KIP-546).

Each entry of a request succeeds or fails separately; all of its operations are applied, or none. An entity occurs once
in a request: later entries are INVALID_REQUEST. To remove a quota that does not exist succeeds without a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    ResponseEntryData,
)
from ..protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    ValueData,
)
from ..protocol.messages.describe_client_quotas import EntityData as DescribedEntity
from ..protocol.messages.describe_client_quotas import EntryData as DescribedEntry
from ..protocol.steps import Steps
from ..security.quotas import CLIENT_ID, IP, KEYS_OF_ADDRESSES, KEYS_OF_CLIENTS, LARGEST, USER, WHOLE_NUMBERS, Entity
from .outcome import Outcome, Versioned, check_record_count
from .records import ClientQuotaRecord, EntityData

if TYPE_CHECKING:
    from .image import MetadataImage

_TYPES: Final = (USER, CLIENT_ID, IP)
_TOLERANCE: Final = 1e-6
# How a component of a filter matches: an exact name, the default, or any name.
_MATCH_EXACT: Final = 0
_MATCH_DEFAULT: Final = 1
_MATCH_SPECIFIED: Final = 2


def alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotasRequest
) -> Steps[Outcome[AlterClientQuotasResponse]]:
    """Decide on an AlterClientQuotasRequest, in steps."""
    results: dict[Entity, ResponseEntryData] = {}
    records: list[Versioned] = []
    for entry in request.entries:
        yield 1
        names = {part.entity_type: part.entity_name for part in entry.entity}  # of a type that occurs twice, the last
        entity = tuple(sorted(names.items(), key=lambda pair: pair[0]))
        problem = "The entity occurs more than once in the request" if entity in results else _problem(entry, names)
        result = results.setdefault(entity, ResponseEntryData(error_message=None, entity=list(entry.entity)))
        if problem is not None:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, problem
            continue
        values = dict(image.client_quotas.get(entity, {}))
        for operation in entry.ops:
            yield 0
            wanted = None if operation.remove else operation.value
            if values.get(operation.key) == wanted:
                continue
            if wanted is None:
                del values[operation.key]
            else:
                values[operation.key] = wanted
            parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            value = 0.0 if wanted is None else wanted
            records.append(
                Versioned(ClientQuotaRecord(entity=parts, key=operation.key, value=value, remove=operation.remove))
            )
    check_record_count(records)
    response = AlterClientQuotasResponse(entries=list(results.values()))
    return Outcome(response, [] if request.validate_only else records)


def _problem(entry: EntryData, names: Mapping[str, str | None]) -> str | None:
    """Why an entry is invalid; None if it is valid."""
    if not names:
        return "The entity is empty"
    for kind, name in names.items():
        if kind not in _TYPES:
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
    if IP in names:
        if len(names) > 1:
            return "An ip entity cannot be combined with user or client-id"
        address = names[IP]
        if address is not None and not _is_address(address):
            return f"{address} is not a valid IP address"
    known = KEYS_OF_ADDRESSES if IP in names else KEYS_OF_CLIENTS
    seen: set[str] = set()
    for operation in entry.ops:
        if operation.key not in known:
            return f"Invalid configuration key {operation.key}"
        if operation.key in seen:
            return f"Duplicate configuration key {operation.key}"
        seen.add(operation.key)
        if operation.remove:
            continue
        value = operation.value
        if not isfinite(value) or value <= 0:
            return f"Quota {operation.key} must be greater than 0"
        if operation.key in WHOLE_NUMBERS and abs(value - round(value)) > _TOLERANCE:
            return f"{operation.key} must be a whole number, not {value}"
        if value > LARGEST.get(operation.key, value):
            return f"{operation.key} must be at most {LARGEST[operation.key]}, not {value}"
    return None


def _is_address(text: str) -> bool:
    from ipaddress import ip_address  # few servers need it

    try:
        ip_address(text)
    except ValueError:
        return False  # names are not resolved: the answer would depend on the node
    return True


def describe_client_quotas(
    image: MetadataImage, request: DescribeClientQuotasRequest
) -> Steps[DescribeClientQuotasResponse]:
    """The quotas that a filter selects, in steps. Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_VERSION."""
    wanted = _filter(request.components)
    entries = []
    for entity, values in image.client_quotas.items():
        yield 1
        if _matches(dict(entity), wanted, strict=request.strict):
            entries.append(
                DescribedEntry(
                    entity=[DescribedEntity(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=value) for key, value in values.items()],
                )
            )
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _filter(components: Sequence[ComponentData]) -> dict[str, ComponentData]:
    """The components by entity type."""
    found: dict[str, ComponentData] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "An entity type is empty.")
        if kind in found:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate entity type {kind}.")
        if component.match_type not in (_MATCH_EXACT, _MATCH_DEFAULT, _MATCH_SPECIFIED):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}.")
        if (component.match is not None) != (component.match_type == _MATCH_EXACT):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "A match must be set for the exact match type, and only for it."
            )
        found[kind] = component
    custom = found.keys() - set(_TYPES)
    if custom:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type {min(custom)} is not supported.")
    if IP in found and len(found) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "An ip entity cannot be combined with user or client-id.")
    return found


def _matches(names: Mapping[str, str | None], wanted: Mapping[str, Any], *, strict: bool) -> bool:
    """Whether the entity has each component; ``strict``: and no others."""
    if strict and names.keys() != wanted.keys():
        return False
    for kind, component in wanted.items():
        if kind not in names:
            return False
        if component.match_type == _MATCH_EXACT and names[kind] != component.match:
            return False
        if component.match_type == _MATCH_DEFAULT and names[kind] is not None:
            return False
    return True

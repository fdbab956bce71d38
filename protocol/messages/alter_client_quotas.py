"""AlterClientQuotas (API key 49): versions 0-1, flexible from 1.

Sets and removes quotas of users, client ids and addresses (KIP-546).
"""

from ..schema import Request, Response, Struct, array, boolean, float64, int16, int32, string


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class OpData(Struct):
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData, "0+")
    ops: list[OpData] = array(OpData, "0+")


class AlterClientQuotasRequest(Request, api_key=49, versions="0-1", flexible="1+", listeners=("broker", "controller")):
    entries: list[EntryData] = array(EntryData, "0+")
    validate_only: bool = boolean("0+")


class ResponseEntryData(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entity: list[EntityData] = array(EntityData, "0+")


class AlterClientQuotasResponse(Response, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+")
    entries: list[ResponseEntryData] = array(ResponseEntryData, "0+")

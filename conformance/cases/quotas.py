"""DescribeClientQuotas and AlterClientQuotas (KIP-546). All quotas are those of users and clients that do not exist."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ...protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check

BOTH = needs(ApiKey.ALTER_CLIENT_QUOTAS, 1, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1)
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
USER, CLIENT, ADDRESS = "user", "client-id", "ip"
PRODUCED, CONSUMED, REQUESTS = "producer_byte_rate", "consumer_byte_rate", "request_percentage"

Entity = tuple[tuple[str, str | None], ...]
"""Types and names; a name of None stands for the default."""
Component = tuple[str, int, str | None]
"""Type, match type and name of a filter."""


def entry(entity: Entity, values: Mapping[str, float | None]) -> EntryData:
    """Values to set, or to remove if they are None."""
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def alter(
    c: Check, *entries: EntryData, version: int | None = None, validate_only: bool = False
) -> list[tuple[Entity, int, str | None]]:
    """Entity, error code and message of each entry of the response, sorted."""
    response = c.call(AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only), version)
    return sorted(
        (
            (
                tuple(sorted((part.entity_type, part.entity_name) for part in each.entity)),
                each.error_code,
                each.error_message,
            )
            for each in response.entries
        ),
        key=str,
    )


def describe(c: Check, *components: Component, strict: bool = False, version: int | None = None) -> Any:
    wanted = [ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components]
    return c.call(DescribeClientQuotasRequest(components=wanted, strict=strict), version)


def quotas(c: Check, *components: Component, strict: bool = False, version: int | None = None) -> Any:
    """The values of each entity that matches the filter."""
    response = describe(c, *components, strict=strict, version=version)
    c.error(response.error_code, ErrorCode.NONE, "DescribeClientQuotas error_code")
    c.true(not response.error_message, "error_message", expected="none", actual=response.error_message)
    found = {
        tuple(sorted((part.entity_type, part.entity_name) for part in each.entity)): {
            value.key: value.value for value in each.values
        }
        for each in response.entries
    }
    c.equal(len(found), len(response.entries), "entries (number of different entities)")
    return found


def entity(*parts: tuple[str, str | None]) -> Entity:
    return tuple(sorted(parts, key=lambda part: part[0]))


@contextlib.contextmanager
def removed(c: Check, *entities: Entity) -> Iterator[None]:
    """At the end, the entities have no quotas."""
    keys = (PRODUCED, CONSUMED, REQUESTS)
    try:
        yield
    finally:
        alter(c, *(entry(each, dict.fromkeys(keys)) for each in entities))


def until_quotas(c: Check, expected: Mapping[Entity, Mapping[str, float]], *components: Component) -> None:
    """Wait for a change: a broker learns of it a moment after the response."""
    c.until(lambda: quotas(c, *components) == expected, f"quotas {expected}")


@case(
    "quotas.describe.exchange",
    "the quotas of a client are described",
    source="KIP-546",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_CLIENT_QUOTAS),
    needs=BOTH,
)
def describe_exchange(c: Check, version: int) -> None:
    """Sends: AlterClientQuotas with two quotas of one client ID and one of another; DescribeClientQuotas of the first.

    Expects: no error, and the two quotas of the first client ID alone.

    Why: an operator checks which quotas a client has before a change.
    """
    first, second = entity((CLIENT, c.name("client"))), entity((CLIENT, c.name("client")))
    with removed(c, first, second):
        altered = alter(c, entry(first, {PRODUCED: 1_000_000.0, REQUESTS: 50.0}), entry(second, {CONSUMED: 7.0}))
        c.equal([each[1] for each in altered], [0, 0], "AlterClientQuotas error codes")
        c.until(
            lambda: (
                quotas(c, (CLIENT, EXACT, first[0][1]), version=version)
                == {first: {PRODUCED: 1_000_000.0, REQUESTS: 50.0}}
            ),
            "the quotas of the first client ID",
        )


@case(
    "quotas.describe.none",
    "a user without quotas is not described",
    source="KIP-546",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_CLIENT_QUOTAS),
    variants={"strict": (True,), "not-strict": (False,)},
)
def describe_none(c: Check, version: int, strict: bool) -> None:
    """Sends: DescribeClientQuotas of a user that does not exist.

    Expects: no error, no message, and an empty list, which is not null.

    Why: tools request the quotas of a user, who usually has none.
    """
    user = c.name("user")
    c.equal(quotas(c, (USER, EXACT, user), strict=strict, version=version), {}, "entries")


@case(
    "quotas.describe.invalid",
    "filters that contradict themselves are rejected",
    source="KIP-546",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_CLIENT_QUOTAS),
    variants={
        "match-type": (((USER, 3, None),), ErrorCode.INVALID_REQUEST),
        "exact-without-name": (((USER, EXACT, None),), ErrorCode.INVALID_REQUEST),
        "default-with-name": (((USER, DEFAULT, "x"),), ErrorCode.INVALID_REQUEST),
        "specified-with-name": (((USER, SPECIFIED, "x"),), ErrorCode.INVALID_REQUEST),
        "twice-a-type": (((USER, EXACT, "x"), (USER, EXACT, "y")), ErrorCode.INVALID_REQUEST),
        "address-and-user": (((ADDRESS, EXACT, "192.0.2.1"), (USER, EXACT, "x")), ErrorCode.INVALID_REQUEST),
        "no-type": ((("", EXACT, "x"),), ErrorCode.INVALID_REQUEST),
        "unknown-type": ((("no-such-type", EXACT, "x"),), ErrorCode.UNSUPPORTED_VERSION),
    },
)
def describe_invalid(c: Check, version: int, components: tuple[Component, ...], expected: ErrorCode) -> None:
    """Sends: DescribeClientQuotas with an unknown type of entity or of match, or components that exclude each other.

    Expects: INVALID_REQUEST, or UNSUPPORTED_VERSION for an unknown type of entity, with a message; the entries are
    null.

    Why: an empty list would mean that there are no such quotas.
    """
    response = describe(c, *components, version=version)
    c.error(response.error_code, expected)
    c.true(response.error_message, "error_message", expected="a message", actual=response.error_message)
    c.equal(response.entries, None, "entries")


@case(
    "quotas.alter.exchange",
    "quotas are set, described and removed",
    source="KIP-546",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ALTER_CLIENT_QUOTAS),
    needs=needs(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1),
)
def alter_exchange(c: Check, version: int) -> None:
    """Sends: AlterClientQuotas with two quotas of a user and one of a client of this user; then one that changes a
    value and removes another; then one that removes all.

    Expects: each entity in the response, without error; DescribeClientQuotas in the same version has the values at that
    time.

    Why: operators limit users and clients of a cluster while it runs.
    """
    user = entity((USER, c.name("user")))
    client = entity(*user, (CLIENT, c.name("client")))
    of_user: Component = (USER, EXACT, user[0][1])
    with removed(c, user, client):
        found = alter(
            c, entry(user, {PRODUCED: 1_000.0, REQUESTS: 12.5}), entry(client, {CONSUMED: 2.0}), version=version
        )
        c.equal(found, sorted([(user, 0, None), (client, 0, None)], key=str), "entries (entity, error_code, message)")
        until_quotas(c, {user: {PRODUCED: 1_000.0, REQUESTS: 12.5}, client: {CONSUMED: 2.0}}, of_user)
        same = quotas(c, of_user, version=c.version(ApiKey.DESCRIBE_CLIENT_QUOTAS, version))
        c.equal(same, {user: {PRODUCED: 1_000.0, REQUESTS: 12.5}, client: {CONSUMED: 2.0}}, "entries")

        found = alter(c, entry(user, {PRODUCED: 3_000.0, REQUESTS: None}), version=version)
        c.equal(found, [(user, 0, None)], "entries after a change (entity, error_code, message)")
        until_quotas(c, {user: {PRODUCED: 3_000.0}, client: {CONSUMED: 2.0}}, of_user)

        alter(c, entry(user, {PRODUCED: None}), entry(client, {CONSUMED: None}), version=version)
        until_quotas(c, {}, of_user)


@case(
    "quotas.alter.filters",
    "filters select entities by their parts",
    source="KIP-546",
    needs=BOTH,
)
def filters(c: Check) -> None:
    """Sends: AlterClientQuotas for a user, for a client of this user, for all clients of this user, and for the client
    alone; DescribeClientQuotas with different filters.

    Expects: a filter by user matches what has this user; if it is strict, only what has no other part. A filter by user
    and client matches what has both, the match type 1 (default) the entity of all clients of the user, and the match
    type 2 (any) this one and that of its client.

    Why: the limits of a client are found by looking up these combinations; a tool shows which one applies.
    """
    name, client_name = c.name("user"), c.name("client")
    user, client = entity((USER, name)), entity((CLIENT, client_name))
    both, all_clients = entity((USER, name), (CLIENT, client_name)), entity((USER, name), (CLIENT, None))
    values = {user: 1.0, client: 2.0, both: 3.0, all_clients: 4.0}
    of_user: Component = (USER, EXACT, name)
    of_client: Component = (CLIENT, EXACT, client_name)
    with removed(c, *values):
        found = alter(c, *(entry(each, {PRODUCED: value}) for each, value in values.items()))
        c.equal(found, sorted(((each, 0, None) for each in values), key=str), "entries (entity, error_code, message)")
        until_quotas(c, {each: {PRODUCED: values[each]} for each in (user, both, all_clients)}, of_user)
        until_quotas(c, {each: {PRODUCED: values[each]} for each in (client, both)}, of_client)
        for title, components, strict, expected in (
            ("the user, strict", [of_user], True, [user]),
            ("the client, strict", [of_client], True, [client]),
            ("both", [of_user, of_client], False, [both]),
            ("both, strict", [of_client, of_user], True, [both]),
            ("the user and all clients", [of_user, (CLIENT, DEFAULT, None)], False, [all_clients]),
            ("the user and any client", [of_user, (CLIENT, SPECIFIED, None)], False, [both, all_clients]),
        ):
            found = quotas(c, *components, strict=strict)
            c.equal(found, {each: {PRODUCED: values[each]} for each in expected}, f"entries of {title}")
        everything = quotas(c)
        missing = {
            each: {PRODUCED: value} for each, value in values.items() if everything.get(each) != {PRODUCED: value}
        }
        c.equal(missing, {}, "entries that are missing without a filter")


@case(
    "quotas.alter.validate-only",
    "a dry run sets nothing",
    source="KIP-546",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ALTER_CLIENT_QUOTAS),
    needs=needs(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1),
)
def validate_only(c: Check, version: int) -> None:
    """Sends: AlterClientQuotas with `validate_only` for a user, and without it for another.

    Expects: no errors; only the other user has a quota.

    Why: a tool checks a change before its user confirms it.
    """
    dry, real = entity((USER, c.name("dry"))), entity((USER, c.name("real")))
    with removed(c, dry, real):
        found = alter(c, entry(dry, {PRODUCED: 1.0}), version=version, validate_only=True)
        c.equal(found, [(dry, 0, None)], "entries (entity, error_code, message)")
        found = alter(c, entry(real, {PRODUCED: 1.0}), version=version)
        c.equal(found, [(real, 0, None)], "entries (entity, error_code, message)")
        until_quotas(c, {real: {PRODUCED: 1.0}}, (USER, EXACT, real[0][1]))
        c.equal(quotas(c, (USER, EXACT, dry[0][1])), {}, "quotas of the dry run")


@case(
    "quotas.alter.invalid",
    "quotas and entities that do not exist are rejected",
    source="KIP-546",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.ALTER_CLIENT_QUOTAS),
    variants={
        "unknown-quota": (((USER, "x"),), "no_such_quota", 1.0),
        "zero": (((USER, "x"),), PRODUCED, 0.0),
        "negative": (((USER, "x"),), PRODUCED, -1.0),
        "fraction": (((USER, "x"),), PRODUCED, 1.5),
        "quota-of-addresses": (((USER, "x"),), "connection_creation_rate", 1.0),
        "quota-of-users": (((ADDRESS, "192.0.2.1"),), PRODUCED, 1.0),
        "not-an-address": (((ADDRESS, "not an address"),), "connection_creation_rate", 1.0),
        "address-and-user": (((ADDRESS, "192.0.2.1"), (USER, "x")), PRODUCED, 1.0),
        "unknown-type": ((("no-such-type", "x"),), PRODUCED, 1.0),
        "no-name": (((USER, ""),), PRODUCED, 1.0),
        "no-entity": ((), PRODUCED, 1.0),
    },
)
def alter_invalid(c: Check, version: int, parts: Entity, key: str, value: float) -> None:
    """Sends: AlterClientQuotas with `validate_only`: a valid entry, and one with an unknown or impossible quota, value
    or entity.

    Expects: INVALID_REQUEST with a message for the second entry, no error for the first.

    Why: a limit that has no effect endangers the cluster; each entry succeeds or fails independently.
    """
    good, bad = entity((USER, c.name("good"))), entity(*parts)
    found = alter(c, entry(good, {PRODUCED: 1.0}), entry(bad, {key: value}), version=version, validate_only=True)
    codes = {each: error_code for each, error_code, _ in found}
    c.equal(codes, {good: 0, bad: int(ErrorCode.INVALID_REQUEST)}, "entries (entity and error_code)")
    message = {each: text for each, _, text in found}[bad]
    c.true(message, "error_message of the invalid entry", expected="a message", actual=message)


@case(
    "quotas.alter.duplicate",
    "an entity that occurs twice is rejected",
    source="KIP-546",
    layer=Layer.WIRE,
    level=Level.APACHE,
    versions=versions_of(ApiKey.ALTER_CLIENT_QUOTAS),
    needs=needs(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1),
)
def duplicate(c: Check, version: int) -> None:
    """Sends: AlterClientQuotas with two entries for one user, with different values, and an entry for another user.

    Expects: INVALID_REQUEST for the first user, who has no quota, or the first value as in Apache Kafka; the other user
    has a quota.

    Why: the server cannot know which of the two values is meant.
    """
    twice, once = entity((USER, c.name("twice"))), entity((USER, c.name("once")))
    with removed(c, twice, once):
        entries = [entry(twice, {PRODUCED: 1.0}), entry(once, {PRODUCED: 2.0}), entry(twice, {PRODUCED: 3.0})]
        found = {each: error_code for each, error_code, _ in alter(c, *entries, version=version)}
        c.equal(found, {twice: int(ErrorCode.INVALID_REQUEST), once: 0}, "entries (entity and error_code)")
        until_quotas(c, {once: {PRODUCED: 2.0}}, (USER, EXACT, once[0][1]))
        values = quotas(c, (USER, EXACT, twice[0][1])).get(twice, {})
        c.true(values in ({}, {PRODUCED: 1.0}), "quotas of the first user", expected="none, or 1.0", actual=values)


@case(
    "quotas.alter.no-effect",
    "removing a quota that does not exist succeeds",
    source="KIP-546",
    needs=BOTH,
    variants={"unknown-user": ({PRODUCED: None},), "nothing": ({},)},
)
def no_effect(c: Check, values: dict[str, float | None]) -> None:
    """Sends: AlterClientQuotas that removes a quota from a user without quotas, or has no operations.

    Expects: no error; the user has no quotas.

    Why: scripts remove quotas without knowing whether there are any.
    """
    user = entity((USER, c.name("user")))
    c.equal(alter(c, entry(user, values)), [(user, 0, None)], "entries (entity, error_code, message)")
    c.equal(quotas(c, (USER, EXACT, user[0][1])), {}, "quotas of the user")

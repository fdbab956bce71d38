"""Decisions about access: examples, and random entries beside a naive implementation of the rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.acl import AclOperation as Can
from moldau.protocol.acl import AclResource as On
from moldau.security.acls import (
    Acl,
    AclFilter,
    AclIndex,
    AclPattern,
    AclPermission,
    Decision,
    Rule,
    Settings,
)

LITERAL, PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY


def acl(
    name: str = "t",
    operation: Can = Can.READ,
    permission: AclPermission = ALLOW,
    *,
    pattern: AclPattern = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    kind: On = On.TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def allowed(
    acls: list[Acl],
    operation: Can = Can.READ,
    name: str = "t",
    *,
    principal: str = "User:alice",
    host: str = "10.0.0.1",
    options: Settings = Settings(),  # noqa: B008 - immutable
) -> bool:
    return AclIndex(acls, options).decide(principal, host, operation, On.TOPIC, name).allowed


def test_without_entries_everything_is_denied() -> None:
    assert AclIndex([]).decide("User:alice", "h", Can.READ, On.TOPIC, "t") == Decision(False, Rule.DEFAULT_DENY)
    everyone = Settings(allow_if_no_acl=True)
    decision = AclIndex([], everyone).decide("User:alice", "h", Can.READ, On.TOPIC, "t")
    assert decision == Decision(True, Rule.DEFAULT_ALLOW)


def test_super_users_are_not_denied() -> None:
    options = Settings(frozenset({"User:alice"}))
    decision = AclIndex([acl(permission=DENY)], options).decide("User:alice", "h", Can.READ, On.TOPIC, "t")
    assert decision == Decision(True, Rule.SUPER_USER)
    assert not allowed([], principal="user:alice", options=options)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (acl(), True),
        (acl("T"), False),
        (acl("*"), True),
        (acl("t*"), False),
        (acl("", pattern=PREFIXED), True),
        (acl("t", pattern=PREFIXED), True),
        (acl("tt", pattern=PREFIXED), False),
        (acl("*", pattern=PREFIXED), False),
        (acl(principal="User:*"), True),
        (acl(principal="User:bob"), False),
        (acl(principal="*"), False),
        (acl(host="10.0.0.1"), True),
        (acl(host="10.0.0.2"), False),
        (acl(host="10.0.0.0/8"), False),
        (acl(operation=Can.ALL), True),
        (acl(operation=Can.WRITE), False),
        (acl(kind=On.GROUP), False),
        (acl(permission=DENY), False),
    ],
)
def test_an_entry_matches(entry: Acl, expected: bool) -> None:
    assert allowed([entry]) is expected


@pytest.mark.parametrize(
    "deny", [acl(permission=DENY), acl("*", permission=DENY), acl("", permission=DENY, pattern=PREFIXED)]
)
def test_an_entry_that_denies_wins(deny: Acl) -> None:
    assert not allowed([acl(), deny])
    assert not allowed([deny, acl(), acl("*"), acl("t", pattern=PREFIXED)])


@pytest.mark.parametrize("operation", list(Can)[2:])
def test_implied_operations(operation: Can) -> None:
    implies = operation in (Can.READ, Can.WRITE, Can.DELETE, Can.ALTER, Can.DESCRIBE, Can.ALL)
    assert allowed([acl(operation=operation)], Can.DESCRIBE) is implies
    implies_configs = operation in (Can.ALTER_CONFIGS, Can.DESCRIBE_CONFIGS, Can.ALL)
    assert allowed([acl(operation=operation)], Can.DESCRIBE_CONFIGS) is implies_configs


def test_a_denied_operation_implies_nothing() -> None:
    assert allowed([acl(operation=Can.WRITE), acl(permission=DENY)], Can.DESCRIBE)
    assert not allowed([acl(operation=Can.WRITE), acl(operation=Can.ALL, permission=DENY)], Can.DESCRIBE)


def test_any_matching_entry_closes_a_resource_that_was_open() -> None:
    everyone = Settings(allow_if_no_acl=True)
    assert allowed([acl("other")], options=everyone)
    for entry in (acl(principal="User:bob"), acl("*", principal="User:bob"), acl("t", Can.WRITE, host="x")):
        assert not allowed([entry], options=everyone)


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([acl()], True),
        ([acl("*")], True),
        ([acl("*"), acl(permission=DENY)], True),
        ([acl(), acl(permission=DENY)], False),
        ([acl("ab"), acl("a", permission=DENY, pattern=PREFIXED)], False),
        ([acl("ab", pattern=PREFIXED), acl("a", permission=DENY, pattern=PREFIXED)], False),
        ([acl("a", pattern=PREFIXED), acl("ab", permission=DENY, pattern=PREFIXED)], True),
        ([acl("a", pattern=PREFIXED), acl("a", permission=DENY)], True),
        ([acl(), acl("*", permission=DENY)], False),
        ([acl(operation=Can.ALL)], True),
        ([acl(operation=Can.WRITE)], False),
        ([acl(principal="User:bob")], False),
    ],
)
def test_any_resource_of_a_type(acls: list[Acl], expected: bool) -> None:
    assert AclIndex(acls).decide_by_type("User:alice", "h", Can.READ, On.TOPIC) is expected


NAMES = ["", "a", "ab", "abc", "b", "*", "*a"]
PRINCIPALS = ["User:alice", "User:bob", "User:*"]
ENTRIES = st.builds(
    Acl,
    st.sampled_from([On.TOPIC, On.GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(["*", "h1", "h2"]),
    st.sampled_from([Can.ALL, Can.READ, Can.WRITE, Can.DESCRIBE, Can.ALTER, Can.ALTER_CONFIGS, Can.DESCRIBE_CONFIGS]),
    st.sampled_from([ALLOW, DENY]),
)


def naive(acls: list[Acl], options: Settings, principal: str, host: str, operation: Can, kind: On, name: str) -> bool:
    """The rules of the module docstring, one after the other."""
    if principal in options.super_users:
        return True
    matching = [
        each
        for each in acls
        if each.resource_type == kind
        and (name.startswith(each.name) if each.pattern == PREFIXED else each.name in (name, "*"))
    ]
    if not matching:
        return options.allow_if_no_acl
    relevant = [each for each in matching if each.principal in (principal, "User:*") and each.host in (host, "*")]
    implying = {operation, Can.ALL}
    if any(each.permission == DENY and each.operation in implying for each in relevant):
        return False
    if operation is Can.DESCRIBE:
        implying |= {Can.READ, Can.WRITE, Can.DELETE, Can.ALTER}
    if operation is Can.DESCRIBE_CONFIGS:
        implying |= {Can.ALTER_CONFIGS}
    return any(each.permission == ALLOW and each.operation in implying for each in relevant)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(ENTRIES, max_size=12),
    st.builds(Settings, st.sampled_from([frozenset(), frozenset({"User:bob"})]), st.booleans()),
)
def test_decisions_are_those_of_a_naive_implementation(acls: list[Acl], options: Settings) -> None:
    index = AclIndex(acls, options)
    for principal in ("User:alice", "User:bob"):
        for host in ("h1", "h2"):
            for operation in (Can.READ, Can.DESCRIBE, Can.DESCRIBE_CONFIGS):
                for name in NAMES:
                    decision = index.decide(principal, host, operation, On.TOPIC, name)
                    expected = naive(acls, options, principal, host, operation, On.TOPIC, name)
                    assert decision.allowed is expected
                    if isinstance(decision.by, Acl):
                        assert decision.by in acls
                        assert (decision.by.permission == ALLOW) is expected


@pytest.mark.parametrize(
    ("pattern", "name", "selected"),
    [
        (AclPattern.ANY, None, {"a", "*", "ab+", "+"}),
        (AclPattern.ANY, "a", {"a"}),
        (AclPattern.ANY, "ab", {"ab+"}),
        (AclPattern.LITERAL, "ab", set()),
        (AclPattern.PREFIXED, "ab", {"ab+"}),
        (AclPattern.LITERAL, None, {"a", "*"}),
        (AclPattern.PREFIXED, None, {"ab+", "+"}),
        (AclPattern.MATCH, None, {"a", "*", "ab+", "+"}),
        (AclPattern.MATCH, "a", {"a", "*", "+"}),
        (AclPattern.MATCH, "abc", {"*", "ab+", "+"}),
        (AclPattern.MATCH, "*", {"*", "+"}),
    ],
)
def test_filters_of_names(pattern: AclPattern, name: str | None, selected: set[str]) -> None:
    acls = [acl("a"), acl("*"), acl("ab", pattern=PREFIXED), acl("", pattern=PREFIXED)]
    found = [each for each in acls if AclFilter(name=name, pattern=pattern).matches(each)]
    assert {each.name + ("+" if each.pattern == PREFIXED else "") for each in found} == selected


def test_filters_of_the_other_fields() -> None:
    entry = acl(operation=Can.READ, host="h")
    assert AclFilter().matches(entry)
    for matching in (
        AclFilter(resource_type=On.TOPIC),
        AclFilter(principal="User:alice"),
        AclFilter(host="h"),
        AclFilter(operation=Can.READ),
        AclFilter(permission=ALLOW),
    ):
        assert matching.matches(entry)
    for other in (
        AclFilter(resource_type=On.GROUP),
        AclFilter(principal="User:*"),
        AclFilter(host="*"),
        AclFilter(operation=Can.ALL),
        AclFilter(permission=DENY),
    ):
        assert not other.matches(entry)


def test_an_entry_as_text() -> None:
    assert str(acl("a", pattern=PREFIXED, permission=DENY)) == "DENY User:alice READ TOPIC:PREFIXED:a from *"

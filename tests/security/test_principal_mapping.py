"""Rules from distinguished names to principals."""

from __future__ import annotations

import pytest

from moldau.security.principal_mapping import PrincipalMapping, RuleError

ALICE = "CN=alice,OU=people,O=Vltava,C=CZ"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("DEFAULT", ALICE),
        (r"RULE:^CN=(.*?),OU=people.*$/$1/U,DEFAULT", "ALICE"),
        (r"RULE:^CN=(.*?),OU=people.*$/$1/", "alice"),
        (r"RULE:^CN=(.*?),.*$/X-$1-Y/L", "x-alice-y"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/", "alice@people"),
        (r"RULE:CN=alice/never matched: not the whole name/, DEFAULT", ALICE),
        (r"RULE:^UID=(.*)$/$1/, RULE:^CN=(\w+),.*$/second/", "second"),
        (r"RULE:^CN=(a)lice.*$/$12/", "a2"),
        (r"RULE:^CN=.*$/a\$1/", "a$1"),
        (r"RULE:^CN=.*$/a\/b/", "a/b"),
        (r"RULE:^CN=(alice|bob).*$/$1/L , DEFAULT", "alice"),
        ("RULE:.*/x/", "xx"),  # the empty text at the end matches, too
        ("RULE:(?:CN|CN=alice.*)/x/", "x" + ALICE[2:].replace("CN", "x")),
        ("DEFAULT , RULE:(.*)/never/", ALICE),
    ],
)
def test_the_first_rule_that_matches_decides(rules: str, expected: str) -> None:
    assert PrincipalMapping(rules).name_of(ALICE) == expected


@pytest.mark.parametrize("rules", [r"RULE:^UID=(.*)$/$1/", "RULE:alice/alice/"])
def test_a_name_that_no_rule_matches_has_no_principal(rules: str) -> None:
    assert PrincipalMapping(rules).name_of(ALICE) is None


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "RULE:^CN=(.*)$",
        "RULE:^CN=(.*)$/$1",
        "RULE:^CN=(.*)$/$2/",
        "RULE:^CN=(.*)$/$/",
        "RULE:(/x/",
        "RULE:(?=a)b/x/",
        "DEFAULT RULE:(.*)/x/",
        "DEFAULT;DEFAULT",
        "RULE:^CN=(.*)$/$1/Lx,DEFAULT",
        "RULE:^CN=(.*)$/$1/ L",
    ],
)
def test_invalid_rules_are_refused(rules: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuleError) as raised:
        PrincipalMapping(rules)
    assert ": b'" not in str(raised.value)
    assert not capfd.readouterr().err


def test_a_pattern_takes_linear_time() -> None:
    """With backtracking, this would take longer than the age of the universe."""
    assert PrincipalMapping(r"RULE:^(a+)+b$/x/").name_of("a" * 10_000) is None

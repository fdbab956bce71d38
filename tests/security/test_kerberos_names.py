"""Rules from Kerberos principals to names; the cases are those of Apache Kafka's documentation and parser."""

from __future__ import annotations

import pytest

from moldau.security.kerberos_names import KerberosNames, NoNameError
from moldau.security.principal_mapping import RuleError


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        ("DEFAULT", "alice@REALM", "alice"),
        ("DEFAULT", "alice/host@REALM", "alice"),
        ("RULE:[1:$1]", "alice@OTHER", "alice"),
        ("RULE:[1:$1@$0](.*@REALM)s/@.*//", "alice@REALM", "alice"),
        ("RULE:[1:$1@$0](.*@OTHER)s/@.*/-other/|DEFAULT", "alice@OTHER", "alice-other"),
        ("RULE:[1:$1@$0](.*@OTHER)s/@.*/-other/|DEFAULT", "alice@REALM", "alice"),
        ("RULE:[2:$1-$2]", "alice/host@REALM", "alice-host"),
        ("RULE:[2:$2]|RULE:[1:$1]", "alice@REALM", "alice"),
        ("RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g", "App.service@REALM", "service"),
        ("RULE:[1:$1](.*)s/a/b/", "banana@REALM", "bbnana"),
        ("RULE:[1:$1](.*)s/a/b/g", "banana@REALM", "bbnbnb"),
        ("RULE:[1:$1]/L", "Alice@REALM", "alice"),
        ("RULE:[1:$1]/U", "Alice@REALM", "ALICE"),
        ("RULE:[1:$1](.*)s/A/b/g/L", "AXA@REALM", "bxb"),
        ("RULE:[1:$1](al)|DEFAULT", "alice@REALM", "alice"),  # the pattern must match everything
        ("RULE:[1:$1](b.*)|RULE:[1:user-$1]", "alice@OTHER", "user-alice"),
    ],
)
def test_names(rules: str, principal: str, name: str) -> None:
    assert KerberosNames(rules.split("|"), "REALM").name_of(principal) == name


@pytest.mark.parametrize(
    ("rules", "principal", "message"),
    [
        ("DEFAULT", "alice@OTHER", "no rule .* applies to alice@OTHER"),
        ("RULE:[2:$1]", "alice@REALM", "no rule"),
        ("RULE:[1:$1@$0]", "alice@REALM", "results in alice@REALM"),
        ("RULE:[2:$1/$2]|DEFAULT", "alice/host@REALM", "results in alice/host"),
        ("DEFAULT", "alice", "no Kerberos principal"),
        ("DEFAULT", "a/b/c@REALM", "no Kerberos principal"),
        ("DEFAULT", "a\\@b@REALM", "no Kerberos principal"),
    ],
)
def test_principals_without_a_name(rules: str, principal: str, message: str) -> None:
    with pytest.raises(NoNameError, match=message):
        KerberosNames(rules.split("|"), "REALM").name_of(principal)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("default", "neither DEFAULT nor RULE"),
        ("RULE:[x:$1]", "neither DEFAULT nor RULE"),
        ("RULE:[1:$1]s/a/b", "neither DEFAULT nor RULE"),
        ("RULE:[1:$1]/L and more", "neither DEFAULT nor RULE"),
        ("RULE:[1:$2]", r"a parameter above \$1"),
        ("RULE:[1:$1](?=x)", "not a regular expression of RE2"),
        ("RULE:[1:$1](.*)s/[/b/", "not a regular expression of RE2"),
        ("RULE:[1:$1](.*)s/a/$1/", "a group that the pattern does not have"),
    ],
)
def test_invalid_rules(rule: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        KerberosNames([rule], "REALM")

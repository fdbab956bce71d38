"""``sasl.kerberos.principal.to.local.rules``: from a Kerberos principal to the name of a principal of Kafka.

A Kerberos principal is ``primary@REALM`` or ``primary/instance@REALM``. Rules are tried in order, and the first that
applies decides:

- ``DEFAULT``: the primary, if the realm is the default realm.
- ``RULE:[n:format](pattern)s/from/to/g/L`` applies to principals with n components (the realm is not one). ``format``
  contains ``$0`` for the realm, ``$1`` for the primary and ``$2`` for the instance. The rest is optional: the pattern
  must match the whole result; ``s/from/to/`` replaces the first match in it, with ``g`` all; ``/L`` or ``/U`` converts
  it to lower or upper case.

A result with a slash or an at sign is an error, so that no rule maps an administrator to a user by mistake.

Patterns are regular expressions of RE2, as in `principal_mapping`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from .principal_mapping import RuleError
from .regex_replacement import pattern_of, replacement_of

_PRINCIPAL: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(
    r"""RULE:\[(?P<components>\d+):(?P<format>[^\]]*)\]
    (?:\((?P<pattern>[^)]*)\))?
    (?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?
    /?(?P<case>[LU])?""",
    re.VERBOSE,
)
_PARAMETER: Final = re.compile(r"\$(\d+)")


class NoNameError(ValueError):
    """These rules have no name for a Kerberos principal; the message is for the log."""


class _Rule(NamedTuple):
    components: int
    format: str
    matches: Callable[[str], object]
    substitute: Callable[[str], str]
    convert: Callable[[str], str]


class KerberosNames:
    """Parsed rules; see the module docstring."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Raises `RuleError`."""
        self._default_realm = default_realm
        self._rules = tuple(None if rule == "DEFAULT" else _parse(rule) for rule in rules)

    def name_of(self, principal: str) -> str:
        """The name of the principal of Kafka, without its type. Raises `NoNameError`."""
        match = _PRINCIPAL.fullmatch(principal)
        if match is None:
            raise NoNameError(f"{principal} is no Kerberos principal of the form primary/instance@REALM")
        primary, instance, realm = match.groups()
        parts = (realm, primary) if instance is None else (realm, primary, instance)
        for rule in self._rules:
            name = self._default(parts) if rule is None else _apply(rule, parts)
            if name is None:
                continue
            if "/" in name or "@" in name:
                raise NoNameError(f"a rule of sasl.kerberos.principal.to.local.rules results in {name} for {principal}")
            return name if rule is None else rule.convert(name)
        raise NoNameError(f"no rule of sasl.kerberos.principal.to.local.rules applies to {principal}")

    def _default(self, parts: tuple[str, ...]) -> str | None:
        return parts[1] if parts[0] == self._default_realm else None


def _apply(rule: _Rule, parts: tuple[str, ...]) -> str | None:
    if len(parts) - 1 != rule.components:
        return None
    name = _PARAMETER.sub(lambda found: parts[int(found[1])], rule.format)
    return rule.substitute(name) if rule.matches(name) else None


def _parse(text: str) -> _Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise RuleError(f"'{text}' is neither DEFAULT nor RULE:[n:format](pattern)s/from/to/gL")
    components = int(match["components"])
    if any(int(number) > components for number in _PARAMETER.findall(match["format"])):
        raise RuleError(f"'{text}' has a parameter above ${components}, the number of its components")

    def compiled(pattern: str) -> Any:
        try:
            return pattern_of(pattern)
        except ValueError as error:
            raise RuleError(str(error)) from None

    matches: Callable[[str], object] = lambda _: True  # noqa: E731
    if match["pattern"] is not None:
        matches = compiled(match["pattern"]).fullmatch
    substitute: Callable[[str], str] = str
    if match["from"] is not None:
        pattern = compiled(match["from"])
        try:
            replace = replacement_of(match["to"], pattern.groups)
        except ValueError as error:
            raise RuleError(str(error)) from None
        count = 0 if match["all"] else 1
        substitute = lambda name: str(pattern.sub(replace, name, count=count))  # noqa: E731
    convert = {"L": str.lower, "U": str.upper}.get(match["case"] or "", str)
    return _Rule(components, match["format"], matches, substitute, convert)

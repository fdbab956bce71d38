"""``ssl.principal.mapping.rules``: from the distinguished name of a certificate to the name of a principal.

Rules are separated by commas and tried in order; the first whose pattern matches the whole name decides:

- ``DEFAULT``: the name itself.
- ``RULE:pattern/replacement/``, optionally followed by ``L`` or ``U``, which convert the result to lower or upper case.
  A slash within a part is written ``\\/``. ``$1`` in the replacement is the first group of the pattern.

Patterns are regular expressions of RE2, whose time is linear: the names come from clients. RE2 has no lookaround
and no backreferences; a rule with them is an error, and so is a group number that the pattern does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from .regex_replacement import pattern_of, replacement_of

_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)


class RuleError(ValueError):
    """The rules are not valid; the message has the invalid rule."""


class _Rule(NamedTuple):
    matches: Callable[[str], Any]
    """Whether the pattern matches the whole name."""
    replace: Callable[[str], str]
    """The name in which all matches of the pattern are replaced. As in Java, there may be several, although one of them
    can be the whole name: with ``.*``, the empty text at the end is the second one."""
    convert: Callable[[str], str]


class PrincipalMapping:
    """Parsed rules; see the module docstring."""

    def __init__(self, text: str) -> None:
        """Raises `RuleError`."""
        self._rules = tuple(_parse(text))

    def name_of(self, distinguished_name: str) -> str | None:
        """The name of the principal, without its type. None: no rule matches."""
        for rule in self._rules:
            if rule is None:
                return distinguished_name
            if rule.matches(distinguished_name):
                return rule.convert(rule.replace(distinguished_name))
        return None


def _parse(text: str) -> list[_Rule | None]:
    """The rules; None is DEFAULT."""
    rules: list[_Rule | None] = []
    position = 0
    text = text.strip()
    while position < len(text):
        rest = text[position:]
        found = _RULE.match(rest)
        if found is not None:
            rules.append(_rule(*found.groups()))
            position += found.end()
        elif re.match(r"DEFAULT\s*(,|$)", rest):
            rules.append(None)
            position += len("DEFAULT")
        else:
            raise RuleError(
                f"'{rest}' is neither DEFAULT nor RULE:pattern/replacement/, RULE:pattern/replacement/L or U"
            )
        position += len(text[position:]) - len(text[position:].lstrip())
        if position < len(text):
            if text[position] != ",":
                raise RuleError(f"a comma is expected before '{text[position:]}'")
            position += 1
            position += len(text[position:]) - len(text[position:].lstrip())
    return rules


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = pattern_of(pattern.replace("\\/", "/"))
        replace = replacement_of(replacement.replace("\\/", "/"), compiled.groups)
    except ValueError as error:
        raise RuleError(str(error)) from None
    convert = {"L": str.lower, "U": str.upper}.get(case, str)
    return _Rule(compiled.fullmatch, lambda name: str(compiled.sub(replace, name)), convert)

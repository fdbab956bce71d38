"""JAAS configurations, as ``sasl.jaas.config`` contains them: ``module flag key=value ... ;``.

Tokens are separated by whitespace and may be in double or single quotes, in which a backslash escapes the next
character, or is followed by its number in up to three octal digits. ``// ...`` and ``/* ... */`` are comments, also at
the end of a token. The semicolon is required. Errors do not contain the text, because
options are secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
MODULES: Final[Mapping[str, str]] = {
    "PLAIN": PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    "OAUTHBEARER": OAUTHBEARER_MODULE,
    "GSSAPI": KERBEROS_MODULE,
}
"""The login modules by mechanism."""

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | "(?P<double>(?:\\.|[^"\\])*)" | '(?P<single>(?:\\.|[^'\\])*)'
    | (?P<mark>[=;]) | (?P<word>(?:(?!//|/\*)[^\s=;"'])+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class JaasError(ValueError):
    """The text is not a JAAS configuration with the entry of a mechanism; the message has no secrets."""


class JaasEntry(NamedTuple):
    """One entry: a login module with its options."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module}, [hidden])"


def entry_of(mechanism: str, text: str) -> JaasEntry:
    """The entry of a configuration, which must be the only one and have the login module of a mechanism, one of
    `MODULES`. Raises `JaasError`."""
    entries = list(_entries(text))
    if len(entries) != 1:
        raise JaasError(f"it must have one login module, but has {len(entries)}")
    (entry,) = entries
    module = MODULES[mechanism]
    if entry.module != module:
        raise JaasError(f"the login module of {mechanism} must be {module}, but is {entry.module}")
    return entry


def _entries(text: str) -> Iterator[JaasEntry]:
    tokens = list(_tokens(text))
    position = 0

    def take(kind: str, what: str) -> str:
        nonlocal position
        if position >= len(tokens) or tokens[position][0] != kind:
            rule = "values with spaces or one of =;'\" are written in quotation marks"
            raise JaasError(f"{what} is missing after token {position}; {rule}")
        position += 1
        return tokens[position - 1][1]

    while position < len(tokens):
        module = take("text", "the login module")
        if take("text", "the flag (required)").lower() not in _FLAGS:
            raise JaasError(f"the flag after the login module must be one of {', '.join(sorted(_FLAGS))}")
        options: dict[str, str] = {}
        while position < len(tokens) and tokens[position][0] == "text":
            key = take("text", "an option")
            # Errors do not name the option: it may be the rest of a password with a space, without quotation marks.
            take("=", "the value of an option")
            options[key] = take("text", "the value of an option")
        take(";", "the semicolon at the end")
        yield JaasEntry(module, options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError("a quotation mark or a comment is not closed")
        position = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            yield "text", _ESCAPE.sub(_unescaped, quoted)
        elif match["mark"]:
            yield match["mark"], match["mark"]
        elif match["word"]:
            yield "text", match["word"]


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPES.get(escaped, escaped)

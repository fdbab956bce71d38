"""JAAS configurations, as ``sasl.jaas.config`` contains them: ``module flag key=value ... ;``.

Tokens are separated by whitespace and may be in double or single quotes, in which a backslash escapes the next
character, or is followed by its number in up to three octal digits. ``// ...`` and ``/* ... */`` are comments, also at
the end of a token. The semicolon is required. Errors do not contain the text, because
options are secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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

_TEXT: Final = "text"
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})


def _pattern(marks: str) -> re.Pattern[str]:
    """Tokens, and what is between them. ``marks`` are tokens of one character."""
    return re.compile(
        rf"""\s+ | //[^\n]* | /\*.*?\*/
        | "(?P<double>(?:\\.|[^"\\])*)" | '(?P<single>(?:\\.|[^'\\])*)'
        | (?P<mark>[{marks}]) | (?P<word>(?:(?!//|/\*)[^\s"'{marks}])+)""",
        re.VERBOSE | re.DOTALL,
    )


_IN_SETTINGS: Final = _pattern("=;")
_IN_FILES: Final = _pattern("=;{}")
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


def entry_in_file(mechanism: str, text: str, sections: Sequence[str]) -> JaasEntry | None:
    """The entry of a mechanism in Java's file (``java.security.auth.login.config``): in the first of these sections
    that exists, which may have entries of several mechanisms. Raises `JaasError`."""
    parser = _Parser(text, _IN_FILES)
    found: dict[str, list[JaasEntry]] = {}
    while parser.has_more:
        name = parser.take(_TEXT, "the name of a section")
        parser.take("{", "the brace after the name of a section")
        found[name] = []
        while parser.next_kind == _TEXT:
            found[name].append(parser.entry())
        parser.take("}", "the brace at the end of a section")
        parser.take(";", "the semicolon after a section")
    entries: Sequence[JaasEntry] = next((found[name] for name in sections if name in found), ())
    return next((entry for entry in entries if entry.module == MODULES[mechanism]), None)


def _entries(text: str) -> Iterator[JaasEntry]:
    parser = _Parser(text, _IN_SETTINGS)
    while parser.has_more:
        yield parser.entry()


class _Parser:
    """Takes one token after the other. Raises `JaasError`."""

    def __init__(self, text: str, pattern: re.Pattern[str]) -> None:
        self._tokens = list(_tokens(text, pattern))
        self._position = 0

    @property
    def has_more(self) -> bool:
        return self._position < len(self._tokens)

    @property
    def next_kind(self) -> str:
        """That of the next token; empty at the end."""
        return self._tokens[self._position][0] if self.has_more else ""

    def take(self, kind: str, what: str) -> str:
        if self.next_kind != kind:
            rule = "values with spaces or one of =;'\" are written in quotation marks"
            raise JaasError(f"{what} is missing after token {self._position}; {rule}")
        self._position += 1
        return self._tokens[self._position - 1][1]

    def entry(self) -> JaasEntry:
        module = self.take(_TEXT, "the login module")
        if self.take(_TEXT, "the flag (required)").lower() not in _FLAGS:
            raise JaasError(f"the flag after the login module must be one of {', '.join(sorted(_FLAGS))}")
        options: dict[str, str] = {}
        while self.next_kind == _TEXT:
            key = self.take(_TEXT, "an option")
            # Errors do not name the option: it may be the rest of a password with a space, without quotation marks.
            self.take("=", "the value of an option")
            options[key] = self.take(_TEXT, "the value of an option")
        self.take(";", "the semicolon at the end")
        return JaasEntry(module, options)


def _tokens(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """The kind and the text of each token. The kind of a mark is the mark itself."""
    position = 0
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            raise JaasError("a quotation mark or a comment is not closed")
        position = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            yield _TEXT, _ESCAPE.sub(_unescaped, quoted)
        elif match["mark"]:
            yield match["mark"], match["mark"]
        elif match["word"]:
            yield _TEXT, match["word"]


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPES.get(escaped, escaped)

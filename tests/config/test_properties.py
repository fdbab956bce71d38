r"""Java's .properties format, rule by rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.config.definition import ConfigError
from moldau.config.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a : b", {"a": "b"}),
        ("  a=b", {"a": "b"}),
        ("a=b  ", {"a": "b  "}),
        ("a==b", {"a": "=b"}),
        ("a=:b", {"a": ":b"}),
        ("a b=c", {"a": "b=c"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("a=b\nc=d", {"a": "b", "c": "d"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=1\na=2", {"a": "2"}),
        ("# a=b\n! c=d\n   # e=f\n\n \t\f\ng=h", {"g": "h"}),
        ("a=b # not a comment", {"a": "b # not a comment"}),
        ("listeners=PLAINTEXT://:9092,CONTROLLER://:9093", {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}),
        ("a=b\\\n  c", {"a": "bc"}),
        ("a=b,\\\n\t\fc,\\\nd", {"a": "b,c,d"}),
        ("a\\\n  b=c", {"ab": "c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc", {"a": "b\\c"}),
        # A joined line is never a comment, and a comment never joins.
        ("a=b\\\n# c", {"a": "b# c"}),
        ("# a\\\nb=c", {"b": "c"}),
        ("a=b\\\n", {"a": "b"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\:b:c", {"a:b": "c"}),
        ("a=\\t\\n\\r\\f", {"a": "\t\n\r\f"}),
        ("a=\\ b", {"a": " b"}),
        ("a=c:\\\\kafka\\\\logs", {"a": "c:\\kafka\\logs"}),
        ("a=c:\\kafka\\data", {"a": "c:kafkadata"}),
        ("a=\\u0041\\u00e9", {"a": "Aé"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("gr\\u00fc\\u00dfe=x", {"grüße": "x"}),
        ("a=x\x0by\x85z\u2028w", {"a": "x\x0by\x85z\u2028w"}),
    ],
)
def test_lines(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u", "a=\\u12G4", "\\u00=b", "a=\\u+123"])
def test_unicode_escape_without_four_digits_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="four hexadecimal digits"):
        parse_properties(text)


@given(st.text("ab\\u0=: \t\f\n\r#!é"))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        pairs = parse_properties(text)
    except ConfigError:
        return
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in pairs.items())


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8"))))
def test_escaped_text_is_restored(pairs: dict[str, str]) -> None:
    escaped = "\n".join(f"{_escaped(key)}={_escaped(value)}" for key, value in pairs.items())
    assert parse_properties(escaped) == pairs


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))

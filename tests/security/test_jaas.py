"""JAAS configurations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.jaas import PLAIN_MODULE, SCRAM_MODULE, JaasEntry, JaasError, entry_in_file, entry_of


def only_entry(text: str) -> JaasEntry:
    """The entry of PLAIN in a text with ``x.Y`` as its login module."""
    return entry_of("PLAIN", text.replace("x.Y", PLAIN_MODULE))


def test_an_entry_with_options() -> None:
    entry = only_entry(
        f"""{PLAIN_MODULE} required  // the broker's own login
        username="admin" /* and
        its */ password='s"e=c;r\\'et'
        user_alice = "a\\\\b\\"c" user_bob=secret;"""
    )
    assert entry.module == PLAIN_MODULE
    assert entry.options == {
        "username": "admin",
        "password": "s\"e=c;r'et",
        "user_alice": 'a\\b"c',
        "user_bob": "secret",
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (r'"\101\7b\477\a\v\x"', "A\7b\x277\a\vx"),
        ("secret/*of alice*/", "secret"),
        ("secret// of alice\n", "secret"),
        ("a/b", "a/b"),
    ],
)
def test_values_are_read_as_by_apache_kafka(value: str, expected: str) -> None:
    """Compared with its ``JaasConfig``."""
    assert only_entry(f"x.Y required user_a={value};").options == {"user_a": expected}


@pytest.mark.parametrize("flag", ["required", "REQUIRED", "Requisite", "sufficient", "optional"])
def test_flags_in_any_case(flag: str) -> None:
    assert only_entry(f"x.Y {flag};").options == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x.Y",
        "x.Y required",
        "x.Y needed;",
        "x.Y required a;",
        "x.Y required a=;",
        "x.Y required a=b",
        'x.Y required a="SECRET;',
        "x.Y required /* SECRET ;",
        "x.Y required; x.Y required;",
        "= required;",
        "x.Y required user_alice=my SECRET;",
        "x.Y required user_alice=my=SECRET;",
        "x.Y required user_alice=SECRET's;",
    ],
)
def test_invalid_texts_are_refused_without_showing_them(text: str) -> None:
    with pytest.raises(JaasError) as raised:
        only_entry(text)
    assert "SECRET" not in str(raised.value)


def test_the_login_module_must_be_that_of_the_mechanism() -> None:
    with pytest.raises(JaasError, match=f"the login module of PLAIN must be {PLAIN_MODULE}, but is {SCRAM_MODULE}"):
        entry_of("PLAIN", f"{SCRAM_MODULE} required;")


@given(st.dictionaries(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True), st.text(max_size=10)))
def test_any_quoted_value_is_preserved(options: dict[str, str]) -> None:
    written = " ".join(
        '{}="{}"'.format(key, value.replace("\\", "\\\\").replace('"', '\\"')) for key, value in options.items()
    )
    assert only_entry(f"x.Y required {written};").options == options


def test_an_entry_does_not_show_its_secrets() -> None:
    assert "secret" not in repr(only_entry("x.Y required user_a=secret;"))


FILE = f"""
/* of an older release */
KafkaServer {{
    {PLAIN_MODULE} required user_a="of all";  // in clear
    {SCRAM_MODULE} required
        username="a"
        password=b;
}};
public.KafkaServer {{ {PLAIN_MODULE} required user_a=ofpublic; }};
"""


def test_the_first_section_of_a_file_that_exists_decides() -> None:
    def found(mechanism: str, *sections: str) -> object:
        entry = entry_in_file(mechanism, FILE, sections)
        return None if entry is None else dict(entry.options)

    assert found("PLAIN", "public.KafkaServer", "KafkaServer") == {"user_a": "ofpublic"}
    assert found("PLAIN", "other.KafkaServer", "KafkaServer") == {"user_a": "of all"}
    assert found("SCRAM-SHA-256", "KafkaServer") == {"username": "a", "password": "b"}
    assert found("SCRAM-SHA-256", "public.KafkaServer", "KafkaServer") is None
    assert found("GSSAPI", "KafkaServer") is None
    assert found("PLAIN", "KafkaClient") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("KafkaServer x.Y required;", "the brace after the name of a section is missing"),
        ("KafkaServer { x.Y required SECRET };", "the value of an option is missing"),
        ("KafkaServer { x.Y required; ", "the brace at the end of a section is missing"),
        ("KafkaServer { x.Y required; }", "the semicolon after a section is missing"),
    ],
)
def test_invalid_files_are_refused_without_showing_them(text: str, problem: str) -> None:
    with pytest.raises(JaasError, match=problem) as raised:
        entry_in_file("PLAIN", text, ("KafkaServer",))
    assert "SECRET" not in str(raised.value)

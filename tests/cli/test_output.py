"""The output of commands: plain columns in pipes, rich tables on terminals, bytes in JSON."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.output import binary_as_json, binary_from_json, print_table


def test_plain_table_is_aligned_and_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "records", "note"), [("a" * 200, 5, None), ("b", 12345, "x")])
    assert capsys.readouterr().out.splitlines() == [
        "topic" + " " * 195 + "  records  note",
        "a" * 200 + "        5",
        "b" + " " * 199 + "    12345  x",
    ]


def test_empty_table_is_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "records"), [])
    assert capsys.readouterr().out == "topic  records\n"


def test_terminal_shows_a_rich_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    print_table(("topic", "records"), [("[bold]events[/bold]", 5)])
    out = capsys.readouterr().out
    assert "[bold]events[/bold]" in out
    assert "─" in out


@given(st.none() | st.binary() | st.text().map(lambda text: text.encode("utf-8", "ignore")))
def test_bytes_survive_json(data: bytes | None) -> None:
    assert binary_from_json("value", dict(binary_as_json("value", data))) == data


@pytest.mark.parametrize("fields", [{"value": 5}, {"value_base64": "&"}, {"value": ["a"]}])
def test_other_json_is_rejected(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        binary_from_json("value", fields)

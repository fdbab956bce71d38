"""`python -m moldau.protocol`, and the source that tracebacks show."""

from __future__ import annotations

import traceback

import pytest

from moldau.protocol.__main__ import main
from moldau.protocol.api import message_classes
from moldau.protocol.codec import decode
from moldau.protocol.compiler import decoder_source
from moldau.protocol.errors import MalformedMessage
from moldau.protocol.messages.fetch import FetchRequest


def test_prints_both_directions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["FetchRequest", "12"]) == 0
    out = capsys.readouterr().out
    assert "# <moldau FetchRequest v12 decode>\ndef decode(buf, pos):" in out
    assert "# <moldau FetchRequest v12 encode>\ndef encode(message, parts):" in out


def test_prints_one_direction_of_the_latest_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["FetchRequest", "--direction", "encode"]) == 0
    out = capsys.readouterr().out
    assert "<moldau FetchRequest v18 encode>" in out
    assert "decode>" not in out


def test_prints_messages_declared_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["moldau.metadata.records:TopicRecord", "0"]) == 0
    assert "topic_record.name" in capsys.readouterr().out


def test_lists_all_messages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(message_classes())
    assert "FetchRequest                             4-18" in lines


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "give a message name, or use --list"),
        (["FetchReqest"], "unknown message 'FetchReqest'; did you mean FetchRequest"),
        (["FetchRequest", "3"], "FetchRequest has no version 3; it has 4-18"),
        (["FetchRequest", "x"], "invalid int value: 'x'"),
        (["LeaderAndIsrRequest"], "LeaderAndIsrRequest has no supported versions"),
        (["no.such.module:Thing"], "cannot find 'no.such.module:Thing'"),
        (["moldau.protocol.uuid:ZERO_UUID"], "is not a message"),
    ],
)
def test_errors_state_what_to_do(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert reason in capsys.readouterr().err


def test_tracebacks_show_the_generated_line() -> None:
    with pytest.raises(MalformedMessage) as caught:
        decode(FetchRequest, b"\0\0", 12)
    shown = "".join(traceback.format_exception(caught.value))
    assert 'File "<moldau FetchRequest v12 decode>"' in shown
    assert "= read_iiiibiiB(buf, pos)" in shown


def test_adjacent_fields_of_fixed_size_are_read_together() -> None:
    """A partition of Fetch: six numbers and the count of its tags are one read."""
    source = decoder_source(FetchRequest, 12)[0]
    assert source.count("read_iiqiqiB(buf, pos)") == 1

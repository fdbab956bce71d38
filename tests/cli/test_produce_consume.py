"""``moldau produce`` and ``moldau consume``: produced records are consumed unchanged."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import pytest

from moldau.cli.consume import parse_time
from moldau.cli.produce import Progress
from moldau.testing import Broker
from moldau.testing.waiting import wait_until

from .conftest import Run

NewTopic = Callable[..., str]

# Every kind of record that the client can send: text, other bytes, nulls, repeated headers, empty values, other
# timestamps.
RECORDS: list[dict[str, Any]] = [
    {"key": None, "value": "plain", "headers": []},
    {"key": "k", "value": "grüße 😀", "headers": []},
    {"key": "k", "value": None, "headers": []},
    {"key": "", "value": "", "headers": []},
    {"key_base64": "/wD+", "value_base64": "AP8KDQ==", "headers": []},
    {"key": None, "value": 'line\nbreaks\r\nand "quotes"\t\\', "headers": []},
    {"key": None, "value": "h", "headers": [{"name": "a", "value": "1"}, {"name": "a", "value": ""}]},
    {"key": None, "value": "h", "headers": [{"name": "ü", "value_base64": "/w=="}]},
    {"key": None, "value": "x" * 100_000, "headers": []},
]


# A number that a float cannot represent, a duplicate name, an escaped character, blanks.
ODD_OBJECT = '{"a":1.10,"a":12345678901234567890.5, "é":"\\u00e9"}'


def json_lines(records: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def content(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in record if name.startswith(("key", "value", "headers"))}


def test_lines_are_consumed_in_order(ask: Run, new_topic: NewTopic) -> None:
    topic = new_topic()
    lines = b"one\ntwo\n\n three \nf\xc3\xbcnf\r\nlast without an end"
    sent = ask("produce", topic, input=lines)
    assert (sent.code, sent.out) == (0, b"")
    assert sent.err == f"6 records sent to {topic}\n"
    got = ask("consume", topic)
    assert got.code == 0, got.err
    assert got.out == lines + b"\n"


def test_nothing_to_send_and_nothing_to_read(ask: Run, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert ask("produce", topic).err == f"0 records sent to {topic}\n"
    assert ask("consume", topic).out == b""


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_kind_of_record_survives_in_every_codec(ask: Run, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    sent = ask("produce", topic, "--json", "--compression", codec, input=json_lines(RECORDS))
    assert sent.code == 0, sent.err
    got = ask("consume", topic, "--json").json_lines()
    assert [content(record) for record in got] == RECORDS
    assert [record["offset"] for record in got] == list(range(len(RECORDS)))
    assert {record["timestamp_type"] for record in got} == {"CreateTime"}


def test_output_of_consume_can_be_produced(ask: Run, new_topic: NewTopic) -> None:
    first, second = new_topic(3), new_topic(3)
    assert ask("produce", first, "--json", input=json_lines(RECORDS * 3)).code == 0
    printed = ask("consume", first, "--json").out
    assert ask("produce", second, "--json", input=printed).code == 0

    def contents(topic: str) -> list[tuple[int, int, str]]:
        records = ask("consume", topic, "--json").json_lines()
        return sorted((r["partition"], r["timestamp"], json.dumps(content(r))) for r in records)

    assert contents(second) == contents(first)
    assert len(contents(first)) == 3 * len(RECORDS)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ('{"n": 1}', '{"n": 1}'),
        ('[1, [2], "]}"]', '[1, [2], "]}"]'),
        ('  {"a":1.10,"a":12345678901234567890.5, "é":"\\u00e9"}\t', ODD_OBJECT),
        ("{}", "{}"),
        ("[]", "[]"),
        ("[" + "9" * 5000 + "]", "[" + "9" * 5000 + "]"),
    ],
)  # fmt: skip
def test_json_object_or_array_is_sent_as_it_is_written(ask: Run, new_topic: NewTopic, written: str, text: str) -> None:
    topic = new_topic()
    lines = [
        f'{{"key":{written},"value":{written}}}',
        f'{{ "key" : "a, {{}}" ,\r"partition": 0,"value" :{written}, "headers":{{"h":"1"}} }}',
    ]
    sent = ask("produce", topic, "--json", input="\n".join(lines).encode())
    assert sent.code == 0, sent.err
    got = ask("consume", topic, "--json").json_lines()
    assert [(record["key"], record["value"]) for record in got] == [(text, text), ("a, {}", text)]


def test_headers_of_json_may_be_an_object(ask: Run, new_topic: NewTopic) -> None:
    topic = new_topic()
    record = {"value": "v", "headers": {"source": "shell", "empty": ""}}
    assert ask("produce", topic, "--json", "-H", "fixed=1", input=json_lines([record])).code == 0
    (got,) = ask("consume", topic, "--json").json_lines()
    headers = [("source", "shell"), ("empty", ""), ("fixed", "1")]
    assert [(header["name"], header["value"]) for header in got["headers"]] == headers


def test_auto_created_topic_is_reported(run: Run) -> None:
    with Broker(config={"num.partitions": 3}) as broker:
        address = ("--bootstrap-server", broker.bootstrap_servers)
        assert run("produce", "fresh", *address).err == "0 records sent to fresh\n"
        assert run("topics", "list", "--json", *address).json() == []
        first = run("produce", "fresh", *address, input=b"a\nb\n")
        assert first.err.splitlines() == [
            "The topic fresh did not exist; the server created it with 3 partitions.",
            "2 records sent to fresh",
        ]
        assert run("produce", "fresh", *address, input=b"c\n").err == "1 record sent to fresh\n"


def test_records_before_a_line_that_fails_are_counted(ask: Run, new_topic: NewTopic) -> None:
    topic = new_topic()
    failed = ask("produce", topic, "--json", input=b'{"value": "a"}\n{"value": "b"}\nx\n')
    assert failed.code == 1
    assert failed.err.splitlines()[1] == f"2 records sent to {topic}, all acknowledged"
    assert ask("consume", topic).out == b"a\nb\n"


def test_interrupt_reports_sent_records(bootstrap_servers: str, ask: Run, new_topic: NewTopic) -> None:
    topic = new_topic()
    with subprocess.Popen(
        [sys.executable, "-m", "moldau", "produce", topic, "--bootstrap-server", bootstrap_servers],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as producing:
        assert producing.stdin is not None
        producing.stdin.write(b"one\ntwo\n")
        producing.stdin.flush()
        wait_until(lambda: ask("consume", topic).out == b"one\ntwo\n", "both records")
        producing.send_signal(signal.SIGINT)
        assert producing.wait(60) == 130
        assert producing.stderr is not None
        assert producing.stderr.read().decode() == f"moldau: interrupted: 2 records sent to {topic}, all acknowledged\n"


def test_interrupt_ends_the_command_while_the_server_does_not_respond() -> None:
    with Broker() as broker:
        address = ("--bootstrap-server", broker.bootstrap_servers)
        with subprocess.Popen(
            [sys.executable, "-m", "moldau", "produce", "t", *address],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as producing:
            assert producing.stdin is not None
            assert producing.stderr is not None
            producing.stdin.write("one\n")
            producing.stdin.flush()
            assert "the server created it" in producing.stderr.readline()
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                producing.stdin.write("two\n")
                producing.stdin.flush()
                # It is unknown whether the second line is read and the first one acknowledged by now.
                producing.send_signal(signal.SIGINT)
                assert producing.wait(60) == 130
            finally:
                os.kill(broker.pid, signal.SIGCONT)
            output = producing.stderr.read()
        assert re.fullmatch(r"moldau: interrupted: [12] records? sent to t, [^\n]+\n", output), output


def test_interrupt_reports_unacknowledged_records() -> None:
    progress = Progress("t", confirmed=True)
    assert str(progress) == "0 records sent to t"
    progress.sent = 3
    progress.on_acknowledged(None)
    assert str(progress) == ("3 records sent to t, 1 acknowledged; the server may or may not have stored the other 2")
    unconfirmed = Progress("t", confirmed=False)
    unconfirmed.sent = 3
    assert str(unconfirmed) == "3 records sent to t; the server sends no acknowledgments with --acks 0"


def test_partition_and_timestamp_of_json_are_used(ask: Run, new_topic: NewTopic) -> None:
    topic = new_topic(4)
    record = {"value": "v", "partition": 2, "timestamp": 1_700_000_000_123}
    assert ask("produce", topic, "--json", input=json_lines([record])).code == 0
    (got,) = ask("consume", topic, "--json").json_lines()
    assert (got["partition"], got["timestamp"], got["time"]) == (2, 1_700_000_000_123, "2023-11-14T22:13:20.123+00:00")


def test_key_separator_header_and_null(ask: Run, new_topic: NewTopic) -> None:
    topic = new_topic()
    options = ["--key-separator", "=>", "--header", "source=test", "--header", "empty=", "--null", "NULL"]
    assert ask("produce", topic, *options, input=b"a=>b=>c\nNULL=>v\nk=>NULL\n=>\n").code == 0
    got = ask("consume", topic, "--json").json_lines()
    assert [(record["key"], record["value"]) for record in got] == [("a", "b=>c"), (None, "v"), ("k", None), ("", "")]
    headers = [{"name": "source", "value": "test"}, {"name": "empty", "value": ""}]
    assert all(record["headers"] == headers for record in got)
    assert ask("consume", topic, "--key-separator", ":").out == b"a:b=>c\n:v\nk:\n:\n"


def test_file_is_read(ask: Run, new_topic: NewTopic, tmp_path: Path) -> None:
    topic, file = new_topic(), tmp_path / "lines.txt"
    file.write_bytes(b"".join(b"%d\n" % number for number in range(2000)))
    assert ask("produce", topic, str(file)).err == f"2000 records sent to {topic}\n"
    assert ask("consume", topic).out == file.read_bytes()


def test_file_has_a_progress_bar_on_a_terminal(bootstrap_servers: str, new_topic: NewTopic, tmp_path: Path) -> None:
    topic, file = new_topic(), tmp_path / "lines.txt"
    file.write_bytes(b"one\ntwo\n")
    terminal, stderr = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "moldau", "produce", topic, str(file), "--bootstrap-server", bootstrap_servers],
            stderr=stderr,
            env={**os.environ, "TERM": "xterm"},
            timeout=60,
            check=False,
        )
        os.close(stderr)
        shown = os.read(terminal, 100_000).decode()
    finally:
        os.close(terminal)
    assert done.returncode == 0
    assert "lines.txt" in shown
    assert "━" in shown
    assert f"2 records sent to {topic}" in shown


def test_partition_option_sends_all_records_to_it(ask: Run, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    assert ask("produce", topic, "--partition", "1", input=b"a\nb\n").code == 0
    assert ask("consume", topic, "--partition", "1").out == b"a\nb\n"
    assert ask("consume", topic, "-p", "0", "-p", "2").out == b""


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(ask: Run, new_topic: NewTopic, acks: str) -> None:
    topic = new_topic()
    assert ask("produce", topic, "--acks", acks, input=b"x\n").code == 0
    got = b""
    # With acks=0 there is no acknowledgment to wait for.
    while acks == "0" and not got:
        got = ask("consume", topic).out
    assert ask("consume", topic).out == b"x\n"


@pytest.mark.parametrize(
    ("options", "line", "words"),
    [
        (["--key-separator", ":"], b"no separator\n", "line 2: the key separator ':' is missing"),
        (["--null", "NULL"], b"NULL\n", "line 2: key and value are both null"),
        (["--json"], b"{\n", "line 2: not valid JSON: "),
        (["--json"], b"\xff{}\n", "line 2: not valid JSON: "),
        (["--json"], b'{"value": {"n": NaN}}\n', "line 2: not valid JSON: NaN is not valid JSON"),
        (["--json"], b"[]\n", "line 2: not a JSON object"),
        (["--json"], b'{"value": 5}\n', 'line 2: value is not a string, an object or an array; write "5" to send'),
        (["--json"], b'{"value_base64": "&"}\n', "line 2: value_base64 is not valid base64: "),
        (["--json"], b'{"value_base64": 5}\n', "line 2: value_base64 is not a string"),
        (["--json"], b'{"value": "v", "value_base64": "dg=="}\n', "line 2: both value and value_base64 are given"),
        (["--json"], b'{"vaule": "v"}\n', "line 2: unknown field 'vaule'. Did you mean value?"),
        (
            ["--json"],
            b'{"value": "v", "ttl": 5}\n',
            "line 2: unknown field 'ttl'. Known fields: key, key_base64, value, ",
        ),
        (["--json"], b'{"value": "v", "headers": {"h": null}}\n', "line 2: header h is null"),
        (["--json"], b'{"value": "v", "headers": {"h": 5}}\n', 'line 2: header h: value is not a string; write "5"'),
        (["--json"], b'{"value": "v", "headers": "h"}\n', "line 2: write headers as {"),
        (["--json"], b'{"value": "v", "headers": [{"name": "h", "val": "x"}]}\n', "unknown field 'val'. Did you mean"),
        (["--json"], b'{"value": "v", "partition": "1"}\n', "line 2: partition is not an integer"),
        (["--json"], b'{"value": "v", "headers": [{"value": "x"}]}\n', "line 2: write headers as {"),
        (["--json"], b'{"value": "v", "headers": {"h": "1", "h": "2"}}\n', "line 2: duplicate header 'h'"),
        (["--json"], b'{"value": "v", "value": "w"}\n', "line 2: duplicate field 'value'"),
        (
            ["--json"],
            b'{"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
            "nested too deeply",
        ),
        (["--json"], b'{"value": ' + b"9" * 5000 + b"}\n", "line 2: value is not a string, an object or an array"),
        (["--json"], b'{"value": "v", "partition": ' + b"9" * 5000 + b"}\n", "line 2: partition is not an integer"),
        (["--json"], b'{"value": "v", "headers": [{"name": "h", "value": null}]}\n', "header h is null"),
        (["--partition", "9"], b"x\n", "9"),
    ],
)
def test_invalid_line_is_reported_with_its_number(
    ask: Run, new_topic: NewTopic, options: list[str], line: bytes, words: str
) -> None:
    first = b'{"value": "ok"}\n' if "--json" in options else b"a:b\n"
    failed = ask("produce", new_topic(), *options, input=first + line)
    assert failed.code == 1
    problem, *what_was_sent = failed.err.splitlines()
    assert problem.startswith("moldau: ")
    assert words in problem
    assert len(what_was_sent) <= 1


def test_rejected_record_is_reported(ask: Run, new_topic: NewTopic) -> None:
    topic = new_topic(1, "max.message.bytes=1000")
    failed = ask("produce", topic, input=b"x" * 5000 + b"\n")
    assert failed.code == 1
    assert failed.err.startswith(f"moldau: cannot send to {topic}: ")
    assert "TOO_LARGE" in failed.err


@pytest.mark.parametrize("option", [["--json", "--null", "x"], ["--json", "-k", ":"], ["-k", ""], ["-H", "x"]])
def test_invalid_options_are_usage_errors(run: Run, option: list[str]) -> None:
    assert run("produce", "t", *option).code == 2


def test_consumer_starts_at_the_given_position(ask: Run, new_topic: NewTopic) -> None:
    topic = new_topic()
    records = [{"value": str(number), "timestamp": 1_700_000_000_000 + number * 1000} for number in range(10)]
    assert ask("produce", topic, "--json", input=json_lines(records)).code == 0

    def values(*options: str) -> str:
        got = ask("consume", topic, *options)
        assert got.code == 0, got.err
        return "".join(got.lines)

    assert values("--from-beginning") == "0123456789"
    assert values("--offset", "7") == "789"
    assert values("--offset", "10") == ""
    assert values("--offset", "-2") == "89"
    assert values("--offset", "-100") == "0123456789"
    assert values("--timestamp", "1700000004500") == "56789"
    assert values("--timestamp", "2023-11-14T22:13:28+00:00") == "89"
    assert values("--timestamp", "2100-01-01") == ""
    assert values("--max-messages", "3") == "012"
    assert values("--read-committed") == "0123456789"


def test_offset_out_of_range_is_reported(ask: Run, new_topic: NewTopic) -> None:
    refused = ask("consume", new_topic(), "--offset", "5")
    assert refused.code == 1
    assert refused.err == "moldau: offset 5 is out of range: partition 0 has offsets 0 to 0\n"


def test_unknown_topic_and_partition_are_reported_and_not_created(ask: Run, new_topic: NewTopic) -> None:
    refused = ask("consume", "no-such-topic")
    assert refused.code == 1
    assert refused.err.startswith("moldau: topic no-such-topic does not exist; ")
    assert "no-such-topic" not in ask("topics", "list").text
    topic = new_topic(2)
    assert ask("consume", topic, "-p", "5").err == f"moldau: {topic} has no partition 5, only 0, 1\n"


@pytest.mark.parametrize(
    "options", [["--from-beginning", "--offset", "1"], ["--offset", "1", "--timestamp", "5"], ["--timestamp", "noon"]]
)
def test_invalid_start_is_a_usage_error(run: Run, options: list[str]) -> None:
    assert run("consume", "t", *options).code == 2


def test_time_is_milliseconds_or_iso() -> None:
    assert parse_time("1700000000000") == 1_700_000_000_000
    assert parse_time("2023-11-14T22:13:20Z") == 1_700_000_000_000
    assert parse_time("2023-11-14T23:13:20.5+01:00") == 1_700_000_000_500
    assert parse_time("-1") == -1
    for text in ("9" * 5000, "--5", "soon"):
        with pytest.raises(click.BadParameter, match="is neither milliseconds"):
            parse_time(text)


def test_follow_runs_until_interrupted(bootstrap_servers: str, ask: Run, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert ask("produce", topic, input=b"before\n").code == 0
    command = [sys.executable, "-m", "moldau", "consume", topic, "--follow", "--from-beginning"]
    with subprocess.Popen(
        [*command, "--bootstrap-server", bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        # Background jobs of a shell ignore Ctrl-C; so do these tests and all their child processes, then.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as follower:
        assert follower.stdout is not None
        try:
            assert follower.stdout.readline() == b"before\n"
            assert ask("produce", topic, input=b"after\n").code == 0
            assert follower.stdout.readline() == b"after\n"
            follower.send_signal(signal.SIGINT)
            out, err = follower.communicate(timeout=60)
        finally:
            follower.kill()
    assert (follower.returncode, out, err.strip()) == (130, b"", b"")


def test_follow_without_a_start_prints_only_new_records(ask: Run, new_topic: NewTopic, bootstrap_servers: str) -> None:
    topic = new_topic()
    assert ask("produce", topic, input=b"old\n").code == 0
    command = [sys.executable, "-m", "moldau", "consume", topic, "--follow", "--max-messages", "1"]
    with subprocess.Popen(
        [*command, "--bootstrap-server", bootstrap_servers], stdout=subprocess.PIPE, env={**os.environ}
    ) as follower:
        try:
            # There is no signal that the follower has reached the end, so records are sent until it has seen one.
            while follower.poll() is None:
                assert ask("produce", topic, input=b"new\n").code == 0
            assert follower.stdout is not None
            assert follower.stdout.read() == b"new\n"
        finally:
            follower.kill()
    assert follower.returncode == 0
